"""Packing a student: all of its folder that answering needs, in one file. The format is told in docs/format.md."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from common.config import build
from common.errors import UserError
from common.store.files import whole_file
from common.training.models import ModelConfig, load_weights, read_config
from compression.packing.ans import encode_pairs, encode_stream
from compression.packing.contents import biases, matrices, write_settings
from compression.packing.head import HeadWriter
from compression.packing.parts import PackedPart, Shares
from compression.packing.tensors import Named, Streams, Tensors, shape_of, write_matrix
from compression.packing.vocabulary import pack_vocabulary
from compression.packing.wordpieces import pack_word_pieces
from compression.runtime import CODE_BITS, CODED, MAGIC, RAW, VERSION, WORDS
from compression.students.settings import StudentSettings
from compression.tokenizers.bpe import BpeTokenizer

Encode = Callable[[bytes], tuple[bytes, int]]
"""Spare bytes -> (a stream, how many of them it carries)."""
SUFFIX = ".fwt"
_FIXED = 8
"""Bytes of magic, version and length."""
_CHECKSUM = 4


def pack_student(folder: Path) -> bytes:
    """The packed file of a student's folder. Raises UserError when the folder is no student, or cannot be packed."""
    return _Packing(folder).data


def packed_size(folder: Path) -> int:
    """Bytes of a student's packed file: weights, vocabulary, labels, settings, all in."""
    return len(pack_student(folder))


def packed_parts(folder: Path) -> list[PackedPart]:
    """Where the bytes of a student's packed file go; they sum to its size."""
    return _Packing(folder).parts()


def write_packed(folder: Path) -> Path:
    """Write <folder>/<its name>.fwt, whole or not at all, and return its path."""
    data = pack_student(folder)
    path = folder / f"{folder.name}{SUFFIX}"
    with whole_file(path) as partial:
        partial.write_bytes(data)
    return path


class _Packing:
    """One student being packed."""

    def __init__(self, folder: Path) -> None:
        config = read_config(folder)
        if config.kind != "student":
            raise UserError(f"{config.name} is a {config.kind}; only students are packed")
        self._settings = build(StudentSettings, config.student)
        tensors = {name: tensor.numpy() for name, tensor in load_weights(folder).items()}
        embedding = self._settings.embedding_type
        self._vocabulary = pack_vocabulary(BpeTokenizer(folder / "bpe.model", 1).model) if embedding == "bpe" else None
        self._shares = Shares()
        try:
            self._word_pieces = pack_word_pieces(folder, self._settings) if embedding == "wordpiece" else None
            self._streams, self._head = Streams(), HeadWriter()
            self._write_head(config, tensors)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        self.data = self._assemble()

    def _write_head(self, config: ModelConfig, tensors: Tensors) -> None:
        head, streams = self._head, self._streams
        with head.owner("settings"):
            write_settings(head, config, self._settings)
        if self._vocabulary is not None:
            with head.owner("vocabulary"):
                self._vocabulary.write(head)
            streams.side.append(Named.of_one(self._vocabulary.states, "vocabulary"))
        if self._word_pieces is not None:
            with head.owner("vocabulary"):
                self._word_pieces.write(head)
        table = shape_of(tensors, "embedding.table.weight")
        rows = self._checked_rows(table)
        if self._settings.embedding_type not in ("char", "wordpiece"):
            with head.owner("settings"):
                head.number(table[0] if rows is None else len(rows))
        for stem in matrices(config.arch, self._settings, config.pair):
            with head.owner(stem):
                write_matrix(head, streams, tensors, stem, rows if stem == "embedding.table.weight" else None)
        for name, value in biases(config.arch, self._settings, config.pair, tensors).items():
            streams.add_floats(value, name)
        with head.owner("settings"):
            streams.write_floats(head)

    def _checked_rows(self, table: tuple[int, int]) -> np.ndarray | None:
        """The table's rows in the packed order; None where that is their own."""
        vocabulary = self._vocabulary or self._word_pieces
        if vocabulary is None:
            return None
        rows = vocabulary.rows
        if rows.max() >= table[0]:
            raise UserError(f"the vocabulary is of {rows.max() + 1} rows or more, the embedding has {table[0]}")
        return rows

    def _assemble(self) -> bytes:
        raw = [named for named in self._streams.main if named.stored.mode == RAW]
        pool = b"".join(named.stored.symbols.tobytes() for named in raw)
        for named in raw:
            self._shares.add_exactly("stored", named.owners)
        head = _deflated(self._head.data)
        opening = HeadWriter()
        opening.number(len(head))
        opening.number(len(self._head.data))
        self._shares.add("header", [("header", _FIXED + len(opening.data))], _FIXED + len(opening.data))
        self._shares.add("deflate", self._head.owners, len(head))
        body = opening.data + head
        for encode, owners in self._in_order():
            stream, carried = encode(pool)
            pool = pool[carried:]
            body += stream
            self._shares.add("rans", owners, len(stream) - carried)
        self._shares.add("checksum", [("checksum", _CHECKSUM)], _CHECKSUM)
        length = _FIXED + len(body) + len(pool) + _CHECKSUM
        data = MAGIC + bytes([VERSION]) + length.to_bytes(4, "little") + body + pool
        return data + zlib.crc32(data).to_bytes(_CHECKSUM, "little")

    def _in_order(self) -> list[tuple[Encode, list[tuple[str, float]]]]:
        """The streams: what encodes each, and what each owner's numbers take in it."""
        side, main = (_stream(arrays) for arrays in (self._streams.side, self._streams.main))
        vocabulary = self._vocabulary
        if vocabulary is None:
            return [side, main]
        words = bool(vocabulary.flags & WORDS)
        pairs = functools.partial(encode_pairs, vocabulary.letters, vocabulary.coded_places, vocabulary.pairs, words)
        return [side, (pairs, [("vocabulary", 1.0)]), main]

    def parts(self) -> list[PackedPart]:
        """Where the bytes go."""
        return self._shares.parts()


def _stream(arrays: list[Named]) -> tuple[Encode, list[tuple[str, float]]]:
    coded = [named for named in arrays if named.stored.mode >= CODED and len(named.stored.symbols)]
    owners = []
    for named in coded:
        ends = np.cumsum([count for _, count in named.owners])
        bits = np.split(named.stored.bits, ends[:-1])
        owners += [(name, float(part.sum())) for (name, _), part in zip(named.owners, bits, strict=True)]
    return functools.partial(encode_stream, [named.stored.coded for named in coded], CODE_BITS), owners


def _deflated(data: bytes) -> bytes:
    """Raw deflate, or the data where that is no smaller: the reader tells them apart by their lengths."""
    best = min((_deflate(data, level) for level in (6, 9)), key=len)
    return best if len(best) < len(data) else data


def _deflate(data: bytes, level: int) -> bytes:
    deflater = zlib.compressobj(level, zlib.DEFLATED, -15, 9)
    return deflater.compress(data) + deflater.flush()
