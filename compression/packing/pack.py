"""Packing a student: everything that inference needs, in one file. The format is described in docs/format.md."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from common.errors import UserError
from common.training.models import ModelConfig, read_config
from compression.packing.ans import encode_stream
from compression.packing.header import ByteCounts, HeaderWriter, PackedSection
from compression.packing.streams import MatrixStreams, Owned, Streams
from compression.packing.vocabulary import PackedMerges, PackedVocabulary, pack_vocabulary
from compression.runtime.entropy import CODED, RAW
from compression.runtime.header import (
    ALIGN,
    CALIBRATED,
    COMPOSE,
    HEAD_DIM,
    MARKED_WORDS,
    MOST_ALIGNED,
    NGRAMS,
    NO_SEGMENTS,
    PAIR,
    POOL_MAX,
    SHARING,
    SYMMETRIC,
    THRESHOLD,
)
from compression.runtime.kinds import KINDS
from compression.runtime.model import MAGIC, VERSION
from compression.runtime.reader import MOST_WIDTH
from compression.runtime.shapes import ARCHS, EMBEDDINGS, ENCODER_FIELDS, POOLINGS, SHARES
from compression.students.saved import load_student
from compression.students.spec import StudentSpec
from compression.students.student import Student
from compression.students.threshold import HALF
from compression.tokenizers import Tokenizer

Encoder = tuple[Callable[[bytes], tuple[bytes, int]], list[tuple[str, float]]]
"""A function, spare bytes -> (a stream, the number of them that it carries), and each owner's bits in the stream."""
_FIXED = 8
"""Bytes of magic, version and length."""
_CHECKSUM = 4
_TABLE = "embedding.table.weight"


def pack(student: Student, tokenizer: Tokenizer, config: ModelConfig) -> bytes:
    """Return the packed file of a student. config: its name, task, labels and settings.

    The temperature is 1, the threshold 0.5; the file's size depends on neither. Raises UserError if the student cannot
    be packed.
    """
    return _pack(student, tokenizer, config)[0]


def packed_sections(student: Student, tokenizer: Tokenizer, config: ModelConfig) -> list[PackedSection]:
    """Return the sections of a student's packed file; their bytes sum to its size."""
    return _pack(student, tokenizer, _unnamed(config))[1].sections()


def pack_student(folder: Path, temperature: float = 1.0, threshold: float = HALF, rejects: bool = False) -> bytes:
    """Return the packed file of a saved student.

    temperature: of its probabilities (see common.training.calibration); threshold: of the second label (see
    compression.students.threshold), stored if the task is scored by F1; rejects: whether it is, instead, that of the
    most probable label, below which a text has none. Raises UserError if there is no student, or if it cannot be
    packed.
    """
    config = read_config(folder)
    if config.kind != "student":
        raise UserError(f"{config.name} is a {config.kind}; only students are packed")
    student, tokenizer, config = load_student(folder, torch.device("cpu"))
    try:
        return _pack(student, tokenizer, _unnamed(config), temperature, threshold, rejects)[0]
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None


def _unnamed(config: ModelConfig) -> ModelConfig:
    # A file's name is its own: with a model's name in it, equal models would have files of different sizes.
    return config.model_copy(update={"name": ""})


def _pack(
    student: Student,
    tokenizer: Tokenizer,
    config: ModelConfig,
    temperature: float = 1.0,
    threshold: float = HALF,
    rejects: bool = False,
) -> tuple[bytes, ByteCounts]:
    """Return a packed file, as `pack_student` does, and its bytes by owner."""
    streams, spec, table = Streams(), StudentSpec.of(config), student.get_submodule(_TABLE)
    header, vocabulary = streams.header, pack_vocabulary(tokenizer)
    # A teacher's byte-level pairs are stored as byte pairs.
    embedding = "bpe" if isinstance(vocabulary, PackedMerges) else spec.settings.embedding_type
    with header.owner("settings"):
        _write_settings(header, config, spec, embedding, rejects)
    rows = spec.table_rows
    if vocabulary is not None:
        with header.owner("vocabulary"):
            vocabulary.write(streams)
        if vocabulary.rows.max() >= rows:
            raise UserError(
                f"the vocabulary has {vocabulary.rows.max() + 1} rows or more, but the embedding has {rows}"
            )
        table, rows = table.take_rows(torch.from_numpy(vocabulary.rows)), len(vocabulary.rows)
    if embedding in ("bpe", "hash"):
        with header.owner("settings"):
            header.number(rows)
    for name in spec.matrices():
        with header.owner(name):
            matrix = table if name == _TABLE else student.get_submodule(name)
            matrix.to_stream(MatrixStreams(streams, name))
    for name in spec.vectors():
        streams.add_floats(student.vector(name), name)
    with header.owner("settings"):
        streams.write_floats()
    calibration = np.float32(temperature).tobytes() if config.task_kind.has_probabilities else b""
    calibration += np.float32(threshold).tobytes() if config.f1 or rejects else b""
    return _assemble(streams, vocabulary, calibration)


def _write_settings(
    header: HeaderWriter, config: ModelConfig, spec: StudentSpec, embedding: str, rejects: bool
) -> None:
    """Write the first fields of a header. embedding: one of the runtime's EMBEDDINGS."""
    settings, encoder = spec.settings, spec.encoder
    if encoder.align and settings.max_tokens > MOST_ALIGNED:
        how = f"--pair-encoder {settings.pair_encoder}"
        raise UserError(f"cannot be packed: with {how}, --max-tokens is at most {MOST_ALIGNED:,}")
    choice = POOLINGS.index(encoder.pooling) if spec.arch == "ffn" else SHARES.index(encoder.share)
    layers = SHARING * choice | COMPOSE * encoder.compose
    layers |= NO_SEGMENTS * (not encoder.segments) | HEAD_DIM * bool(encoder.head_dim)
    header.byte(ARCHS.index(spec.arch) | layers)
    marked = MARKED_WORDS * (embedding == "hash" or encoder.spans)
    header.byte(NGRAMS if embedding == "ngrams" else EMBEDDINGS.index(embedding) | marked)
    flags = PAIR * spec.pair | POOL_MAX * (encoder.pooling in ("max", "both"))
    flags |= ALIGN * encoder.align | SYMMETRIC * encoder.symmetric | THRESHOLD * (config.f1 or rejects)
    kind = KINDS["labels or none" if rejects else config.task_kind.name]
    header.byte(flags | kind.bits | CALIBRATED * kind.has_probabilities)
    if kind.code is not None:
        header.byte(kind.code)
    header.text(config.name)
    header.text(config.task)
    header.number(len(config.labels))
    for label in config.labels:
        header.text(label)
    header.size(settings.max_tokens)
    header.width(settings.embedding_dim)
    header.width(settings.cls_hidden_dim)
    for name, method in ENCODER_FIELDS[spec.arch].items():
        getattr(header, method)(getattr(encoder, name))
    if encoder.head_dim:
        header.width(encoder.head_dim)
        if encoder.attention > MOST_WIDTH:
            raise UserError(
                f"cannot be packed: the heads are {encoder.attention:,} wide together, more than {MOST_WIDTH:,}"
            )
    if settings.embedding_type == "hash":
        header.size(settings.vocab_size)


def _assemble(streams: Streams, vocabulary: PackedVocabulary | None, calibration: bytes) -> tuple[bytes, ByteCounts]:
    """Return a file and its byte counts. calibration: the temperature and the threshold, if the file has them."""
    counts = ByteCounts()
    raw = [owned for owned in streams.main if owned.array.mode == RAW]
    pool = b"".join(owned.array.values.tobytes() for owned in raw)
    for owned in raw:
        counts.add("stored", owned.owners)
    header = _deflated(bytes(streams.header.data))
    opening = HeaderWriter()
    opening.number(len(header))
    opening.number(len(streams.header.data))
    counts.add("stored", [("header", _FIXED + len(opening.data))])
    counts.divide("deflate", streams.header.owners, len(header))
    encoders = [_encoder(streams.first), _encoder(streams.main)]
    if isinstance(vocabulary, PackedMerges):
        encoders.insert(1, (vocabulary.encode, [("vocabulary", 1.0)]))
    counts.add("stored", [("settings", len(calibration))])
    body = bytes(opening.data) + header + calibration
    for encode, owners in encoders:
        stream, carried = encode(pool)
        pool = pool[carried:]
        body += stream
        counts.divide("rans", owners, len(stream) - carried)
    counts.add("stored", [("checksum", _CHECKSUM)])
    length = _FIXED + len(body) + len(pool) + _CHECKSUM
    data = MAGIC + bytes([VERSION]) + length.to_bytes(4, "little") + body + pool
    return data + zlib.crc32(data).to_bytes(_CHECKSUM, "little"), counts


def _encoder(stream: Sequence[Owned]) -> Encoder:
    coded = [owned for owned in stream if owned.array.mode >= CODED and owned.array.count]
    owners = []
    for owned in coded:
        ends = np.cumsum([count for _, count in owned.owners])
        bits = np.split(owned.array.bits(), ends[:-1])
        owners += [(name, float(part.sum())) for (name, _), part in zip(owned.owners, bits, strict=True)]
    return functools.partial(encode_stream, [owned.array for owned in coded]), owners


def _deflated(data: bytes) -> bytes:
    """Return the data deflated, or unchanged if that is not smaller: the reader compares the lengths."""
    deflaters = [zlib.compressobj(level, zlib.DEFLATED, -15, 9) for level in (6, 9)]
    return min([data, *(deflater.compress(data) + deflater.flush() for deflater in deflaters)], key=len)
