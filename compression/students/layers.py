"""The layers of students. Each multiplies with matrices of any form, see compression.students.weights.

Fresh weights are drawn as PyTorch's own layers draw them. Inputs of quantized matrices can be rounded to 8 bits, as on
integer hardware, with ranges that are taken from each vector ("dynamic") or calibrated beforehand ("static") and that
include zero: q = clamp(round(x / scale) + zero_point, 0, 255), x = (q - zero_point) * scale (equations 4.10 to 4.12).
In training, linear layers round their inputs too, and the gradient passes through the rounding unchanged.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from common.errors import UserError
from compression.students.weights import Dense

RECURRENT = {"rnn": nn.RNN, "bilstm": nn.LSTM, "gru": nn.GRU}
"""Architecture -> PyTorch's layer of one direction."""
INPUTS = {"encoder": ("dynamic",), "classifier": ("dynamic", "static")}
"""Parts whose inputs can be rounded, and how."""
LEVELS = 255

# A matrix may be computed from codes or factors, so the weights are not one buffer; cuDNN copies them into one.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


class StraightThrough(torch.autograd.Function):
    """A rounded tensor whose gradient goes to the exact one unchanged (Bengio, Leonard and Courville, 2013)."""

    @staticmethod
    def forward(ctx: Any, exact: torch.Tensor, rounded: torch.Tensor, fixed: torch.Tensor | None) -> torch.Tensor:
        """Return `rounded`. fixed: bool, the elements whose gradient is zero; None: none of them."""
        ctx.fixed = fixed
        return rounded

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of `exact`."""
        (gradient,) = gradients
        return gradient if ctx.fixed is None else gradient.masked_fill(ctx.fixed, 0.0), None, None


def affine_range(low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scale (float32) and zero point (uint8) of 256 codes over [min(low, 0), max(high, 0)]."""
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    scale = (high - low) / LEVELS
    scale = torch.where(scale > 0, scale, 1.0)
    return scale, (-low / scale).round().clamp(0, LEVELS).to(torch.uint8)


def round_by(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
    """Return x rounded to 8-bit codes and converted back, of x's shape and type."""
    exact = x.detach().float()  # bfloat16 has too few bits to find codes of 8 bits
    codes = ((exact / scale).round() + zero_point.float()).clamp(0, LEVELS)
    return StraightThrough.apply(x, ((codes - zero_point.float()) * scale).to(x.dtype), None)


def round_each_vector(x: torch.Tensor) -> torch.Tensor:
    """Return x rounded with one range per vector of the last dimension, so that no row depends on its batch."""
    exact = x.detach().float()
    return round_by(x, *affine_range(exact.amin(-1, keepdim=True), exact.amax(-1, keepdim=True)))


class Table(nn.Module):
    """Embedding vectors by index: a matrix [rows, columns], drawn from a normal distribution."""

    def __init__(self, rows: int, columns: int, std: float = 1.0) -> None:
        super().__init__()
        self.weight = Dense(torch.randn(rows, columns) * std)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: int64 [...] -> [..., columns]."""
        return self.weight.select(ids)


class Linear(nn.Module):
    """x W^T + b, with W [out_features, in_features] and b [out_features].

    inputs: how x is rounded to 8 bits first, "dynamic" or "static"; None: not at all. For "static", input_scale and
    input_zero_point are [1].
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        fresh = nn.Linear(in_features, out_features)
        self.weight = Dense(fresh.weight.data)
        self.bias = nn.Parameter(fresh.bias.data)
        self.inputs: str | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., in_features] -> [..., out_features]."""
        if self.inputs == "dynamic":
            x = round_each_vector(x)
        elif self.inputs == "static":
            x = round_by(x, self.input_scale, self.input_zero_point)
        return nn.functional.linear(x, self.weight.dense(), self.bias)


class Recurrent(nn.Module):
    """One direction of an LSTM, a GRU or an Elman RNN (tanh) over padded batches, its gates as GATES describes them.

    weight_ih: [gates * hidden_dim, input_dim]; weight_hh: [gates * hidden_dim, hidden_dim]; both biases: [gates *
    hidden_dim]; a GRU has no bias_hh.
    """

    def __init__(self, arch: str, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.arch, self.hidden_dim = arch, hidden_dim
        fresh = RECURRENT[arch](input_dim, hidden_dim)
        self.weight_ih, self.weight_hh = Dense(fresh.weight_ih_l0.data), Dense(fresh.weight_hh_l0.data)
        self.bias_ih = nn.Parameter(fresh.bias_ih_l0.data)
        self.bias_hh = None if arch == "gru" else nn.Parameter(fresh.bias_hh_l0.data)
        self.inputs: str | None = None

    @property
    def bias(self) -> torch.Tensor:
        """The sum of both biases, [gates * hidden_dim]."""
        return self.bias_ih if self.bias_hh is None else self.bias_ih + self.bias_hh

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """vectors: [batch, time, input_dim] -> states [batch, time, hidden_dim], from a state of zeros."""
        # Not in training: rounding states step by step takes up to twice as long, and gains nothing in our BiLSTMs.
        if self.inputs == "dynamic" and not self.training:
            return self._step_by_step(vectors)
        # Autocast runs cuDNN's recurrence in float16 whatever its dtype, in which small gradients are zero; and oneDNN
        # has no LSTM in bfloat16 for CPUs without AVX-512.
        without_bf16 = torch.is_autocast_enabled("cpu") and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
        if vectors.is_cuda or without_bf16:
            with torch.autocast(vectors.device.type, enabled=False):
                return self._recur(vectors.float())
        return self._recur(vectors)

    def _recur(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the states of `forward` from PyTorch's own recurrence."""
        bias_hh = torch.zeros_like(self.bias_ih) if self.bias_hh is None else self.bias_hh
        weights = [self.weight_ih.dense(), self.weight_hh.dense(), self.bias_ih, bias_hh]
        zeros = vectors.new_zeros(1, vectors.shape[0], self.hidden_dim)
        recur = {"rnn": torch.rnn_tanh, "bilstm": torch.lstm, "gru": torch.gru}[self.arch]
        state = (zeros, zeros) if self.arch == "bilstm" else zeros
        # As nn.LSTM calls it: biases, one layer, no dropout, whether training, one direction, batch first.
        return recur(vectors, state, weights, True, 1, 0.0, self.training, False, True)[0]

    def _step_by_step(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the states as `forward` does, with each step's input and state rounded to 8 bits."""
        from_input = nn.functional.linear(round_each_vector(vectors), self.weight_ih.dense(), self.bias_ih)
        weight_hh = self.weight_hh.dense()
        hidden = cell = vectors.new_zeros(vectors.shape[0], self.hidden_dim)
        states = []
        for step in from_input.unbind(1):
            from_state = nn.functional.linear(round_each_vector(hidden), weight_hh, self.bias_hh)
            if self.arch == "bilstm":
                input_, forget, candidate, output = (step + from_state).chunk(4, 1)
                cell = forget.sigmoid() * cell + input_.sigmoid() * candidate.tanh()
                hidden = output.sigmoid() * cell.tanh()
            elif self.arch == "gru":
                (reset, update, candidate), read = step.chunk(3, 1), from_state.chunk(3, 1)
                candidate = (candidate + (reset + read[0]).sigmoid() * read[2]).tanh()
                hidden = torch.lerp(candidate, hidden, (update + read[1]).sigmoid())
            else:
                hidden = (step + from_state).tanh()
            states.append(hidden)
        return torch.stack(states, 1)


def round_inputs(student: nn.Module, inputs: Mapping[str, str], calibration: torch.Tensor | None) -> None:
    """Set which layers round their inputs to 8 bits, in place. inputs: part -> how, one of INPUTS.

    calibration: the classifier's inputs over training text, [rows, width], for `static`; None if the ranges are in the
    saved weights. Raises UserError if a part's inputs cannot be rounded in this way.
    """
    for part, how in inputs.items():
        if how not in INPUTS.get(part, ()):
            raise UserError(f"cannot round the inputs of {part} as {how}")
        for layer in student.get_submodule(part).modules():
            if isinstance(layer, Linear | Recurrent):
                layer.inputs = how
            if isinstance(layer, Linear) and how == "static":
                ends = torch.zeros(2) if calibration is None else torch.stack([calibration.min(), calibration.max()])
                scale, zero_point = affine_range(ends[:1], ends[1:])
                layer.register_buffer("input_scale", scale)
                layer.register_buffer("input_zero_point", zero_point)
                # The next layer's inputs, as this one computes them.
                calibration = None if calibration is None else layer(calibration).relu()
