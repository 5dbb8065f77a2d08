"""Quantizing a student's parts: matrices become codes, and inputs are rounded where the thesis's flags ask for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from common.data import load_split
from common.errors import UserError
from common.models import ModelConfig
from compression.matrices import Affine, Half, Matrix, matrices, matrix_like, replace_matrix
from compression.settings import CompressSettings
from compression.students.layers import Linear, Recurrent
from compression.students.rounding import affine_range
from compression.students.student import Student

if TYPE_CHECKING:
    from compression.work import Work

Quantizer = Callable[[str, torch.Tensor], Matrix]
"""Name and float32 weights [rows, columns] of a matrix -> the matrix quantized."""
INPUTS = {"encoder": ("dynamic",), "classifier": ("dynamic", "static")}
"""Parts whose inputs can be rounded, and how."""


def to_8_bits(name: str, weight: torch.Tensor) -> Matrix:
    """One range a row, its largest and smallest values kept; single numbers, which hash importance is, as float16."""
    if weight.shape[1] == 1:
        return Half(weight)
    scale, zero_point = affine_range(weight.amin(1, keepdim=True), weight.amax(1, keepdim=True))
    codes = ((weight / scale).round() + zero_point.float()).clamp(0, 255).to(torch.uint8)
    return Affine(codes, scale, zero_point)


def suffix(settings: CompressSettings) -> str:
    """What quantizing adds to a model's name."""
    return "+q"


def apply(work: Work) -> dict[str, Any]:
    """Quantize a student in place. Returns what was done, for its config. Raises UserError when it is quantized."""
    settings, parent = work.settings, work.parent
    if parent.stage == "quantized":
        raise UserError(f"{parent.name} is quantized already")
    parts = _parts(settings, parent)
    inputs = _rounded_inputs(settings, parts)
    calibration = _classifier_inputs(work) if "static" in inputs.values() else None
    with torch.no_grad():
        quantize_student(work.student, parts, to_8_bits)
        round_inputs(work.student, inputs, calibration)
    return {"quantized": parts, "inputs": inputs, "bits": 8}


def _parts(settings: CompressSettings, parent: ModelConfig) -> list[str]:
    """Parts to quantize: those the flags name, or all."""
    asked = {
        "embedding": settings.ptq_embedding,
        "encoder": settings.dq_encoder,
        "classifier": settings.dq_classifier or settings.ptq_classifier,
    }
    parts = [part for part, wanted in asked.items() if wanted or not any(asked.values())]
    if parent.arch == "ffn" and "encoder" in parts:
        parts.remove("encoder")  # a mean has no weights
    if not parts:
        raise UserError(f"{parent.name} has no weights in its encoder, and nothing else was to be quantized")
    return parts


def _rounded_inputs(settings: CompressSettings, parts: list[str]) -> dict[str, str]:
    """Part -> how its inputs are rounded: only where the thesis's flags ask for it."""
    classifier = "static" if settings.ptq_classifier else "dynamic" if settings.dq_classifier else None
    asked = {"encoder": "dynamic" if settings.dq_encoder else None, "classifier": classifier}
    return {part: how for part, how in asked.items() if how and part in parts}


def _classifier_inputs(work: Work) -> torch.Tensor:
    """What the classifier reads over the first training rows, [rows, width]: training text, never test's."""
    train = load_split(work.settings.paths, work.task, "train")
    rows = train.take(np.arange(min(work.settings.calibration_rows, len(train))))
    seen: list[torch.Tensor] = []
    hook = work.student.classifier.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    try:
        work.logits(rows)
    finally:
        hook.remove()
    return torch.cat(seen)


def quantize_student(student: Student, parts: Collection[str], quantizer: Quantizer) -> None:
    """Replace the matrices of some parts (embedding, encoder, classifier) by quantized ones, in place."""
    for name, matrix in list(matrices(student)):
        if name.split(".")[0] in parts:
            replace_matrix(student, name, quantizer(name, matrix.dense().detach()))


def round_inputs(student: Student, inputs: Mapping[str, str], calibration: torch.Tensor | None) -> None:
    """Have quantized matrices round their inputs to 8 bits. inputs: as in `check_inputs`.

    calibration: what the classifier reads over training text, [rows, width], for `static`; None where the ranges come
    with the saved weights.
    """
    for part, how in check_inputs(inputs).items():
        for layer in getattr(student, part).children():
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


def restore_matrices(student: Student, tensors: Mapping[str, torch.Tensor]) -> None:
    """Give a fresh student matrices of the kinds that a weights file holds.

    Raises UserError for a malformed one; shapes are checked when the weights are loaded.
    """
    for name, matrix in list(matrices(student)):
        stored = matrix_like(tensors, name)
        shape = list(stored.dense().shape)
        if shape != list(matrix.dense().shape):
            raise UserError(f"{name}: the file holds {shape}, config.json asks for {list(matrix.dense().shape)}")
        replace_matrix(student, name, stored)
