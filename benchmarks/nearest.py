"""Tucker decompositions, tensor trains and products of matrices within a number of weights, and their errors.

An error is a squared error, relative to the sum of the tensor's squares. A tensor train of three cores is a Tucker
decomposition of a tensor with three modes, whose second one is whole: it has no factor, and the core is the train's
second. Only decompositions with a factor for at least two modes are tried; with one, they are products of two matrices.
"""

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from compression.shrinking.factorize import cut, divisors
from compression.students.weights import Dense, Product

TRIES = 24
"""Ranks (and shapes, for a tensor train) of which the error is computed: those with the smallest bound."""
SWEEPS, GAIN = 10, 1e-5
"""The most sweeps of HOOI, and the reduction of the error by one below which there is no further one."""


Lost = dict[tuple[int, int], np.ndarray]
"""Blocks side by side and rows of a block -> `losses` of a matrix that is cut into them."""


class Ranks(NamedTuple):
    """Ranks of the three modes.

    The error is at most `bound`, the sum of the single modes' errors, and at least `least`, the largest of them.
    """

    bound: float
    least: float
    ranks: tuple[int, ...]


def tucker(tensor: torch.Tensor, ranks: Sequence[int]) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """Return the core, of shape `ranks`, and the factor [length, rank] of each mode, None if it is whole.

    The factors of successive singular value decompositions (of a tensor train's modes these are TT-SVD: Oseledets,
    2011, algorithm 1) are improved in turn (HOOI: De Lathauwer, De Moor and Vandewalle, 2000, section 4).
    """
    modes = [mode for mode, rank in enumerate(ranks) if rank < tensor.shape[mode]]
    factors: list[torch.Tensor | None] = [None] * tensor.dim()
    kept, squares = -math.inf, tensor.square().sum().item()
    for _ in range(1 + SWEEPS):
        for mode in modes:
            others = [None if other == mode else factor for other, factor in enumerate(factors)]
            unfolded = unfold(project(tensor, others), mode)
            factors[mode] = torch.linalg.svd(unfolded, full_matrices=False).U[:, : ranks[mode]]
        core = project(tensor, factors)
        before, kept = kept, core.square().sum().item() / squares
        if len(modes) < 2 or kept - before < GAIN:
            break
    return core, factors


def project(tensor: torch.Tensor, factors: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Return the tensor multiplied by the transpose of each mode's factor [length, rank], unless it is None."""
    for mode, factor in enumerate(factors):
        if factor is not None:
            tensor = torch.tensordot(tensor, factor, ([mode], [0])).movedim(-1, mode)
    return tensor


def unfold(tensor: torch.Tensor, mode: int) -> torch.Tensor:
    """Return the matrix [length of the mode, product of the others]."""
    return tensor.movedim(mode, 0).flatten(1)


def weights_of(shape: Sequence[int], ranks: Sequence[Any]) -> Any:
    """Return the number of weights of a Tucker decomposition, core included. ranks: numbers, or arrays of them."""
    factors = (np.where(rank < length, rank * length, 0) for rank, length in zip(ranks, shape, strict=True))
    return math.prod(ranks) + sum(factors)


def losses(matrix: torch.Tensor) -> np.ndarray:
    """Return the error of the nearest matrix of each rank from 0, float64 [full rank + 1]."""
    wide = matrix if len(matrix) <= matrix.shape[1] else matrix.T
    squares = torch.linalg.eigvalsh((wide @ wide.T).double()).clamp(min=0).numpy()  # ascending
    return np.append(squares.cumsum()[::-1] / squares.sum(), 0.0)


def product_error(lost: np.ndarray, shape: Sequence[int], budget: int) -> float:
    """Return the error of the nearest product of two matrices. lost: `losses` of the matrix of this shape."""
    return float(lost[min(budget // sum(shape), len(lost) - 1)])


def allotted_error(lost: Sequence[np.ndarray], shapes: Sequence[Sequence[int]], budget: int) -> float:
    """Return the mean error of a product for each of several matrices, with ranks chosen to make it small.

    Ranks grow where this reduces the error most for each weight. lost: `losses` of each matrix.
    """
    gains = [
        (gain / sum(shape), index)
        for index, (errors, shape) in enumerate(zip(lost, shapes, strict=True))
        for gain in -np.diff(errors)
    ]
    ranks = [0] * len(shapes)
    for _, index in sorted(gains, reverse=True):
        if sum(shapes[index]) <= budget:
            ranks[index] += 1
            budget -= sum(shapes[index])
    return statistics.fmean(float(errors[rank]) for errors, rank in zip(lost, ranks, strict=True))


def block_losses(weight: torch.Tensor) -> Lost:
    """Return the `losses` of a matrix cut into blocks, for all numbers of blocks side by side and rows of a block."""
    rows, columns = weight.shape
    return {sides: losses(cut(weight, *sides)) for sides in itertools.product(divisors(columns), divisors(rows))}


def nearest_kronecker(weight: torch.Tensor, lost: Lost, budget: int) -> torch.Tensor:
    """Return the nearest sum of Kronecker products, dense. lost: `block_losses` of the matrix."""

    def error(sides: tuple[int, int]) -> float:
        return product_error(lost[sides], cut(weight, *sides).shape, budget)

    across, height = min(lost, key=error)
    blocks = cut(weight, across, height)
    rank = budget // sum(blocks.shape)
    left, values, right = torch.linalg.svd(blocks, full_matrices=False)
    product = Product(Dense(left[:, :rank] * values[:rank]), Dense(right[:rank]), across, height)
    return product.dense().detach()


def nearest_tucker(tensor: torch.Tensor, budget: int) -> torch.Tensor | None:
    """Return the best Tucker decomposition of a tensor with three modes, dense, None if none fits."""
    lost = [losses(unfold(tensor, mode)) for mode in range(3)]
    tried = [(ranks, tensor) for ranks in ranks_within(tensor.shape, lost, budget)]
    return _nearest(tried)[0] if tried else None


def nearest_train(weight: torch.Tensor, lost: Lost, budget: int) -> torch.Tensor | None:
    """Return the best tensor train of three cores of a matrix, dense, None if none fits.

    Each core has one of three factors of the rows and one of the columns (Novikov et al., 2015, section 3), in all
    ways that leave no core without either. lost: `block_losses` of the matrix.
    """
    candidates = []
    for high, wide in itertools.product(*map(triples, weight.shape)):
        shape = tuple(h * w for h, w in zip(high, wide, strict=True))
        if min(shape) > 1:
            # The unfoldings of the first and the last mode are cuts into blocks.
            ends = lost[wide[0], high[1] * high[2]], None, lost[wide[0] * wide[1], high[2]]
            candidates += [(ranks, high, wide) for ranks in ranks_within(shape, ends, budget, most=1)]
    if not candidates:
        return None
    candidates = sorted(candidates)[:TRIES]
    near, best = _nearest([(ranks, modes_of(weight, high, wide)) for ranks, high, wide in candidates])
    _, high, wide = candidates[best]
    blocks = near.reshape([side for sides in zip(high, wide, strict=True) for side in sides])
    return blocks.permute(0, 2, 4, 1, 3, 5).reshape(weight.shape)


def modes_of(weight: torch.Tensor, high: Sequence[int], wide: Sequence[int]) -> torch.Tensor:
    """Return a matrix as a tensor whose modes have one factor of the rows (high) and one of the columns (wide) each."""
    count = len(high)
    order = [axis for mode in range(count) for axis in (mode, count + mode)]
    return weight.reshape(*high, *wide).permute(order).reshape([h * w for h, w in zip(high, wide, strict=True)])


def ranks_within(
    shape: Sequence[int], lost: Sequence[np.ndarray | None], budget: int, most: int = TRIES
) -> list[Ranks]:
    """Return the ranks with the smallest bound that are within the budget, at most so many.

    lost: `losses` of each mode's unfolding, None for a second mode that stays whole.
    """
    candidates = []
    first = np.arange(1, min(shape[0], len(lost[0]) - 1) + 1)
    for second in [shape[1]] if lost[1] is None else range(1, min(shape[1], len(lost[1]) - 1) + 1):
        left = budget - weights_of(shape[:2], (first, second)) + first * second  # the core is counted below
        # A rank above the product of the others adds weights only.
        highest = np.minimum(shape[2] - 1, first * second)
        for third in (np.minimum(left // (first * second + shape[2]), highest), np.full_like(first, shape[2])):
            fits = (third > 0) & (weights_of(shape, (first, second, third)) <= budget)
            fits &= (first < shape[0]).astype(int) + (second < shape[1]) + (third < shape[2]) > 1
            fits &= (first <= second * third) & (second <= first * third) & (third <= first * second)
            single = [lost[0][first[fits]], lost[2][np.minimum(third[fits], len(lost[2]) - 1)]]
            single += [] if lost[1] is None else [np.full_like(single[0], lost[1][second])]
            bound, least = np.sum(single, 0), np.max(single, 0)
            for index in bound.argsort()[:most]:
                ranks = (int(first[fits][index]), second, int(third[fits][index]))
                candidates.append(Ranks(float(bound[index]), float(least[index]), ranks))
    return sorted(candidates)[:most]


def _nearest(tried: Sequence[tuple[Ranks, torch.Tensor]]) -> tuple[torch.Tensor, int]:
    """Return the nearest of Tucker decompositions with these ranks of these tensors, dense, and its index."""
    least, near, best = math.inf, tried[0][1], 0
    for index, (ranks, tensor) in enumerate(tried):
        if ranks.least < least:
            core, factors = tucker(tensor, ranks.ranks)
            dense = project(core, [None if factor is None else factor.T for factor in factors])
            if (error := relative_error(dense, tensor)) < least:
                least, near, best = error, dense, index
    return near, best


def relative_error(near: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the squared error, relative to the sum of squares."""
    return ((near - exact).square().sum() / exact.square().sum()).item()


def triples(number: int) -> Iterator[tuple[int, int, int]]:
    """Yield all products of three numbers that are this one."""
    for first in divisors(number):
        for second in divisors(number // first):
            yield first, second, number // first // second


def smooth(number: int) -> int:
    """Return the next number whose prime factors are at most 7: 30518 -> 30618."""
    return next(n for n in itertools.count(number) if 210 ** n.bit_length() % n == 0)
