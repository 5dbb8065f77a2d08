"""The `prune` action: sets weights to zero, removes units and vocabulary, and tunes with zeros kept at zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from common.errors import UserError
from common.progress import say
from compression.distillation.pruning import SparsityMask, masks, prunable, pruning_callback, set_zero, sparsity_by_part
from compression.distillation.settings import PruneSettings
from compression.shrinking.pruning.units import drop_layers, remove_heads, remove_units
from compression.shrinking.pruning.vocabulary import prune_vocabulary, training_ids
from compression.shrinking.settings import CompressSettings
from compression.shrinking.step import CompressionContext, Shrink
from compression.students.batch import EncodedRows
from compression.students.scoring import encode_split
from compression.tokenizers import PieceTokenizer

_SAMPLE = 1024
"""Training rows that the importance of units and heads is measured on."""


class Prune(Shrink):
    """Sets weights to zero, or removes units or tokens."""

    stage, named = "pruned", ("prune_movement", "prune_units", "prune_heads", "drop_layers", "prune_vocabulary")

    prune: PruneSettings

    @classmethod
    def label(cls, settings: CompressSettings) -> str:
        """Return +p; +pm for movement; +pu0.5h0.5l1v2 for units, heads, layers and vocabulary; -t if tuned."""
        name = f"u{settings.prune_units:g}" if settings.prune_units else ""
        name += f"h{settings.prune_heads:g}" if settings.prune_heads else ""
        name += f"l{settings.drop_layers}" if settings.drop_layers else ""
        name += f"v{settings.prune_vocabulary}" if settings.prune_vocabulary else ""
        if settings.prune_movement:
            name = f"m{name}"
        elif name and _prunes_weights(settings):
            name = f"w{name}"
        return f"+p{name}{'-t' if settings.tune_epochs else ''}"

    def reads(self) -> set[str]:
        """Return "text" if rare tokens are removed, "train" if units or heads are, to measure their importance."""
        read = set()
        if self.prune.prune_vocabulary:
            read.add("text")
        if self.prune.prune_units or self.prune.prune_heads:
            read.add("train")
        return read

    def apply(self, context: CompressionContext) -> dict[str, Any]:
        """Prune a student. Returns the sparsity and sizes reached. Raises UserError for a quantized student."""
        if context.parent.stage == "quantized":
            raise UserError(f"{context.parent.name} is quantized; prune it before quantizing")
        result: dict[str, Any] = {}
        if self.prune.prune_vocabulary:
            result["vocabulary"] = self._prune_vocabulary(context)
        if self.prune.drop_layers:
            result["layers"] = drop_layers(context.student, self.prune.drop_layers)
            context.widths.update(result["layers"])
        if self.prune.prune_heads:
            result["heads"] = remove_heads(context.student, self.prune.prune_heads, self._sample(context))
            context.widths.update(result["heads"])
        if self.prune.prune_units:
            result["units"] = remove_units(context.student, self.prune.prune_units, self._sample(context))
            context.widths.update(result["units"])
            left = (f"{name.removesuffix('_hidden_dim')} {width}" for name, width in result["units"].items())
            say(f"{context.name}: units left: {', '.join(left)}")
        result["sparsity"] = self._prune_weights(context)
        shares = (f"{part} {share:.1%}" for part, share in result["sparsity"].items() if "." not in part)
        say(f"{context.name}: sparsity {', '.join(shares)}")
        empty = [name for name, share in result["sparsity"].items() if "." in name and share == 1]
        if empty and not self.prune.prune_local:
            say(f"{context.name}: no weight is left in {', '.join(empty)}; --prune-local prunes each matrix by itself")
        return result

    def _prune_vocabulary(self, context: CompressionContext) -> dict[str, dict[str, int]]:
        least, ids = self.prune.prune_vocabulary, training_ids(context)
        context.tokenizer, rows = prune_vocabulary(context.student, context.tokenizer, ids, least)
        if isinstance(context.tokenizer, PieceTokenizer):
            context.widths["vocab_size"] = context.tokenizer.vocab_size
        for name, counts in rows.items():
            say(f"{context.name}: {name} keeps {counts['rows']:,} rows of {counts['before']:,}")
        return rows

    def _sample(self, context: CompressionContext) -> EncodedRows:
        train = context.text(augmented=False)
        rows = np.random.default_rng(0).permutation(len(train))[:_SAMPLE]
        return encode_split(context.tokenizer, train.take(rows))

    def _prune_weights(self, context: CompressionContext) -> dict[str, float]:
        """Prune single weights, at once or gradually while tuning, or only tune. Returns the sparsity of each part."""
        student = context.student
        if self.tuning and _prunes_weights(self.prune):
            pruner = pruning_callback(student, self.prune)
            context.tune(pruner, SparsityMask(pruner.parts))
            return pruner.finish()
        parts = prunable(student)
        if _prunes_weights(self.prune):
            set_zero(parts, masks(parts, self.prune))
        context.tune(SparsityMask(parts))
        return sparsity_by_part(parts)


def _prunes_weights(settings: PruneSettings) -> bool:
    """Return whether single weights are pruned: by their own flags, or when nothing else is."""
    flags = settings.prune_magnitude or settings.prune_topv or settings.prune_local or settings.prune_movement
    others = settings.prune_units or settings.prune_heads or settings.drop_layers or settings.prune_vocabulary
    return flags or settings.prune_threshold is not None or not others
