"""RoBERTas by fairseq: teachers, masked language model and tokenizer, against fairseq's own interface."""

import re

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file
from small_roberta import CPU, SHARED, TEXT, hub, split_of

from common.data.split import load_split, read_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.fairseq.models import HEAD, FairseqMaskedLM
from common.teachers.fairseq.sources import byte_pairs
from common.teachers.fairseq.tokens import RobertaTokens
from common.teachers.load import load_masked_lm
from common.training.models import find_model, read_config
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.candidates import MaskedCandidates
from compression.augmentation.preprocess import preprocess
from compression.evaluation.evaluate import evaluate
from compression.evaluation.settings import EvaluateSettings
from compression.evaluation.weights import part_of
from compression.shrinking.chain import compress
from compression.tokenizers.bytelevel import ByteLevelTokenizer

needs_vocabulary = pytest.mark.skipif(not SHARED.exists(), reason="GPT-2's vocabulary is not here")


@pytest.fixture(scope="module")
def model(roberta):
    """The masked language model."""
    return FairseqMaskedLM(roberta, roberta, CPU)


def test_the_whole_pipeline_on_sst_2_text(taught, roberta, glove, tmp_path):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    scored = {"task": "sst-2", "workspace": workspace, "cpu": True, "loadbar": False}
    [row] = evaluate(EvaluateSettings(**scored, model_name="small"))
    assert row["metrics"]["accuracy"] > 0.8
    assert row["stage"] == "teacher"
    rows = {"model_name": "small", "generate_loss": ("processed",)}
    augment = {"augment": "tinybert", "glove": glove, "variants": 4}  # the teacher's encoder proposes the words
    preprocess(tiny.prepare_settings(workspace, "sst-2", **rows, **augment))
    student = {"student_arch": "ffn", "embedding_type": "hash", "teacher": "small", "only_original_data": True}
    [folder] = compress(tiny.compress_settings(task="sst-2", workspace=workspace, **tiny.small(**student)))
    assert read_config(folder).teacher == "small"
    assert evaluate(EvaluateSettings(**scored, model_name=folder.name))
    layers = {"student_arch": "transformer", "embedding_type": "wordpiece", "layers": 1, "encoder_hidden_dim": 16}
    layers |= {"embedding_dim": 16, "heads": 2, "intermediate_dim": 64, "init_from_teacher": ("first",)}
    student |= {**layers, "align_hidden": 1.0, "align_attention": 1.0}
    [folder] = compress(tiny.compress_settings(task="sst-2", workspace=workspace, **tiny.small(**student)))
    assert len(ByteLevelTokenizer.load(folder, read_config(folder).student["vocab_size"], 40).pieces) > 256
    parts = analyze(AnalyzeSettings(**scored, model_name="small", model_size=True))["model_size"]["parts"]
    assert list(parts) == ["embeddings", "encoder", "head"]

    variants = read_split(Workspace(workspace).augmented("sst-2", "tinybert"), "")
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
    files = ["architecture.json", "dict.txt", "encoder.json", "model.safetensors", "vocab.bpe"]
    assert sorted(path.name for path in (folder / "fairseq").iterdir()) == files
    tensors = load_file(folder / "fairseq" / "model.safetensors")
    assert not [name for name in tensors if "lm_head" in name or "version" in name]
    history = tiny.read_history(folder)
    assert [record["epoch"] for record in history] == list(range(10))
    assert history[-1]["loss"] < 0.3 < history[0]["loss"]
    assert read_config(folder).settings["weight_decay"] == 0.1


def test_logits_are_those_of_fairseqs_own_interface(taught, teacher):
    split = load_split(Workspace(taught), load_task("sst-2"), "test").take(np.arange(12))
    own = hub(Workspace(taught).model("sst-2", "small") / "fairseq", head=True)
    for text, logits in zip(split.sentence1, teacher.logits(split), strict=True):
        expected = own.predict(HEAD, own.encode(text), return_logits=True)[0]
        np.testing.assert_allclose(logits, expected.detach().numpy(), atol=1e-5)


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
    assert lengths == [len(teacher.tokens.join(text, None, 128)) for text in split.sentence1]
    assert [tuple(layer.shape) for layer in states.hidden] == [(3, longest, 16)] * 2
    assert [tuple(layer.shape) for layer in states.attention] == [(3, 2, longest, longest)]
    for row, length in enumerate(lengths):
        torch.testing.assert_close(states.attention[0][row].sum(-1), torch.ones(2, longest))
        assert not states.attention[0][row, :, :, length:].any()
    alone = teacher.states(split.take(np.array([0])))
    length = lengths[0]
    torch.testing.assert_close(states.hidden[1][0, :length], alone.hidden[1][0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states.attention[0][0, :, :length, :length], alone.attention[0][0], atol=1e-5, rtol=0)


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
    words = [model.tokens.pairs.decode([int(model.tokens.dictionary[i])]) for i in best.tolist()]
    # A space in front, since fairseq's interface puts none there and its first word would be another.
    filled = hub(roberta).fill_mask(f" {before} <mask> {after}", topk=5)
    assert [word for _, _, word in filled] == words
    np.testing.assert_allclose([share for _, share, _ in filled], shares.numpy(), atol=1e-6)


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=needs_vocabulary)])
def test_pieces_cover_the_sentence(roberta, real):
    tokens = RobertaTokens(SHARED if real else roberta)
    words = tokens.words()
    for text in (TEXT[0], "naïve 漢字 x́ 😀!", "it's  two", "", "a"):
        pieces = tokens.pieces(text, 64)
        assert (pieces.ids[0], pieces.ids[-1], pieces.spans[0], pieces.spans[-1]) == (0, 2, (0, 0), (0, 0))
        covered = {i for start, end in pieces.spans for i in range(start, end)}
        assert covered == {i for i, letter in enumerate(text) if not letter.isspace()}
        for number, (start, end) in zip(pieces.ids, pieces.spans, strict=True):
            assert words[number] in ("", text[start:end])
    assert len(tokens.pieces(" ".join(TEXT[:9]), 10).ids) == 10


def test_rows_are_encoded_as_by_fairseq(model, roberta):
    own, tokens = hub(roberta), model.tokens
    for text in (*TEXT[:20], "naïve 漢字 x́ 😀!", "it's  two\t!", ""):
        assert tokens.join(text, None, 128) == own.encode(text).tolist()
    one, two = TEXT[-2:]
    assert tokens.join(one, two, 128) == own.encode(one, two).tolist()
    cut = tokens.join(one, two, 9)
    assert cut[:8] == own.encode(one, two).tolist()[:8]
    assert (len(cut), cut[-1]) == (9, 2)


@pytest.mark.slow
@needs_vocabulary
def test_known_ids_of_the_real_vocabulary():
    tokens = RobertaTokens(SHARED)
    assert tokens.join("Hello world", None, 128) == [0, 31414, 232, 2]  # as fairseq's documentation has it
    assert (len(tokens), tokens.mask_id) == (50265, 50264)
    assert byte_pairs(SHARED, SHARED) == SHARED


def test_a_fine_tuned_teacher_is_not_a_masked_lm(roberta, tmp_path, taught):
    assert isinstance(load_masked_lm(str(roberta), CPU, tmp_path), FairseqMaskedLM)
    with pytest.raises(UserError, match="lm_head"):
        load_masked_lm(str(Workspace(taught).model("sst-2", "small")), CPU, tmp_path)
