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
from compression.shrinking.context import CompressionContext
from compression.shrinking.pruning.vocabulary import row_uses, training_sentences
from compression.shrinking.pruning.weights import SparsityMask, prunable, sparsity_by_part
from compression.shrinking.settings import CompressSettings
from compression.students.weights import Dense, Product, matrices, replace_matrix

OUTPUT_LAYER = "classifier.3.weight"
"""Its rows are the classes, none of which can be spared."""


def suffix(settings: CompressSettings) -> str:
    """Return what factorising adds to a model's name: +f and the rank; -t when tuned."""
    return f"+f{settings.rank:g}{'-t' if settings.tune_epochs else ''}"


def apply(context: CompressionContext) -> dict[str, Any]:
    """Replace a student's matrices by products where these are smaller, in place, and tune it with --tune-epochs.

    Returns the rank of each, for its config. Raises UserError when nothing can be made smaller.
    """
    settings, name, student = context.settings, context.name, context.student
    candidates = _candidates(context)
    ranks = {stem: rank_of(settings.rank, matrix.value.shape) for stem, matrix in candidates.items()}
    smaller = {stem: rank for stem, rank in ranks.items() if _is_smaller(rank, candidates[stem].value.shape)}
    if not smaller:
        raise UserError(f"--rank {settings.rank:g}: of no matrix would the product be smaller than the matrix itself")
    uses: dict[str, np.ndarray] = {}
    if "embedding" in settings.factorize:
        uses = row_uses(student, context.tokenizer, training_sentences(context))
    for stem, rank in smaller.items():
        replace_matrix(student, stem, low_rank(candidates[stem].value.detach(), rank, uses.get(stem)))
    say(f"{name}: " + ", ".join(f"{stem} of rank {rank}" for stem, rank in smaller.items()))
    if left := [stem for stem in ranks if stem not in smaller]:
        say(f"{name}: not factorized, the products would not be smaller: {', '.join(left)}")
    parts = prunable(student, context.parent.arch, context.parent.student["embedding_type"])
    context.tune(SparsityMask(parts))
    # Products have none of the zeros of the matrices they replace.
    sparsity = {"sparsity": sparsity_by_part(parts)} if "sparsity" in context.parent.compression else {}
    return {"rank": {**context.parent.compression.get("rank", {}), **smaller}, **sparsity}


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
    """Return the rank for a matrix: --rank itself, or below 1 that share of full rank. Raises UserError for 2.5."""
    if value < 1:
        return max(1, round(value * min(shape)))
    if value != int(value):
        raise UserError(f"--rank {value:g}: a number of dimensions is a whole number")
    return int(value)


def _is_smaller(rank: int, shape: torch.Size) -> bool:
    return rank * sum(shape) < shape.numel()


def _candidates(context: CompressionContext) -> dict[str, Dense]:
    """Return all matrices that could be factorized, by name. Raises UserError when there are none."""
    flags = context.settings.factorize
    chosen = {stem: matrix for stem, matrix in matrices(context.student) if stem.split(".")[0] in flags}
    if not all(isinstance(matrix, Dense) for matrix in chosen.values()):
        raise UserError(f"{context.parent.name} is quantized; factorize it before quantizing")
    whole = {stem: matrix for stem, matrix in chosen.items() if not stem.endswith((".left", ".right"))}
    candidates = {stem: matrix for stem, matrix in whole.items() if stem != OUTPUT_LAYER and matrix.value.shape[1] > 1}
    if not candidates:
        raise UserError(f"{context.parent.name} has nothing left to factorize in {', '.join(flags)}")
    largest = max(min(matrix.value.shape) for matrix in candidates.values())
    if context.settings.rank > largest:
        raise UserError(f"--rank {context.settings.rank:g} is above the matrices' own; the largest is {largest}")
    return candidates
