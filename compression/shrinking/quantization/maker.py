"""Making the student of a setting: quantized, trained to bear it where that is asked for, its inputs rounded."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING

import torch

from common.store.files import fingerprint
from compression.shrinking.quantization.aware import Aware, RangeUpdater, settle
from compression.shrinking.quantization.inputs import calibration
from compression.shrinking.quantization.scheme import Scheme, Setting
from compression.students.layers import round_inputs
from compression.students.weights import Matrix, matrices, replace_matrix

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from compression.shrinking.context import CompressionContext


class Maker:
    """Makes context.student anew from the float one, as often as asked.

    weights: name -> float32 [rows, columns] of the matrices to quantize.
    """

    def __init__(self, context: CompressionContext, parts: Collection[str], inputs: Mapping[str, str]) -> None:
        self.context, self.inputs = context, inputs
        self.float = copy.deepcopy(context.student)
        self._quantized: dict[tuple[str, Scheme], Matrix] = {}
        self.weights = {
            name: matrix.dense().detach().clone()
            for name, matrix in matrices(context.student)
            if name.split(".")[0] in parts
        }

    def make(self, setting: Setting, tune: bool) -> None:
        """Put the student of this setting into the context, trained for --tune-epochs if `tune`."""
        self.context.student = student = copy.deepcopy(self.float)
        self.context.history = None
        tune = tune and self.context.settings.tune_epochs > 0
        for name, scheme in setting.items():
            replace_matrix(student, name, Aware(self.weights[name], scheme) if tune else self.quantized(name, scheme))
        if tune:
            # Several settings may be tried: one's state is not taken up by another.
            own = fingerprint([self.context.fingerprint, {name: dataclasses.astuple(s) for name, s in setting.items()}])
            tuning = dataclasses.replace(self.context, fingerprint=own)
            tuning.tune(RangeUpdater(student))
            self.context.history = tuning.history
            settle(student)
        with torch.no_grad():
            seen = calibration(self.context) if "static" in self.inputs.values() else None
            round_inputs(student, self.inputs, seen)

    def quantized(self, name: str, scheme: Scheme) -> Matrix:
        """A matrix quantized: searches for bits ask for the same ones again and again, and nothing changes them."""
        if (name, scheme) not in self._quantized:
            self._quantized[name, scheme] = scheme.quantize(self.weights[name])
        return self._quantized[name, scheme]

    def average_bits(self, setting: Setting) -> float:
        """Bits of a weight, on average over all matrices of the student; those not quantized have 32."""
        weights = {name: matrix.dense() for name, matrix in matrices(self.float)}
        widths = {name: setting[name].width(weight) if name in setting else 32 for name, weight in weights.items()}
        total = sum(weight.numel() for weight in weights.values())
        return round(sum(widths[name] * weight.numel() for name, weight in weights.items()) / total, 3)
