"""Codebooks: k-means centroids that weights share (Han, Mao and Dally, 2016, section 3).

In one dimension a cluster is an interval of the sorted values, so a step of k-means is a few lookups in running sums.
Weights are float32 [groups, size], each row a group with a codebook of its own.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad

STEPS = 100
"""Steps of k-means at most; 256 centroids go on moving by next to nothing."""


def k_means(groups: torch.Tensor, levels: int) -> torch.Tensor:
    """Return centroids of locally least squared error, float32 [groups, levels], ascending.

    Deterministic: it starts evenly over the range (the paper's choice) and evenly over the sorted values, and returns
    the better result. If any weight is zero, one centroid of each group is exactly zero and does not move.
    """
    ordered = groups.double().sort(1).values
    keep_zero = bool((groups == 0).any())
    even = torch.linspace(0, 1, levels, dtype=torch.float64)
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
    """Return centroids after steps of k-means until nothing moves. ordered: float64 [groups, size], ascending."""
    sums = pad(ordered.cumsum(1), (1, 0))
    zero = centroids.abs().argmin(1, keepdim=True)
    if keep_zero:
        centroids = centroids.scatter(1, zero, 0.0)
    for _ in range(STEPS):
        cuts = torch.searchsorted(ordered, ((centroids[:, 1:] + centroids[:, :-1]) / 2).contiguous())
        cuts = pad(pad(cuts, (1, 0)), (0, 1), value=ordered.shape[1])  # [groups, levels + 1]
        members = cuts.diff(dim=1)
        moved = torch.where(members > 0, sums.gather(1, cuts).diff(dim=1) / members, centroids)
        if keep_zero:
            moved.scatter_(1, zero, 0.0)
        if torch.equal(moved, centroids):
            break
        centroids = moved
    return centroids
