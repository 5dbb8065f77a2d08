"""How a matrix is quantized: evenly spaced codes with a scale and a zero point, or codes of k-means centroids.

The functions below the class take weights as float32 [groups, size]; each row is a group with its own range or
codebook. A range is a scale (float32) and a zero point (uint8), both [groups, 1]: value = (code - zero_point) * scale
(equation 4.12). Zero is always a code, so pruned weights stay exactly zero. Scales keep only the upper 16 bits of a
float32, as bfloat16 does: the others would be noise that a packed file has to store.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch.nn.functional import pad

from compression.shrinking.choices import QUANTIZERS
from compression.students.weights import Affine, Codebook, Half, Matrix

BITS = (8, 6, 4, 3, 2)
CODED_BITS = (7, 6, 5, 4.5, 4, 3.5, 3.25, 3, 2.75, 2.5, 2.25, 2, 1.75, 1.5, 1)
"""Bits of `coded` that are tried: size and error change gradually."""
POWER = 3
"""Exponent of the errors whose sum is minimised. Squares clip large weights too much: with cubes, logits change
about half as much at 2 and 3 bits for a whole matrix, and the codes are smaller."""
SHARES = torch.logspace(0, -1, 36).tolist()
"""Shares of the whole range that are tried."""
FEW = 16
"""Up to this many codes, the zero point is searched for as well."""
STEPS = 100
"""Maximum number of k-means steps: 256 centroids may keep moving by negligible amounts."""
MOST_CODES = 256
Ranges = Mapping[str, torch.Tensor]
"""The tensors of a quantized matrix other than its codes: scale and zero_point, or codebook, or none in 16 bits."""


@dataclasses.dataclass(frozen=True)
class Scheme:
    """Quantizer, bits per weight, unit with its own range, and how ranges are found: the flags of compress.py."""

    quantizer: str = "affine"
    bits: float = 8
    granularity: Literal["row", "column", "tensor"] = "row"
    ranges: Literal["fitted", "minmax"] = "fitted"

    @property
    def levels(self) -> float:
        """Number of values a code can have; of `coded`, the number of equally frequent values with as many bits."""
        return QUANTIZERS[self.quantizer].values or 2**self.bits

    def quantize(self, weight: torch.Tensor) -> Matrix:
        """Return the quantized matrix of weights, float32 [rows, columns]."""
        return self.code(weight, self.fit(weight))

    def fit(self, weight: torch.Tensor) -> Ranges:
        """Return the ranges or centroids for these weights, float32 [rows, columns]."""
        if self._in_16_bits(weight):
            return {}
        ranges = QUANTIZERS[self.quantizer].function(self._groups(weight), self.levels, self.ranges)
        if self._granularity(weight) == "column":
            return {name: tensor.T for name, tensor in ranges.items()}
        return ranges

    def code(self, weight: torch.Tensor, ranges: Ranges) -> Matrix:
        """Return the quantized matrix with ranges that `fit` found for these or other weights of the same shape."""
        if not ranges:
            return Half(weight)
        if "codebook" in ranges:
            codes = nearest(self._groups(weight), ranges["codebook"]).view_as(weight)
            return Codebook(codes.to(torch.uint8), ranges["codebook"])
        levels = MOST_CODES if self.quantizer == "coded" else int(self.levels)
        return Affine(codes_of(weight, **ranges, levels=levels), ranges["scale"], ranges["zero_point"])

    def width(self, weight: torch.Tensor) -> float:
        """Return the bits of one weight of this matrix: log2 of the number of codes, before entropy coding."""
        return 16.0 if self._in_16_bits(weight) else math.log2(self.levels)

    def _in_16_bits(self, weight: torch.Tensor) -> bool:
        """Return whether to use float16: with --bits 16, and for hash importance (section 6.1.7; see Half)."""
        plain = self.bits == 8 and self.granularity == "row" and QUANTIZERS[self.quantizer].thesis
        return self.bits == 16 or (plain and weight.shape[1] == 1)

    def _granularity(self, weight: torch.Tensor) -> str:
        # Rows of single numbers have one range together.
        return "tensor" if weight.shape[1] == 1 and self.granularity == "row" else self.granularity

    def _groups(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the weights as [groups, size]."""
        if self._granularity(weight) == "tensor":
            return weight.reshape(1, -1)
        return weight.T if self._granularity(weight) == "column" else weight


Setting = dict[str, Scheme]
"""Name of matrix -> how it is quantized."""


def affine(groups: torch.Tensor, levels: int, ranges: str) -> Ranges:
    """Return the ranges of evenly spaced values: "minmax" from smallest to largest, "fitted" the best part of these."""
    low, high = groups.amin(1, keepdim=True).clamp(max=0.0), groups.amax(1, keepdim=True).clamp(min=0.0)
    scale = _short((high - low) / (levels - 1))
    zero_point = (-low / scale).round().clamp(0, levels - 1).to(torch.uint8)
    if ranges == "minmax":
        return {"scale": scale, "zero_point": zero_point}
    moves = (-1.0, 0.0, 1.0) if levels <= FEW else (0.0,)
    return _search(groups, levels, scale, [(zero_point + move).clamp(0, levels - 1).to(torch.uint8) for move in moves])


def coded(groups: torch.Tensor, levels: float, ranges: str) -> Ranges:
    """Return the ranges of values as far apart as entropy coding to log2(levels) bits needs.

    Codes of normally distributed weights, `scale` apart, have an entropy of log2(sqrt(2 pi e) deviation / scale) bits.
    At a given entropy, values without a limit on their number have less error than the best ones of few levels (Gish
    and Pierce, 1968).
    """
    low, high = groups.amin(1, keepdim=True).clamp(max=0.0), groups.amax(1, keepdim=True).clamp(min=0.0)
    deviation = groups.square().mean(1, keepdim=True).sqrt()
    least = (high - low) / (MOST_CODES - 2)
    scale = _short(torch.maximum(deviation * math.sqrt(2 * math.pi * math.e) / levels, least))
    return {"scale": scale, "zero_point": (-low / scale).round().clamp(0, MOST_CODES - 1).to(torch.uint8)}


def codebook(groups: torch.Tensor, levels: int, ranges: str) -> Ranges:
    """Return the centroids."""
    return {"codebook": k_means(groups, levels)}


def codes_of(weight: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, levels: int) -> torch.Tensor:
    """Return the nearest codes (equation 4.10), uint8; scale and zero_point as `Affine` holds them."""
    return ((weight / scale).round_() + zero_point).clamp_(0, levels - 1).to(torch.uint8)


def ternary(groups: torch.Tensor, levels: int, ranges: str) -> Ranges:
    """Return the range of least error with codes 0, 1, 2 for -scale, 0, scale (Li, Zhang and Liu, 2016).

    The paper's threshold for zero is 0.7 times the mean magnitude; here it is half the scale, which is searched for.
    """
    widest = _short(groups.abs().amax(1, keepdim=True))
    return _search(groups, levels, widest, [torch.ones_like(widest, dtype=torch.uint8)])


def _search(groups: torch.Tensor, levels: int, widest: torch.Tensor, zero_points: list[torch.Tensor]) -> Ranges:
    """Return the range of least error among SHARES of the widest scale, with the scale then fitted to its codes."""
    best, least = (widest, zero_points[0]), torch.full_like(widest, torch.inf)

    def consider(scale: torch.Tensor, zero_point: torch.Tensor) -> None:
        """Take the range for the groups in which it is better."""
        nonlocal best, least
        low = -zero_point.float()
        codes = (groups / scale).round_().clamp_(low, low + (levels - 1))
        errors = codes.mul_(scale).sub_(groups).abs_().pow_(POWER).sum(1, keepdim=True)
        better = errors < least
        best = torch.where(better, scale, best[0]), torch.where(better, zero_point, best[1])
        least = torch.where(better, errors, least)

    consider(*best)
    for zero_point in zero_points:
        for share in SHARES:
            consider(_short(widest * share), zero_point)
    codes = codes_of(groups, *best, levels) - best[1].float()
    fitted = (groups * codes).sum(1, keepdim=True) / codes.square().sum(1, keepdim=True)
    consider(_short(fitted.nan_to_num(0.0)), best[1])
    return {"scale": best[0], "zero_point": best[1]}


def _short(scale: torch.Tensor) -> torch.Tensor:
    """Return scales rounded up to their upper 16 bits; 1 where a group is all zeros."""
    bits = (scale.contiguous().view(torch.int32) + 0xFFFF) & -0x10000
    return torch.where(scale > 0, bits.view(torch.float32), 1.0)


def k_means(groups: torch.Tensor, levels: int) -> torch.Tensor:
    """Return centroids of locally least squared error (Han, Mao and Dally, 2016), float32 [groups, levels], ascending.

    Deterministic: it starts once evenly over the range (the paper's choice) and once evenly over the sorted values, and
    returns the better result. If any weight is zero, one centroid of each group is exactly zero and does not move.
    """
    ordered = groups.double().sort(1).values
    keep_zero = bool((groups == 0).any())
    even = torch.linspace(0, 1, levels, dtype=torch.float64, device=groups.device)
    by_range = ordered[:, :1] + (ordered[:, -1:] - ordered[:, :1]) * even
    by_rank = ordered[:, (even * (groups.shape[1] - 1)).round().long()]
    results = [_iterate(ordered, start.contiguous(), keep_zero) for start in (by_range, by_rank)]
    errors = [(ordered - end.gather(1, nearest(ordered, end))).square().sum(1, keepdim=True) for end in results]
    return torch.where(errors[0] <= errors[1], *results).float()


def nearest(groups: torch.Tensor, centroids: torch.Tensor) -> torch.Tensor:
    """Return the index of the nearest centroid, int64 of groups' shape. centroids: ascending [groups, levels]."""
    middles = (centroids[:, 1:] + centroids[:, :-1]) / 2
    return torch.searchsorted(middles.contiguous(), groups.contiguous())


def _iterate(ordered: torch.Tensor, centroids: torch.Tensor, keep_zero: bool) -> torch.Tensor:
    """Return centroids after steps of k-means until nothing moves. ordered: float64 [groups, size], ascending.

    In one dimension a cluster is an interval of the sorted values, so a step is a few lookups in running sums.
    """
    sums = pad(ordered.cumsum(1), (1, 0))
    # The centroid nearest to zero, which becomes zero; of equal negative ones the last, so that they stay in order.
    below = ((centroids < 0).sum(1, keepdim=True) - 1).clamp(min=0)
    above = (below + 1).clamp(max=centroids.shape[1] - 1)
    zero = torch.where(centroids.gather(1, below).abs() <= centroids.gather(1, above).abs(), below, above)
    if keep_zero:
        centroids = centroids.scatter(1, zero, 0.0)
    for _ in range(STEPS):
        ends = torch.searchsorted(ordered, ((centroids[:, 1:] + centroids[:, :-1]) / 2).contiguous())
        ends = pad(pad(ends, (1, 0)), (0, 1), value=ordered.shape[1])  # [groups, levels + 1]
        members = ends.diff(dim=1)
        moved = torch.where(members > 0, sums.gather(1, ends).diff(dim=1) / members, centroids)
        if keep_zero:
            moved.scatter_(1, zero, 0.0)
        if torch.equal(moved, centroids):
            break
        centroids = moved
    return centroids
