"""Tokenizers: what holds for all of them, and the ids of characters and hashes."""

import hashlib

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from common.data.ragged import EncodedText
from common.errors import UserError
from compression.runtime import ALPHABET, HASHES
from compression.students.embeddings import load_tokenizer
from compression.students.settings import StudentSettings
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.char import OTHER, CharTokenizer
from compression.tokenizers.hash import HashTokenizer

TEXTS = [text for text, _ in tiny.sentences(60)]


def rows_of(encoded):
    return [encoded.ids[a:b].tolist() for a, b in zip(encoded.offsets, encoded.offsets[1:], strict=False)]


@pytest.fixture(params=["char", "hash", "bpe"])
def tokenizer(request, bpe_files):
    kinds = {
        "char": lambda: CharTokenizer(8),
        "hash": lambda: HashTokenizer(60, 10, 8),
        "bpe": lambda: BpeTokenizer(bpe_files[0], 8),
    }
    return kinds[request.param]()


def test_every_sentence_has_a_token_and_at_most_max_tokens(tokenizer):
    encoded = tokenizer.encode(["", TEXTS[0], "   ", "a"])
    assert len(encoded) == 4
    assert encoded.lengths.tolist()[:2] == [1, 8]
    assert encoded.lengths.min() >= 1


def test_a_sentences_tokens_do_not_depend_on_its_neighbours(tokenizer):
    together = rows_of(tokenizer.encode(TEXTS[:10]))
    assert together == [rows_of(tokenizer.encode([text]))[0] for text in TEXTS[:10]]


def test_case_does_not_matter(tokenizer):
    assert rows_of(tokenizer.encode(["A Film"])) == rows_of(tokenizer.encode(["a film"]))


def test_odd_text_is_encoded(tokenizer):
    encoded = tokenizer.encode(["\u2028", "日本語", "🙂" * 50, "\x00", "a\u0301"])
    assert encoded.lengths.min() >= 1
    assert encoded.lengths.max() <= 8


def test_saved_and_loaded_it_encodes_the_same(tokenizer, tmp_path):
    kind = type(tokenizer).__name__.removesuffix("Tokenizer").lower()
    settings = StudentSettings(embedding_type=kind, vocab_size=70 if kind == "bpe" else 60, max_tokens=8)
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(settings, tmp_path)
    assert rows_of(loaded.encode(TEXTS)) == rows_of(tokenizer.encode(TEXTS))


def test_characters():
    ids = rows_of(CharTokenizer(50).encode(["Ab z?", "é’1_", ""]))
    assert [row[0] for row in ids[0]] == [ALPHABET.index(c) + 1 for c in "ab z?"]
    assert [row[0] for row in ids[1]] == [ALPHABET.index("e") + 1, ALPHABET.index("'") + 1, OTHER, OTHER]
    assert ids[2] == [[OTHER]]
    assert len(ALPHABET) + 1 == 33


def test_hashes_are_md5_of_the_word_and_a_digit():
    # md5 of "film0", "film1", "film2": first eight bytes, little end first, modulo 5000 * 500.
    codes = [int.from_bytes(hashlib.md5(f"film{i}".encode()).digest()[:8], "little") % 2_500_000 for i in range(3)]
    assert rows_of(HashTokenizer(5000, 10, 512).encode(["Film"])) == [[codes]]


def test_hash_codes_stay_in_the_tables():
    tokenizer = HashTokenizer(60, 10, 512)
    encoded = tokenizer.encode(TEXTS)
    assert encoded.ids.shape[1] == HASHES
    assert encoded.ids.min() >= 0
    assert encoded.ids.max() < 60 * 6


def test_more_hash_codes_than_32_bits_hold_are_refused():
    with pytest.raises(UserError, match="--vocab-size 200000: too large for hash embeddings"):
        HashTokenizer(200_000, 10, 8)


@given(st.lists(st.lists(st.integers(1, 99), max_size=7), min_size=1, max_size=9), st.data())
def test_a_padded_batch_holds_its_sentences_and_zeros(sentences, data):
    encoded = EncodedText.from_lists(sentences, width=1, empty=(7,), max_tokens=5)
    rows = np.array(data.draw(st.lists(st.integers(0, len(sentences) - 1), min_size=1, max_size=6)))
    ids, lengths = encoded.pad(rows)
    assert ids.shape == (len(rows), lengths.max(), 1)
    for line, length, row in zip(ids[..., 0], lengths, rows, strict=True):
        expected = sentences[row][:5] or [7]
        assert line[:length].tolist() == expected
        assert not line[length:].any()
