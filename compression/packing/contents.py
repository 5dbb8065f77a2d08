"""What a packed file holds of a student, in the file's order: settings, matrices, biases."""

from __future__ import annotations

import numpy as np

from common.errors import UserError
from common.training.models import ModelConfig
from compression.packing.head import HeadWriter
from compression.packing.tensors import Tensors
from compression.runtime import (
    ARCHS,
    EMBEDDINGS,
    PAIR,
    POOL_MAX,
    TOKENS,
    TRANSFORMERS,
    EncoderSize,
    encoder_shapes,
    positions_of,
)
from compression.students.settings import StudentSettings


def write_settings(head: HeadWriter, config: ModelConfig, settings: StudentSettings) -> None:
    """The first fields of a packed file's head."""
    head.byte(ARCHS.index(config.arch))
    head.byte(EMBEDDINGS.index(settings.embedding_type))
    head.byte(PAIR * config.pair | POOL_MAX * (settings.pooling == "max") | TOKENS * config.tokens)
    head.text(config.name)
    head.text(config.task)
    head.number(len(config.labels))
    for label in config.labels:
        head.text(label)
    head.number(settings.max_tokens)
    head.number(settings.embedding_dim)
    head.number(settings.cls_hidden_dim)
    if config.arch != "ffn":
        head.number(settings.encoder_hidden_dim)
    if config.arch == "conv":
        head.byte(settings.kernel_width)
    if config.arch in TRANSFORMERS:
        size = encoder_size(config.arch, settings, config.pair)
        head.byte(size.depth)
        head.byte(size.heads)
        head.number(size.intermediate)
        head.number(size.adapters)
    if settings.embedding_type == "hash":
        head.number(settings.vocab_size)


def encoder_size(arch: str, settings: StudentSettings, pair: bool) -> EncoderSize:
    """A student's encoder as the runtime describes it."""
    size = EncoderSize(arch, pair, settings.embedding_dim, settings.encoder_hidden_dim, settings.kernel_width)
    if arch not in TRANSFORMERS:
        return size
    return size._replace(
        depth=settings.iterations if size.shared else settings.layers,
        heads=settings.heads,
        intermediate=settings.intermediate_dim,
        adapters=settings.adapters,
        positions=positions_of(settings.max_tokens, pair),
    )


def _of_encoder(arch: str, settings: StudentSettings, pair: bool, dimensions: int) -> list[str]:
    """Stems of an encoder's matrices (of two dimensions) or biases (of one), in the file's order."""
    shapes = encoder_shapes(encoder_size(arch, settings, pair))
    return [f"encoder.{name}" for name, shape in shapes.items() if len(shape) == dimensions]


def matrices(arch: str, settings: StudentSettings, pair: bool) -> list[str]:
    """Stems of a student's matrices, in the file's order."""
    importance = ["embedding.importance.weight"] if settings.embedding_type == "hash" else []
    encoder = _of_encoder(arch, settings, pair, 2)
    return ["embedding.table.weight", *importance, *encoder, "classifier.0.weight", "classifier.3.weight"]


def biases(arch: str, settings: StudentSettings, pair: bool, tensors: Tensors) -> dict[str, np.ndarray]:
    """Biases in the file's order, and what scales a norm. A recurrent layer's two are only ever added: their sum."""
    found = {}
    try:
        for stem in [*_of_encoder(arch, settings, pair, 1), "classifier.0.bias", "classifier.3.bias"]:
            two = stem.endswith("_rnn.bias")
            found[stem] = tensors[f"{stem}_ih"] + tensors[f"{stem}_hh"] if two else tensors[stem]
    except KeyError as error:
        raise UserError(f"the weights file holds no {error.args[0]}") from None
    return found
