"""The settings of fastText that are tried, fixed beforehand, and which of the files they make is chosen."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from fasttext_models import Cut, Draw, File

from common.seeds import derive

USUAL: dict[str, tuple[Any, ...]] = {
    "dim": (2, 10),
    "wordNgrams": (1, 2),
    "minn_maxn": ((0, 0), (2, 4), (3, 6)),
    "minCount": (5,),
    "bucket": (50_000,),
    "lr": (0.1, 0.25, 0.5),
    "passes": (5,),
    "dsub": (2,),
    "qnorm": (False,),
}
"""What anybody would try first, and all of it is; by fastText's names, dsub and qnorm being of quantizing.

passes: epochs counted in rows of train, so that augmented rows cost no more steps.
"""
WIDE: dict[str, tuple[Any, ...]] = {
    "dim": (2, 4, 10),
    "wordNgrams": (1, 2, 3),
    "minn_maxn": ((0, 0), (2, 4), (3, 6)),
    "minCount": (1, 5, 50),
    "bucket": (2_000, 10_000, 50_000, 200_000),
    "lr": (0.05, 0.1, 0.25, 0.5),
    "passes": (5, 20),
    "dsub": (2, 4),
    "qnorm": (False, True),
}
"""Of these only some are tried, at random: that covers each axis better than as many in a grid (Bergstra and Bengio,
2012)."""
RETRAIN = (0, 5)
"""Passes for which a quantized model is trained on, once the features that do not fit are gone."""


def settings_tried(draws: int) -> list[Draw]:
    """All of USUAL, and the first `draws` of a fixed shuffle of WIDE."""
    usual, wide = (
        [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())] for grid in (USUAL, WIDE)
    )
    order = np.random.default_rng(derive("fasttext", "grid")).permutation(len(wide))
    return usual + [wide[i] for i in order[:draws]]


def cuts(sizes: Sequence[int]) -> list[Cut]:
    """What is made of each model: it as it is, and for every size one cut and one trained on after it."""
    return [(None, 0), *itertools.product(sorted(sizes), RETRAIN)]


def best_within(files: Sequence[File], size: int | None) -> File | None:
    """The file with the best validation score of those with at most `size` bytes; of equals the smallest.

    size: None asks among the models that are not quantized, and a number never does. None where nothing fits.
    """
    made = [file for file in files if file.error is None and (file.size is None) == (size is None)]
    fitting = [file for file in made if size is None or file.bytes <= size]
    return min(fitting, key=lambda file: (-file.validation, file.bytes), default=None)
