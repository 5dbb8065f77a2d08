"""Making the student of a setting: quantized, trained to bear it where that is asked for, its inputs rounded."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING

import torch

from common.store.workspace import fingerprint
from compression.shrinking.quantization.aware import Aware, Refitter, settle
from compression.shrinking.quantization.inputs import calibration
from compression.shrinking.quantization.scheme import Scheme, Setting
from compression.students.layers import round_inputs
from compression.students.weights import Matrix, matrices, replace_matrix

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from compression.shrinking.context import Work


class Maker:
    """Makes work.student anew from the float one, as often as asked.

    weights: name -> float32 [rows, columns] of the matrices to quantize.
    """

    def __init__(self, work: Work, parts: Collection[str], inputs: Mapping[str, str]) -> None:
        self.work, self.inputs = work, inputs
        self.float = copy.deepcopy(work.student)
        self._quantized: dict[tuple[str, Scheme], Matrix] = {}
        self.weights = {
            name: matrix.dense().detach().clone()
            for name, matrix in matrices(work.student)
            if name.split(".")[0] in parts
        }

    def make(self, setting: Setting, tune: bool) -> None:
        """Put the student of this setting into the work, trained for --tune-epochs if `tune`."""
        self.work.student = student = copy.deepcopy(self.float)
        self.work.history = None
        tune = tune and self.work.settings.tune_epochs > 0
        for name, scheme in setting.items():
            replace_matrix(student, name, Aware(self.weights[name], scheme) if tune else self.quantized(name, scheme))
        if tune:
            # Several settings may be tried: one's state is not taken up by another.
            own = fingerprint([self.work.fingerprint, {name: dataclasses.astuple(s) for name, s in setting.items()}])
            tuning = dataclasses.replace(self.work, fingerprint=own)
            tuning.tune(Refitter(student))
            self.work.history = tuning.history
            settle(student)
        with torch.no_grad():
            seen = calibration(self.work) if "static" in self.inputs.values() else None
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
