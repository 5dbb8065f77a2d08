"""The `factorize` action: matrices of low rank, each stored as a product of two thin ones, which are then trained.

The singular value decomposition W = U S V^T cut at `rank` is the nearest matrix of that rank in squared error (Eckart
and Young, 1936). An embedding's rows count as often as training text uses them: the directions that are kept are those
in which the vectors of real text differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from common.errors import UserError
from common.progress import say
from compression.shrinking.pruning.vocabulary import row_uses, training_sentences
from compression.shrinking.pruning.weights import SparsityMask, prunable, sparsity_by_part
from compression.shrinking.settings import CompressSettings, FactorizeSettings
from compression.shrinking.step import CompressionContext, Shrink
from compression.students.weights import Dense, Product, matrices, replace_matrix

OUTPUT_LAYER = "classifier.3.weight"
"""Its rows are the classes, none of which can be spared."""


class Factorize(Shrink):
    """Matrices become products of two where that is smaller."""

    stage, named = "factorized", ("rank",)

    factorize: FactorizeSettings

    @classmethod
    def label(cls, settings: CompressSettings) -> str:
        """Return +f and the rank; -t when tuned."""
        return f"+f{settings.rank:g}{'-t' if settings.tune_epochs else ''}"

    def reads(self) -> set[str]:
        """Return text where the embedding is factorized: its rows count as often as text uses them."""
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
            raise UserError(
                f"--rank {self.factorize.rank:g}: of no matrix would the product be smaller than the matrix itself"
            )
        uses = row_uses(student, context.tokenizer, training_sentences(context)) if self.reads() else {}
        for stem, rank in smaller.items():
            replace_matrix(student, stem, low_rank(candidates[stem], rank, uses.get(stem)))
        say(f"{name}: " + ", ".join(f"{stem} of rank {rank}" for stem, rank in smaller.items()))
        if left := [stem for stem in candidates if stem not in smaller]:
            say(f"{name}: not factorized, the products would not be smaller: {', '.join(left)}")
        parts = prunable(student, parent.arch, parent.student["embedding_type"])
        context.tune(SparsityMask(parts))
        # Products have none of the zeros of the matrices they replace.
        sparsity = {"sparsity": sparsity_by_part(parts)} if "sparsity" in parent.compression else {}
        return {"rank": {**parent.compression.get("rank", {}), **smaller}, **sparsity}

    def _candidates(self, context: CompressionContext) -> dict[str, torch.Tensor]:
        """Return all matrices that could be factorized, by name. Raises UserError when there are none."""
        own, parent = self.factorize, context.parent.name
        chosen = {stem: matrix for stem, matrix in matrices(context.student) if stem.split(".")[0] in own.factorize}
        if not all(isinstance(matrix, Dense) for matrix in chosen.values()):
            raise UserError(f"{parent} is quantized; factorize it before quantizing")
        candidates = {
            stem: matrix.value.detach()
            for stem, matrix in chosen.items()
            if not stem.endswith((".left", ".right")) and stem != OUTPUT_LAYER and matrix.value.shape[1] > 1
        }
        if not candidates:
            raise UserError(f"{parent} has nothing left to factorize in {', '.join(own.factorize)}")
        largest = max(min(weight.shape) for weight in candidates.values())
        if own.rank > largest:
            raise UserError(f"--rank {own.rank:g} is above the matrices' own; the largest is {largest}")
        return candidates


def low_rank(weight: torch.Tensor, rank: int, uses: np.ndarray | None = None) -> Product:
    """Return the product nearest to a matrix [rows, columns], each row's error counted `uses` + 1 times.

    Both factors have columns, or rows, of the same norm, so that neither is harder to quantize.
    """
    counts = torch.ones(len(weight)) if uses is None else torch.from_numpy(uses).float() + 1
    *_, right = torch.linalg.svd(counts.sqrt()[:, None] * weight, full_matrices=False)
    right = right[:rank]  # [rank, columns]
    left = weight @ right.T  # [rows, rank]: the projection of each row, whatever its count
    scale = left.norm(dim=0).clamp(min=1e-12).sqrt()
    return Product(Dense(left / scale), Dense(right * scale[:, None]))


def rank_of(value: float, shape: torch.Size) -> int:
    """Return the rank for a matrix: --rank itself, or below 1 that share of full rank."""
    return int(value) if value >= 1 else max(1, round(value * min(shape)))
