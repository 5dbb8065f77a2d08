"""Byte-level pairs: ours are those of RoBERTa's own tokenizers, and a vocabulary survives pruning and packing."""

import functools
import json
import sys

import numpy as np
import pytest
import roberta_teachers
import small_roberta
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoTokenizer
from unicode_torture import TORTURE

from common.errors import UserError
from common.teachers.fairseq.convert import tokenizer_of
from common.teachers.fairseq.library import load_fairseq
from compression.runtime.tokenizers.bytelevel import gpt2_words
from compression.tokenizers.bytelevel import LETTERS, ByteLevelTokenizer
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary, vocabulary_of

LETTERS_AND_SIGNS = "aA's'll've \t\n\r\x0b\x1c\x85\xa0\u2003\u3000.,!1\u00b2\u00bd\u00e9\u0301\u4e2d\U0001f600\u0120"
TEXTS = st.one_of(
    st.text(),
    st.text(st.sampled_from(LETTERS_AND_SIGNS)),
    st.sampled_from([text for text, _ in tiny.sentences(50)]),
)
SPECIAL = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")
needs_vocabulary = pytest.mark.skipif(not small_roberta.SHARED.exists(), reason="GPT-2's vocabulary is not here")


def check_words(text):
    found = ["".join(LETTERS[byte] for byte in word.encode()) for word in gpt2_words(text)]
    assert found == [word for word, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(text)], ascii(text)


@settings(max_examples=500)
@given(TEXTS)
def test_words_are_gpt2s(text):
    check_words(text)


def test_words_are_gpt2s_on_torture():
    for text in TORTURE:
        check_words(text)


def test_every_character_is_a_letter_a_number_white_space_or_a_sign_as_to_gpt2():
    """Up to the last letter of Unicode 16, with those that this Python does not know."""
    assert sys.maxunicode == 0x10FFFF
    for first in range(0, 0x32400, 0x400):
        characters = [chr(code) for code in range(first, first + 0x400) if not 0xD800 <= code < 0xE000]
        check_words("".join(f"A{c}1{c}!{c}" for c in characters))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """Model folder of a RoBERTa of transformers."""
    return roberta_teachers.write_teacher(tmp_path_factory.mktemp("bytelevel") / "roberta")


@pytest.fixture(scope="module")
def fairseq_teacher(tmp_path_factory):
    """Model folder with the vocabulary of a RoBERTa of fairseq, converted; its own files are in `fairseq`."""
    folder = tmp_path_factory.mktemp("bytelevel")
    (folder / "fairseq").mkdir()
    small_roberta.learn_vocabulary(folder / "fairseq")
    tokenizer_of(folder / "fairseq", folder, 96).save_pretrained(folder / "huggingface")
    return folder


def pieces_of(vocabulary, text):
    """The teacher's rows of a text, by the student's tokenizer."""
    return vocabulary.rows[vocabulary.whole.encode([text]).ids[:, 0]].tolist() if text else []


@settings(max_examples=500)
@given(text=TEXTS)
def test_a_student_reads_text_as_its_hugging_face_teacher(teacher, text):
    vocabulary, theirs = _loaded(teacher)
    if not any(special in text for special in SPECIAL):
        assert pieces_of(vocabulary, text) == theirs(text, add_special_tokens=False)["input_ids"]


@settings(max_examples=500)
@given(text=TEXTS)
def test_a_student_reads_text_as_its_fairseq_teacher(fairseq_teacher, text):
    vocabulary, pairs, dictionary = _loaded_of_fairseq(fairseq_teacher)
    assert pieces_of(vocabulary, text) == [dictionary.index(str(number)) for number in pairs.encode(text)]


@needs_vocabulary
@pytest.mark.slow
@pytest.mark.parametrize("prefix", [False, True])
@given(text=TEXTS)
def test_robertas_own_vocabulary_gives_its_own_pieces(prefix, text):
    tokenizer, theirs, rows = _shared(prefix)
    assert rows[tokenizer.encode([text]).ids[:, 0]].tolist() == (theirs.encode(text).ids or [-1])


@functools.cache
def _loaded(folder):
    return teacher_vocabulary(folder), AutoTokenizer.from_pretrained(folder / "huggingface")


@functools.cache
def _loaded_of_fairseq(folder):
    load_fairseq("the test")
    from fairseq.data import Dictionary
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

    files = folder / "fairseq"
    pairs = get_encoder(files / "encoder.json", files / "vocab.bpe")
    return teacher_vocabulary(folder), pairs, Dictionary.load(str(files / "dict.txt"))


@functools.cache
def _shared(prefix):
    files = [str(small_roberta.SHARED / name) for name in ("encoder.json", "vocab.bpe")]
    ids = json.loads((small_roberta.SHARED / "encoder.json").read_text())
    merges = [
        line.replace(" ", "") for line in (small_roberta.SHARED / "vocab.bpe").read_text().split("\n")[1:] if line
    ]
    tokenizer = ByteLevelTokenizer(merges, (), prefix, 512)
    theirs = ByteLevelBPETokenizer.from_file(*files, add_prefix_space=prefix)
    return tokenizer, theirs, np.array([ids.get(piece, -1) for piece in tokenizer.pieces])


def test_special_tokens_are_the_teachers_and_no_pieces_of_text(teacher, fairseq_teacher):
    for folder, mask in ((teacher, 4), (fairseq_teacher, None)):
        vocabulary = teacher_vocabulary(folder)
        assert not set(SPECIAL) & set(vocabulary.pieces[1:])
        assert (vocabulary.special_tokens, vocabulary.separators, vocabulary.rows[0]) == ((0, 2), 2, 3)
        assert len(set(vocabulary.rows.tolist())) == len(vocabulary.pieces)
        assert vocabulary.mask == (mask or len(_loaded_of_fairseq(folder)[2]))  # after the dictionary's other pieces


def changed(teacher, **changes):
    """The teacher's tokenizer.json with another model."""
    content = json.loads((teacher / "huggingface/tokenizer.json").read_text())
    return {**content, "model": {**content["model"], **changes}}


def test_vocabularies_that_merge_otherwise_are_refused(teacher):
    content = changed(teacher)
    merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in content["model"]["merges"]]
    vocab = content["model"]["vocab"]
    odd = next((one, other) for one, other in merges if len(other) > 1)
    other = (odd[0] + odd[1][:1], odd[1][1:])
    wrong = [other if merge == odd else merge for merge in merges]
    messages = {
        "has a piece that its own merges do not give": {"merges": wrong},
        "RoBERTa's \\(dropout, byte_fallback\\)": {"dropout": 0.1, "byte_fallback": True},
        "lacks '<unk>'": {"vocab": {piece: row for piece, row in vocab.items() if piece != "<unk>"}},
        "splits words by Unigram; students can take BERT's WordPiece and RoBERTa's": {"type": "Unigram"},
    }
    for message, changes in messages.items():
        with pytest.raises(UserError, match=message):
            vocabulary_of(changed(teacher, **changes), "roberta")
    with pytest.raises(UserError, match="RoBERTa's \\(use_regex\\)"):
        vocabulary_of({**content, "pre_tokenizer": {"type": "ByteLevel", "use_regex": False}}, "roberta")


def test_a_vocabulary_comes_back_and_a_damaged_one_is_refused(tmp_path, teacher):
    tokenizer = teacher_vocabulary(teacher).tokenizer(9)
    smaller = tokenizer.without([5, 300])
    smaller.save(tmp_path)
    back = ByteLevelTokenizer.load(tmp_path, tokenizer.vocab_size - 2, 9)
    assert (back.pieces, back.identity) == (smaller.pieces, smaller.identity)
    assert smaller.identity != tokenizer.identity
    with pytest.raises(UserError, match="pieces, the student has 5"):
        ByteLevelTokenizer.load(tmp_path, 5, 9)
    for content, message in (
        ("[]", "not a vocabulary of byte-level pairs"),
        ('{"merges": ["ab", "ab"], "unused": []}', "a piece is repeated"),
        ('{"merges": ["a b"], "unused": []}', "not of GPT-2's characters"),
        ('{"merges": [], "unused": ["ab"]}', "unused and not in the vocabulary"),
    ):
        (tmp_path / "bytepairs.json").write_text(content)
        with pytest.raises(UserError, match=message):
            ByteLevelTokenizer.load(tmp_path, 257, 9)


@given(text=TEXTS, rows=st.sets(st.integers(1, 300), max_size=200), more=st.sets(st.integers(1, 50)))
def test_words_without_dropped_pieces_keep_their_pieces(teacher, text, rows, more):
    tokenizer = _loaded(teacher)[0].whole
    once = tokenizer.without(rows)
    for smaller, dropped in ((once, rows), (once.without(more), None)):
        kept = set(smaller.pieces)
        assert dropped is None or kept == {piece for row, piece in enumerate(tokenizer.pieces) if row not in dropped}
        for word in gpt2_words(text):
            before, after = ([one.pieces[row] for row in one.encode([word]).ids[:, 0]] for one in (tokenizer, smaller))
            assert set(after) <= kept
            if set(before) <= kept:
                assert after == before


def test_pieces_that_begin_a_word(teacher):
    tokenizer = teacher_vocabulary(teacher).whole
    begin = {piece for piece, begins in zip(tokenizer.pieces, tokenizer.begins_word, strict=True) if begins}
    assert "\u0120the" in begin
    assert not {"the", "\u0120", "\u0120.", "ing"} & begin
