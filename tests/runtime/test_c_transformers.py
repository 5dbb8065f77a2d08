"""Transformers in the C runtime answer as in the NumPy runtime: texts, pairs and words, in every form of matrix."""

import subprocess

import c_runtime
import numpy as np
import packed_students as made
import pytest
from c_parity import NEAR, TEXTS, both, check

from compression.runtime import PackedError, load, native

pytestmark = pytest.mark.usefixtures("c_library")
LONG = ["the " * 300, "the film " * 31, "x" * 63, "a " * 13, "a"]
"""Texts of more tokens than pass a layer together, of whole groups of them, and of parts of one."""
SANITIZERS = "CFLAGS=-g -fsanitize=address,undefined -fno-sanitize-recover=all"


def lively(tensors):
    """Make states large: random scales of norms, around 0, would let a text make hardly any difference."""
    for name, value in tensors.items():
        if name.endswith("norm.weight"):
            value += 2


def sizes(**given):
    """Return settings of a student: the sizes of a transformer with these changes."""
    return {"transformer": made.TRANSFORMER | given, "edit": lively}


@pytest.mark.parametrize("arch", made.TRANSFORMERS)
@pytest.mark.parametrize("embedding", made.EMBEDDINGS)
@pytest.mark.parametrize(
    "kind", [{}, {"pair": True}, {"kind": "tags", "max_tokens": 40}], ids=["text", "pair", "words"]
)
def test_answers_are_those_of_the_numpy_runtime(tmp_path, arch, embedding, kind):
    """In one form of matrix after another; with and without adapters and a projection of the vectors."""
    number = made.TRANSFORMERS.index(arch) + 2 * made.EMBEDDINGS.index(embedding) + 8 * len(kind)
    more = sizes(adapters=4 * (number % 2)) | {"embedding_dim": (6, 8)[number // 2 % 2]}
    forms = made.FORMS[:10]  # random students may ignore texts: with these combinations none does
    theirs, ours = both(tmp_path, arch, embedding, forms[number % len(forms)], **more, **kind)
    check(theirs, ours, [*TEXTS[::4], *LONG])
    texts = [("a film", "fine"), ("the the", "")] if theirs.pair else ["a film", "the the"]
    expected = theirs.logits(texts)
    # Texts make a difference, next to which that of the runtimes is small.
    assert np.abs(ours.logits(texts) - expected).max() < np.abs(expected[0] - expected[1]).max() / 100


@pytest.mark.parametrize("form", made.FORMS)
def test_matrices_of_every_form(tmp_path, form):
    check(*both(tmp_path, "transformer", "hash", form, **sizes(encoder_hidden_dim=20, heads=4)), TEXTS[:20])


@pytest.mark.parametrize(
    "given",
    [
        {"encoder_hidden_dim": 1, "heads": 1, "intermediate_dim": 1, "adapters": 1, "layers": 9},
        {"encoder_hidden_dim": 16, "heads": 16, "intermediate_dim": 40, "adapters": 0, "layers": 1},
        {"encoder_hidden_dim": 33, "heads": 3, "intermediate_dim": 15, "adapters": 17},
        {"encoder_hidden_dim": 48, "heads": 1, "intermediate_dim": 5, "adapters": 70},
    ],
    ids=["one", "vectors", "parts", "wide"],
)
@pytest.mark.parametrize("pair", [False, True])
def test_sizes_beyond_a_vector_of_the_processor(tmp_path, given, pair):
    more = sizes(**given) | {"pair": pair, "embedding_dim": 3 if pair else given["encoder_hidden_dim"]}
    check(*both(tmp_path, "transformer", "char", "ternary", max_tokens=90, **more), ["", *TEXTS[-4:], *LONG])


@pytest.mark.parametrize("share", ["none", "attention", "feed-forward"])
@pytest.mark.parametrize("pair", [False, True], ids=["text", "pair"])
def test_layers_that_share_a_part_and_texts_without_segments(tmp_path, share, pair):
    """A layer's own part has its own matrices, biases and norm, behind those of the layers before."""
    more = sizes(layers=4, adapters=3 * pair) | {"share": share, "segments": share == "attention", "pair": pair}
    check(*both(tmp_path, "transformer", "char", "affine-row", **more), [*TEXTS[::6], *LONG])


@pytest.mark.parametrize("share", ["none", "attention", "feed-forward"])
@pytest.mark.parametrize("head_dim", [1, 7, 40])
def test_heads_that_are_no_part_of_the_layers_width(tmp_path, share, head_dim):
    """Narrower and wider together than a state, so that keys and values need other room."""
    more = sizes(layers=3, heads=3, adapters=2) | {"share": share, "head_dim": head_dim, "pair": head_dim == 7}
    check(*both(tmp_path, "transformer", "char", "affine-row", **more), [*TEXTS[::6], *LONG])


def test_a_recursive_transformer_without_segments(tmp_path):
    check(*both(tmp_path, "recursive", "char", **sizes(), segments=False, pair=True), TEXTS[::6])


def test_a_layer_that_is_applied_many_times(tmp_path):
    check(*both(tmp_path, "recursive", "hash", **sizes(iterations=7)), TEXTS[-8:])


@pytest.mark.parametrize("kind", [{"labels": []}, {"kind": "multilabel"}, {"max_tokens": 3}])
def test_other_kinds_of_answers(tmp_path, kind):
    check(*both(tmp_path, "recursive", "char", **sizes(), **kind), TEXTS[::3])


@pytest.mark.parametrize("kind", [{}, {"pair": True}, {"kind": "tags"}], ids=["text", "pair", "words"])
def test_the_workspace_that_it_asks_for_is_enough(tmp_path, monkeypatch, kind):
    more = sizes(encoder_hidden_dim=40, intermediate_dim=150) | {"max_tokens": 2000, "head_dim": 60 * ("pair" in kind)}
    _, ours = both(tmp_path, "transformer", "hash", **more, **kind)
    for text in ["", "a", 150 * "a ", 25 * "\u4e2d", 25 * "!a"]:
        size = ours._c.fw_workspace_size(ours._block, len(text.encode()))
        monkeypatch.setattr(native, "_FIRST_WORKSPACE", size)
        ours._workspaces.clear()
        assert np.isfinite(ours.logits([(text, text) if ours.pair else text])).all()
        assert [workspace.size for workspace in ours._workspaces] == [size]


@pytest.mark.parametrize("kind", [{"pair": True}, {"kind": "tags"}], ids=["pair", "words"])
def test_texts_that_are_larger_than_the_workspace(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(native, "_FIRST_WORKSPACE", 1 << 12)
    theirs, ours = both(tmp_path, "transformer", "bpe", **kind)
    check(theirs, ours, ["the " * 2000 + "film", "a film", "wonderful" * 900])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, len(made.FORMS), 3))
def test_codes_are_multiplied_as_codes(tmp_path, monkeypatch, number):
    monkeypatch.setattr(native, "LIBRARY", str(c_runtime.built("libfeatherweight.so", c_runtime.COMPACT)))
    more = sizes(adapters=number % 4, encoder_hidden_dim=36) | {
        "pair": number % 2 == 1,
        "kind": "tags" if number == 6 else "labels",
    }
    arch, embedding = made.TRANSFORMERS[number % 2], made.EMBEDDINGS[number % 4]
    check(*both(tmp_path, arch, embedding, made.FORMS[number], **more), TEXTS)


@pytest.mark.slow
def test_a_build_without_transformers_refuses_them(tmp_path, monkeypatch):
    without = c_runtime.built("libfeatherweight.so", "CFLAGS=-DFW_NO_TRANSFORMERS")
    monkeypatch.setattr(native, "LIBRARY", str(without))
    for arch in made.TRANSFORMERS:
        with pytest.raises(PackedError, match=r"s\.fwt: a transformer: a build with FW_NO_TRANSFORMERS"):
            both(tmp_path / arch, arch, "char")
    check(*both(tmp_path, "bilstm", "char"), TEXTS[:5])


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["", " -DFW_NO_VECTORS"], ids=["vectors", "loops"])
def test_answers_under_sanitizers(tmp_path, vectors):
    """Of the command line, whose programs AddressSanitizer and UndefinedBehaviorSanitizer watch."""
    program = c_runtime.built("fwt", SANITIZERS + vectors)
    texts = ["a film", "", "caf\u00e9 \u2603 the", *(" ".join(text.split()) for text in LONG)]
    for number, embedding in enumerate(made.EMBEDDINGS):
        form, pair = made.FORMS[3 * number], number % 2 == 1
        more = sizes(encoder_hidden_dim=24) | {"pair": pair, "embedding_dim": 24 - number, "max_tokens": 70}
        path = made.write_packed(
            made.write_student(tmp_path / embedding, made.TRANSFORMERS[number // 2], embedding, form, **more)
        )
        rows = list(zip(texts, texts[::-1], strict=True)) if pair else texts
        lines = "".join(("\t".join(row) if pair else row) + "\n" for row in rows).encode()
        done = subprocess.run([program, "predict-prob", path], input=lines, capture_output=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, b"")
        model = load(path)
        for line, expected in zip(done.stdout.decode().splitlines(), model.probabilities(rows), strict=True):
            label, probability = line.split(" ")
            assert float(probability) == pytest.approx(expected.max(), abs=NEAR)
            assert expected[model.labels.index(label)] > expected.max() - NEAR / 10
