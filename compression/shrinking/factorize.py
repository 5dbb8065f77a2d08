"""The `factorize` action: matrices become products of two thin ones, which are then trained.

The singular value decomposition W = U S V^T cut at `rank` is the nearest matrix of that rank in squared error (Eckart
and Young, 1936). An embedding's rows are weighted by how often training text uses them: the directions that are kept
are those in which the vectors of real text differ.

Rearranging a matrix, with one row for each of its equal blocks, gives another singular value decomposition, and with it
the nearest sum of Kronecker products of two small matrices (Van Loan and Pitsianis, 1993), which with two factors is
also a tensor train (Oseledets, 2011). Low rank is the case where a block is a row.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch

from common.errors import UserError
from common.progress import say
from compression.distillation.pruning import SparsityMask, prunable, sparsity_by_part
from compression.shrinking.choices import DECOMPOSITIONS
from compression.shrinking.pruning.vocabulary import row_uses, training_ids
from compression.shrinking.settings import CompressSettings, FactorizeSettings
from compression.shrinking.step import CompressionContext, Shrink
from compression.students.weights import Dense, Product, matrices, replace_matrix

OUTPUT_LAYER = "classifier.3.weight"
"""Not factorized: its rows are the classes, all of which are needed."""


class Factorize(Shrink):
    """Replaces matrices by products of two where these are smaller."""

    stage, named = "factorized", ("rank", "decomposition")

    factorize: FactorizeSettings

    @classmethod
    def label(cls, settings: CompressSettings) -> str:
        """Return +f, the rank and the decomposition's suffix, -t when tuned."""
        suffix = DECOMPOSITIONS[settings.decomposition].suffix
        return f"+f{settings.rank:g}{suffix}{'-t' if settings.tune_epochs else ''}"

    def reads(self) -> set[str]:
        """Return "text" if the embedding is factorized: its rows are weighted by how often text uses them."""
        return {"text"} if "embedding" in self.factorize.factorize else set()

    def apply(self, context: CompressionContext) -> dict[str, Any]:
        """Replace matrices by products where these are smaller. Returns the rank of each.

        Raises UserError when nothing can be made smaller.
        """
        name, student, parent = context.name, context.student, context.parent
        candidates = self._candidates(context)
        smaller = {}
        for stem, weight in candidates.items():
            rank = rank_of(self.factorize.rank, weight.shape)
            if rank * sum(weight.shape) < weight.numel():
                smaller[stem] = rank
        if not smaller:
            raise UserError(f"--rank {self.factorize.rank:g}: no product would be smaller than its matrix")
        uses = row_uses(student, training_ids(context)) if self.reads() else {}
        for stem, rank in smaller.items():
            decomposition = DECOMPOSITIONS[self.factorize.decomposition]
            if stem.startswith("embedding.") and not decomposition.embedding:
                decomposition = DECOMPOSITIONS["svd"]
            replace_matrix(student, stem, decomposition.function(candidates[stem], rank, uses.get(stem)))
        say(f"{name}: " + ", ".join(f"{stem} of rank {rank}" for stem, rank in smaller.items()))
        if left := [stem for stem in candidates if stem not in smaller]:
            say(f"{name}: not factorized, the products would not be smaller: {', '.join(left)}")
        parts = prunable(student)
        context.tune(SparsityMask(parts))
        # Products have none of the zeros of the matrices they replace.
        sparsity = {"sparsity": sparsity_by_part(parts)} if "sparsity" in parent.compression else {}
        return {"rank": {**parent.compression.get("rank", {}), **smaller}, **sparsity}

    def _candidates(self, context: CompressionContext) -> dict[str, torch.Tensor]:
        """Return all matrices that could be factorized, by name. Raises UserError when there are none."""
        how, parent = self.factorize, context.parent.name
        if context.parent.stage == "quantized":
            raise UserError(f"{parent} is quantized; factorize it before quantizing")
        chosen = ((stem, matrix) for stem, matrix in matrices(context.student) if stem.split(".")[0] in how.factorize)
        candidates = {
            stem: matrix.value.detach()
            for stem, matrix in chosen
            if not stem.endswith((".left", ".right")) and stem != OUTPUT_LAYER and matrix.value.shape[1] > 1
        }
        if not candidates:
            raise UserError(f"{parent} has nothing left to factorize in {', '.join(how.factorize)}")
        largest = max(min(weight.shape) for weight in candidates.values())
        if how.rank > largest:
            raise UserError(f"--rank {how.rank:g} is higher than the rank of every matrix; the highest is {largest}")
        return candidates


def low_rank(weight: torch.Tensor, rank: int, uses: np.ndarray | None = None) -> Product:
    """Return the product nearest to a matrix [rows, columns], with each row's error weighted by `uses` + 1.

    The left factor's columns have the norms of the right factor's rows, so that neither is harder to quantize.
    """
    counts = torch.ones(len(weight)) if uses is None else torch.from_numpy(uses).float() + 1
    *_, right = torch.linalg.svd(counts.sqrt()[:, None] * weight, full_matrices=False)
    return Product(*_factors(weight, right[:rank]))


def kronecker(weight: torch.Tensor, rank: int, uses: np.ndarray | None = None) -> Product:
    """Return the sum of Kronecker products nearest to a matrix [rows, columns], over all block sizes.

    It has at most as many weights as a matrix of this rank, which is returned if it is equally near.
    """
    rows, columns = weight.shape
    weights = rank * (rows + columns)
    sides = itertools.product(divisors(columns), divisors(rows))  # low rank comes first, so it wins ties
    across, height = min(sides, key=lambda block: round(share_lost(weight, *block, weights), 6))
    blocks = cut(weight, across, height)
    *_, right = torch.linalg.svd(blocks, full_matrices=False)
    return Product(*_factors(blocks, right[: weights // sum(blocks.shape)]), across, height)


def cut(weight: torch.Tensor, across: int, height: int) -> torch.Tensor:
    """Return the blocks of a matrix as rows, in Product's order: [blocks, size of a block]."""
    rows, columns = weight.shape
    grid = weight.reshape(rows // height, height, across, columns // across)
    return grid.transpose(1, 2).reshape(rows // height * across, -1)


def share_lost(weight: torch.Tensor, across: int, height: int, weights: int) -> float:
    """Return the squared error of the nearest product over these blocks with at most `weights` weights.

    The error is relative to the sum of the matrix's squares.
    """
    blocks = cut(weight, across, height)
    squares = torch.linalg.svdvals(blocks).square()
    return (squares[weights // sum(blocks.shape) :].sum() / squares.sum().clamp(min=1e-12)).item()


def _factors(rows: torch.Tensor, right: torch.Tensor) -> tuple[Dense, Dense]:
    """Return each row's projection on the rows of `right`, whatever its weight, and these, with equal norms."""
    left = rows @ right.T  # [rows, rank]
    scale = left.norm(dim=0).clamp(min=1e-12).sqrt()
    return Dense(left / scale), Dense(right * scale[:, None])


def divisors(number: int) -> list[int]:
    """Return the divisors of a number in ascending order."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def rank_of(value: float, shape: torch.Size) -> int:
    """Return the rank for a matrix: --rank itself or, if it is below 1, that share of the full rank."""
    return int(value) if value >= 1 else max(1, round(value * min(shape)))
