"""Architectures, and the name and shape of every weight of a student, in the order of a file."""

from __future__ import annotations

from typing import NamedTuple

from .tokenizers.hash import HASHES

ARCHS = ("ffn", "rnn", "bilstm", "conv", "transformer", "recursive", "gru")
"""All architectures; a file holds the index."""
TRANSFORMERS = ("transformer", "recursive")
"""Architectures that read a pair as one text."""
LAYER_PARTS = ("attention", "feed-forward")
"""Parts of a transformer's layer."""
SHARES = ("none", *LAYER_PARTS)
"""Parts that all layers of a transformer may share, or none of them; a file holds the index."""
POOLINGS = ("mean", "max", "both")
"""What an FFN computes from a text's embeddings; a file holds the index."""
ALIGNING = ("bilstm", "gru", "conv")
"""Architectures that can align the texts of a pair."""
EMBEDDINGS = ("bpe", "hash", "char", "wordpiece", "ngrams")
GATES = {
    "rnn": ("candidate",),
    "bilstm": ("input", "forget", "candidate", "output"),
    "gru": ("reset", "update", "candidate"),
}
"""Recurrent architecture -> the gates of a unit, in the order of the rows of its matrices, which is PyTorch's.

The candidate takes a tanh, every other gate a sigmoid. An Elman RNN's new state is its candidate. A GRU's is update * h
+ (1 - update) * candidate, with candidate = tanh(W x + bias + reset * (U h)): the reset gate comes after the product,
as in the first version of Cho et al. (2014, arXiv 1406.1078v1) and in cuDNN, whose second bias, of U h, is left out.
"""
ENCODER_FIELDS = {
    "ffn": {},
    "conv": {"hidden": "width", "kernel_width": "byte"},
    **{arch: {"hidden": "width"} for arch in GATES},
    **{
        arch: {"hidden": "width", "depth": "byte", "heads": "byte", "intermediate": "width", "adapters": "units"}
        for arch in TRANSFORMERS
    },
}
"""Architecture -> the fields of EncoderSize that its files have, and the methods that read and write them."""

Shapes = dict[str, tuple[int, ...]]
"""Name of a matrix or vector -> (rows, columns), or (length,)."""


class EncoderSize(NamedTuple):
    """The sizes of an encoder.

    depth: number of layers, or how often the one layer is used; align: whether the tokens of a pair attend to the other
    text; symmetric: whether the order of a pair's texts makes no difference; spans: whether the words of a pair's
    second text have logits, not the pair; share: one of SHARES; segments: whether a transformer has segment embeddings;
    head_dim: width of an attention head, 0 for the layers' width divided by the heads; compose: whether a second
    encoder reads the results of alignment; pooling: "last" or "max" of the states, of an FFN one of POOLINGS.
    """

    arch: str
    pair: bool
    max_tokens: int
    dim: int
    hidden: int = 0
    kernel_width: int = 0
    depth: int = 0
    heads: int = 0
    intermediate: int = 0
    adapters: int = 0
    align: bool = False
    symmetric: bool = False
    spans: bool = False
    share: str = "none"
    segments: bool = True
    head_dim: int = 0
    compose: bool = False
    pooling: str = "last"

    def owner(self, part: str, layer: int) -> int:
        """Return the layer whose weights a layer's part (of LAYER_PARTS) uses: the first one if all share it."""
        return 0 if self.arch == "recursive" or self.share == part else layer

    def own_parts(self, layer: int) -> list[str]:
        """Return the parts of a layer that have weights of their own."""
        return [part for part in LAYER_PARTS if self.owner(part, layer) == layer]

    @property
    def attention(self) -> int:
        """Width of all attention heads together."""
        return self.heads * (self.head_dim or self.hidden // self.heads)

    @property
    def positions(self) -> int:
        """Most tokens of a transformer's text: one sentence or two, a special token after each, one in front."""
        return 1 + (1 + self.pair) * (self.max_tokens + 1)

    @property
    def input(self) -> int:
        """Width of a token's vector; if texts are aligned, with one number for whether both texts have the token."""
        return self.dim + self.align

    @property
    def state(self) -> int:
        """Width of a token's state; of an FFN, which has none, width of a text's vector."""
        if self.arch == "ffn":
            return 2 * self.dim if self.pooling == "both" else self.dim
        return 2 * self.hidden if self.arch in GATES else self.hidden

    @property
    def compared(self) -> int:
        """Width of alignment's result for a token: that of a state, or of the second encoder's input."""
        return self.hidden if self.compose else self.state

    @property
    def blocks(self) -> int:
        """Number of vectors that the classifier reads: for a pair [u; v; |u - v|; u * v], or if symmetric, [u + v; |u -
        v|; u * v]; for a word of a pair's second text, one."""
        if not self.pair or self.arch in TRANSFORMERS or self.spans:
            return 1
        return 3 if self.symmetric else 4

    @property
    def output(self) -> int:
        """Width of the classifier's input."""
        return self.state * self.blocks


def student_shapes(size: EncoderSize, rows: int, vocab_size: int, classifier: int, outputs: int) -> Shapes:
    """Return the shapes of all matrices and vectors, by the names that students give them.

    rows: of the embedding's table; vocab_size: of hash embeddings, else 0; classifier: the hidden layer's units.
    """
    shapes: Shapes = {"embedding.table.weight": (rows, size.dim)}
    if vocab_size:
        shapes["embedding.importance.weight"] = (HASHES * vocab_size, 1)
    shapes |= {f"encoder.{name}": shape for name, shape in _encoder_shapes(size).items()}
    return shapes | _layer("classifier.0", classifier, size.output) | _layer("classifier.3", outputs, classifier)


def _encoder_shapes(size: EncoderSize) -> Shapes:
    if size.arch in TRANSFORMERS:
        return _transformer_shapes(size)
    shapes = _layer_shapes(size, size.input)
    if size.align:
        # A token, the vector it attends to, their difference and their product; each is a state and a vector.
        shapes |= {"alignment.scale": (1,), **_layer("alignment.fusion", size.compared, 4 * (size.state + size.dim))}
    if size.compose:
        composition = _layer_shapes(size, size.compared)
        shapes |= {f"alignment.composition.{name}": shape for name, shape in composition.items()}
    return shapes


def _layer_shapes(size: EncoderSize, dim: int) -> Shapes:
    """Return the shapes of a convolution, or of a recurrent layer in both directions; an FFN has none of them.

    dim: width of the input.
    """
    if size.arch == "conv":
        return _layer("convolution", 2 * size.hidden, size.kernel_width * dim)
    if size.arch not in GATES:
        return {}
    shapes: Shapes = {}
    gates = len(GATES[size.arch]) * size.hidden
    for name in ("forward_rnn", "backward_rnn"):
        shapes |= {
            f"{name}.weight_ih": (gates, dim),
            f"{name}.weight_hh": (gates, size.hidden),
            f"{name}.bias": (gates,),
        }
    return shapes


def _transformer_shapes(size: EncoderSize) -> Shapes:
    hidden = size.hidden
    shapes = _layer("projection", hidden, size.dim) if size.dim != hidden else {}
    # marks: the vectors of the two special tokens.
    shapes |= {"marks.weight": (2, size.dim), "positions.weight": (size.positions, hidden)}
    shapes |= {"segments.weight": (2, hidden)} if size.segments else {}
    shapes |= _layer("norm", hidden)
    for number in range(size.depth):
        name, parts = f"blocks.{number}.", size.own_parts(number)
        if "attention" in parts:
            for matrix in ("query", "key", "value"):
                shapes |= _layer(f"{name}attention.{matrix}", size.attention, hidden)
            shapes |= _layer(f"{name}attention.output", hidden, size.attention)
            shapes |= _layer(f"{name}attention_norm", hidden)
        if "feed-forward" in parts:
            shapes |= _layer(f"{name}up", size.intermediate, hidden) | _layer(f"{name}down", hidden, size.intermediate)
            shapes |= _layer(f"{name}output_norm", hidden)
    for number in range(size.depth if size.adapters else 0):
        for name in (f"adapters.{number}.0", f"adapters.{number}.1"):
            shapes |= _layer(f"{name}.down", size.adapters, hidden) | _layer(f"{name}.up", hidden, size.adapters)
    return shapes


def _layer(name: str, outputs: int, *inputs: int) -> Shapes:
    # Without inputs it is a normalisation layer.
    return {f"{name}.weight": (outputs, *inputs), f"{name}.bias": (outputs,)}
