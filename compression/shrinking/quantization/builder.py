"""Building the student of a setting: quantized, with --tune-epochs trained for it, its inputs rounded."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping

import numpy as np
import torch

from common.data.split import load_split
from common.store.files import fingerprint
from compression.shrinking.quantization.aware import FakeQuantized, RangeUpdater, convert
from compression.shrinking.quantization.scheme import Scheme, Setting
from compression.shrinking.step import CompressionContext
from compression.students.layers import round_inputs
from compression.students.weights import Matrix, matrices, replace_matrix


class StudentBuilder:
    """Builds context.student from the float one, as often as needed.

    weights: name -> float32 [rows, columns] of the matrices to quantize.
    """

    def __init__(self, context: CompressionContext, parts: Collection[str], inputs: Mapping[str, str]) -> None:
        """inputs: part -> how its inputs are rounded, as in `round_inputs`."""
        self.context, self.inputs = context, inputs
        self.float = copy.deepcopy(context.student)
        self._quantized: dict[tuple[str, Scheme], Matrix] = {}
        self.weights = {
            name: matrix.dense().detach().clone()
            for name, matrix in matrices(context.student)
            if name.split(".")[0] in parts
        }

    def build(self, setting: Setting, tune: bool) -> None:
        """Set context.student to the one of this setting, with `tune` trained for --tune-epochs."""
        context = self.context
        context.student = student = copy.deepcopy(self.float)
        context.history = None
        tune = tune and context.settings.tune_epochs > 0
        for name, scheme in setting.items():
            matrix = FakeQuantized(self.weights[name], scheme) if tune else self.quantized(name, scheme)
            replace_matrix(student, name, matrix)
        if tune:
            # Several settings may be tried: each has a key, so that none resumes another's training.
            own = fingerprint([context.key, {name: dataclasses.astuple(s) for name, s in setting.items()}])
            tuning = dataclasses.replace(context, key=own)
            tuning.tune(RangeUpdater(student))
            context.history = tuning.history
            convert(student)
        with torch.no_grad():
            round_inputs(student, self.inputs, self._calibration() if "static" in self.inputs.values() else None)

    def _calibration(self) -> torch.Tensor:
        """Return the classifier's inputs over the first --calibration-rows of train, [rows, width]."""
        context = self.context
        train = load_split(context.settings.paths, context.task, "train")
        rows = train.take(np.arange(min(context.settings.calibration_rows, len(train))))
        seen: list[torch.Tensor] = []
        hook = context.student.classifier.register_forward_pre_hook(
            lambda _, inputs: seen.append(inputs[0].detach().flatten(0, -2))
        )
        try:
            context.logits(rows)
        finally:
            hook.remove()
        return torch.cat(seen)

    def quantized(self, name: str, scheme: Scheme) -> Matrix:
        """Return a quantized matrix. It is cached, for searches ask for the same ones again and again."""
        if (name, scheme) not in self._quantized:
            self._quantized[name, scheme] = scheme.quantize(self.weights[name])
        return self._quantized[name, scheme]

    def average_bits(self, setting: Setting) -> float:
        """Return the bits of a weight, averaged over all matrices of the student; those not quantized have 32."""
        weights = {name: matrix.dense() for name, matrix in matrices(self.float)}
        bits = {name: setting[name].width(weight) if name in setting else 32 for name, weight in weights.items()}
        total = sum(weight.numel() for weight in weights.values())
        return round(sum(bits[name] * weight.numel() for name, weight in weights.items()) / total, 3)
