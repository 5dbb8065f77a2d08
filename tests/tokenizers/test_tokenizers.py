"""Tokenizers: what holds for all of them, and the ids of characters and hashes."""

import hashlib

import pytest
import tiny

from common.errors import UserError
from compression.runtime import ALPHABET, HASHES
from compression.students.embeddings import load_tokenizer
from compression.students.settings import StudentSettings
from compression.tokenizers import UNKNOWN
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.unlearned import VOCABULARY_SIZE, CharTokenizer, HashTokenizer

TEXTS = [text for text, _ in tiny.sentences(60)]
ODD = ["", "   ", "a", "\u2028", "日本語", "🙂" * 50, "\x00", "a\u0301"]


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


def test_every_sentence_has_a_token_and_at_most_max_tokens_whatever_its_neighbours(tokenizer):
    encoded = tokenizer.encode([*ODD, *TEXTS[:10]])
    assert encoded.lengths.tolist()[0] == encoded.lengths.min() == 1
    assert encoded.lengths.max() == 8
    assert rows_of(encoded) == [rows_of(tokenizer.encode([text]))[0] for text in [*ODD, *TEXTS[:10]]]
    assert rows_of(tokenizer.encode(["A Film"])) == rows_of(tokenizer.encode(["a film"]))


def test_a_text_without_tokens_is_the_unknown_token(tokenizer):
    assert tokenizer.encode([""]).ids.tolist() == [list(tokenizer.unknown)]


def test_saved_and_loaded_it_encodes_the_same(tokenizer, tmp_path):
    kind = type(tokenizer).__name__.removesuffix("Tokenizer").lower()
    settings = StudentSettings(embedding_type=kind, vocab_size=70 if kind == "bpe" else 60, max_tokens=8)
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(settings, tmp_path)
    assert rows_of(loaded.encode(TEXTS)) == rows_of(tokenizer.encode(TEXTS))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Ab z?", [ALPHABET.index(c) + 1 for c in "ab z?"]),
        ("é’1_", [ALPHABET.index("e") + 1, ALPHABET.index("'") + 1, UNKNOWN, UNKNOWN]),
        ("😀a\U0010ffff", [UNKNOWN, 2, UNKNOWN]),
        ("", [UNKNOWN]),
    ],
)
def test_characters(text, ids):
    assert rows_of(CharTokenizer(50).encode([text, "a"])) == [[[i] for i in ids], [[2]]]
    assert VOCABULARY_SIZE == 33


def test_hashes_are_md5_of_the_word_and_a_digit():
    # md5 of "film0", "film1", "film2": first eight bytes, little end first, modulo 5000 * 500.
    codes = [int.from_bytes(hashlib.md5(f"film{i}".encode()).digest()[:8], "little") % 2_500_000 for i in range(3)]
    assert rows_of(HashTokenizer(5000, 10, 512).encode(["Film"])) == [[codes]]


def test_hash_codes_stay_in_the_tables_and_in_32_bits():
    ids = HashTokenizer(60, 10, 512).encode(TEXTS).ids
    assert ids.shape[1] == HASHES
    assert 0 <= ids.min() <= ids.max() < 60 * 6
    with pytest.raises(UserError, match="--vocab-size 200000: too large for hash embeddings"):
        HashTokenizer(200_000, 10, 8)
