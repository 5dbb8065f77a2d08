"""Length-bucketed batches: rows of similar length together, so that there is little padding."""

import numpy as np

from common.seeds import derive

# Batches in a pool that is sorted by length at a time: large enough for even lengths, small enough to stay random.
POOL_BATCHES = 64


def shuffled_batches(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Return row indices of one epoch's batches. lengths: int [n].

    Every row comes exactly once (no remainder is dropped); the order depends on the arguments only.
    """
    rng = np.random.default_rng(derive("batches", seed, epoch))
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), batch_size * POOL_BATCHES):
        pool = order[start : start + batch_size * POOL_BATCHES]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def sorted_batches(lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Return row indices of batches by length, longest first: for scoring, where order does not matter."""
    order = np.argsort(-lengths, kind="stable")
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
