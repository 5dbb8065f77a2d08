"""How much harm it does to quantize each matrix alone, at every width, and what it saves.

Harm is the mean squared change of the logits over validation text. It tells small differences that a score over a few
hundred rows does not show, and of several matrices together it is about the sum: their errors are independent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from common.data.split import Split
from compression.shrinking.quantization.maker import Maker
from compression.shrinking.quantization.scheme import Scheme
from compression.students.scoring import encode_split, student_logits
from compression.students.student import Student
from compression.students.weights import Dense, Matrix, replace_matrix
from compression.tokenizers import Tokenizer

ROWS = 500
"""Rows of text that harm is measured on, at most."""
CPU = torch.device("cpu")


@dataclasses.dataclass(frozen=True)
class Option:
    """A way to quantize a matrix. size: bytes, as an entropy coder would need them; harm: see above."""

    scheme: Scheme
    size: float
    harm: float


def options(
    student: Student,
    tokenizer: Tokenizer,
    rows: Split,
    maker: Maker,
    schemes: Mapping[str, Sequence[Scheme]],
) -> dict[str, list[Option]]:
    """Name of matrix -> what each of its schemes costs. The student is left with the float weights, which maker has."""
    weights = maker.weights
    encoded = encode_split(tokenizer, rows.take(np.arange(min(ROWS, len(rows)))))
    exact = student_logits(student, encoded, CPU, "sensitivity")
    found: dict[str, list[Option]] = {name: [] for name in weights}
    pairs = [(name, scheme) for name in weights for scheme in schemes[name]]
    for number, (name, scheme) in enumerate(pairs, 1):
        matrix = maker.quantized(name, scheme)
        replace_matrix(student, name, matrix)
        changed = student_logits(student, encoded, CPU, f"sensitivity {number}/{len(pairs)}")
        replace_matrix(student, name, Dense(weights[name]))
        found[name].append(Option(scheme, coded_size(matrix), float(np.nanmean(np.square(changed - exact)))))
    return found


def coded_size(matrix: Matrix) -> float:
    """About the bytes of a quantized matrix in a packed file: the entropy of its codes, and its ranges."""
    tensors = dict(matrix.named_buffers())
    size = 0.0
    for name, tensor in tensors.items():
        if tensor.dtype == torch.uint8:
            size += _entropy(tensor) * tensor.numel() / 8
        else:  # a scale has two bytes that are not zero
            size += tensor.numel() * (2 if name in ("scale", "value") else 4)
    return size


def _entropy(codes: torch.Tensor) -> float:
    """Bits a code, order 0."""
    shares = torch.bincount(codes.flatten().int(), minlength=1).double() / max(1, codes.numel())
    shares = shares[shares > 0]
    return float(-(shares * shares.log2()).sum())
