"""Length-bucketed batches: rows of similar length together, so that there is little padding."""

import math

import numpy as np

from common.seeds import derive

POOL_BATCHES = {1: 64, 2: 256}
"""Texts per row -> batches in a pool of rows that are sorted by length together: large enough for even lengths, small
enough to stay random. Pairs are sorted by two lengths, which takes more rows."""


def shuffled_batches(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Return row indices of one epoch's batches. lengths: int [n], or int [n, 2] for pairs.

    Every row occurs exactly once (no remainder is dropped); the order depends on the arguments only.
    """
    rng = np.random.default_rng(derive("batches", seed, epoch))
    order = rng.permutation(len(lengths))
    size = batch_size * POOL_BATCHES[lengths.ndim]
    pools = (order[start : start + size] for start in range(0, len(order), size))
    batches = [batch for pool in pools for batch in _similar(pool, lengths, batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def sorted_batches(lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Return row indices of batches by length, longest first: for scoring, where order does not matter."""
    return _similar(np.arange(len(lengths)), -lengths, batch_size)


def _similar(rows: np.ndarray, lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Return rows sorted by length, cut into batches; pairs are sorted by the first text, then in runs by the second.

    On QQP a fifth of the cells is padding; sorted by the sum of both lengths, it would be two fifths.
    """
    if lengths.ndim == 1:
        rows = rows[np.argsort(lengths[rows], kind="stable")]
    else:
        first, second = lengths.T
        rows = rows[np.argsort(first[rows], kind="stable")]
        run = batch_size * max(1, round(math.sqrt(len(rows) / batch_size)))
        runs = (rows[start : start + run] for start in range(0, len(rows), run))
        rows = np.concatenate([members[np.argsort(second[members], kind="stable")] for members in runs])
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
