"""Token ids: flat arrays, batches cut from them, and their cache."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.data.split import Split
from common.kinds.ragged import EncodedText
from compression.distillation.token_cache import cached_tokens
from compression.students.batch import EncodedRows
from compression.tokenizers.unlearned import CharTokenizer, HashTokenizer

TEXTS = st.lists(st.lists(st.integers(0, 99), max_size=7), min_size=1, max_size=9)


def texts_of(encoded):
    return [encoded.ids[start:end].tolist() for start, end in zip(encoded.offsets, encoded.offsets[1:], strict=False)]


def encode(texts, width=1):
    """Texts of tokens [t, t + 1, ...], cut at four; an empty one is [0, 1, ...]."""
    tokens = [[[token + i for i in range(width)] for token in text] for text in texts]
    return EncodedText.from_lists(texts if width == 1 else tokens, width, range(width), 4), tokens


@given(TEXTS, st.sampled_from([1, 3]))
def test_texts_are_cut_and_empty_ones_get_one_token(texts, width):
    encoded, tokens = encode(texts, width)
    assert texts_of(encoded) == [text[:4] or [list(range(width))] for text in tokens]
    assert encoded.ids.dtype == np.int32


@given(TEXTS, TEXTS, st.data())
def test_a_batch_is_its_texts_with_zeros_behind_and_parts_are_joined_in_order(first, second, data):
    parts = [encode(texts)[0] for texts in (first, second)]
    encoded = EncodedText.joined(parts)
    assert texts_of(encoded) == texts_of(parts[0]) + texts_of(parts[1])
    rows = np.array(data.draw(st.lists(st.integers(0, len(encoded) - 1), min_size=1)))
    ids, lengths = encoded.pad(rows)
    assert ids.shape == (len(rows), lengths.max(), 1)
    for text, length, row in zip(ids, lengths, rows, strict=True):
        assert text[:length].tolist() == texts_of(encoded)[row]
        assert not text[length:].any()


@pytest.mark.parametrize("width", [1, 3])
def test_a_share_of_the_words_of_a_batch_becomes_unknown(width):
    """All numbers of a hashed word change at once; padding stays, and the same seed draws the same words."""
    texts = [range(1, 500), range(1, 100), range(7, 8)]
    text = EncodedText.from_lists(
        [[[n] * width for n in text] if width > 1 else text for text in texts], width, (), 999
    )
    batch = EncodedRows(text, text).batch(np.arange(3), torch.device("cpu"))
    unknown = (9999, 8888, 7777)[:width]
    torch.manual_seed(1)
    dropped = batch.without_words(0.3, unknown)
    for before, after in zip(batch.sentences, dropped.sentences, strict=True):
        changed = (after.ids != before.ids).any(2)
        assert (after.ids[changed] == torch.tensor(unknown)).all()
        assert not changed[before.ids[..., 0] == 0].any()
        assert 0.2 < changed.sum() / (before.ids[..., 0] != 0).sum() < 0.4
        assert torch.equal(after.lengths, before.lengths)
    assert not torch.equal(dropped.ids, dropped.second.ids)
    torch.manual_seed(1)
    assert torch.equal(batch.without_words(0.3, unknown).ids, dropped.ids)


SPLIT = Split(["a film", "no film"], ["good", "bad"], np.zeros(2, np.int64), np.arange(2))


@pytest.fixture
def cached(tmp_path):
    """From a tokenizer, and a split, to the tokens of each column."""

    def columns(tokenizer, split=SPLIT):
        return cached_tokens(tmp_path, tokenizer, split).columns

    return columns


class Counting(CharTokenizer):
    """Counts the sentences that it encodes."""

    sentences = 0

    def encode(self, sentences):
        self.sentences += len(sentences)
        return super().encode(sentences)


def test_tokens_are_encoded_once_and_a_damaged_file_is_replaced(tmp_path, cached):
    tokenizer = Counting(9)
    encoded, again = (cached(tokenizer, dataclasses.replace(SPLIT)) for _ in range(2))
    assert tokenizer.sentences == 4
    assert [texts_of(column) for column in again] == [texts_of(column) for column in encoded]
    with pytest.raises(ValueError, match="read-only"):
        again[0].ids[0] = 1  # mapped: a mistake here would change the file
    for file in tmp_path.glob("*/ids1.npy"):
        file.write_bytes(file.read_bytes()[:-4])
    assert texts_of(cached(tokenizer)[1]) == texts_of(encoded[1])


def test_other_text_and_other_tokenizers_have_other_tokens(cached):
    other = dataclasses.replace(SPLIT, sentence1=["a film", "no fun"])
    for split in (SPLIT, other):
        for tokenizer in (CharTokenizer(9), CharTokenizer(3), HashTokenizer(50, 10, 9), HashTokenizer(60, 10, 9)):
            expected = [texts_of(tokenizer.encode(column)) for column in split.sentences()]
            assert [texts_of(column) for column in cached(tokenizer, split)] == expected
