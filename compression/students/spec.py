"""A student's sizes, and the name and shape of each of its weights.

A student's layers are listed only once, in compression.runtime, which may import nothing else of the project. The torch
model takes its widths from here, the packer its order; a test compares the torch model's own shapes with these.
"""

from __future__ import annotations

import dataclasses

from common.config import build
from common.training.models import ModelConfig
from compression.runtime import EncoderSize, student_shapes
from compression.runtime.shapes import Shapes
from compression.students.settings import StudentSettings
from compression.tokenizers.unlearned import VOCABULARY_SIZE, shared_rows

PARTS = ("embedding", "encoder", "classifier")
"""A student's parts in the order in which text flows through them: the first word of a tensor's name."""


@dataclasses.dataclass(frozen=True)
class StudentSpec:
    """Architecture and sizes of a student. by_word: whether every word (for pairs, of the second text) has logits."""

    arch: str
    settings: StudentSettings
    outputs: int
    pair: bool = False
    by_word: bool = False

    @classmethod
    def of(cls, config: ModelConfig) -> StudentSpec:
        """Return the spec of a saved student."""
        settings = build(StudentSettings, config.student)
        return cls(config.arch, settings, config.outputs, config.pair, config.task_kind.by_word)

    @property
    def encoder(self) -> EncoderSize:
        """The encoder's sizes."""
        settings = self.settings
        return EncoderSize(
            arch=self.arch,
            pair=self.pair,
            max_tokens=settings.max_tokens,
            dim=settings.embedding_dim,
            hidden=settings.encoder_hidden_dim,
            kernel_width=settings.kernel_width,
            depth=settings.iterations if self.arch == "recursive" else settings.layers,
            heads=settings.heads,
            intermediate=settings.intermediate_dim,
            adapters=settings.adapters,
            align=self.pair and settings.attends,
            symmetric=self.pair and settings.symmetric,
            spans=self.pair and self.by_word,
            share=settings.share,
            segments=settings.segments,
            head_dim=settings.head_dim,
            compose=self.pair and settings.pair_encoder == "compose",
            # An FFN has no last state: the value that files share between students stands for its default.
            pooling="mean" if self.arch == "ffn" and settings.pooling == "last" else settings.pooling,
        )

    @property
    def table_rows(self) -> int:
        """Rows of the embedding's table."""
        if self.settings.embedding_type == "hash":
            return shared_rows(self.settings.vocab_size, self.settings.hash_ratio)
        return VOCABULARY_SIZE if self.settings.embedding_type == "char" else self.settings.vocab_size

    def shapes(self) -> Shapes:
        """Return name -> (rows, columns) or (length,), in the order of a packed file.

        The sum of a recurrent layer's two biases is one entry, `encoder.forward_rnn.bias`.
        """
        settings = self.settings
        vocab_size = settings.vocab_size if settings.embedding_type == "hash" else 0
        return student_shapes(self.encoder, self.table_rows, vocab_size, settings.cls_hidden_dim, self.outputs)

    def matrices(self) -> list[str]:
        """Return the names of all matrices, in the order of a packed file."""
        return [name for name, shape in self.shapes().items() if len(shape) == 2]

    def vectors(self) -> list[str]:
        """Return the names of all biases and of the scales of norms, in the order of a packed file."""
        return [name for name, shape in self.shapes().items() if len(shape) == 1]
