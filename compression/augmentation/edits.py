"""Edited texts: words are swapped, removed, added, exchanged for other frequent words, or given another ending.

Swaps, deletions and insertions are as in EDA (Wei and Zou, EDA: Easy Data Augmentation, 2019, section 2), except that
EDA inserts synonyms and keeps labels, while here the teacher labels the texts. Most edited sentences are not
grammatical. Distinguishing them from real ones teaches an encoder grammar (Warstadt, Singh and Bowman, Neural Network
Acceptability Judgments, 2019, section 4).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate

import numpy as np

from common.data.split import ROW_GROUP_ROWS, Split
from common.seeds import derive
from compression.augmentation.words import count_words, split_pieces

_FREQUENT = 100
"""Number of words that count as frequent."""
_LEAST_WORDS = 3
"""Texts with fewer words are not edited."""
_STEM = 3
_ENDING = 3
"""Forms of a word share the first _STEM letters and differ at most in the last _ENDING letters."""
_TWO_EDITS = 0.25
"""Probability of a second edit."""


class Editor:
    """Draws random edits of a text. Added words are words of the given texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        counts = Counter(piece.lower() for text in texts for piece in split_pieces(text) if piece.isalpha())
        self._frequent = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_FREQUENT])
        self._words, self._up_to = list(self._frequent), list(accumulate(self._frequent.values()))
        self._by_stem: dict[str, list[str]] = defaultdict(list)
        for word in sorted(counts):
            self._by_stem[word[:_STEM]].append(word)

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return the text after one or two edits; it is unchanged if no word is suitable for the drawn edit."""
        # Exchanges are drawn twice as often as other edits.
        edits = (self._swap, self._remove, self._add, self._exchange, self._exchange, self._inflect)
        for _ in range(1 + (rng.random() < _TWO_EDITS)):
            pieces = split_pieces(text)
            words = [index for index, piece in enumerate(pieces) if piece[0].isalnum()]
            if len(words) < _LEAST_WORDS:
                return text
            edits[rng.integers(len(edits))](pieces, words, rng)
            text = "".join(pieces).strip()
        return text

    def _swap(self, pieces: list[str], words: list[int], rng: np.random.Generator) -> None:
        """Swap a word with the next one."""
        number = int(rng.integers(len(words) - 1))
        first, second = words[number : number + 2]
        later = pieces[second]
        pieces[second] = pieces[first] if first else _lower(pieces[first])
        _replace(pieces, first, later)

    def _remove(self, pieces: list[str], words: list[int], rng: np.random.Generator) -> None:
        """Remove a word and a space next to it."""
        index = int(rng.choice(words))
        pieces[index] = ""
        for side in (index - 1, index + 1):
            if 0 <= side < len(pieces) and pieces[side].isspace():
                pieces[side] = ""
                break

    def _add(self, pieces: list[str], words: list[int], rng: np.random.Generator) -> None:
        """Add a frequent word after a word."""
        if self._words:
            pieces[int(rng.choice(words))] += f" {self._draw(rng)}"

    def _exchange(self, pieces: list[str], words: list[int], rng: np.random.Generator) -> None:
        """Exchange a frequent word for another one."""
        frequent = [index for index in words if pieces[index].lower() in self._frequent]
        if frequent:
            _replace(pieces, int(rng.choice(frequent)), self._draw(rng))

    def _inflect(self, pieces: list[str], words: list[int], rng: np.random.Generator) -> None:
        """Give a word the ending of another form of it."""
        by_index = {index: self._forms(pieces[index].lower()) for index in words}
        inflected = [index for index, forms in by_index.items() if forms]
        if inflected:
            index = inflected[int(rng.integers(len(inflected)))]
            forms = by_index[index]
            _replace(pieces, index, forms[int(rng.integers(len(forms)))])

    def _draw(self, rng: np.random.Generator) -> str:
        return self._words[int(np.searchsorted(self._up_to, rng.integers(self._up_to[-1]), "right"))]

    def _forms(self, word: str) -> list[str]:
        return [other for other in self._by_stem.get(word[:_STEM], ()) if other != word and _same_stem(word, other)]


def _replace(pieces: list[str], index: int, word: str) -> None:
    """Replace a piece by a word, capitalised at the start of a text that starts with a capital."""
    capital = index == 0 and pieces[0][0].isupper()
    pieces[index] = word[0].upper() + word[1:] if capital else word


def _same_stem(word: str, other: str) -> bool:
    stem = max(len(word), len(other)) - _ENDING
    return word[:stem] == other[:stem]


def _lower(word: str) -> str:
    # I and abbreviations keep their capitals within a sentence.
    return word.lower() if word[1:].islower() or word == "A" else word


def edited_rows(rows: Split, variants: int, least_words: int, seed: int) -> Iterator[Split]:
    """Yield edited rows, without labels, in row order: `variants` of every row with at least `least_words` words.

    One text of a pair is edited, drawn for each variant. Draws depend only on (seed, row) and the words of all rows.
    """
    editor = Editor(rows.texts())
    for start in range(0, len(rows), ROW_GROUP_ROWS):
        sources: list[int] = []
        edited: list[tuple[str, ...]] = []
        for row in range(start, min(start + ROW_GROUP_ROWS, len(rows))):
            texts = tuple(column[row] for column in rows.sentences())
            if count_words(texts) < least_words:
                continue
            rng = np.random.default_rng(derive("edits", seed, row))
            for _ in range(variants):
                side = int(rng.integers(len(texts)))
                sources.append(row)
                edited.append((*texts[:side], editor.edit(texts[side], rng), *texts[side + 1 :]))
        columns = [list(column) for column in zip(*edited, strict=True)] or [[] for _ in rows.sentences()]
        labels = rows.kind.unknown_labels(len(sources), rows.labels.shape[1:])
        second = columns[1] if len(columns) == 2 else None
        yield Split(columns[0], second, labels, np.array(sources, np.int64), rows.kind)
