"""RoBERTa by fairseq: small ones made by fairseq itself, through the whole pipeline, against fairseq's own answers."""

import argparse
import json
import os
import re
import shutil
import sys
import warnings

import numpy as np
import pytest
import small_roberta
import tiny
import torch
from safetensors.torch import load_file

from common.config import CONFIG_DIR, load_yaml
from common.data.archives import unpack_member
from common.data.data import Split, load_split, read_split, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers import FAIRSEQ_ARCHS, is_fairseq, load_teacher
from common.teachers.fairseq.checkpoint import load_checkpoint, read_model
from common.teachers.fairseq.library import load_fairseq
from common.teachers.fairseq.masked_lm import FairseqMaskedLM
from common.teachers.fairseq.sources import byte_pairs, resolve
from common.teachers.fairseq.teacher import HEAD, FairseqTeacher
from common.teachers.fairseq.tokens import RobertaTokens
from common.teachers.finetune import finetune
from common.teachers.masked_lm import load_masked_lm
from common.teachers.settings import FinetuneSettings, defaults_for
from common.training.models import read_config
from compression.analysis.analyze import AnalyzeSettings, analyze
from compression.augmentation.candidates import MaskedCandidates
from compression.augmentation.preprocess import preprocess
from compression.evaluation.evaluate import EvaluateSettings, evaluate
from compression.evaluation.weights import part_of
from compression.experiments.jobs import Job, job_settings
from compression.shrinking.chain import compress

CPU = torch.device("cpu")
TEXT = [text for text, _ in tiny.sentences(240)] + [text for a, b, _ in tiny.pairs(60) for text in (a, b)]


@pytest.fixture(scope="session")
def roberta(tmp_path_factory):
    """Folder of a small RoBERTa as fairseq saves one."""
    return small_roberta.make(tmp_path_factory.mktemp("roberta") / "small", TEXT, updates=40)


@pytest.fixture(scope="session")
def old_roberta(tmp_path_factory, roberta):
    """The same weights as fairseq's official archives hold theirs."""
    return small_roberta.write_old_format(roberta, tmp_path_factory.mktemp("old") / "small")


def settings(workspace, arch, task="sst-2", **given):
    given = {"arch": str(arch), "task": task, "max_epochs": 10, "batch_size": 8, "lr": 0.02, **given}
    given |= {"workspace": workspace, "cpu": True, "loadbar": False, "seed": tiny.SEED}
    return FinetuneSettings(**{**defaults_for(given), **given})


@pytest.fixture(scope="session")
def taught(tmp_path_factory, glue, roberta):
    """Workspace with splits of sst-2 and teacher `small`. To be read, not written."""
    workspace = tmp_path_factory.mktemp("taught") / "workspace"
    preprocess(tiny.prepare_settings(workspace, "sst-2", data_dir=glue))
    finetune(settings(workspace, roberta))
    return workspace


@pytest.fixture
def teacher(taught):
    return load_teacher(Workspace(taught).model("sst-2", "small"), CPU, torch.float32)


def split_of(*texts, seconds=None, labels=None):
    known = np.array(labels if labels is not None else [0] * len(texts))
    return Split(list(texts), seconds, known, np.arange(len(texts)))


def hub(folder, head=None):
    """fairseq's own interface to a model folder of ours or a checkpoint's."""
    from fairseq.models.roberta import RobertaHubInterface

    model = FairseqTeacher(folder, 2, CPU, torch.float32, 128) if head else FairseqMaskedLM(folder, folder, CPU)
    files = {"gpt2_encoder_json": str(folder / "encoder.json"), "gpt2_vocab_bpe": str(folder / "vocab.bpe")}
    bpe = argparse.Namespace(bpe="gpt2", **files)
    task = argparse.Namespace(source_dictionary=model.tokens.dictionary, mask_idx=model.tokens.mask_id)
    return RobertaHubInterface(argparse.Namespace(bpe=bpe), task, model.model).eval()


def test_the_whole_pipeline_on_sst_2_text(taught, tmp_path):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    scored = {"task": "sst-2", "workspace": workspace, "cpu": True, "loadbar": False}
    [row] = evaluate(EvaluateSettings(**scored, model_name="small"))
    assert row["metrics"]["accuracy"] > 0.8
    assert row["stage"] == "teacher"
    preprocess(tiny.prepare_settings(workspace, "sst-2", model_name="small", generate_loss=("processed",)))
    student = {"student_arch": "ffn", "embedding_type": "hash", "teacher": "small", "only_original_data": True}
    [folder] = compress(
        tiny.compress_settings(
            task="sst-2",
            workspace=workspace,
            compression_actions=("distill",),
            **tiny.small(**student, epochs=60, patience=60, encoder_hidden_dim=8, embedding_dim=25),
        )
    )
    assert read_config(folder).teacher == "small"
    [row] = evaluate(EvaluateSettings(**scored, model_name=folder.name))
    assert row["metrics"]["accuracy"] > 0.6
    parts = analyze(AnalyzeSettings(**scored, model_name="small", model_size=True))["model_size"]["parts"]
    assert list(parts) == ["embeddings", "encoder", "head"]


def test_its_masked_lm_augments(taught, roberta, glove, tmp_path):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    given = {"augment": "tinybert", "masked_lm": str(roberta), "glove": glove, "variants": 4}
    preprocess(tiny.prepare_settings(workspace, "sst-2", **given))
    made = read_split(Workspace(workspace).augmented("sst-2", "tinybert"), "")
    sources = load_split(Workspace(workspace), load_task("sst-2"), "train")
    assert len(made) > len(sources)
    by_glove = {line.split()[0] for line in glove.read_text().splitlines()}
    own = {word for text in sources.sentence1 for word in text.split()}
    predicted = {word for text in made.sentence1 for word in text.split()} - own - by_glove
    assert predicted <= {word.lower() for word in load_masked_lm(str(roberta), CPU, tmp_path).words()}
    assert predicted


def test_its_candidates_do_not_depend_on_the_batch(roberta, tmp_path):
    model = load_masked_lm(str(roberta), CPU, tmp_path)
    words = [[match.span() for match in re.finditer(r"\w+", text)] for text in TEXT[:40]]
    together = MaskedCandidates(model, 5).find(TEXT[:40], words)
    assert any(together)
    assert together == MaskedCandidates(model, 5, batch_pieces=1).find(TEXT[:40], words)


def test_the_saved_teacher(taught, roberta):
    folder = Workspace(taught).model("sst-2", "small")
    assert sorted(p.name for p in (folder / "fairseq").iterdir()) == [
        "architecture.json",
        "dict.txt",
        "encoder.json",
        "model.safetensors",
        "vocab.bpe",
    ]
    assert not folder.with_name("small.training").exists()
    tensors = load_file(folder / "fairseq" / "model.safetensors")
    assert not [name for name in tensors if "lm_head" in name or "version" in name]
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in history] == list(range(10))
    assert history[-1]["loss"] < 0.3 < history[0]["loss"]
    assert read_config(folder).settings["weight_decay"] == 0.1


def test_logits_are_those_of_fairseqs_own_interface(taught, teacher):
    split = load_split(Workspace(taught), load_task("sst-2"), "test").take(np.arange(12))
    own = hub(Workspace(taught).model("sst-2", "small") / "fairseq", head=True)
    for text, logits in zip(split.sentence1, teacher.logits(split), strict=True):
        expected = own.predict(HEAD, own.encode(text), return_logits=True)[0]
        np.testing.assert_allclose(logits, expected.detach().numpy(), atol=1e-5)


def test_pairs_are_read_as_fairseq_reads_them(roberta, teacher):
    own = hub(roberta)
    one, two = TEXT[-2:]
    assert teacher.tokens.join(one, two, 128) == own.encode(one, two).tolist()
    cut = teacher.tokens.join(one, two, 9)
    assert cut[:8] == own.encode(one, two).tolist()[:8]
    assert (len(cut), cut[-1]) == (9, 2)


def test_a_sentences_logits_do_not_depend_on_its_batch(teacher):
    split = split_of(*TEXT[:20], "", "x", " ".join(TEXT[:12]))
    together = teacher.logits(split)
    alone = np.concatenate([teacher.logits(split.take(np.array([i]))) for i in range(len(split))])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    heard = []
    teacher.logits(split, heard.append)
    assert sum(heard) == len(split)


def test_states(teacher):
    split = split_of("the film", "the cast of 1990 is truly wonderful !", "")
    states = teacher.states(split)
    longest = int(states.lengths.max())
    assert states.lengths.tolist() == teacher.encode(split).lengths.tolist()
    assert [tuple(layer.shape) for layer in states.hidden] == [(3, longest, 16)] * 2
    assert [tuple(layer.shape) for layer in states.attention] == [(3, 2, longest, longest)]
    for row, length in enumerate(states.lengths.tolist()):
        torch.testing.assert_close(states.attention[0][row].sum(-1), torch.ones(2, longest))
        assert states.attention[0][row, :, :, length:].abs().max() == 0 if length < longest else True
    alone = teacher.states(split.take(np.array([0])))
    length = int(alone.lengths[0])
    torch.testing.assert_close(states.hidden[1][0, :length], alone.hidden[1][0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states.attention[0][0, :, :length, :length], alone.attention[0][0], atol=1e-5, rtol=0)


def test_both_checkpoint_formats_hold_the_same_model(roberta, old_roberta):
    new, old = read_model(roberta / "model.pt"), read_model(old_roberta / "model.pt")
    assert old[0] == new[0]
    assert old[1].keys() == new[1].keys()
    assert "decoder.lm_head.bias" in load_checkpoint(old_roberta / "model.pt")["model"]
    ids = FairseqMaskedLM(roberta, roberta, CPU).encode([TEXT[0]])[0].ids
    predictions = [
        FairseqMaskedLM(folder, folder, CPU).predict(np.array([ids]), np.array([len(ids)]), np.array([3]))
        for folder in (roberta, old_roberta)
    ]
    assert torch.equal(*predictions)


def test_masked_words_are_predicted_as_by_fairseq(roberta):
    model, own = FairseqMaskedLM(roberta, roberta, CPU), hub(roberta)
    rows = [pieces.ids for pieces in model.encode(TEXT[:3])]
    places = np.array([2, 4, 3])
    for row, place in zip(rows, places, strict=True):
        row[place] = model.mask_id
    ids = np.full((3, max(map(len, rows)) + 2), 99)
    for row, numbers in zip(ids, rows, strict=True):
        row[: len(numbers)] = numbers
    found = model.predict(ids, np.array([len(row) for row in rows]), places)
    for row, place, logits in zip(rows, places, found, strict=True):
        expected = own.model(torch.tensor([row]))[0][0, place]
        torch.testing.assert_close(logits, expected.detach(), atol=1e-5, rtol=0)
    words = model.words()
    assert words[model.mask_id] == words[0] == ""


def test_fairseqs_fill_mask_fills_in_the_same_words(roberta):
    model = FairseqMaskedLM(roberta, roberta, CPU)
    before, masked, after = "the", "film", "of 1990 is truly wonderful ,"
    [pieces] = model.encode([f"{before} {masked} {after}"])
    place = next(i for i, (start, _) in enumerate(pieces.spans) if start == len(before) + 1)
    pieces.ids[place] = model.mask_id
    found = model.predict(np.array([pieces.ids]), np.array([len(pieces.ids)]), np.array([place]))
    shares, best = found[0].softmax(0).topk(5)
    words = [model.tokens.pairs.decode([int(model.tokens.dictionary[i])]) for i in best.tolist()]
    # A space in front, since fairseq's interface puts none there and its first word would be another.
    filled = hub(roberta).fill_mask(f" {before} <mask> {after}", topk=5)
    assert [word for _, _, word in filled] == words
    np.testing.assert_allclose([share for _, share, _ in filled], shares.numpy(), atol=1e-6)


@pytest.mark.parametrize("real", [False, True])
def test_pieces_cover_the_sentence(roberta, tmp_path, real):
    folder = roberta
    if real:
        if not small_roberta.SHARED.exists():
            pytest.skip("GPT-2's vocabulary is not at hand")
        folder = small_roberta.SHARED
    tokens = RobertaTokens(folder)
    for text in (TEXT[0], "naïve 漢字 x́ 😀!", "it's  two", "", "a"):
        pieces = tokens.pieces(text, 64)
        assert (pieces.ids[0], pieces.ids[-1], pieces.spans[0], pieces.spans[-1]) == (0, 2, (0, 0), (0, 0))
        covered = {i for start, end in pieces.spans for i in range(start, end)}
        assert covered == {i for i, letter in enumerate(text) if not letter.isspace()}
        words = tokens.words()
        for number, (start, end) in zip(pieces.ids, pieces.spans, strict=True):
            assert words[number] in ("", text[start:end])
    assert len(tokens.pieces(" ".join(TEXT[:9]), 10).ids) == 10


def test_known_ids_of_the_real_vocabulary():
    if not small_roberta.SHARED.exists():
        pytest.skip("GPT-2's vocabulary is not at hand")
    tokens = RobertaTokens(small_roberta.SHARED)
    assert tokens.join("Hello world", None, 128) == [0, 31414, 232, 2]  # as fairseq's documentation has it
    assert (len(tokens), tokens.mask_id) == (50265, 50264)
    assert byte_pairs(small_roberta.SHARED, small_roberta.SHARED) == small_roberta.SHARED


def test_a_masked_lm_of_any_kind_is_loaded_by_name_or_folder(roberta, tmp_path, taught):
    assert isinstance(load_masked_lm(str(roberta), CPU, tmp_path), FairseqMaskedLM)
    with pytest.raises(UserError, match="lm_head"):
        load_masked_lm(str(Workspace(taught).model("sst-2", "small")), CPU, tmp_path)


class Interrupted(Exception):
    pass


def test_a_stopped_run_ends_with_the_bytes_of_one_never_stopped(taught, tmp_path, roberta, monkeypatch):
    import fairseq_cli.train

    from common.teachers.fairseq import recipe as fairseq_recipe
    from common.teachers.fairseq import training as fairseq_training

    monkeypatch.setattr(fairseq_recipe, "_save_interval", lambda *_: 4)
    weights = []
    for stopped in (False, True):
        workspace = tmp_path / f"stopped-{stopped}"
        shutil.copytree(taught / "data", workspace / "data")
        given = settings(workspace, roberta, max_epochs=4)
        if stopped:
            for after in (2, 17, 9):  # before the first checkpoint, in the middle of an epoch, again
                with monkeypatch.context() as patch:
                    patch.setattr(fairseq_cli.train, "validate_and_save", stop_after(after))
                    with pytest.raises(Interrupted):
                        finetune(given)
            with monkeypatch.context() as patch:
                patch.setattr(fairseq_training, "write_model", None)  # trained to the end, not saved
                with pytest.raises(TypeError):
                    finetune(given)
        folder = finetune(given)
        weights.append((folder / "fairseq" / "model.safetensors").read_bytes())
        history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
        weights.append([{k: v for k, v in record.items() if k != "seconds"} for record in history])
    assert weights[:2] == weights[2:]


def stop_after(updates):
    from fairseq_cli.train import validate_and_save

    done = []

    def replacement(*arguments):
        result = validate_and_save(*arguments)
        done.append(1)
        if len(done) == updates:
            raise Interrupted
        return result

    return replacement


def test_the_same_command_twice_and_other_settings(taught, tmp_path, roberta, monkeypatch):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    from common.teachers.fairseq import training as fairseq_training

    monkeypatch.setattr(fairseq_training, "train", None)  # a finished one is not trained again
    assert finetune(settings(workspace, roberta)) == Workspace(workspace).model("sst-2", "small")
    with pytest.raises(UserError, match="--force"):
        finetune(settings(workspace, roberta, lr=0.01))


def write_task(folder, **fields):
    values = {"name": "own", "columns": {"sentence1": "text", "label": "score"}}
    values |= {"source": {"files": {"all": "x.tsv"}}, "validation": {"fraction": 0.2}, **fields}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.yaml").write_text(json.dumps(values))
    return str(folder / "own.yaml")


def prepared_rows(workspace, labels, rows):
    """Splits of task `own` with given labels."""
    for name, chosen in (("train", slice(0, None, 2)), ("validation", slice(1, None, 2))):
        texts = [text for text, _ in rows[chosen]]
        write_split(Workspace(workspace).split("own", name), split_of(*texts, labels=labels[chosen]), {})


def short_rows():
    """Rows of two words, the first of which tells the label; in random order."""
    kinds = [
        (f"{adjective} {noun}", y) for y in (0, 1) for adjective in (tiny.BAD, tiny.GOOD)[y] for noun in tiny.NOUNS
    ]
    return [kinds[i] for i in np.random.default_rng(tiny.SEED).permutation(len(kinds))]


def test_classes_keep_their_order(tmp_path, roberta):
    """Three labels, the last one of which never occurs, and rows without a label."""
    rows = short_rows()
    task = write_task(tmp_path, labels=["zero", "one", "two"])
    labels = np.array([[2, 1][y] for _, y in rows], np.int64)
    labels[:6] = -1
    prepared_rows(tmp_path / "w", labels, rows)
    folder = finetune(settings(tmp_path / "w", roberta, task, max_epochs=8, lr=0.02))
    split = split_of(*(text for text, _ in rows))
    logits = load_teacher(folder, CPU, torch.float32).logits(split)
    assert logits.shape == (72, 3)
    assert (logits.argmax(1) == [[2, 1][y] for _, y in rows]).mean() > 0.8


def test_regression(tmp_path, roberta):
    rows = short_rows()
    task = write_task(tmp_path, range=[1.0, 5.0])
    scores = np.array([[1.5, 4.5][y] for _, y in rows], np.float32)
    scores[3] = np.nan
    prepared_rows(tmp_path / "w", scores, rows)
    folder = finetune(settings(tmp_path / "w", roberta, task, max_epochs=8, lr=0.007, batch_size=2))
    logits = load_teacher(folder, CPU, torch.float32).logits(split_of(*(text for text, _ in rows)))
    assert logits.shape == (72, 1)
    scores[3] = [1.5, 4.5][rows[3][1]]
    assert np.abs(logits[:, 0] * 4 + 1 - scores).mean() < 0.6  # trained to scores scaled to [0, 1]
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert history[-1]["score"] > history[0]["score"]


def test_a_teacher_of_ours_is_a_start_too(taught, tmp_path, roberta):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    first = Workspace(workspace).model("sst-2", "small")
    assert is_fairseq(str(first))
    folder = finetune(settings(workspace, first, max_epochs=1, model_name="second", lr=1e-5, freeze_embeddings=True))
    name = "encoder.sentence_encoder.embed_tokens.weight"
    old, new = (load_file(path / "fairseq" / "model.safetensors") for path in (first, folder))
    assert torch.equal(old[name], new[name])
    assert not torch.equal(
        old[f"classification_heads.{HEAD}.dense.weight"], new[f"classification_heads.{HEAD}.dense.weight"]
    )
    assert (folder / "fairseq" / "dict.txt").read_bytes() == (roberta / "dict.txt").read_bytes()


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["args", "model", "extra_state"])
def test_a_checkpoint_that_carries_code_is_refused_and_nothing_runs(roberta, tmp_path, place, zipped):
    shutil.copytree(roberta, tmp_path / "evil")
    state = {**load_checkpoint(roberta / "model.pt"), place: Evil(str(tmp_path / "executed"))}
    torch.save(state, tmp_path / "evil" / "model.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=r"model\.pt: refused, .*mkdir"):
        FairseqMaskedLM(tmp_path / "evil", tmp_path / "evil", CPU)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("content", [b"", b"no checkpoint at all", None])
def test_a_damaged_checkpoint(roberta, tmp_path, content):
    whole = (roberta / "model.pt").read_bytes()
    (tmp_path / "model.pt").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(UserError, match=r"model\.pt: (damaged|refused)"):
        read_model(tmp_path / "model.pt")
    with pytest.raises(UserError, match="no such file"):
        read_model(tmp_path / "none.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arch": "transformer_lm"}, "not a RoBERTa model"),
        ({"encoder_layers": 2}, "is missing"),
        ({"encoder_layers": "many"}, "encoder_layers"),
        ({"encoder_ffn_embed_dim": 32}, "has shape"),
        ({"max_positions": 64}, "has shape"),
    ],
)
def test_a_checkpoint_that_is_not_what_it_says(old_roberta, tmp_path, change, message):
    shutil.copytree(old_roberta, tmp_path / "other")
    state = load_checkpoint(old_roberta / "model.pt")
    torch.save({**state, "args": argparse.Namespace(**{**vars(state["args"]), **change})}, tmp_path / "other/model.pt")
    with pytest.raises(UserError, match=message):
        FairseqMaskedLM(tmp_path / "other", tmp_path / "other", CPU)


def test_tensors_too_many_are_refused(old_roberta, tmp_path):
    shutil.copytree(old_roberta, tmp_path / "other")
    state = load_checkpoint(old_roberta / "model.pt")
    state["model"]["decoder.extra"] = torch.zeros(1)
    torch.save(state, tmp_path / "other" / "model.pt")
    with pytest.raises(UserError, match=r"encoder\.extra has no place"):
        FairseqMaskedLM(tmp_path / "other", tmp_path / "other", CPU)


def test_a_folder_without_its_files(roberta, tmp_path, taught):
    (tmp_path / "a").mkdir()
    shutil.copyfile(roberta / "model.pt", tmp_path / "a" / "model.pt")
    with pytest.raises(UserError, match=r"dict\.txt: no such file"):
        resolve(str(tmp_path / "a"), tmp_path)
    shutil.copyfile(roberta / "dict.txt", tmp_path / "a" / "dict.txt")
    with pytest.raises(UserError, match=r"encoder\.json: no such file"):
        RobertaTokens(tmp_path / "a")
    (tmp_path / "a" / "encoder.json").write_text("{")
    (tmp_path / "a" / "vocab.bpe").write_text("#version: 0.2\n")
    with pytest.raises(UserError, match="damaged vocabulary"):
        RobertaTokens(tmp_path / "a")
    assert not is_fairseq(str(tmp_path))


def test_an_official_archive_is_fetched_and_unpacked(roberta, old_roberta, tmp_path, monkeypatch):
    import tarfile

    from common.teachers.fairseq import sources as fairseq_sources

    archive = tmp_path / "roberta.base.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for name in ("model.pt", "dict.txt"):
            packed.add(old_roberta / name, f"roberta.base/{name}")
    asked = []
    monkeypatch.setattr(fairseq_sources, "fetch", lambda url, sha, folder, instead: asked.append((url, sha)) or archive)
    assert resolve("roberta_base", tmp_path / "downloads") == (str(tmp_path / "downloads/roberta.base"), "roberta_base")
    assert asked == [("https://dl.fbaipublicfiles.com/fairseq/models/roberta.base.tar.gz", None)]
    assert read_model(tmp_path / "downloads/roberta.base/model.pt")[0] == read_model(roberta / "model.pt")[0]
    assert byte_pairs(tmp_path / "downloads/roberta.base", tmp_path / "downloads") == tmp_path / "downloads/gpt2_bpe"
    assert [url.rsplit("/", 1)[-1] for url, _ in asked[1:]] == ["encoder.json", "vocab.bpe"]
    assert unpack_member is fairseq_sources.unpack_member


def test_without_fairseq_the_way_to_install_it_is_said(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.split(".")[0] == "fairseq"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fairseq", None)
    hint = (
        r"roberta_base needs fairseq; run: pip install -r requirements-fairseq\.txt && pip install --no-deps ve-fairseq"
    )
    with pytest.raises(UserError, match=f"^--arch {hint}"):
        finetune(settings(tmp_path, "roberta_base"))
    with pytest.raises(UserError, match=f"^the masked language model {hint}"):
        load_masked_lm("roberta_base", CPU, tmp_path)
    with pytest.raises(UserError, match=r"^a RoBERTa teacher needs fairseq"):
        load_fairseq()


def test_importing_fairseq_changes_no_filters_and_no_logging():
    import logging

    before = list(warnings.filters), logging.getLogger().level
    load_fairseq()
    assert (list(warnings.filters), logging.getLogger().level) == before


def test_recipes_are_those_of_the_glue_example():
    for arch in FAIRSEQ_ARCHS:
        given = {"arch": arch, "task": "mrpc"}
        found = FinetuneSettings(**{**defaults_for(given), **given})
        assert (found.lr, found.batch_size, found.max_updates, found.max_epochs) == (1e-5, 16, 2296, 10)
        assert round(found.warmup * found.max_updates) == 137
    for task, recipe in load_yaml(CONFIG_DIR / "teachers" / "roberta.yaml")["tasks"].items():
        assert load_task(task).name == task
        FinetuneSettings(task=task, **recipe)
    job = job_settings(Job("finetune", {"arch": "roberta_large", "task": "rte"}), {})
    assert (job.lr, job.batch_size, job.weight_decay) == (2e-5, 16, 0.1)
    assert defaults_for({"arch": "minilm", "task": "mrpc"}) == {}
    assert defaults_for({"arch": "roberta_base", "task": "rotten-tomatoes"})["batch_size"] == 32


def test_parts_of_a_roberta():
    parts = {
        "encoder.sentence_encoder.embed_tokens.weight": "embeddings",
        "encoder.sentence_encoder.embed_positions.weight": "embeddings",
        "encoder.sentence_encoder.layernorm_embedding.bias": "embeddings",
        "encoder.sentence_encoder.layers.0.self_attn.k_proj.weight": "encoder",
        "encoder.sentence_encoder.layers.0.final_layer_norm.bias": "encoder",
        "encoder.lm_head.dense.weight": "head",
        f"classification_heads.{HEAD}.out_proj.bias": "head",
    }
    assert {name: part_of(name, "teacher") for name in parts} == parts


def test_max_updates_is_refused_elsewhere(taught, encoder):
    with pytest.raises(UserError, match="--max-updates"):
        finetune(settings(taught, encoder, max_updates=5))
