"""Teachers: large encoders fine-tuned for a task. One interface, a file per backend.

Backends are imported only when asked for: their libraries are large.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from common.progress import Advance, nothing
from common.training.models import members_of

if TYPE_CHECKING:
    import numpy as np
    import torch

    from common.data.data import Split

FAIRSEQ_ARCHS = ("roberta_base", "roberta_large")


class Teacher(Protocol):
    """What the other stages ask of a teacher."""

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """float32 [n, outputs], of tokens [n, words, outputs], rows in the split's order.

        `advance` hears of rows as they are done.
        """
        ...

    def states(self, split: Split) -> States:
        """Hidden states and attention maps of the few rows in `split`, as one padded batch."""
        ...


@dataclasses.dataclass(frozen=True)
class States:
    """What goes on inside a teacher, for one padded batch; the rows of a pair are one sequence.

    hidden: one float32 [batch, length, dim] a layer, the embeddings' output first;
    attention: one float32 [batch, heads, length, length] a layer; lengths: int64 [batch], tokens that are not padding;
    logits: what the head makes of it, of a classifier [batch, outputs], of a masked language model [batch, length,
    pieces], where it was asked for.
    """

    hidden: list[torch.Tensor]
    attention: list[torch.Tensor]
    lengths: torch.Tensor
    logits: torch.Tensor | None = None


def load_teacher(folder: Path, device: torch.device, dtype: torch.dtype) -> Teacher:
    """Load a fine-tuned teacher, or an ensemble of them, from its model folder."""
    if members_of(folder):
        from common.teachers.ensemble import EnsembleTeacher

        return EnsembleTeacher.load(folder, device, dtype)
    if (folder / "fairseq").is_dir():
        from common.teachers.fairseq.teacher import FairseqTeacher

        return FairseqTeacher.load(folder, device, dtype)
    from common.teachers.huggingface.tagger import load_teacher_of_either

    return load_teacher_of_either(folder, device, dtype)


def is_fairseq(arch: str) -> bool:
    """Whether an --arch is a RoBERTa for fairseq: an official one, a folder of fairseq's, or a teacher made of one.

    Everything else is for Hugging Face.
    """
    folder = Path(arch)
    marks = ("model.pt", "architecture.json", "fairseq/architecture.json")
    return arch in FAIRSEQ_ARCHS or any((folder / mark).exists() for mark in marks)
