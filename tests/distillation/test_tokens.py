"""Token ids: flat arrays, batches cut from them, and what is kept of them between runs."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.data.ragged import EncodedText
from common.data.split import Split
from common.data.tasks import load_task
from common.store.workspace import Workspace
from compression.distillation.token_cache import cached_tokens
from compression.tokenizers.char import CharTokenizer
from compression.tokenizers.hash import HashTokenizer

MAX_TOKENS = 4
TEXTS = st.lists(st.lists(st.integers(0, 99), max_size=7), min_size=1, max_size=9)


def texts_of(encoded):
    return [encoded.ids[start:end].tolist() for start, end in zip(encoded.offsets, encoded.offsets[1:], strict=False)]


@given(TEXTS, st.sampled_from([1, 3]))
def test_texts_are_cut_and_empty_ones_get_one_token(texts, width):
    tokens = [[[token + i for i in range(width)] for token in text] for text in texts]
    padding = list(range(width))
    encoded = EncodedText.from_lists(texts if width == 1 else tokens, width, padding, MAX_TOKENS)
    assert texts_of(encoded) == [text[:MAX_TOKENS] or [padding] for text in tokens]
    assert encoded.ids.dtype == np.int32


@given(TEXTS, st.data())
def test_a_batch_is_its_texts_with_zeros_behind(texts, data):
    encoded = EncodedText.from_lists(texts, 1, (7,), MAX_TOKENS)
    rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1)))
    ids, lengths = encoded.pad(rows)
    assert [text[:length].tolist() for text, length in zip(ids, lengths, strict=True)] == [
        texts_of(encoded)[row] for row in rows
    ]
    assert not any(text[length:].any() for text, length in zip(ids, lengths, strict=True))
    assert ids.shape[1] == lengths.max()


@given(TEXTS, TEXTS)
def test_joined_texts_are_those_of_one_part_and_then_the_other(first, second):
    parts = [EncodedText.from_lists(texts, 1, (7,), MAX_TOKENS) for texts in (first, second)]
    assert texts_of(EncodedText.joined(parts)) == texts_of(parts[0]) + texts_of(parts[1])


@pytest.mark.parametrize(
    ("text", "ids"),
    [("Ab", [2, 3]), ("é’", [6, 28]), ("😀a\U0010ffff", [0, 2, 0]), ("", [0]), ("x~", [25, 0])],
)
def test_characters(text, ids):
    encoded = CharTokenizer(8).encode([text, "a"])
    assert texts_of(encoded) == [[[i] for i in ids], [[2]]]


SPLIT = Split(["a film", "no film"], ["good", "bad"], np.zeros(2, np.int64), np.arange(2))


class Counting(CharTokenizer):
    """Counts the sentences that it encodes."""

    sentences = 0

    def encode(self, sentences):
        self.sentences += len(sentences)
        return super().encode(sentences)


def test_tokens_are_encoded_once(tmp_path):
    paths, task, tokenizer = Workspace(tmp_path), load_task("qqp"), Counting(9)
    encoded, cached = (cached_tokens(paths, task, tokenizer, dataclasses.replace(SPLIT)) for _ in range(2))
    assert tokenizer.sentences == 4
    for first, second in zip(encoded.columns, cached.columns, strict=True):
        assert texts_of(first) == texts_of(second)
    with pytest.raises(ValueError, match="read-only"):
        cached.text.ids[0] = 1  # mapped: a mistake here would change the file


def test_other_text_and_other_tokenizers_have_other_tokens(tmp_path):
    paths, task = Workspace(tmp_path), load_task("qqp")
    other = dataclasses.replace(SPLIT, sentence1=["a film", "no fun"])
    cached_tokens(paths, task, CharTokenizer(9), SPLIT)
    assert texts_of(cached_tokens(paths, task, CharTokenizer(9), other).text) == texts_of(
        CharTokenizer(9).encode(other.sentence1)
    )
    for tokenizer in (CharTokenizer(3), HashTokenizer(50, 10, 9), HashTokenizer(60, 10, 9)):
        cached = cached_tokens(paths, task, tokenizer, SPLIT)
        for column, encoded in zip(SPLIT.sentences(), cached.columns, strict=True):
            assert texts_of(encoded) == texts_of(tokenizer.encode(column))


def test_a_damaged_file_is_replaced(tmp_path):
    paths, task, tokenizer = Workspace(tmp_path), load_task("qqp"), CharTokenizer(9)
    cached_tokens(paths, task, tokenizer, SPLIT)
    for file in tmp_path.glob("data/qqp/tokens/*/ids1.npy"):
        file.write_bytes(file.read_bytes()[:-4])
    again = cached_tokens(paths, task, tokenizer, SPLIT)
    assert texts_of(again.second) == texts_of(tokenizer.encode(["good", "bad"]))
