"""Quantizing a student's parts: matrices become codes, and inputs are rounded where the thesis's flags ask for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import torch

from common.errors import UserError
from common.progress import say
from compression.shrinking.quantization.asked import bits_asked_for, parts_asked_for, scheme_asked_for, suffix
from compression.shrinking.quantization.inputs import inputs_asked_for
from compression.shrinking.quantization.maker import Maker
from compression.shrinking.quantization.mixed import points_of, within_bytes, within_loss
from compression.shrinking.quantization.scheme import Scheme, Setting
from compression.students.student import Student
from compression.students.weights import Matrix, matrices, replace_matrix

if TYPE_CHECKING:
    from compression.shrinking.context import Work

__all__ = ["apply", "quantize_student", "suffix", "to_8_bits"]

Quantizer = Callable[[str, torch.Tensor], Matrix]
"""Name and float32 weights [rows, columns] of a matrix -> the matrix quantized."""


def apply(work: Work) -> dict[str, Any]:
    """Quantize the student. Returns what was done, for its config.

    Raises UserError when it is quantized already, and when --max-bytes or --max-loss ask for what cannot be.
    """
    settings, parent = work.settings, work.parent
    if parent.stage == "quantized":
        raise UserError(f"{parent.name} is quantized already")
    parts = parts_asked_for(settings, parent)
    inputs = inputs_asked_for(settings, parts)
    maker = Maker(work, parts, inputs)
    setting = {name: scheme_asked_for(settings, name.split(".")[0]) for name in maker.weights}
    if settings.max_bytes is None and settings.max_loss is None:
        maker.make(setting, tune=True)
    else:
        points = points_of(work, maker, setting, {part: bits_asked_for(settings, part) for part in parts})
        if settings.max_bytes is not None:
            setting = within_bytes(work, maker, points, settings.max_bytes)
        elif settings.max_loss is not None:
            setting = within_loss(work, maker, points, settings.max_loss)
    bits = maker.average_bits(setting)
    say(f"{work.folder.name}: {bits:g} bits a weight")
    return {"quantized": told(setting), "bits": bits, "inputs": inputs}


def told(setting: Setting) -> dict[str, dict[str, Any]]:
    """Name of matrix -> quantizer, bits and granularity, for config.json."""
    return {
        name: {"quantizer": scheme.quantizer, "bits": scheme.bits, "granularity": scheme.granularity}
        for name, scheme in setting.items()
    }


def to_8_bits(name: str, weight: torch.Tensor) -> Matrix:
    """One range a row, its largest and smallest values kept; single numbers, which hash importance is, as float16."""
    return Scheme(ranges="minmax").quantize(weight)


def quantize_student(student: Student, parts: Collection[str], quantizer: Quantizer) -> None:
    """Replace the matrices of some parts (embedding, encoder, classifier) by quantized ones, in place."""
    for name, matrix in list(matrices(student)):
        if name.split(".")[0] in parts:
            replace_matrix(student, name, quantizer(name, matrix.dense().detach()))
