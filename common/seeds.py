"""The thesis's named seeds and the one place that seeds random numbers."""

import hashlib
import random

import numpy as np

# Section 6.2 of the thesis.
NAMED_SEEDS = {"bennington": 3201976, "hadfield": 8291959, "feynman": 5111918, "simone": 2211933}
DEFAULT_SEED = NAMED_SEEDS["bennington"]


def derive(*parts: int | str) -> int:
    """Return a 63-bit seed from any parts, the same on every machine: independent streams from one user seed."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def drawn(count: int, share: float, seed: int, purpose: str) -> np.ndarray:
    """Return the sorted indices of a random share of `count` rows, at least one; seed and purpose determine which."""
    if share == 1:
        return np.arange(count)
    order = np.random.default_rng(derive(purpose, seed)).permutation(count)
    return np.sort(order[: max(1, round(count * share))])


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and PyTorch's global generators and ask PyTorch for deterministic kernels."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    # Like use_deterministic_algorithms, which would also load PyTorch's compiler for its settings and take seconds.
    torch.set_deterministic_debug_mode("warn" if torch.cuda.is_available() else "error")
    # Deterministic mode fills new memory with NaN to expose reads of it, which takes a fifth of a student's step.
    torch.utils.deterministic.fill_uninitialized_memory = False
