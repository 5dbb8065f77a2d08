"""Evenly spaced codes: value = (code - zero_point) * scale (equation 4.12). Ternary codes are three of them.

Weights are float32 [groups, size], each row a group with a range of its own. A range is a scale (float32) and a zero
point (uint8), both [groups, 1]. Zero always is a code, so pruned weights stay exactly zero. Scales have 16 significant
bits, like bfloat16: the rest of a float32 would be noise that a packed file has to hold.
"""

from __future__ import annotations

import torch

POWER = 3
"""Exponent of the errors whose sum is minimised. Squares cut large weights off too much: with cubes, logits change
about half as much at 2 and 3 bits for a whole matrix, and the codes are smaller."""
SHARES = torch.logspace(0, -1, 36).tolist()
"""Shares of the whole range that are tried."""
FEW = 16
"""Up to this many codes, the zero point is searched for as well."""
Range = tuple[torch.Tensor, torch.Tensor]


def codes_of(weight: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, levels: int) -> torch.Tensor:
    """Return the nearest codes (equation 4.10), uint8; scale and zero_point as `Affine` holds them."""
    return ((weight / scale).round_() + zero_point).clamp_(0, levels - 1).to(torch.uint8)


def minmax(groups: torch.Tensor, levels: int) -> Range:
    """Return the range from each group's smallest to its largest value."""
    low, high = groups.amin(1, keepdim=True).clamp(max=0.0), groups.amax(1, keepdim=True).clamp(min=0.0)
    scale = _short((high - low) / (levels - 1))
    return scale, (-low / scale).round().clamp(0, levels - 1).to(torch.uint8)


def least_error(groups: torch.Tensor, levels: int) -> Range:
    """Return the part of the `minmax` range with the least error."""
    widest, middle = minmax(groups, levels)
    moves = (-1.0, 0.0, 1.0) if levels <= FEW else (0.0,)
    return _search(groups, levels, widest, [(middle + move).clamp(0, levels - 1).to(torch.uint8) for move in moves])


def ternary(groups: torch.Tensor) -> Range:
    """Return the range of least error with codes 0, 1, 2 for -scale, 0, scale (Li, Zhang and Liu, 2016).

    The paper's threshold between zero and not is 0.7 times the mean magnitude; here it is half a scale, and the scale
    is searched for.
    """
    widest = _short(groups.abs().amax(1, keepdim=True))
    return _search(groups, 3, widest, [torch.ones_like(widest, dtype=torch.uint8)])


def _search(groups: torch.Tensor, levels: int, widest: torch.Tensor, zero_points: list[torch.Tensor]) -> Range:
    """Return the range of least error among SHARES of the widest scale, with the scale then fitted to its codes."""
    best = (widest, zero_points[0])
    least = _errors(groups, *best, levels)
    for zero_point in zero_points:
        for share in SHARES:
            best, least = _better(groups, best, least, (_short(widest * share), zero_point), levels)
    codes = codes_of(groups, *best, levels) - best[1].float()
    fitted = (groups * codes).sum(1, keepdim=True) / codes.square().sum(1, keepdim=True)
    return _better(groups, best, least, (_short(fitted.nan_to_num(0.0)), best[1]), levels)[0]


def _errors(groups: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, levels: int) -> torch.Tensor:
    """Return the sum of each group's errors, [groups, 1]."""
    low = -zero_point.float()
    codes = (groups / scale).round_().clamp_(low, low + (levels - 1))
    return codes.mul_(scale).sub_(groups).abs_().pow_(POWER).sum(1, keepdim=True)


def _better(
    groups: torch.Tensor, best: Range, least: torch.Tensor, other: Range, levels: int
) -> tuple[Range, torch.Tensor]:
    """Return the better of two ranges for each group, and its errors."""
    errors = _errors(groups, *other, levels)
    better = errors < least
    scale, zero_point = (torch.where(better, new, old) for new, old in zip(other, best, strict=True))
    return (scale, zero_point), torch.where(better, errors, least)


def _short(scale: torch.Tensor) -> torch.Tensor:
    """Return scales rounded up to 16 significant bits; 1 where a group is all zeros."""
    bits = (scale.contiguous().view(torch.int32) + 0xFFFF) & -0x10000
    return torch.where(scale > 0, bits.view(torch.float32), 1.0)
