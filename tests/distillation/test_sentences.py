"""Pairs of consecutive texts: where texts are divided, and which pairs are changed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kinds.ragged import EncodedText
from compression.distillation.sentences import changed, divided
from compression.students.batch import Batch, EncodedRows
from compression.tokenizers.wordpiece import WordPieceTokenizer

PIECES = ["[UNK]", "a", "b", "##c", ".", "!", ",", "1"]
TOKENIZER = WordPieceTokenizer(PIECES, True, 99)
TEXTS = st.lists(st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=12), min_size=1, max_size=6)


def encoded(texts):
    return EncodedText.from_lists(texts, 1, (0,), 99)


def lists(text):
    return [text.ids[start:end, 0].tolist() for start, end in zip(text.offsets, text.offsets[1:], strict=False)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a b . a b b b b b b", ("a b .", "a b b b b b b")),  # the end of a sentence, far from the middle
        ("a . a a a a . a ! a", ("a . a a a a .", "a ! a")),  # the end that is nearest the middle
        ("a . a a . a", ("a .", "a a . a")),  # not in the middle, where no sentence ends
        ("a b a b", ("a b", "a b")),  # one sentence: between two words, in the middle
        ("a b ##c ##c b .", ("a b ##c ##c", "b .")),  # not within a word
        ("a , a a", ("a ,", "a a")),
        ("1 . . ! a", ("1 . . !", "a")),
        ("a b .", ("a", "b .")),  # nothing follows the end
    ],
)
def test_texts_are_divided_after_a_sentence_or_between_words(text, parts):
    rows = divided(encoded([[PIECES.index(piece) for piece in text.split()]]), TOKENIZER)
    found = [" ".join(PIECES[piece] for piece in lists(column)[0]) for column in rows.columns]
    assert tuple(found) == parts


@settings(max_examples=30)
@given(TEXTS)
def test_both_parts_are_the_text_and_texts_without_a_second_word_are_left_out(texts):
    rows = divided(encoded(texts), TOKENIZER)
    whole = [text for text in texts if any(PIECES[piece][0].isalnum() for piece in text[1:])]
    firsts, seconds = map(lists, rows.columns)
    assert [first + second for first, second in zip(firsts, seconds, strict=True)] == whole
    assert all(firsts)
    assert all(PIECES[second[0]][0].isalnum() for second in seconds)


def batch_of(pairs):
    columns = EncodedRows(*(encoded([pair[side] for pair in pairs]) for side in (0, 1)))
    return columns.batch(np.arange(len(pairs)), torch.device("cpu"))


def texts_of(batch: Batch):
    return [[ids[:n, 0].tolist() for ids, n in zip(each.ids, each.lengths, strict=True)] for each in batch.sentences]


PARTS = st.lists(st.integers(0, 50), min_size=1, max_size=5)


@settings(max_examples=30)
@given(st.lists(st.tuples(PARTS, PARTS), min_size=1, max_size=8), st.integers(0, 99))
def test_pairs_stay_or_are_changed(pairs, seed):
    for task in ("order", "next"):
        torch.manual_seed(seed)
        batch, stays = changed(batch_of(pairs), task)
        for number, (first, second, stay) in enumerate(zip(*texts_of(batch), stays.tolist(), strict=True)):
            own, before = pairs[number], pairs[number - 1]
            assert (first, second) == (own if stay else own[::-1] if task == "order" else (own[0], before[1]))
        assert task == "order" or len(pairs) > 1 or stays.tolist() == [1]
        # No wider than the longest text: losses of the teacher's states take all that is there.
        assert [each.ids.shape[1] for each in batch.sentences] == [int(each.lengths.max()) for each in batch.sentences]


def test_about_half_of_all_pairs_stay():
    torch.manual_seed(1)
    for task in ("order", "next"):
        _, stays = changed(batch_of([([1], [2])] * 2000), task)
        assert stays.float().mean().item() == pytest.approx(0.5, abs=0.04)
