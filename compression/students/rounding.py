"""Inputs of quantized matrices rounded to 8 bits, as on integer hardware: what the thesis's quantization flags ask for.

Ranges are taken from each vector as it comes ("dynamic") or calibrated beforehand ("static"), and include zero.
Codes: q = clamp(round(x / scale) + zero_point, 0, 255), x = (q - zero_point) * scale (equations 4.10 to 4.12).
"""

from __future__ import annotations

import torch

LEVELS = 255


def affine_range(low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale (float32) and zero point (uint8) of 256 codes over [min(low, 0), max(high, 0)]."""
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    scale = (high - low) / LEVELS
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return scale, (-low / scale).round().clamp(0, LEVELS).to(torch.uint8)


def round_by(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
    """x as 8-bit codes hold it, float32 of x's shape."""
    codes = ((x / scale).round() + zero_point.float()).clamp(0, LEVELS)
    return (codes - zero_point.float()) * scale


def round_each_vector(x: torch.Tensor) -> torch.Tensor:
    """x as 8 bits hold it, with a range for each vector of the last dimension: no row depends on its batch."""
    return round_by(x, *affine_range(x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)))
