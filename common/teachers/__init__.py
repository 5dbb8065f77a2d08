"""Teachers: large encoders fine-tuned for a task. One interface, a file per backend.

Backends are imported only when asked for: their libraries are large.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from common.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import torch

    from common.data import Split

FAIRSEQ_ARCHS = ("roberta_base", "roberta_large")


class Teacher(Protocol):
    """What the other stages ask of a teacher."""

    def logits(self, split: Split) -> np.ndarray:
        """float32 [n, classes], rows in the split's order."""
        ...


def load_teacher(folder: Path, device: torch.device, dtype: torch.dtype) -> Teacher:
    """Load a fine-tuned teacher from its model folder."""
    from common.teachers.huggingface import HuggingFaceTeacher

    return HuggingFaceTeacher.load(folder, device, dtype)


def check_arch(arch: str) -> None:
    """Raise UserError for an architecture this version has no backend for."""
    if arch in FAIRSEQ_ARCHS:
        raise UserError(
            f"--arch {arch} needs the fairseq backend, which this version does not have yet; "
            "use minilm, or the name or folder of any Hugging Face encoder"
        )
