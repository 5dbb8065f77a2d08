"""The `factorize` action: matrices of low rank, each kept as a product of two thin ones, then training of these.

The singular value decomposition W = U S V^T cut at `rank` is the nearest matrix of that rank in squared error (Eckart
and Young, 1936). An embedding's rows count as often as training text uses them: what is kept is the directions in which
the vectors of real text differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from common.errors import UserError
from common.progress import say
from compression.shrinking.pruning.keeping import SparsityMask
from compression.shrinking.pruning.vocabulary import row_uses, training_sentences
from compression.shrinking.pruning.weights import prunable, sparsity_by_part
from compression.students.weights import Dense, Product, matrices, replace_matrix

if TYPE_CHECKING:
    from compression.settings import CompressSettings
    from compression.shrinking.context import CompressionContext

OUTPUT_LAYER = "classifier.3.weight"
"""It has a row a class, none of which can be spared."""


def suffix(settings: CompressSettings) -> str:
    """What factorising adds to a model's name: +f and the rank; -t where it is trained on."""
    return f"+f{settings.rank:g}{'-t' if settings.tune_epochs else ''}"


def apply(context: CompressionContext) -> dict[str, Any]:
    """Replace a student's matrices by products where these are smaller, in place, and train on where asked.

    Returns the rank of each, for its config. Raises UserError when nothing can be made smaller.
    """
    settings, name = context.settings, context.folder.name
    wanted = _wanted(context)
    ranks = {stem: rank_of(settings.rank, matrix.value.shape) for stem, matrix in wanted.items()}
    smaller = {stem: rank for stem, rank in ranks.items() if _pays(rank, wanted[stem].value.shape)}
    if not smaller:
        raise UserError(f"--rank {settings.rank:g}: of no matrix would the product be smaller than the matrix itself")
    uses = (
        row_uses(context.student, context.tokenizer, training_sentences(context))
        if "embedding" in settings.factorize
        else {}
    )
    for stem, rank in smaller.items():
        replace_matrix(context.student, stem, low_rank(wanted[stem].value.detach(), rank, uses.get(stem)))
    say(f"{name}: " + ", ".join(f"{stem} of rank {rank}" for stem, rank in smaller.items()))
    if left := [stem for stem in ranks if stem not in smaller]:
        say(f"{name}: left whole, for their products would be no smaller: {', '.join(left)}")
    parts = prunable(context.student, context.parent.arch, context.parent.student["embedding_type"])
    context.tune(SparsityMask(parts))
    # Products have no zeros of the matrices that they stand for.
    pruned = {"sparsity": sparsity_by_part(parts)} if "sparsity" in context.parent.compression else {}
    return {"rank": {**context.parent.compression.get("rank", {}), **smaller}, **pruned}


def low_rank(weight: torch.Tensor, rank: int, uses: np.ndarray | None = None) -> Product:
    """The product nearest to a matrix [rows, columns], each row's error counted `uses` + 1 times.

    Both factors have columns, or rows, of the same norm, so that neither is harder to quantize.
    """
    often = torch.ones(len(weight)) if uses is None else torch.from_numpy(uses).float() + 1
    *_, right = torch.linalg.svd(often.sqrt()[:, None] * weight, full_matrices=False)
    right = right[:rank]
    left = weight @ right.T  # the nearest place of each row, whatever its weight
    scale = left.norm(dim=0).clamp(min=1e-12).sqrt()
    return Product(Dense(left / scale), Dense(right * scale[:, None]))


def rank_of(asked: float, shape: torch.Size) -> int:
    """The rank for a matrix of a shape: below 1 a share of its full rank, at least 1. Raises UserError for 2.5."""
    if asked < 1:
        return max(1, round(asked * min(shape)))
    if asked != int(asked):
        raise UserError(f"--rank {asked:g}: a number of dimensions is a whole number")
    return int(asked)


def _pays(rank: int, shape: torch.Size) -> bool:
    return rank * sum(shape) < shape.numel()


def _wanted(context: CompressionContext) -> dict[str, Dense]:
    """Name and matrix of all that could be factorised. Raises UserError where there is nothing."""
    asked = context.settings.factorize
    of_parts = {stem: matrix for stem, matrix in matrices(context.student) if stem.split(".")[0] in asked}
    if not all(isinstance(matrix, Dense) for matrix in of_parts.values()):
        raise UserError(f"{context.parent.name} is quantized; factorize it before quantizing")
    fresh = {stem: matrix for stem, matrix in of_parts.items() if not stem.endswith((".left", ".right"))}
    wanted = {stem: matrix for stem, matrix in fresh.items() if stem != OUTPUT_LAYER and matrix.value.shape[1] > 1}
    if not wanted:
        raise UserError(f"{context.parent.name} has nothing left to factorize in {', '.join(asked)}")
    largest = max(min(matrix.value.shape) for matrix in wanted.values())
    if context.settings.rank > largest:
        raise UserError(f"--rank {context.settings.rank:g} is above the matrices' own; the largest is {largest}")
    return wanted
