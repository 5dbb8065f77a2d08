"""Floating-point operations of a model's answer."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from common.data.split import Split
from compression.evaluation.speed import ALONE, Predictor, spread
from compression.students.student import Student
from compression.students.weights import Dense, Product, replace_matrix


def flops(predict: Predictor, split: Split) -> int:
    """Return the mean over ALONE texts of a split, each by itself and so without padding.

    A multiply-add of a matrix product is two operations (attention's products and an LSTM's steps are such products).
    Nothing else is counted: biases, activations, normalisation, pooling, and embeddings, which are looked up. Zeros of
    a pruned matrix count, as the runtimes multiply them.
    """
    rows = spread(split, ALONE)
    with _unfused(), FlopCounterMode(display=False) as counter:
        for row in rows:
            predict(split.take(np.array([row])))
    return round(counter.get_total_flops() / len(rows))


@contextlib.contextmanager
def _unfused() -> Iterator[None]:
    """PyTorch does an LSTM's and attention's products one by one: the counter does not know the fused ones."""
    with contextlib.ExitStack() as stack:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the flags name TF32, which few machines have
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


def multiply_out(student: Student) -> None:
    """Make matrices of low rank whole, in place: the runtimes do so when they load a file."""
    products = [(name, module) for name, module in student.named_modules() if isinstance(module, Product)]
    for name, product in products:
        replace_matrix(student, name, Dense(product.dense().detach()))
