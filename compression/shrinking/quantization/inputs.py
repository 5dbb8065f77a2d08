"""Inputs of quantized matrices rounded to 8 bits, where the thesis's flags ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from common.data.data import load_split
from compression.settings import CompressSettings

if TYPE_CHECKING:
    from compression.shrinking.context import Work


def inputs_asked_for(settings: CompressSettings, parts: list[str]) -> dict[str, str]:
    """Part -> how its inputs are rounded: only where the thesis's flags ask for it."""
    classifier = "static" if settings.ptq_classifier else "dynamic" if settings.dq_classifier else None
    asked = {"encoder": "dynamic" if settings.dq_encoder else None, "classifier": classifier}
    return {part: how for part, how in asked.items() if how and part in parts}


def calibration(work: Work) -> torch.Tensor:
    """What the classifier reads over the first training rows, [rows, width]: training text, never test's."""
    train = load_split(work.settings.paths, work.task, "train")
    rows = train.take(np.arange(min(work.settings.calibration_rows, len(train))))
    seen: list[torch.Tensor] = []
    hook = work.student.classifier.register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].detach().flatten(0, -2))
    )
    try:
        work.logits(rows)
    finally:
        hook.remove()
    return torch.cat(seen)
