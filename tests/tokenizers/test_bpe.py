"""Byte pairs: ours are sentencepiece's, of every kind of model and text; its rules of normalisation are all known."""

import functools

import numpy as np
import packed_students as made
import pytest
import sentencepiece
import tiny
from bpemb import BPEmb
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from unicode_torture import TORTURE

from common.errors import UserError
from compression.packing import pack_student
from compression.runtime import IDENTITY, NFKC, NMT_NFKC, Normaliser
from compression.runtime.model import load_bytes
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.charsmap import base_rules, differences, express, read_rules

CHARACTERS = st.text(
    st.sampled_from("the film wonderful\u0301\u00e9\u2581\u2603 0.,!\ud55c\u1112\u1161\u11ab\uff41\u200b")
)
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    CHARACTERS,
    st.sampled_from([text for text, _ in tiny.sentences(50)]),
)
MODELS = {
    "usual": {},
    "identity": {"normalization_rule_name": "identity"},
    "nfkc": {"normalization_rule_name": "nfkc"},
    "spaces kept": {"remove_extra_whitespaces": False},
    "no prefix": {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "across words": {"split_by_whitespace": False},
}


@functools.cache
def model_of(kind, unused=0.0):
    """Return a model file's bytes, with a share of its pieces marked UNUSED."""
    return made.unused(made.pieces(**MODELS[kind]), unused)


@functools.cache
def encoders(model):
    """Return sentencepiece's encoder, the row of each of its pieces, and our tokenizer."""
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    unused = [theirs.is_unused(i) for i in range(theirs.get_piece_size())]
    return theirs, np.where(unused, 0, np.cumsum(np.logical_not(unused)) - 1), BpeTokenizer(model, 1 << 20)


def check_pieces(model, texts):
    theirs, row_of, own = encoders(model)
    for text in texts:
        expected = row_of[theirs.encode(BPEmb.preprocess(text)) or [0]]
        assert own.encode([text]).ids[:, 0].tolist() == expected.tolist(), ascii(text)


def rules_in(model):
    return ModelProto.FromString(model).normalizer_spec.precompiled_charsmap


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("unused", [0.0, 0.4])
def test_pieces_are_sentencepieces_on_torture(kind, unused):
    check_pieces(model_of(kind, unused), [*TORTURE, *(text for text, _ in tiny.sentences(60))])


@pytest.mark.parametrize("kind", MODELS)
@given(text=TEXT)
@settings(max_examples=150)
def test_pieces_are_sentencepieces_on_any_text(kind, text):
    check_pieces(model_of(kind), [text])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["usual", "across words"])
@pytest.mark.parametrize("unused", [0.2, 0.7])
@given(text=TEXT)
@example("the the film of the theatre")
@settings(max_examples=300)
def test_unused_pieces_are_split_as_sentencepiece_splits_them(kind, unused, text):
    check_pieces(model_of(kind, unused), [text])


@pytest.mark.parametrize("kind", MODELS)
def test_a_packed_file_has_the_same_pieces(tmp_path, kind):
    """Each row of the student's table holds its own number, and the answer depends on the sum of a text's rows."""
    model = model_of(kind, 0.3)
    tokenizer = BpeTokenizer(model, 512)
    rows = np.arange(tokenizer.vocab_size, dtype=np.float32)[:, None]

    def edit(tensors):
        tensors.clear()
        tensors["embedding.table.weight.value"] = rows
        for i in (0, 3):
            tensors[f"classifier.{i}.weight.value"] = np.ones((1, 1), np.float32)
            tensors[f"classifier.{i}.bias"] = np.zeros(1, np.float32)

    sizes = {"labels": [], "embedding_dim": 1, "cls_hidden_dim": 1, "vocab_size": len(rows)}
    packed = load_bytes(pack_student(made.write_student(tmp_path / "s", "ffn", "bpe", model=model, edit=edit, **sizes)))
    texts = [*TORTURE, *(text for text, _ in tiny.sentences(20))]
    means = [rows[tokenizer.encode([text]).ids[:, 0], 0].mean() for text in texts]
    assert np.allclose(packed.logits(texts)[:, 0], means, atol=1e-3)


@pytest.mark.slow
def test_rules_of_normalisation_are_all_known():
    for name, base in (("nmt_nfkc", NMT_NFKC), ("nfkc", NFKC)):
        charsmap = rules_in(made.pieces(normalization_rule_name=name))
        rules = read_rules(charsmap)
        assert len(rules) > 200_000
        assert rules == base_rules(base)
        assert express(charsmap) == (base, {})
    own = {**base_rules(NMT_NFKC), "a": "b", "qu": "kw"}
    del own["\u00bd"]
    assert differences(own) == (NMT_NFKC, {"a": "b", "qu": "kw", "\u00bd": None})
    assert base_rules(IDENTITY) == {}
    assert differences({"x": "y"}) == (IDENTITY, {"x": "y"})


@pytest.mark.slow
def test_a_models_own_rules_are_followed(tmp_path):
    (tmp_path / "rules.tsv").write_text("61 62\t78\n65\t\n2603\t73 6E 6F 77\n")
    model = made.pieces(normalization_rule_tsv=str(tmp_path / "rules.tsv"))
    check_pieces(model, ["abe able cab \u2603", "the cabbage", *(text for text in TORTURE if len(text) < 90)])
    assert Normaliser(*express(rules_in(model)))("ab cab e\u2603", True) == "x cx snow"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: b"nonsense", "byte pairs: not a sentencepiece model"),
        (lambda: made.pieces(byte_fallback=True, vocab_size=400), "cannot be used, it falls back to bytes"),
        (lambda: made.pieces(user_defined_symbols="film"), "cannot be used, it has pieces of the user's own"),
        (lambda: made.pieces(treat_whitespace_as_suffix=True), "cannot be used, it marks words at their end"),
    ],
)
def test_models_that_cannot_be_expressed_are_refused(model, message):
    with pytest.raises(UserError, match=message):
        BpeTokenizer(model(), 8)
