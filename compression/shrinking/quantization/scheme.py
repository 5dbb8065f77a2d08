"""A scheme says how a matrix is quantized: it fits ranges or centroids to weights, and turns weights into codes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

import torch

from compression.shrinking.quantization.quantizers import codes_of, k_means, least_error, minmax, nearest, ternary
from compression.students.weights import Affine, Codebook, Half, Matrix

BITS = (8, 6, 4, 3, 2)
Ranges = Mapping[str, torch.Tensor]
"""The tensors of a quantized matrix besides its codes: scale and zero_point, or codebook, or none in 16 bits."""


@dataclasses.dataclass(frozen=True)
class Scheme:
    """Quantizer, bits of a code, what shares a range, and how ranges are found: the flags of compress.py."""

    quantizer: Literal["affine", "ternary", "codebook"] = "affine"
    bits: int = 8
    granularity: Literal["row", "column", "tensor"] = "row"
    ranges: Literal["fitted", "minmax"] = "fitted"

    @property
    def levels(self) -> int:
        """Number of values a code can have."""
        return 3 if self.quantizer == "ternary" else 2**self.bits

    def quantize(self, weight: torch.Tensor) -> Matrix:
        """Return the quantized matrix of weights, float32 [rows, columns]."""
        return self.code(weight, self.fit(weight))

    def fit(self, weight: torch.Tensor) -> Ranges:
        """Return the ranges or centroids for these weights, float32 [rows, columns]."""
        groups = self._groups(weight)
        if self._in_16_bits(weight):
            return {}
        if self.quantizer == "codebook":
            return {"codebook": k_means(groups, self.levels)}
        if self.quantizer == "ternary":
            scale, zero_point = ternary(groups)
        else:
            scale, zero_point = (least_error if self.ranges == "fitted" else minmax)(groups, self.levels)
        if self._granularity(weight) == "column":
            scale, zero_point = scale.T, zero_point.T
        return {"scale": scale, "zero_point": zero_point}

    def code(self, weight: torch.Tensor, ranges: Ranges) -> Matrix:
        """Return the quantized matrix with given ranges, which `fit` found for these or other weights of the shape."""
        if not ranges:
            return Half(weight)
        if "codebook" in ranges:
            codes = nearest(self._groups(weight), ranges["codebook"]).view_as(weight)
            return Codebook(codes.to(torch.uint8), ranges["codebook"])
        return Affine(codes_of(weight, **ranges, levels=self.levels), ranges["scale"], ranges["zero_point"])

    def width(self, weight: torch.Tensor) -> float:
        """Return the bits of one weight of this matrix: log2 of the number of codes."""
        return 16.0 if self._in_16_bits(weight) else math.log2(self.levels)

    def _in_16_bits(self, weight: torch.Tensor) -> bool:
        """Hash importance: a code and a scale for each single number would be larger (section 6.1.7)."""
        return weight.shape[1] == 1 and self.bits == 8 and self.granularity == "row" and self.quantizer == "affine"

    def _granularity(self, weight: torch.Tensor) -> str:
        """A row of a single number would not be a group."""
        return "tensor" if weight.shape[1] == 1 and self.granularity == "row" else self.granularity

    def _groups(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the weights as [groups, size]."""
        if self._granularity(weight) == "tensor":
            return weight.reshape(1, -1)
        return weight.T if self._granularity(weight) == "column" else weight


Setting = dict[str, Scheme]
"""Name of matrix -> how it is quantized."""
