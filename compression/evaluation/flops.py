"""Floating-point operations (FLOPs) of a prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from common.data.split import Split
from compression.evaluation.speed import ALONE, Predictor, spread
from compression.students.student import Student
from compression.students.weights import Dense, Product, replace_matrix

Shape = Sequence[int]


def flops(predict: Predictor, split: Split) -> int:
    """Return the mean FLOPs over ALONE texts of a split, each predicted alone and thus without padding.

    A multiply-add of a matrix product counts as two operations; this includes attention and the steps of an LSTM.
    Biases, activations, normalisation, pooling and embedding look-ups are not counted. Zeros of a pruned matrix are
    counted, because the runtimes multiply them.
    """
    rows = spread(split, ALONE)
    # The counter supports neither oneDNN's LSTM nor the fused attention of CPUs.
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mkldnn_rnn_layer: _lstm})
    with sdpa_kernel(SDPBackend.MATH), counter:
        for row in rows:
            predict(split.take(np.array([row])))
    return round(counter.get_total_flops() / len(rows))


def _lstm(vectors: Shape, weight_ih: Shape, weight_hh: Shape, *others: object, **more: object) -> int:
    # Per direction; the shapes are [time, batch, dim], [gates, dim] and [gates, hidden].
    return 2 * math.prod(vectors[:-1]) * (math.prod(weight_ih) + math.prod(weight_hh))


def multiply_out(student: Student) -> None:
    """Replace low-rank factors by their product, in place, as the runtimes do when they load a file."""
    products = [(name, module) for name, module in student.named_modules() if isinstance(module, Product)]
    for name, product in products:
        replace_matrix(student, name, Dense(product.dense().detach()))
