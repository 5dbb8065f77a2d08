"""Batches of an epoch: every row comes once, with rows of about its length."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from common.training.batching import shuffled_batches, sorted_batches


@settings(max_examples=40)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=300), st.integers(1, 40), st.integers(0, 3))
def test_every_row_comes_once_an_epoch(lengths, size, epoch):
    lengths = np.array(lengths)
    batches = shuffled_batches(lengths, size, 1, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert max(map(len, batches)) <= size
    again = shuffled_batches(lengths, size, 1, epoch)
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))
    assert sorted(np.concatenate(sorted_batches(lengths, size)).tolist()) == list(range(len(lengths)))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=300), st.integers(1, 40))
def test_every_pair_comes_once_an_epoch(lengths, size):
    lengths = np.array(lengths)
    for batches in (shuffled_batches(lengths, size, 1, 0), sorted_batches(lengths, size)):
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
        assert max(map(len, batches)) <= size


def test_pairs_are_batched_by_the_lengths_of_both_texts():
    kinds = np.array([[2, 2], [2, 9], [9, 2], [9, 9]])
    lengths = kinds[np.random.default_rng(1).permutation(np.repeat(np.arange(4), 16))]
    for batches in (shuffled_batches(lengths, 16, 1, 0), sorted_batches(lengths, 16)):
        assert all((lengths[batch] == lengths[batch[0]]).all() for batch in batches)


def test_another_epoch_or_seed_has_another_order():
    lengths = np.ones(50, np.int64)
    orders = {tuple(np.concatenate(shuffled_batches(lengths, 7, *key))) for key in ((1, 0), (1, 1), (2, 0))}
    assert len(orders) == 3
