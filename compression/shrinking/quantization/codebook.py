"""Codebooks: k-means centroids that weights share (Han, Mao and Dally, 2016, section 3).

On a line a cluster is an interval of the sorted values, so a step of k-means is a few lookups in running sums. Groups
are float32 [groups, size], each with a codebook of its own.
"""

from __future__ import annotations

import torch

STEPS = 100
"""Steps of k-means at most; 256 centroids go on moving by next to nothing."""


def k_means(groups: torch.Tensor, levels: int) -> torch.Tensor:
    """Centroids of least squared error that k-means finds, float32 [groups, levels], ascending; always the same.

    It starts twice, evenly over the range (the paper's choice) and evenly over the sorted values, and keeps the better
    end. Where any weight is zero, one centroid of each group is exactly zero and does not move.
    """
    ordered = groups.double().sort(1).values
    keep_zero = bool((groups == 0).any())
    even = torch.linspace(0, 1, levels, dtype=torch.float64)
    by_range = ordered[:, :1] + (ordered[:, -1:] - ordered[:, :1]) * even
    by_rank = ordered[:, (even * (groups.shape[1] - 1)).round().long()]
    ends = [_settle(ordered, start.contiguous(), keep_zero) for start in (by_range, by_rank)]
    errors = [(ordered - end.gather(1, nearest(ordered, end))).square().sum(1, keepdim=True) for end in ends]
    return torch.where(errors[0] <= errors[1], *ends).float()


def nearest(groups: torch.Tensor, centroids: torch.Tensor) -> torch.Tensor:
    """Number of the nearest centroid, int64 of groups' shape. centroids: ascending [groups, levels]."""
    middles = (centroids[:, 1:] + centroids[:, :-1]) / 2
    return torch.searchsorted(middles.contiguous(), groups.contiguous())


def _settle(ordered: torch.Tensor, centroids: torch.Tensor, keep_zero: bool) -> torch.Tensor:
    """Steps of k-means until nothing moves. ordered: float64 [groups, size]; centroids: [groups, levels]."""
    count = ordered.shape[1]
    sums = torch.nn.functional.pad(ordered.cumsum(1), (1, 0))
    zero = centroids.abs().argmin(1, keepdim=True)
    if keep_zero:
        centroids = centroids.scatter(1, zero, 0.0)
    for _ in range(STEPS):
        cuts = torch.searchsorted(ordered, ((centroids[:, 1:] + centroids[:, :-1]) / 2).contiguous())
        cuts = torch.nn.functional.pad(torch.nn.functional.pad(cuts, (1, 0)), (0, 1), value=count)
        members = cuts.diff(dim=1)
        moved = torch.where(members > 0, sums.gather(1, cuts).diff(dim=1) / members, centroids)
        if keep_zero:
            moved.scatter_(1, zero, 0.0)
        if torch.equal(moved, centroids):
            break
        centroids = moved
    return centroids
