"""Inputs of quantized matrices rounded to 8 bits, where the thesis's flags ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from common.data.split import load_split
from common.errors import UserError
from compression.settings import CompressSettings
from compression.students.layers import Linear, Recurrent
from compression.students.rounding import affine_range
from compression.students.student import Student

if TYPE_CHECKING:
    from compression.shrinking.context import Work

INPUTS = {"encoder": ("dynamic",), "classifier": ("dynamic", "static")}
"""Parts whose inputs can be rounded, and how."""


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


def round_inputs(student: Student, inputs: Mapping[str, str], calibration: torch.Tensor | None) -> None:
    """Have quantized matrices round their inputs to 8 bits. inputs: as in `check_inputs`.

    calibration: what the classifier reads over training text, [rows, width], for `static`; None where the ranges come
    with the saved weights.
    """
    for part, how in check_inputs(inputs).items():
        for layer in getattr(student, part).modules():
            if isinstance(layer, Linear | Recurrent):
                layer.inputs = how
            if isinstance(layer, Linear) and how == "static":
                _set_range(layer, calibration)
                # The next layer's inputs, as this one computes them.
                calibration = None if calibration is None else layer(calibration).relu()


def _set_range(layer: Linear, inputs: torch.Tensor | None) -> None:
    ends = torch.zeros(2) if inputs is None else torch.stack([inputs.min(), inputs.max()])
    scale, zero_point = affine_range(ends[:1], ends[1:])
    layer.register_buffer("input_scale", scale)
    layer.register_buffer("input_zero_point", zero_point)


def check_inputs(inputs: Mapping[str, str]) -> Mapping[str, str]:
    """Part -> how its inputs are rounded: encoder: dynamic; classifier: dynamic or static. Else raises UserError."""
    for part, how in inputs.items():
        if how not in INPUTS.get(part, ()):
            raise UserError(f"cannot round the inputs of {part} as {how}")
    return inputs
