"""sentencepiece's model files, through its own protocol buffer: the order of merges, and how text is normalised."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection

import numpy as np
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from common.errors import UserError
from compression.runtime import DUMMY_PREFIX, SQUEEZE, UNKNOWN, UNUSED, USED, WORDS, BytePairs, Normaliser
from compression.runtime.tokenizers.normalisation import SPACE
from compression.tokenizers.charsmap import express
from compression.tokenizers.merge_order import grouped_order, is_formed

_Piece = ModelProto.SentencePiece


@dataclasses.dataclass(frozen=True, eq=False)
class BpeModel:
    """A BPE vocabulary: the pieces in a student's table, and the data that the runtime encodes with.

    kept: index in the file of each table row's piece, int32 [rows]; pieces: the same pieces as text; special: bool
    [rows], the unknown piece and control symbols. characters: all characters of pieces; merges: longer pieces in their
    order; states: uint8 [characters + merges]; rows: int32, the table's row for each id of the runtime. flags, base,
    rules: see BytePairs and Normaliser.
    """

    kept: np.ndarray
    pieces: list[str]
    special: np.ndarray
    characters: str
    merges: list[str]
    states: np.ndarray
    rows: np.ndarray
    flags: int
    base: int
    rules: dict[str, str | None]

    def byte_pairs(self) -> BytePairs:
        """Return the runtime's tokenizer."""
        symbols, normaliser = [*self.characters, *self.merges], Normaliser(self.base, self.rules)
        return BytePairs(len(self.characters), symbols, self.states.tolist(), normaliser, self.flags)


@functools.lru_cache(maxsize=4)
def read_model(data: bytes) -> BpeModel:
    """Read a model file's bytes. Raises UserError if they are damaged, or a model that the runtime cannot express."""
    model = _parse(data)
    _check(model)
    kept = [index for index, piece in enumerate(model.pieces) if piece.type != _Piece.UNUSED]
    row_of = {model.pieces[index].piece: row for row, index in enumerate(kept)}
    special = [model.pieces[index].type in (_Piece.UNKNOWN, _Piece.CONTROL) for index in kept]
    pieces = [piece for piece in model.pieces if piece.type in (_Piece.NORMAL, _Piece.UNUSED)]
    single = {piece.piece: piece for piece in pieces if len(piece.piece) == 1}
    characters = [*single, *sorted({c for piece in pieces for c in piece.piece} - single.keys())]
    merged = sorted((piece for piece in pieces if len(piece.piece) > 1), key=lambda piece: -piece.score)
    # A piece that is not made of two symbols is never reached.
    known = {*characters, *(piece.piece for piece in merged)}
    merged = [piece for piece in merged if is_formed(piece.piece, known)]
    # To sentencepiece an unused character is an unknown one; an unused merge is split into its parts again.
    states = [USED if c in single and single[c].type == _Piece.NORMAL else UNKNOWN for c in characters]
    states += [USED if piece.type == _Piece.NORMAL else UNUSED for piece in merged]
    symbols = [*characters, *(piece.piece for piece in merged)]
    used = [row_of[symbol] for symbol, state in zip(symbols, states, strict=True) if state == USED]
    spec = model.normalizer_spec
    flags = DUMMY_PREFIX * spec.add_dummy_prefix | SQUEEZE * spec.remove_extra_whitespaces
    flags |= WORDS * (not any(SPACE in piece.piece[1:] for piece in pieces))
    base, rules = express(spec.precompiled_charsmap)
    return BpeModel(
        np.array(kept, np.int32),
        [model.pieces[index].piece for index in kept],
        np.array(special),
        "".join(characters),
        symbols[len(characters) :],
        np.array(states, np.uint8),
        np.array([0, *used], np.int32),
        flags,
        base,
        rules,
    )


def mark_unused(data: bytes, indexes: Collection[int]) -> bytes:
    """Return the model with the type of some pieces set to UNUSED. Raises UserError if it is damaged."""
    model = _parse(data)
    for index in indexes:
        model.pieces[index].type = _Piece.UNUSED
    return model.SerializeToString(deterministic=True)


def in_groups(data: bytes) -> bytes:
    """Return the model with its merges in the order of `grouped_order`. Raises UserError if it is damaged."""
    model, known = _parse(data), read_model(data)
    merges = set(known.merges)
    in_file = sorted((piece for piece in model.pieces if piece.piece in merges), key=lambda piece: -piece.score)
    for piece, merge in zip(in_file, grouped_order(known.characters, known.merges), strict=True):
        piece.piece = merge
    return model.SerializeToString(deterministic=True)


def _parse(data: bytes) -> ModelProto:
    try:
        return ModelProto.FromString(data)
    except DecodeError as error:
        raise UserError(f"not a sentencepiece model ({error})") from None


def _check(model: ModelProto) -> None:
    """Raise UserError for a model that the runtime cannot express."""
    pieces, trainer = model.pieces, model.trainer_spec
    kinds = [piece.type for piece in pieces]
    scores = [piece.score for piece in pieces if len(piece.piece) > 1 and piece.type in (_Piece.NORMAL, _Piece.UNUSED)]
    refused = {
        "is not a BPE model": trainer.model_type != TrainerSpec.BPE,
        "falls back to bytes": trainer.byte_fallback or _Piece.BYTE in kinds,
        "marks words at their end": trainer.treat_whitespace_as_suffix,
        "does not mark words": not model.normalizer_spec.escape_whitespaces,
        "has pieces of the user's own": _Piece.USER_DEFINED in kinds,
        "does not have the unknown piece first": [i for i, kind in enumerate(kinds) if kind == _Piece.UNKNOWN] != [0],
        "has two pieces of one score": len(set(scores)) != len(scores),
        "has a control symbol of one character": any(p.type == _Piece.CONTROL and len(p.piece) == 1 for p in pieces),
    }
    for why, is_so in refused.items():
        if is_so:
            raise UserError(f"cannot be used, it {why}")
