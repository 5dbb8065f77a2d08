"""Bit allocation: the settings worth choosing from, each the one of least distortion for its size.

Distortion is the mean squared change of the logits over validation text when one matrix is quantized. It shows small
differences that a score over a few hundred rows does not, and that of several matrices together is about the sum: their
errors are independent. Each matrix's options lie on a curve of size and distortion. Walking along the lower convex
hulls of these curves, always by the step that adds the least distortion for each byte it saves, is the Lagrangian
choice of bits (Shoham and Gersho, 1988).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from compression.shrinking.context import CPU, CompressionContext
from compression.shrinking.quantization.builder import StudentBuilder
from compression.shrinking.quantization.scheme import Scheme, Setting
from compression.students.scoring import encode_split, student_logits
from compression.students.weights import Dense, Matrix, replace_matrix

ROWS = 500
"""Rows of validation that distortion is measured on, at most."""


@dataclasses.dataclass(frozen=True)
class Option:
    """A way to quantize a matrix. size: bytes, as an entropy coder would need them."""

    scheme: Scheme
    size: float
    distortion: float


def measure(
    context: CompressionContext, builder: StudentBuilder, schemes: Mapping[str, Sequence[Scheme]]
) -> dict[str, list[Option]]:
    """Return the options of each matrix by its name. The student is left with float weights."""
    held_out = context.held_out
    encoded = encode_split(context.tokenizer, held_out.take(np.arange(min(ROWS, len(held_out)))))
    exact = student_logits(context.student, encoded, CPU, "sensitivity")
    options: dict[str, list[Option]] = {name: [] for name in builder.weights}
    pairs = [(name, scheme) for name in builder.weights for scheme in schemes[name]]
    for number, (name, scheme) in enumerate(pairs, 1):
        matrix = builder.quantized(name, scheme)
        replace_matrix(context.student, name, matrix)
        changed = student_logits(context.student, encoded, CPU, f"sensitivity {number}/{len(pairs)}")
        replace_matrix(context.student, name, Dense(builder.weights[name]))
        options[name].append(Option(scheme, coded_size(matrix), float(np.nanmean(np.square(changed - exact)))))
    return options


def coded_size(matrix: Matrix) -> float:
    """Estimate the bytes of a quantized matrix in a packed file: the entropy of its codes, and its ranges."""
    size = 0.0
    for name, tensor in matrix.named_buffers():
        if tensor.dtype == torch.uint8:
            size += _entropy(tensor) * tensor.numel() / 8
        else:  # two bytes of a scale are not zero
            size += tensor.numel() * (2 if name in ("scale", "value") else 4)
    return size


def _entropy(codes: torch.Tensor) -> float:
    """Return the bits of a code, order 0."""
    shares = torch.bincount(codes.flatten().int(), minlength=1).double() / max(1, codes.numel())
    shares = shares[shares > 0]
    return float(-(shares * shares.log2()).sum())


def frontier(options: Mapping[str, Sequence[Option]]) -> list[Setting]:
    """Return settings from the largest to the smallest; each changes one matrix of the one before it."""
    hulls = {name: hull(some) for name, some in options.items()}
    # Slopes rise along each hull: sorted steps keep the order of every matrix's own.
    steps = sorted(
        (slope(*pair), name, index)
        for name, line in hulls.items()
        for index, pair in enumerate(itertools.pairwise(line), 1)
    )
    points = [{name: line[0].scheme for name, line in hulls.items()}]
    for _, name, index in steps:
        points.append({**points[-1], name: hulls[name][index].scheme})
    return points


def hull(options: Sequence[Option]) -> list[Option]:
    """Return the lower convex hull of a matrix's options, from the largest to the smallest."""
    line: list[Option] = []
    for option in sorted(options, key=lambda option: (option.distortion, option.size)):
        if line and option.size >= line[-1].size:
            continue  # not smaller, and of no less distortion
        while len(line) > 1 and slope(line[-2], line[-1]) >= slope(line[-1], option):
            line.pop()
        line.append(option)
    return line


def slope(larger: Option, smaller: Option) -> float:
    """Return the distortion that each saved byte adds."""
    return (smaller.distortion - larger.distortion) / (larger.size - smaller.size)
