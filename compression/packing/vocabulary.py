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
from compression.runtime import MOST_PIECE_LENGTH, MOST_PIECES
from compression.tokenizers.bpe_model import SPACE, BpeModel

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
def pack_vocabulary(model: BpeModel) -> PackedVocabulary:
    """Return a model's vocabulary ready to be written. Raises UserError when it is too large."""
    if len(model.states) > MOST_PIECES // 2 or any(len(piece) > MOST_PIECE_LENGTH for piece in model.merges):
        raise UserError(f"cannot be packed: more than {MOST_PIECES // 2:,} pieces, or an overlong one")
    pairs, spelt = _parts(model.characters, model.merges)
    states, rows = store_aside(model.states), model.rows.astype(np.int64)
    return PackedVocabulary(
        model.characters, len(model.merges), spelt, pairs, states, rows, model.flags, model.base, model.rules
    )


def _parts(letters: str, unions: list[str]) -> tuple[np.ndarray, dict[int, str]]:
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
    if len([letter for letter in letters if letter != SPACE]) < 2:
        return np.zeros((0, 2), np.int64), dict(enumerate(unions))  # no choice, no code
    return pairs, spelt
