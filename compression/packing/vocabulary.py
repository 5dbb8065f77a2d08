"""The vocabulary of byte pairs in a packed file: letters, and unions of two symbols in the merges' order.

A sentencepiece model file spends 320 KB on 5,000 pieces. What its encoder needs is which unions there are and which of
them comes first. A union is written as the numbers of its two parts, and a symbol that has been a part before costs
less the more often it was one.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from common.errors import UserError
from compression.packing.arrays import Stored, store_aside
from compression.packing.head import HeadWriter
from compression.packing.normalisation import express
from compression.packing.sentencepiece_file import CONTROL, NORMAL, UNUSED, Piece, PieceFile, read_pieces
from compression.runtime import (
    DUMMY_PREFIX,
    MOST_PIECE_LENGTH,
    MOST_PIECES,
    SQUEEZE,
    UNKNOWN,
    USED,
    WORDS,
)
from compression.runtime import UNUSED as SPLIT

_SPACE = "\u2581"
_ROUNDS = 4


@dataclasses.dataclass(frozen=True)
class PackedVocabulary:
    """A vocabulary ready to be written.

    rows: for each row of the packed table, its row in the student's; pairs: numbers of both parts, int64 [unions, 2],
    of unions that are not spelt out; spelt: place among the unions -> text; states: of each symbol.
    """

    letters: str
    unions: int
    spelt: dict[int, str]
    pairs: np.ndarray
    states: Stored
    rows: np.ndarray
    flags: int
    base: int
    rules: dict[str, str | None]

    def write(self, head: HeadWriter) -> None:
        """As runtime.Vocabulary reads it."""
        head.byte(self.flags)
        head.byte(self.base)
        head.number(len(self.rules))
        for key, value in self.rules.items():
            head.text(key)
            head.byte(value is not None)
            if value is not None:
                head.text(value)
        head.text(self.letters)
        head.number(self.unions)
        head.number(len(self.spelt))
        place = -1
        for union, text in sorted(self.spelt.items()):
            head.number(union - place - 1)
            head.text(text)
            place = union

    @property
    def coded_indices(self) -> np.ndarray:
        """Number of each union that is not spelt out, among all symbols."""
        return len(self.letters) + np.array([i for i in range(self.unions) if i not in self.spelt], np.int64)


@functools.lru_cache(maxsize=4)
def pack_vocabulary(model: bytes) -> PackedVocabulary:
    """Return the vocabulary of a sentencepiece model, given by its file's bytes.

    Raises UserError when it cannot be packed.
    """
    file = read_pieces(model)
    base, rules = express(file.charsmap)
    pieces = [piece for piece in file.pieces if piece.kind in (NORMAL, UNUSED)]
    _check(file, pieces)
    single = {piece.text: piece for piece in pieces if len(piece.text) == 1}
    letters = [*single, *sorted({c for piece in pieces for c in piece.text} - single.keys())]
    merged = sorted((piece for piece in pieces if len(piece.text) > 1), key=lambda piece: -piece.score)
    known = {*letters, *(piece.text for piece in merged)}
    # A piece that is no union of two symbols is never met.
    merged = [p for p in merged if any(p.text[:i] in known and p.text[i:] in known for i in range(1, len(p.text)))]
    # To sentencepiece a letter out of use is an unknown one; a union out of use is split into its parts again.
    known_letters = {letter for letter, piece in single.items() if piece.kind == NORMAL}
    states = [USED if letter in known_letters else UNKNOWN for letter in letters]
    states += [USED if piece.kind == NORMAL else SPLIT for piece in merged]
    pairs, spelt = _parts(letters, [piece.text for piece in merged])
    symbols = [*letters, *(piece.text for piece in merged)]
    rows = _table_rows(file.pieces)
    flags = DUMMY_PREFIX * file.add_dummy_prefix | SQUEEZE * file.remove_extra_whitespaces
    flags |= WORDS * (not any(_SPACE in piece.text[1:] for piece in pieces))
    used = [rows[symbol] for symbol, state in zip(symbols, states, strict=True) if state == USED]
    return PackedVocabulary(
        "".join(letters),
        len(merged),
        spelt,
        pairs,
        store_aside(np.array(states, np.uint8)),
        np.array([0, *used]),
        flags,
        base,
        rules,
    )


def _check(file: PieceFile, pieces: list[Piece]) -> None:
    scores = [piece.score for piece in pieces if len(piece.text) > 1]
    if len(set(scores)) != len(scores):
        raise UserError("cannot be packed: two of its pieces have one score")
    if any(piece.kind == CONTROL and len(piece.text) == 1 for piece in file.pieces):
        raise UserError("cannot be packed: one of its control symbols is a letter")
    if len(pieces) > MOST_PIECES // 2 or any(not 0 < len(piece.text) <= MOST_PIECE_LENGTH for piece in pieces):
        raise UserError(f"cannot be packed: more than {MOST_PIECES // 2:,} pieces, or an empty or overlong one")


def _table_rows(pieces: tuple[Piece, ...]) -> dict[str, int]:
    """Row of the student's table for each piece that has one: all but the unused, in order."""
    return {piece.text: row for row, piece in enumerate(piece for piece in pieces if piece.kind != UNUSED)}


def _parts(letters: list[str], unions: list[str]) -> tuple[np.ndarray, dict[int, str]]:
    """Both parts of each union, and the unions that no two earlier symbols make. Where several pairs do, the one whose
    parts are parts most often: it costs least."""
    number = {symbol: i for i, symbol in enumerate([*letters, *unions])}
    choices: list[list[tuple[int, int]]] = []
    spelt: dict[int, str] = {}
    for place, union in enumerate(unions):
        halves = ((union[:i], union[i:]) for i in range(1, len(union)))
        numbers = [(number[a], number[b]) for a, b in halves if a in number and b in number]
        numbers = [pair for pair in numbers if max(pair) < len(letters) + place]
        if numbers:
            choices.append(numbers)
        else:
            spelt[place] = union
    pairs = np.array([numbers[0] for numbers in choices]).reshape(-1, 2)
    for _ in range(_ROUNDS):
        left, right = (np.bincount(pairs[:, side], minlength=len(number)) for side in (0, 1))
        pairs = np.array([max(numbers, key=lambda p: left[p[0]] * right[p[1]]) for numbers in choices]).reshape(-1, 2)
    if len([letter for letter in letters if letter != _SPACE]) < 2:
        return np.zeros((0, 2), np.int64), dict(enumerate(unions))  # no choice, no code
    return pairs, spelt
