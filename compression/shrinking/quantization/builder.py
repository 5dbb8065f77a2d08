"""Building the student of a setting: quantized, trained for it with --tune-epochs, with rounded inputs.

Training is quantization-aware: the forward pass uses exactly the weights that will be saved, or with stochastic
rounding weights whose mean is the float one, and its gradient goes to the float weights unchanged (StraightThrough).
Ranges are updated regularly, since weights move out of them. Inputs with dynamic ranges are rounded in training too, as
in TernaryBERT (Zhang et al., 2020, section 3.1); static ranges are calibrated afterwards, on the trained student.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import nn

from common.store.files import fingerprint
from common.training.loop import Callback
from compression.distillation.pruning import is_update
from compression.shrinking.quantization.scheme import Scheme, Setting
from compression.shrinking.settings import QuantizeSettings
from compression.shrinking.step import CompressionContext
from compression.students.layers import StraightThrough, round_inputs
from compression.students.student import Student
from compression.students.weights import Matrix, matrices, replace_matrix

UPDATES = 20
"""Number of times that ranges are fitted during training."""


class FakeQuantized(Matrix):
    """Float weights that are trained through a quantizer. Weights that are zero at the start (pruned) stay zero."""

    def __init__(self, weight: torch.Tensor, scheme: Scheme, stochastic: bool = False) -> None:
        """stochastic: in training, round each weight up or down with the probability of which the mean is the weight.

        See section 4.3 of the thesis, and Gupta et al. (2015).
        """
        super().__init__()
        self.scheme, self.stochastic = scheme, stochastic
        self.value = nn.Parameter(weight.clone())
        self.register_buffer("pruned", weight == 0)
        self.any_pruned = bool(self.pruned.any())
        self.update_ranges()

    def dense(self) -> torch.Tensor:
        """Return the quantized weights' values, with the gradient of the float weights."""
        rounded = self.quantized(noisy=self.stochastic and self.training).dense()
        return StraightThrough.apply(self.value, rounded, self.pruned if self.any_pruned else None)

    def select(self, ids: torch.Tensor) -> torch.Tensor:
        """Return rows by index, ids [...] -> [..., columns]; embedding's gradient is faster here than indexing's."""
        return nn.functional.embedding(ids, self.dense())

    def quantized(self, noisy: bool = False) -> Matrix:
        """Return the matrix to be saved. noisy: with stochastic rounding."""
        ranges = {name: tensor for name, tensor in self.named_buffers() if name != "pruned"}
        weight = self.value.detach()
        if noisy and ranges:  # no ranges: float16 numbers, which are not rounded to codes
            noise = (torch.rand_like(weight) - 0.5).masked_fill_(self.pruned, 0.0)
            weight = weight + noise * ranges["scale"]
        return self.scheme.code(weight, ranges)

    def update_ranges(self) -> None:
        """Fit the ranges to the weights as they are now."""
        for name, tensor in self.scheme.fit(self.value.detach()).items():
            self.register_buffer(name, tensor)


class RangeUpdater(Callback):
    """Updates ranges while a student trains. They are buffers of the student, so a resumed run restores them."""

    def __init__(self, student: Student) -> None:
        self.matrices = [matrix for _, matrix in matrices(student) if isinstance(matrix, FakeQuantized)]

    def step(self, before: float, after: float) -> None:
        """Update the ranges UPDATES times in all."""
        if is_update(before, after, UPDATES):
            for matrix in self.matrices:
                matrix.update_ranges()


def convert(student: Student) -> None:
    """Replace the trained matrices by those to save, in place; the student's outputs stay the same."""
    for name, matrix in list(matrices(student)):
        if isinstance(matrix, FakeQuantized):
            replace_matrix(student, name, matrix.quantized())


class StudentBuilder:
    """Builds context.student from the float one, as often as needed.

    weights: name -> float32 [rows, columns] of the matrices to quantize.
    """

    def __init__(
        self, context: CompressionContext, parts: Collection[str], inputs: Mapping[str, str], how: QuantizeSettings
    ) -> None:
        """inputs: part -> how its inputs are rounded, as in `round_inputs`."""
        self.context, self.inputs, self.calibration_rows = context, inputs, how.calibration_rows
        self.stochastic = how.rounding == "stochastic"
        self.float = copy.deepcopy(context.student)
        self.weights = {
            name: matrix.dense().detach().clone()
            for name, matrix in matrices(context.student)
            if name.split(".")[0] in parts
        }
        self.quantized = functools.cache(lambda name, scheme: scheme.quantize(self.weights[name]))
        """Name and scheme of a matrix -> the quantized one, cached because searches need the same ones many times."""

    def build(self, setting: Setting, tune: bool) -> None:
        """Set context.student to the student of this setting; with `tune`, train it for --tune-epochs."""
        context = self.context
        context.student = student = copy.deepcopy(self.float)
        context.history = None
        tune = tune and context.step.tuning is not None
        for name, scheme in setting.items():
            if tune:
                replace_matrix(student, name, FakeQuantized(self.weights[name], scheme, self.stochastic))
            else:
                replace_matrix(student, name, self.quantized(name, scheme))
        parts = {name.split(".")[0] for name in setting}
        student.round_vectors(parts)
        if tune:
            dynamic = {part: how for part, how in self.inputs.items() if how == "dynamic"}
            round_inputs(student, dynamic, None)
            # A search trains several settings: each resumes its own training, not that of another.
            schemes = {name: dataclasses.astuple(scheme) for name, scheme in setting.items()}
            key = fingerprint([context.running.key, schemes])
            running = dataclasses.replace(context.running, key=key, work=context.running.work / key)
            context.tune(RangeUpdater(student), running=running)
            convert(student)
            student.round_vectors(parts)
        with torch.no_grad():
            calibration = self._calibration() if "static" in self.inputs.values() else None
            round_inputs(student, self.inputs, calibration)

    def _calibration(self) -> torch.Tensor:
        """Return the classifier's inputs over the first --calibration-rows of the student's rows, [rows, width]."""
        context = self.context
        train = context.text(augmented=False)
        rows = train.take(np.arange(min(self.calibration_rows, len(train))))
        seen: list[torch.Tensor] = []
        hook = context.student.classifier.register_forward_pre_hook(
            lambda _, inputs: seen.append(inputs[0].detach().flatten(0, -2))
        )
        try:
            context.logits(rows)
        finally:
            hook.remove()
        return torch.cat(seen)

    def average_bits(self, setting: Setting) -> float:
        """Return the average bits per weight over all matrices of the student; those not quantized have 32."""
        weights = {name: matrix.dense() for name, matrix in matrices(self.float)}
        bits = {name: setting[name].width(weight) if name in setting else 32 for name, weight in weights.items()}
        total = sum(weight.numel() for weight in weights.values())
        return round(sum(bits[name] * weight.numel() for name, weight in weights.items()) / total, 3)
