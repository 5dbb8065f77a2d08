"""The `prune` action: weights to zero, units and vocabulary out of the student, then training that keeps them so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from common.data.split import load_split
from common.errors import UserError
from common.progress import say
from compression.settings import CompressSettings
from compression.shrinking.pruning.gradual import GradualPruner
from compression.shrinking.pruning.keeping import SparsityMask
from compression.shrinking.pruning.movement import MovementPruner
from compression.shrinking.pruning.units import remove_units
from compression.shrinking.pruning.vocabulary import prune_vocabulary, training_sentences
from compression.shrinking.pruning.weights import TARGETS, Prunable, masks, prunable, set_zero, sparsity_by_part
from compression.students.scoring import encode_split
from compression.students.student import Student
from compression.students.weights import Dense, matrices
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from compression.shrinking.context import CompressionContext

_SAMPLE = 1024
"""Training rows that units are measured on."""
__all__ = [
    "TARGETS",
    "GradualPruner",
    "Prunable",
    "apply",
    "prunable",
    "pruning_callback",
    "sparsity_by_part",
    "suffix",
]


def suffix(settings: CompressSettings) -> str:
    """What pruning adds to a model's name: +p; +pm by movement; +pu0.5v2 of units and vocabulary; -t when tuned."""
    name = f"u{settings.prune_units:g}" if settings.prune_units else ""
    name += f"v{settings.prune_vocabulary}" if settings.prune_vocabulary else ""
    weights = ("m" if settings.prune_movement else "w" if name else "") if _prunes_weights(settings) else ""
    return f"+p{weights}{name}{'-t' if settings.tune_epochs else ''}"


def apply(context: CompressionContext) -> dict[str, Any]:
    """Prune a student in place, training it on where --tune-epochs asks. Returns what was reached, for its config.

    Raises UserError for a quantized student, and where movement pruning has no training to learn from.
    """
    settings, parent = context.settings, context.parent
    if not all(isinstance(matrix, Dense) for _, matrix in matrices(context.student)):
        raise UserError(f"{parent.name} is quantized; prune it before quantizing")
    if settings.prune_movement and not settings.tune_epochs:
        raise UserError("--prune-movement learns what to prune: give --tune-epochs, or --prune-aware when distilling")
    reached: dict[str, Any] = {}
    if settings.prune_vocabulary:
        reached["vocabulary"] = _prune_vocabulary(context)
    if settings.prune_units:
        reached["units"] = _prune_units(context)
    reached["sparsity"] = _prune_weights(context)
    shares = (f"{part} {share:.1%}" for part, share in reached["sparsity"].items() if "." not in part)
    say(f"{context.folder.name}: sparsity {', '.join(shares)}")
    return reached


def pruning_callback(student: Student, settings: CompressSettings) -> GradualPruner | MovementPruner:
    """What prunes a student while it is distilled, with the targets `prune` would use; `finish` it afterwards."""
    return _callback(student, settings.student_arch, settings.embedding_type, settings)


def _callback(
    student: Student, arch: str, embedding_type: str, settings: CompressSettings
) -> GradualPruner | MovementPruner:
    if settings.prune_movement:
        return MovementPruner(student, arch, embedding_type, settings)
    return GradualPruner(prunable(student, arch, embedding_type), settings)


def _prunes_weights(settings: CompressSettings) -> bool:
    """Whether single weights are pruned: where asked for, and where nothing else is."""
    asked = settings.prune_magnitude or settings.prune_topv or settings.prune_local or settings.prune_movement
    others = settings.prune_units or settings.prune_vocabulary
    return asked or settings.prune_threshold is not None or not others


def _prune_weights(context: CompressionContext) -> dict[str, float]:
    """Prune weights where that is asked for, at once or while training. Returns the sparsity reached by part."""
    student, settings = context.student, context.settings
    kind = context.parent.arch, context.parent.student["embedding_type"]
    parts = prunable(student, *kind)
    if settings.tune_epochs and _prunes_weights(settings):
        pruner = _callback(student, *kind, settings)
        context.tune(pruner, SparsityMask(pruner.parts))
        return pruner.finish()
    if _prunes_weights(settings):
        set_zero(parts, masks(parts, settings))
    context.tune(SparsityMask(parts))
    return sparsity_by_part(parts)


def _prune_units(context: CompressionContext) -> dict[str, int]:
    settings = context.settings
    train = load_split(settings.paths, context.task, "train")
    rows = np.random.default_rng(0).permutation(len(train))[:_SAMPLE]
    encoded = encode_split(context.tokenizer, train.take(rows))
    widths = remove_units(context.student, settings.prune_units, encoded, context.parent.pair)
    context.widths.update(widths)
    left = (f"{name.removesuffix('_hidden_dim')} {width}" for name, width in widths.items())
    say(f"{context.folder.name}: units left: {', '.join(left)}")
    return widths


def _prune_vocabulary(context: CompressionContext) -> dict[str, dict[str, int]]:
    sentences = training_sentences(context)
    context.tokenizer, reached = prune_vocabulary(
        context.student, context.tokenizer, sentences, context.settings.prune_vocabulary
    )
    if isinstance(context.tokenizer, BpeTokenizer | WordPieceTokenizer):
        context.widths["vocab_size"] = context.tokenizer.vocab_size
    for name, rows in reached.items():
        say(f"{context.folder.name}: {name} uses {rows['rows']:,} rows of {rows['before']:,}")
    return reached
