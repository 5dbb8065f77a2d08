"""Quantization to 8 bits: integer codes with scales of our own, in modules that compute what their float twins do.

Weights are stored as codes and dequantized to multiply. Inputs of quantized matrices are rounded to 8 bits as well, by
ranges taken from each vector as it comes ("dynamic") or calibrated beforehand ("static"), as on integer hardware. Every
range includes zero, so pruned weights stay exactly zero.

Affine codes: q = clamp(round(x / scale) + zero_point, 0, 255), x = (q - zero_point) * scale (equations 4.10 to 4.12).
"""

from __future__ import annotations

import torch
from torch import nn

from common.errors import UserError
from compression.students.student import Student

LEVELS = 255


def affine_range(low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale (float32) and zero point (uint8) of 256 codes over [min(low, 0), max(high, 0)]."""
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    scale = (high - low) / LEVELS
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return scale, (-low / scale).round().clamp(0, LEVELS).to(torch.uint8)


def to_codes(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
    """Nearest codes, uint8, of x's shape."""
    return ((x / scale).round() + zero_point.float()).clamp(0, LEVELS).to(torch.uint8)


def from_codes(codes: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
    """Values of codes, float32."""
    return (codes.float() - zero_point.float()) * scale


def round_each_vector(x: torch.Tensor) -> torch.Tensor:
    """x as 8 bits hold it, with a range for each vector of the last dimension: no row depends on its batch."""
    scale, zero_point = affine_range(x.amin(-1, keepdim=True), x.amax(-1, keepdim=True))
    return from_codes(to_codes(x, scale, zero_point), scale, zero_point)


class QuantizedMatrix(nn.Module):
    """codes: uint8 [rows, columns]; scale: float32 [rows, 1]; zero_point: uint8 [rows, 1]."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("codes", torch.zeros(rows, columns, dtype=torch.uint8))
        self.register_buffer("scale", torch.ones(rows, 1))
        self.register_buffer("zero_point", torch.zeros(rows, 1, dtype=torch.uint8))

    def fill(self, weight: torch.Tensor) -> None:
        """Quantize a float matrix, one range a row, so that its largest and smallest values are kept."""
        weight = weight.detach()
        self.scale, self.zero_point = affine_range(weight.amin(1, keepdim=True), weight.amax(1, keepdim=True))
        self.codes = to_codes(weight, self.scale, self.zero_point)

    def value(self) -> torch.Tensor:
        """The matrix as float32."""
        return from_codes(self.codes, self.scale, self.zero_point)


class QuantizedTable(QuantizedMatrix):
    """An embedding table with one range a vector."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: int64 [...] -> [..., columns]."""
        return from_codes(self.codes[ids], self.scale[ids], self.zero_point[ids])


class HalfTable(nn.Module):
    """Hash importance as 16-bit floats: a code and a scale for each single number would be larger (section 6.1.7)."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros(rows, columns, dtype=torch.float16))

    def fill(self, weight: torch.Tensor) -> None:
        """Round a float table to 16 bits."""
        self.value = weight.detach().half()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: int64 [...] -> [..., columns] float32."""
        return self.value[ids].float()


class QuantizedLinear(nn.Module):
    """A linear layer whose matrix and input have 8 bits; the bias stays float32."""

    def __init__(self, linear: nn.Linear, static: bool) -> None:
        """Shapes of `linear`; its values come by `fill` or a state dict."""
        super().__init__()
        self.weight = QuantizedMatrix(linear.out_features, linear.in_features)
        self.register_buffer("bias", torch.zeros(linear.out_features))
        self.static = static
        if static:
            self.register_buffer("input_scale", torch.ones(1))
            self.register_buffer("input_zero_point", torch.zeros(1, dtype=torch.uint8))

    def fill(self, linear: nn.Linear, inputs: torch.Tensor | None) -> None:
        """Quantize `linear`; a static layer takes its input's range from `inputs`, [rows, in_features]."""
        self.weight.fill(linear.weight)
        self.bias = linear.bias.detach().clone()
        if self.static and inputs is not None:
            self.input_scale, self.input_zero_point = affine_range(inputs.min().view(1), inputs.max().view(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, in_features] -> [batch, out_features]."""
        if self.static:
            codes = to_codes(x, self.input_scale, self.input_zero_point)
            x = from_codes(codes, self.input_scale, self.input_zero_point)
        else:
            x = round_each_vector(x)
        return nn.functional.linear(x, self.weight.value(), self.bias)


class QuantizedRecurrent(nn.Module):
    """One direction of an LSTM or Elman RNN with 8-bit matrices; each step's input and state are rounded too."""

    def __init__(self, rnn: nn.RNNBase) -> None:
        """Shapes of `rnn`; its values come by `fill` or a state dict."""
        super().__init__()
        self.is_lstm = isinstance(rnn, nn.LSTM)
        self.hidden_dim = rnn.hidden_size
        rows = rnn.weight_ih_l0.shape[0]
        self.weight_ih = QuantizedMatrix(rows, rnn.input_size)
        self.weight_hh = QuantizedMatrix(rows, rnn.hidden_size)
        self.register_buffer("bias_ih", torch.zeros(rows))
        self.register_buffer("bias_hh", torch.zeros(rows))

    def fill(self, rnn: nn.RNNBase) -> None:
        """Quantize the matrices of `rnn`."""
        self.weight_ih.fill(rnn.weight_ih_l0)
        self.weight_hh.fill(rnn.weight_hh_l0)
        self.bias_ih, self.bias_hh = rnn.bias_ih_l0.detach().clone(), rnn.bias_hh_l0.detach().clone()

    def forward(self, vectors: torch.Tensor) -> tuple[torch.Tensor, None]:
        """vectors: [batch, time, input_dim] -> states [batch, time, hidden_dim], in the shape nn.RNNBase returns."""
        from_input = nn.functional.linear(round_each_vector(vectors), self.weight_ih.value(), self.bias_ih)
        weight_hh = self.weight_hh.value()
        hidden = vectors.new_zeros(vectors.shape[0], self.hidden_dim)
        cell = hidden
        states = []
        for step in from_input.unbind(1):
            total = step + nn.functional.linear(round_each_vector(hidden), weight_hh, self.bias_hh)
            if self.is_lstm:
                hidden, cell = lstm_step(total, cell)
            else:
                hidden = total.tanh()
            states.append(hidden)
        return torch.stack(states, 1), None


def lstm_step(gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's LSTM cell. gates: [batch, 4 hidden] in the order input, forget, candidate, output."""
    take, forget, candidate, output = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + take.sigmoid() * candidate.tanh()
    return output.sigmoid() * cell.tanh(), cell


def quantize_student(student: Student, parts: dict[str, str], calibration: torch.Tensor | None) -> None:
    """Replace a float student's parts by quantized ones, in place.

    parts: as in `check_parts`. calibration: inputs of the classifier over training text, [rows, width], for `static`.
    """
    float_modules = _shells(student, parts)
    inputs = calibration
    for module, quantized in float_modules:
        if isinstance(quantized, QuantizedLinear):
            quantized.fill(module, inputs)
            # The next layer's inputs, as the float classifier computes them.
            inputs = None if inputs is None else module(inputs).relu()
        else:
            quantized.fill(module if isinstance(module, nn.RNNBase) else module.weight)


def restore_quantized(student: Student, parts: dict[str, str]) -> None:
    """Give a fresh student the quantized modules that a saved one has, empty, for its weights to be loaded into."""
    _shells(student, check_parts(parts))


def check_parts(parts: dict[str, str]) -> dict[str, str]:
    """Part -> how its inputs are rounded: embedding: static; encoder: dynamic; classifier: dynamic or static.

    Raises UserError for anything else.
    """
    known = {"embedding": ("static",), "encoder": ("dynamic",), "classifier": ("dynamic", "static")}
    for part, how in parts.items():
        if how not in known.get(part, ()):
            raise UserError(f"cannot quantize {part} as {how}")
    return parts


def _shells(student: Student, parts: dict[str, str]) -> list[tuple[nn.Module, nn.Module]]:
    """Put empty quantized modules into a student; returns (float module, quantized module) pairs in order."""
    pairs: list[tuple[nn.Module, nn.Module]] = []
    wanted = {"embedding": nn.Embedding, "encoder": nn.RNNBase, "classifier": nn.Linear}
    for part, how in parts.items():
        parent = getattr(student, part)
        for name, module in list(parent.named_children()):
            if isinstance(module, wanted[part]):
                quantized = _shell(module, how)
                setattr(parent, name, quantized)
                pairs.append((module, quantized))
    return pairs


def _shell(module: nn.Module, how: str) -> nn.Module:
    if isinstance(module, nn.Embedding):
        kind = HalfTable if module.embedding_dim == 1 else QuantizedTable
        return kind(module.num_embeddings, module.embedding_dim)
    return QuantizedRecurrent(module) if isinstance(module, nn.RNNBase) else QuantizedLinear(module, how == "static")
