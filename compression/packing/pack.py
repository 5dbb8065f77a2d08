"""Packing a student: everything that answering needs in one file. The format is described in docs/format.md."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from common.errors import UserError
from common.store.files import whole_file
from common.training.models import ModelConfig, read_config
from compression.packing.ans import encode_pairs, encode_stream
from compression.packing.head import HeadWriter
from compression.packing.sections import ByteCounts, PackedSection
from compression.packing.streams import MatrixStreams, Owned, Streams
from compression.packing.vocabulary import PackedVocabulary, pack_vocabulary
from compression.packing.wordpieces import pack_word_pieces
from compression.runtime import (
    ARCHS,
    CODE_BITS,
    CODED,
    EMBEDDINGS,
    MAGIC,
    PAIR,
    POOL_MAX,
    RAW,
    TOKENS,
    VERSION,
    WORDS,
)
from compression.students.saved import load_student
from compression.students.spec import StudentSpec
from compression.students.student import Student
from compression.tokenizers import Tokenizer
from compression.tokenizers.bpe import MODEL_FILE, BpeTokenizer
from compression.tokenizers.wordpiece import WordPieceTokenizer

Encode = Callable[[bytes], tuple[bytes, int]]
"""Spare bytes -> (a stream, how many of them it carries)."""
SUFFIX = ".fwt"
_FIXED = 8
"""Bytes of magic, version and length."""
_CHECKSUM = 4
_TABLE = "embedding.table.weight"


def pack(student: Student, tokenizer: Tokenizer, config: ModelConfig) -> bytes:
    """Return the packed file of a student. config: its name, task, labels and settings.

    Raises UserError when it cannot be packed.
    """
    return _Packing(student, tokenizer, config).data


def packed_sections(student: Student, tokenizer: Tokenizer, config: ModelConfig) -> list[PackedSection]:
    """Return where the bytes of a student's packed file go; they sum to its size."""
    return _Packing(student, tokenizer, config).counts.sections()


def pack_student(folder: Path) -> bytes:
    """Return the packed file of a saved student. Raises UserError when there is none, or it cannot be packed."""
    config = read_config(folder)
    if config.kind != "student":
        raise UserError(f"{config.name} is a {config.kind}; only students are packed")
    loaded = load_student(folder, torch.device("cpu"))
    try:
        return pack(*loaded)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None


def write_packed(folder: Path) -> Path:
    """Write <folder>/<its name>.fwt, whole or not at all, and return its path."""
    data = pack_student(folder)
    path = folder / f"{folder.name}{SUFFIX}"
    with whole_file(path) as partial:
        partial.write_bytes(data)
    return path


class _Packing:
    """One student being packed."""

    def __init__(self, student: Student, tokenizer: Tokenizer, config: ModelConfig) -> None:
        self.counts = ByteCounts()
        self._head = HeadWriter()
        self._streams = Streams(self._head)
        self._vocabulary = _byte_pairs(tokenizer) if isinstance(tokenizer, BpeTokenizer) else None
        self._word_pieces = pack_word_pieces(tokenizer) if isinstance(tokenizer, WordPieceTokenizer) else None
        self._write_head(student, config)
        self.data = self._assemble()

    def _write_head(self, student: Student, config: ModelConfig) -> None:
        head, streams, spec = self._head, self._streams, StudentSpec.of(config)
        with head.owner("settings"):
            write_settings(head, config, spec)
        with head.owner("vocabulary"):
            if self._vocabulary is not None:
                self._vocabulary.write(head)
                streams.add_side(self._vocabulary.states, "vocabulary")
            if self._word_pieces is not None:
                self._word_pieces.write(head)
        table = student.get_submodule(_TABLE)
        rows = self._checked_rows(spec.table_rows)
        if rows is not None:
            table = table.take_rows(torch.from_numpy(rows))
        if spec.settings.embedding_type in ("bpe", "hash"):
            with head.owner("settings"):
                head.number(spec.table_rows if rows is None else len(rows))
        for name in spec.matrices():
            with head.owner(name):
                matrix = table if name == _TABLE else student.get_submodule(name)
                matrix.to_stream(MatrixStreams(streams, name))
        for name in spec.vectors():
            streams.add_floats(student.vector(name).detach().cpu().numpy(), name)
        with head.owner("settings"):
            streams.write_floats()

    def _checked_rows(self, there: int) -> np.ndarray | None:
        """Return the table's rows in the packed order; None where that is their own."""
        vocabulary = self._vocabulary or self._word_pieces
        if vocabulary is None:
            return None
        if vocabulary.rows.max() >= there:
            raise UserError(f"the vocabulary has {vocabulary.rows.max() + 1} rows or more, the embedding has {there}")
        return vocabulary.rows

    def _assemble(self) -> bytes:
        raw = [owned for owned in self._streams.main if owned.stored.mode == RAW]
        pool = b"".join(owned.stored.symbols.tobytes() for owned in raw)
        for owned in raw:
            self.counts.add("stored", owned.owners)
        head = _deflated(bytes(self._head.data))
        opening = HeadWriter()
        opening.number(len(head))
        opening.number(len(self._head.data))
        self.counts.add("stored", [("header", _FIXED + len(opening.data))])
        self.counts.divide("deflate", self._head.owners, len(head))
        body = bytes(opening.data) + head
        for encode, owners in self._in_order():
            stream, carried = encode(pool)
            pool = pool[carried:]
            body += stream
            self.counts.divide("rans", owners, len(stream) - carried)
        self.counts.add("stored", [("checksum", _CHECKSUM)])
        length = _FIXED + len(body) + len(pool) + _CHECKSUM
        data = MAGIC + bytes([VERSION]) + length.to_bytes(4, "little") + body + pool
        return data + zlib.crc32(data).to_bytes(_CHECKSUM, "little")

    def _in_order(self) -> list[tuple[Encode, list[tuple[str, float]]]]:
        """Return the streams: what encodes each, and what each owner's numbers take in it."""
        side, main = (_stream(arrays) for arrays in (self._streams.side, self._streams.main))
        vocabulary = self._vocabulary
        if vocabulary is None:
            return [side, main]
        words = bool(vocabulary.flags & WORDS)
        pairs = functools.partial(encode_pairs, vocabulary.letters, vocabulary.coded_indices, vocabulary.pairs, words)
        return [side, (pairs, [("vocabulary", 1.0)]), main]


def _byte_pairs(tokenizer: BpeTokenizer) -> PackedVocabulary:
    try:
        return pack_vocabulary(tokenizer.model_bytes)
    except UserError as error:
        raise UserError(f"{MODEL_FILE}: {error}") from None


def write_settings(head: HeadWriter, config: ModelConfig, spec: StudentSpec) -> None:
    """Write the first fields of a packed file's head."""
    settings, size = spec.settings, spec.encoder
    head.byte(ARCHS.index(spec.arch))
    head.byte(EMBEDDINGS.index(settings.embedding_type))
    head.byte(PAIR * spec.pair | POOL_MAX * (settings.pooling == "max") | TOKENS * spec.tokens)
    head.text(config.name)
    head.text(config.task)
    head.number(len(config.labels))
    for label in config.labels:
        head.text(label)
    head.number(settings.max_tokens)
    head.number(settings.embedding_dim)
    head.number(settings.cls_hidden_dim)
    if spec.arch != "ffn":
        head.number(size.hidden)
    if spec.arch == "conv":
        head.byte(size.kernel_width)
    if spec.reads_together:
        head.byte(size.depth)
        head.byte(size.heads)
        head.number(size.intermediate)
        head.number(size.adapters)
    if settings.embedding_type == "hash":
        head.number(settings.vocab_size)


def _stream(arrays: list[Owned]) -> tuple[Encode, list[tuple[str, float]]]:
    coded = [owned for owned in arrays if owned.stored.mode >= CODED and len(owned.stored.symbols)]
    owners = []
    for owned in coded:
        ends = np.cumsum([count for _, count in owned.owners])
        bits = np.split(owned.stored.bits, ends[:-1])
        owners += [(name, float(part.sum())) for (name, _), part in zip(owned.owners, bits, strict=True)]
    return functools.partial(encode_stream, [owned.stored.coded for owned in coded], CODE_BITS), owners


def _deflated(data: bytes) -> bytes:
    """Return raw deflate, or the data where that is no smaller: the reader tells them apart by their lengths."""
    best = min((_deflate(data, level) for level in (6, 9)), key=len)
    return best if len(best) < len(data) else data


def _deflate(data: bytes, level: int) -> bytes:
    deflater = zlib.compressobj(level, zlib.DEFLATED, -15, 9)
    return deflater.compress(data) + deflater.flush()
