"""The layers of students. Each multiplies with matrices of any form, see compression.students.weights.

Fresh weights are drawn as PyTorch's own layers draw them.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from common.errors import UserError
from compression.students.rounding import affine_range, round_by, round_each_vector
from compression.students.weights import Dense

GATES = {"lstm": 4, "rnn": 1}
"""Rows of a recurrent matrix for each unit: an LSTM's input, forget, candidate and output gate; an Elman RNN's one."""
INPUTS = {"encoder": ("dynamic",), "classifier": ("dynamic", "static")}
"""Parts whose inputs can be rounded, and how."""


class Table(nn.Module):
    """Embedding vectors by index."""

    def __init__(self, rows: int, columns: int, std: float = 1.0) -> None:
        super().__init__()
        self.weight = Dense(torch.randn(rows, columns) * std)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: int64 [...] -> [..., columns]."""
        return self.weight.select(ids)


class Linear(nn.Module):
    """x W^T + b. `inputs` says whether x is rounded to 8 bits first, see compression.students.rounding."""

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
    """One direction of an LSTM or an Elman RNN (tanh) over padded batches, gates in PyTorch's order."""

    def __init__(self, kind: str, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.kind, self.hidden_dim = kind, hidden_dim
        fresh = {"lstm": nn.LSTM, "rnn": nn.RNN}[kind](input_dim, hidden_dim)
        self.weight_ih, self.weight_hh = Dense(fresh.weight_ih_l0.data), Dense(fresh.weight_hh_l0.data)
        self.bias_ih, self.bias_hh = nn.Parameter(fresh.bias_ih_l0.data), nn.Parameter(fresh.bias_hh_l0.data)
        self.inputs: str | None = None

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """vectors: [batch, time, input_dim] -> states [batch, time, hidden_dim], from a state of zeros."""
        if self.inputs == "dynamic":
            return self._step_by_step(vectors)
        weights = [self.weight_ih.dense(), self.weight_hh.dense(), self.bias_ih, self.bias_hh]
        zeros = vectors.new_zeros(1, vectors.shape[0], self.hidden_dim)
        # As nn.LSTM and nn.RNN call it: biases, one layer, no dropout, whether training, one direction, batch first.
        if self.kind == "lstm":
            return torch.lstm(vectors, (zeros, zeros), weights, True, 1, 0.0, self.training, False, True)[0]
        return torch.rnn_tanh(vectors, zeros, weights, True, 1, 0.0, self.training, False, True)[0]

    def _step_by_step(self, vectors: torch.Tensor) -> torch.Tensor:
        """The same with each step's input and state rounded to 8 bits."""
        from_input = nn.functional.linear(round_each_vector(vectors), self.weight_ih.dense(), self.bias_ih)
        weight_hh = self.weight_hh.dense()
        hidden = cell = vectors.new_zeros(vectors.shape[0], self.hidden_dim)
        states = []
        for step in from_input.unbind(1):
            total = step + nn.functional.linear(round_each_vector(hidden), weight_hh, self.bias_hh)
            if self.kind == "lstm":
                hidden, cell = lstm_step(total, cell)
            else:
                hidden = total.tanh()
            states.append(hidden)
        return torch.stack(states, 1)


def padding_mask(vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return a mask over padded vectors [batch, time, ...], true at tokens, bool [batch, time, 1]. lengths: [batch]."""
    return (torch.arange(vectors.shape[1], device=vectors.device) < lengths[:, None])[..., None]


def max_pool(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the maximum over each sentence's tokens: [batch, time, dim], int64 [batch] -> [batch, dim]."""
    return states.masked_fill(~padding_mask(states, lengths), float("-inf")).amax(1)


def lstm_step(gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return PyTorch's next LSTM state and cell. gates: [batch, 4 hidden], input, forget, candidate, output."""
    input_, forget, candidate, output = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + input_.sigmoid() * candidate.tanh()
    return output.sigmoid() * cell.tanh(), cell


def round_inputs(student: nn.Module, inputs: Mapping[str, str], calibration: torch.Tensor | None) -> None:
    """Set which layers round their inputs to 8 bits, in place. inputs: as in `check_inputs`.

    calibration: the classifier's inputs over training text, [rows, width], for `static`; None where the ranges come
    with the saved weights.
    """
    for part, how in check_inputs(inputs).items():
        for layer in student.get_submodule(part).modules():
            if isinstance(layer, Linear | Recurrent):
                layer.inputs = how
            if isinstance(layer, Linear) and how == "static":
                _set_range(layer, calibration)
                # The next layer's inputs, as this one computes them.
                calibration = None if calibration is None else layer(calibration).relu()


def _set_range(layer: Linear, inputs: torch.Tensor | None) -> None:
    ends = torch.zeros(2) if inputs is None else torch.stack([inputs.min(), inputs.max()])
    scale, zero_point = affine_range(ends[:1], ends[1:])
    layer.register_buffer("input_scale", scale)
    layer.register_buffer("input_zero_point", zero_point)


def check_inputs(inputs: Mapping[str, str]) -> Mapping[str, str]:
    """Return the parts and how their inputs are rounded. Raises UserError for a pair that is not in INPUTS."""
    for part, how in inputs.items():
        if how not in INPUTS.get(part, ()):
            raise UserError(f"cannot round the inputs of {part} as {how}")
    return inputs
