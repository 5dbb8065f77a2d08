"""Architectures, and the shapes of all weights of an encoder, in the order of a file."""

from __future__ import annotations

from typing import NamedTuple

ARCHS = ("ffn", "rnn", "bilstm", "conv", "transformer", "recursive")
TRANSFORMERS = ARCHS[4:]
"""Architectures that read a pair as one text."""
EMBEDDINGS = ("bpe", "hash", "char", "wordpiece")
GATES = {"rnn": 1, "bilstm": 4}

Shapes = dict[str, tuple[int, ...]]
"""Name of a matrix or vector -> (rows, columns), or (length,)."""


class EncoderSize(NamedTuple):
    """The sizes of an encoder. depth: layers, or times that the one is used; positions: most tokens of a text."""

    arch: str
    pair: bool
    dim: int
    hidden: int
    kernel_width: int = 0
    depth: int = 0
    heads: int = 0
    intermediate: int = 0
    adapters: int = 0
    positions: int = 0

    @property
    def shared(self) -> bool:
        """Whether one layer serves all iterations."""
        return self.arch == "recursive"

    @property
    def output(self) -> int:
        """Width of the classifier's input."""
        width = {"ffn": self.dim, "rnn": 2 * self.hidden, "bilstm": 2 * self.hidden}.get(self.arch, self.hidden)
        return width * (4 if self.pair and self.arch not in TRANSFORMERS else 1)


def positions_of(max_tokens: int, pair: bool) -> int:
    """Return the most tokens of a transformer's text: one sentence or two, a special token after each, one in front."""
    return 1 + (1 + pair) * (max_tokens + 1)


def encoder_shapes(size: EncoderSize) -> Shapes:
    """Return the shapes of an encoder's matrices and vectors, by the names that students give them."""
    dim, hidden = size.dim, size.hidden
    if size.arch == "ffn":
        return {}
    if size.arch == "conv":
        return _linear("convolution", size.kernel_width * dim, 2 * hidden)
    if size.arch in TRANSFORMERS:
        return _transformer(size)
    gates, shapes = GATES[size.arch] * hidden, {}
    for direction in ("forward_rnn", "backward_rnn"):
        shapes[f"{direction}.weight_ih"], shapes[f"{direction}.weight_hh"] = (gates, dim), (gates, hidden)
        shapes[f"{direction}.bias"] = (gates,)
    return shapes


def _transformer(size: EncoderSize) -> Shapes:
    hidden = size.hidden
    shapes = _linear("projection", size.dim, hidden) if size.dim != hidden else {}
    shapes |= {"marks.weight": (2, size.dim), "positions.weight": (size.positions, hidden)}
    shapes |= {"segments.weight": (2, hidden), **_norm("norm", hidden)}
    for number in range(1 if size.shared else size.depth):
        name = f"blocks.{number}."
        for part in ("query", "key", "value", "output"):
            shapes |= _linear(f"{name}attention.{part}", hidden, hidden)
        shapes |= _norm(f"{name}attention_norm", hidden)
        shapes |= _linear(f"{name}up", hidden, size.intermediate)
        shapes |= _linear(f"{name}down", size.intermediate, hidden)
        shapes |= _norm(f"{name}output_norm", hidden)
    for number in range(size.depth if size.adapters else 0):
        for adapter in (0, 1):
            shapes |= _linear(f"adapters.{number}.{adapter}.down", hidden, size.adapters)
            shapes |= _linear(f"adapters.{number}.{adapter}.up", size.adapters, hidden)
    return shapes


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}
