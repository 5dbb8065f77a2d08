"""Evenly spaced codes: value = (code - zero_point) * scale (equation 4.12), and ternary ones, which are three of them.

Everything here works on groups: float32 [groups, size], each row a group with a scale of its own. Zero always is a
code, so pruned weights stay exactly zero. Scales have 16 significant bits, like bfloat16: the rest of a float32 would
be noise that a packed file has to hold.
"""

from __future__ import annotations

import torch

SHARES = torch.logspace(0, -1, 36)
"""Shares of the whole range that the search for the least squared error tries."""
FEW = 16
"""Up to so many codes, where zero lies among them is searched for as well."""


def codes_of(weight: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, levels: int) -> torch.Tensor:
    """Nearest codes (equation 4.10), uint8 of weight's shape; scale and zero_point as `Affine` holds them."""
    return ((weight / scale).round_() + zero_point).clamp_(0, levels - 1).to(torch.uint8)


def minmax(groups: torch.Tensor, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale (float32) and zero point (uint8) of each group, [groups, 1], that span its smallest to its largest value."""
    low, high = groups.amin(1, keepdim=True).clamp(max=0.0), groups.amax(1, keepdim=True).clamp(min=0.0)
    scale = _short((high - low) / (levels - 1))
    return scale, (-low / scale).round().clamp(0, levels - 1).to(torch.uint8)


def least_error(groups: torch.Tensor, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As `minmax`, with the ends drawn in so that the squared error of each group is least."""
    widest, middle = minmax(groups, levels)
    best = (widest, middle)
    least = _errors(groups, *best, levels)
    for move in (-1.0, 0.0, 1.0) if levels <= FEW else (0.0,):
        zero_point = (middle + move).clamp(0, levels - 1).to(torch.uint8)
        for share in SHARES:
            found = (_short(widest * share), zero_point)
            best, least = _better(groups, best, least, found, levels)
    for _ in range(2):  # the best scale for the codes as they are; then the codes may be others
        codes = codes_of(groups, *best, levels).float() - best[1].float()
        scale = _short(((groups * codes).sum(1, keepdim=True) / codes.square().sum(1, keepdim=True)).nan_to_num(0.0))
        best, least = _better(groups, best, least, (scale, best[1]), levels)
    return best


def ternary(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and zero point of codes 0, 1, 2 for -scale, 0, scale (Li, Zhang and Liu, 2016) of least squared error.

    That paper takes 0.7 times the mean magnitude for the threshold between zero and not, an approximation to its
    equation 5; here the equation is solved: keeping the k largest magnitudes, of sum S, saves S^2 / k, and every k is
    tried.
    """
    sums = groups.abs().sort(1, descending=True).values.double().cumsum(1)
    counts = torch.arange(1, groups.shape[1] + 1, device=groups.device)
    best = (sums.square() / counts).argmax(1, keepdim=True)
    scale = _short((sums.gather(1, best) / (best + 1)).float())
    return scale, torch.ones_like(scale, dtype=torch.uint8)


def _errors(groups: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, levels: int) -> torch.Tensor:
    """Sum of squared errors of each group, [groups, 1]."""
    codes = (groups / scale).round_().clamp_(-zero_point.float(), levels - 1 - zero_point.float())
    return codes.mul_(scale).sub_(groups).square_().sum(1, keepdim=True)


def _better(
    groups: torch.Tensor,
    best: tuple[torch.Tensor, torch.Tensor],
    least: torch.Tensor,
    found: tuple[torch.Tensor, torch.Tensor],
    levels: int,
) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """For each group the better of two ranges, and its error."""
    errors = _errors(groups, *found, levels)
    better = errors < least
    pair = (torch.where(better, found[0], best[0]), torch.where(better, found[1], best[1]))
    return pair, torch.where(better, errors, least)


def _short(scale: torch.Tensor) -> torch.Tensor:
    """Scales rounded up to 16 significant bits; 1 where there is nothing to scale."""
    bits = (scale.contiguous().view(torch.int32) + 0xFFFF) & -0x10000
    return torch.where(scale > 0, bits.view(torch.float32), 1.0)
