"""RoBERTas of fairseq, converted: teachers, masked language model and tokenizer, against fairseq's own interface."""

import argparse
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import transformers
from small_roberta import CPU, HEAD, SHARED, TEXT, finetuned, hub, settings, split_of
from stages import score_of

from common.data.split import load_split, read_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.fairseq.checkpoint import Architecture, load_checkpoint
from common.teachers.fairseq.convert import converted, tokenizer_of
from common.teachers.fairseq.sources import byte_pairs
from common.teachers.huggingface.masked_lm import HuggingFaceMaskedLM
from common.teachers.huggingface.teacher import encoded_rows
from common.teachers.load import load_masked_lm, load_teacher
from common.training.checkpoint import load_tensors
from common.training.models import find_model, read_config
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.candidates import MaskedCandidates
from compression.augmentation.preprocess import preprocess
from compression.shrinking.chain import compress
from compression.tokenizers.bytelevel import ByteLevelTokenizer

needs_vocabulary = pytest.mark.skipif(not SHARED.exists(), reason="GPT-2's vocabulary is not here")


@pytest.fixture(scope="module")
def model(roberta):
    """The masked language model."""
    return load_masked_lm(str(roberta), CPU, roberta)


@pytest.fixture(scope="module")
def tokenizer(roberta):
    """The teacher's tokenizer."""
    return tokenizer_of(roberta, roberta, 128)


def test_the_whole_pipeline_on_sst_2_text(taught, roberta, glove, tmp_path):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    row = score_of(workspace, "small")
    assert row["metrics"]["accuracy"] > 0.8
    assert row["stage"] == "teacher"
    rows = {"model_name": "small", "generate_loss": ("processed",)}
    augment = {"augment": "tinybert", "glove": glove, "variants": 4}  # the teacher's encoder proposes the words
    preprocess(tiny.prepare_settings(workspace, "sst-2", **rows, **augment))
    student = {"student_arch": "ffn", "embedding_type": "hash", "teacher": "small", "only_original_data": True}
    [folder] = compress(tiny.compress_settings(task="sst-2", workspace=workspace, **tiny.small(**student)))
    assert read_config(folder).teacher == "small"
    assert score_of(workspace, folder.name)
    layers = {"student_arch": "transformer", "embedding_type": "wordpiece", "layers": 1, "encoder_hidden_dim": 16}
    layers |= {"embedding_dim": 16, "heads": 2, "intermediate_dim": 64, "init_from_teacher": ("first",)}
    student |= {**layers, "align_hidden": 1.0, "align_attention": 1.0}
    [folder] = compress(tiny.compress_settings(task="sst-2", workspace=workspace, **tiny.small(**student)))
    assert len(ByteLevelTokenizer.load(folder, read_config(folder).student["vocab_size"], 40).pieces) > 256
    about = {"task": "sst-2", "workspace": workspace, "model_name": "small", "cpu": True, "loadbar": False}
    found = analyze(AnalyzeSettings(**about, model_size=True, attention=("a good film",)))
    assert list(found["model_size"]["parts"]) == ["embeddings", "encoder", "head"]
    assert Path(found["attention"][0]).name == "attention.png"

    variants = read_split(Workspace(workspace).augmented("sst-2", "tinybert"))
    sources = load_split(Workspace(workspace), load_task("sst-2"), "train")
    assert len(variants) > len(sources)
    by_glove = {line.split()[0] for line in glove.read_text().splitlines()}
    own = {word for text in sources.sentence1 for word in text.split()}
    predicted = {word for text in variants.sentence1 for word in text.split()} - own - by_glove
    assert predicted
    assert predicted <= {word.lower() for word in load_masked_lm(str(roberta), CPU, tmp_path).words()}


def test_base_and_large_are_the_thesis_names_of_its_teachers(tmp_path):
    paths, task = Workspace(tmp_path), load_task("sst-2")
    about = {"kind": "teacher", "stage": "teacher", "task": task.name, "labels": task.labels, "pair": False, "seed": 1}
    folder = tiny.write_manifest(paths.model(task.name, "mine"), **about, arch="roberta_base")
    for arch in ("base", "roberta_base", None):
        assert find_model(paths, task, "mine", arch)[0] == folder
    with pytest.raises(UserError, match="has architecture roberta_base, not large"):
        find_model(paths, task, "mine", "large")


def test_the_saved_teacher(taught):
    folder = Workspace(taught).model("sst-2", "small")
    files = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in (folder / "huggingface").iterdir()) == files
    tensors = load_tensors(folder / "huggingface" / "model.safetensors")[0]
    assert not [name for name in tensors if "lm_head" in name or "version" in name]
    history = tiny.read_history(folder)
    assert [record["epoch"] for record in history] == list(range(10))
    assert history[-1]["loss"] < 0.3 < history[0]["loss"]
    assert read_config(folder).settings["weight_decay"] == 0.1


def test_logits_are_the_same_before_and_after_conversion(taught, roberta, teacher):
    split = load_split(Workspace(taught), load_task("sst-2"), "test").take(np.arange(12))
    fairseqs = hub(roberta, taught.parent / "best.pt")
    for text, logits in zip(split.sentence1, teacher.logits(split), strict=True):
        expected = fairseqs.predict(HEAD, fairseqs.encode(text), return_logits=True)[0]
        np.testing.assert_allclose(logits, expected.detach().numpy(), atol=1e-4)


def random_model(activation="gelu", **given):
    """fairseq's RoBERTa of 40 pieces with a head of three classes and random weights, and its architecture."""
    from fairseq.data import Dictionary
    from fairseq.models.roberta import RobertaModel

    architecture = Architecture(
        encoder_layers=2,
        encoder_embed_dim=16,
        encoder_ffn_embed_dim=32,
        encoder_attention_heads=2,
        max_positions=20,
        activation_fn=activation,
    )
    dictionary = Dictionary()
    for number in range(36):
        dictionary.add_symbol(str(number))
    about = argparse.Namespace(**architecture.model_dump(), **given)
    model = RobertaModel.build_model(about, argparse.Namespace(source_dictionary=dictionary))
    model.register_classification_head(HEAD, num_classes=3)
    torch.manual_seed(tiny.SEED)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return architecture, model.eval()


IDS = torch.tensor([[0, 5, 30, 9, 22, 2], [0, 33, 4, 2, 1, 1]])


class Pieces(list):
    """Stands in for a tokenizer: the number of pieces, and the last one of fairseq's dictionary."""

    mask_token_id = 39


@pytest.mark.parametrize("activation", ["gelu", "gelu_accurate", "relu", "tanh"])
def test_every_activation_and_padding_are_converted(activation, tmp_path):
    architecture, model = random_model(activation)
    ours = converted(architecture, model.state_dict(), Pieces(range(40)), tmp_path, num_labels=3)
    with torch.inference_mode():
        expected = model(IDS, classification_head_name=HEAD)[0]
        found = ours(input_ids=IDS, attention_mask=IDS.ne(1).long()).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("untied", [False, True])
def test_masked_words_are_predicted_by_a_matrix_of_their_own_too(untied, tmp_path):
    architecture, model = random_model(untie_weights_roberta=untied)
    tensors = {name: tensor for name, tensor in model.state_dict().items() if "classification_heads" not in name}
    ours = converted(architecture, tensors, Pieces(range(42)), tmp_path)
    with torch.inference_mode():
        expected, found = model(IDS[:1])[0], ours(input_ids=IDS[:1]).logits
    torch.testing.assert_close(found[..., :40], expected, atol=1e-4, rtol=0)
    assert (found[..., 40:] < expected.min()).all()  # pieces that fairseq's dictionary lacks
    if not untied:
        architecture = architecture.model_copy(update={"activation_fn": "relu"})
        with pytest.raises(UserError, match="its activation is relu"):
            converted(architecture, tensors, Pieces(range(40)), tmp_path)


def test_normalisation_before_each_part_is_refused(tmp_path):
    for given, name in (({"encoder_normalize_before": True}, "layer_norm"), ({"layernorm_embedding": False}, "LayerN")):
        architecture, model = random_model(**given)
        with pytest.raises(UserError, match=rf"not a RoBERTa of this architecture: roberta\.embeddings\.{name}"):
            converted(architecture, model.state_dict(), Pieces(range(40)), tmp_path, num_labels=3)


def test_pieces_that_the_dictionary_lacks_are_read_as_unknown(taught, roberta, tmp_path):
    """fairseq-preprocess leaves out pieces that its text does not have."""
    folder = shutil.copytree(roberta, tmp_path / "small")
    lines = (folder / "dict.txt").read_text().splitlines()
    kept = [row for row, line in enumerate(lines) if row % 7]
    (folder / "dict.txt").write_text("".join(f"{lines[row]}\n" for row in kept))
    rows = torch.tensor([*range(4), *(4 + row for row in kept), 4 + len(lines)])
    state = load_checkpoint(taught.parent / "best.pt")
    for name in ("sentence_encoder.embed_tokens.weight", "lm_head.weight", "lm_head.bias"):
        state["model"][f"encoder.{name}"] = state["model"][f"encoder.{name}"][rows]
    torch.save(state, folder / "model.pt")
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    given, best = {"model_name": "lacking", "max_epochs": 1, "lr": 1e-9}, tmp_path / "best.pt"
    teacher = load_teacher(finetuned(settings(workspace, folder, **given), best), CPU, torch.float32)
    fairseqs, split = hub(folder, best), split_of(*TEXT[:12])
    for text, logits in zip(split.sentence1, teacher.logits(split), strict=True):
        ids = fairseqs.encode(text)
        expected = fairseqs.predict(HEAD, ids, return_logits=True)[0]
        np.testing.assert_allclose(logits, expected.detach().numpy(), atol=1e-4)
    assert any(3 in fairseqs.encode(text) for text in split.sentence1)


def test_a_sentences_logits_do_not_depend_on_its_batch(teacher):
    split = split_of(*TEXT[:20], "", "x", " ".join(TEXT[:12]))
    done = []
    together = teacher.logits(split, done.append)
    assert sum(done) == len(split)
    alone = np.concatenate([teacher.logits(split.take(np.array([i]))) for i in range(len(split))])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_states(teacher):
    split = split_of("the film", "the cast of 1990 is truly wonderful !", "")
    states = teacher.states(split)
    lengths = states.lengths.tolist()
    longest = max(lengths)
    assert lengths == [len(teacher.tokenizer(text)["input_ids"]) for text in split.sentence1]
    assert [tuple(layer.shape) for layer in states.hidden] == [(3, longest, 16)] * 2
    assert [tuple(layer.shape) for layer in states.attention] == [(3, 2, longest, longest)]
    for row, length in enumerate(lengths):
        torch.testing.assert_close(states.attention[0][row].sum(-1), torch.ones(2, longest))
        assert not states.attention[0][row, :, :, length:].any()
    alone = teacher.states(split.take(np.array([0])))
    length = lengths[0]
    torch.testing.assert_close(states.hidden[1][0, :length], alone.hidden[1][0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states.attention[0][0, :, :length, :length], alone.attention[0][0], atol=1e-5, rtol=0)


def test_candidates_do_not_depend_on_the_batch(model):
    words = [[match.span() for match in re.finditer(r"\w+", text)] for text in TEXT[:12]]
    together = MaskedCandidates(model, 5).find(TEXT[:12], words)
    assert any(together)
    assert together == MaskedCandidates(model, 5, batch_pieces=1).find(TEXT[:12], words)


def test_masked_words_are_predicted_as_by_fairseq(model, roberta):
    rows = np.array([pieces.ids[:8] for pieces in model.encode(TEXT[:3])])
    index = np.array([2, 4, 3])
    rows[np.arange(3), index] = model.mask_id
    expected = hub(roberta).model(torch.from_numpy(rows))[0][np.arange(3), index]
    torch.testing.assert_close(model.predict(rows, index), expected.detach(), atol=1e-5, rtol=0)
    words = model.words()
    assert words[model.mask_id] == words[0] == ""


def test_fairseqs_fill_mask_fills_in_the_same_words(model, roberta):
    before, masked, after = "the", "film", "of 1990 is truly wonderful ,"
    [pieces] = model.encode([f"{before} {masked} {after}"])
    index = next(i for i, (start, _) in enumerate(pieces.spans) if start == len(before) + 1)
    pieces.ids[index] = model.mask_id
    shares, best = model.predict(np.array([pieces.ids]), np.array([index]))[0].softmax(0).topk(5)
    words = [model.tokenizer.decode([i]) for i in best.tolist()]
    # A space in front, since fairseq's interface puts none there and its first word would be another.
    filled = hub(roberta).fill_mask(f" {before} <mask> {after}", topk=5)
    assert [word for _, _, word in filled] == words
    np.testing.assert_allclose([share for _, share, _ in filled], shares.numpy(), atol=1e-6)


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=needs_vocabulary)])
def test_pieces_cover_the_sentence(roberta, real):
    tokenizer = tokenizer_of(SHARED if real else roberta, roberta, 64, prefix=True)
    sizes = {"hidden_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 2}
    config = transformers.RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=66, **sizes)
    model = HuggingFaceMaskedLM(transformers.RobertaForMaskedLM(config), tokenizer, CPU)
    words = model.words()
    for text in (TEXT[0], "naïve 漢字 x́ 😀!", "it's  two", "", "a"):
        [pieces] = model.encode([text])
        assert (pieces.ids[0], pieces.ids[-1], pieces.spans[0], pieces.spans[-1]) == (0, 2, (0, 0), (0, 0))
        covered = {i for start, end in pieces.spans for i in range(start, end)}
        assert covered == {i for i, letter in enumerate(text) if not letter.isspace()}
        for number, (start, end) in zip(pieces.ids, pieces.spans, strict=True):
            assert words[number] in ("", text[start:end])
    assert len(model.encode([" ".join(TEXT)])[0].ids) == 64


def test_rows_are_encoded_as_by_fairseq(tokenizer, roberta):
    fairseqs = hub(roberta)
    for text in (*TEXT[:20], "naïve 漢字 x́ 😀!", "it's  two\t!", "", "a <s> and a <mask>"):
        assert tokenizer(text)["input_ids"] == fairseqs.encode(text).tolist()
    one, two = TEXT[-2:]
    assert tokenizer(one, two)["input_ids"] == fairseqs.encode(one, two).tolist()
    cut = encoded_rows(tokenizer, split_of(one), 9).ids[:, 0].tolist()
    assert cut[:8] == fairseqs.encode(one).tolist()[:8]
    assert (len(cut), cut[-1]) == (9, 2)


def test_sentences_of_a_masked_lm_begin_with_a_space(model, roberta):
    fairseqs = hub(roberta)
    for text in TEXT[:20]:
        assert model.encode([text])[0].ids == fairseqs.encode(f" {text}").tolist()


@pytest.mark.slow
@needs_vocabulary
def test_known_ids_of_the_real_vocabulary():
    tokenizer = tokenizer_of(SHARED, SHARED, 512)
    assert tokenizer("Hello world")["input_ids"] == [0, 31414, 232, 2]  # as fairseq's documentation has it
    assert (len(tokenizer), tokenizer.mask_token_id) == (50265, 50264)
    assert byte_pairs(SHARED, SHARED) == SHARED


def test_a_fine_tuned_teacher_is_not_a_masked_lm(tmp_path, taught):
    with pytest.raises(UserError, match="masked language model"):
        load_masked_lm(str(Workspace(taught).model("sst-2", "small") / "huggingface"), CPU, tmp_path)
