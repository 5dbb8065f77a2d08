"""N-grams chosen by chi-squared: those that tell most about the labels of the training rows."""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from common.data.split import Split
from common.errors import UserError
from common.progress import say
from common.store.files import read_json, write_json
from compression.runtime import SPARE_BITS, NGrams, fingerprint_bits, fingerprint_of, parts_of
from compression.runtime.words import split_words
from compression.tokenizers import UNKNOWN, PieceTokenizer, are_texts

_ITEMS_AT_ONCE = 200_000
"""Words of rows whose n-grams are counted at once: these take about 50 MB."""
_SPARE_BITS_WITHOUT_PARTS = 10
"""Spare bits of a fingerprint if no parts of words are chosen: few of the parts, all unknown, should match one."""


class NGramTokenizer(PieceTokenizer):
    """The n-grams of a vocabulary; see `NGrams`.

    pieces: the n-grams as text, in the order of their fingerprints, after an empty one for unknown words.
    """

    file = "ngrams.json"

    def __init__(self, ngrams: Sequence[str], bits: int, max_tokens: int) -> None:
        """bits: of a fingerprint. Raises UserError if the n-grams are not sorted by fingerprints, which differ."""
        self.bits, self.max_tokens, self.pieces = bits, max_tokens, ["", *ngrams]
        self.fingerprints = [fingerprint_of(ngram, bits) for ngram in ngrams]
        if any(a >= b for a, b in zip(self.fingerprints, self.fingerprints[1:], strict=False)):
            raise UserError("the n-grams are not sorted by their fingerprints")
        digest = hashlib.sha256("\n".join(self.pieces).encode()).hexdigest()
        self.identity = f"ngrams {digest} {bits}"
        self.runtime = NGrams(self.fingerprints, bits)

    @property
    def texts(self) -> list[str]:
        """The n-grams as text, parts of words without their marks."""
        return [piece.strip("#<>") or piece for piece in self.pieces]

    @classmethod
    def read(cls, file: Path, max_tokens: int) -> NGramTokenizer:
        saved = read_json(file)
        is_known = isinstance(saved, dict) and saved.keys() == {"bits", "ngrams"} and saved["bits"] in range(1, 33)
        if not is_known or not saved["ngrams"] or not are_texts(saved["ngrams"]):
            raise UserError(f"{file}: not a vocabulary of n-grams")
        try:
            return cls(saved["ngrams"], saved["bits"], max_tokens)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None

    def save(self, folder: Path) -> None:
        write_json(folder / self.file, {"bits": self.bits, "ngrams": self.pieces[1:]})

    def without(self, rows: Collection[int]) -> NGramTokenizer:
        """Return a tokenizer without some rows; the others keep their order and fingerprints."""
        dropped = {UNKNOWN, *rows}
        kept = [ngram for row, ngram in enumerate(self.pieces) if row not in dropped]
        return NGramTokenizer(kept, self.bits, self.max_tokens)


def choose_ngrams(rows: Split, vocab_size: int, max_tokens: int, kinds: str = "all") -> NGramTokenizer:
    """Return the n-grams whose rows differ most from all rows in their classes, by chi-squared.

    An n-gram on N rows, M of them of a class with a share s of all rows, has the sum over classes of (M - E)^2 / (E +
    0.5) with E = N s. Rows without a label are not used; numbers are divided into four classes, at their quartiles.
    N-grams of one row alone are used only if there are too few others. Of equal ones, the first in alphabetical order
    are taken. vocab_size: rows of the table, of which row 0 is that of unknown words; kinds: `ngrams` of the student's
    settings. Raises UserError if no row has a label, or if there are no words.
    """
    if vocab_size < 2:
        raise UserError(f"--vocab-size {vocab_size}: n-grams need at least 2, one of them for unknown words")
    rows = rows.labelled_rows()
    row_of_label, class_of_label = rows.kind.classes(rows.labels)
    if not len(row_of_label):
        raise UserError("--embedding-type ngrams: no training row has a label, by which n-grams are chosen")
    by_class = _marked(class_of_label, row_of_label, int(class_of_label.max()) + 1, len(rows))
    words, word_of, text_of = _numbered(map(split_words, rows.texts()))
    row_of = text_of % len(rows)  # for pairs, second texts come after all first ones
    ngrams, of_words = _ngrams_of_words(words) if kinds == "all" else (words, None)
    follows = np.flatnonzero((text_of[1:] == text_of[:-1]) & (kinds != "words")) + 1  # places with a word before them
    neighbours, pair_of = np.unique(word_of[follows - 1] * len(words) + word_of[follows], return_inverse=True)
    in_words = _marked(row_of, word_of, len(rows), len(words))
    in_pairs = _marked(row_of[follows], pair_of, len(rows), len(neighbours))
    word_scores, word_rows = _count(in_words, of_words, by_class)
    pair_scores, pair_rows = _count(in_pairs, None, by_class)
    scores, on_rows = np.concatenate([word_scores, pair_scores]), np.concatenate([word_rows, pair_rows])

    def text_of_ngram(index: int) -> str:
        if index < len(ngrams):
            return ngrams[index]
        return " ".join(words[word] for word in divmod(int(neighbours[index - len(ngrams)]), len(words)))

    candidates = np.flatnonzero(on_rows > 1)
    if len(candidates) < vocab_size - 1:
        candidates = np.arange(len(scores))
    best = _at_least(scores, candidates, 2 * vocab_size)  # some have the fingerprint of a better one
    ranked = [text for _, text in sorted((-scores[index], text_of_ngram(index)) for index in best)]
    spare_bits = SPARE_BITS if kinds == "all" else _SPARE_BITS_WITHOUT_PARTS
    return _with_different_fingerprints(ranked, vocab_size - 1, max_tokens, spare_bits)


def _with_different_fingerprints(ranked: Sequence[str], most: int, max_tokens: int, spare_bits: int) -> NGramTokenizer:
    """Return the first n-grams, at most `most`, without those that have the fingerprint of an earlier one."""
    if not ranked:
        raise UserError("--embedding-type ngrams: the training rows have no words")
    count = min(most, len(ranked))
    while True:
        bits, different = fingerprint_bits(count, spare_bits), {}
        for ngram in ranked:
            different.setdefault(fingerprint_of(ngram, bits), ngram)
        if len(different) >= count:
            break
        count = len(different)  # fewer n-grams have shorter fingerprints, of which more may be equal
    if count < most:
        say(f"the training rows have only {count:,} n-grams: the vocabulary has {count + 1:,} rows, not {most + 1:,}")
    chosen = sorted(itertools.islice(different.items(), count))
    return NGramTokenizer([ngram for _, ngram in chosen], bits, max_tokens)


def _numbered(lists: Iterable[list[str]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return all different items of lists, and for each place its item and its list, both int64 [places]."""
    index: dict[str, int] = {}
    places, lengths = array("q"), []
    for items in lists:
        places.extend([index.setdefault(item, len(index)) for item in items])
        lengths.append(len(items))
    return list(index), np.array(places, np.int64), np.repeat(np.arange(len(lengths)), lengths)


def _ngrams_of_words(words: Sequence[str]) -> tuple[list[str], csr_array]:
    """Return the words and their parts, and which of them each word has, float32 [words, n-grams]."""
    ngrams, ngram_of, word_of = _numbered([word, *parts_of(word)] for word in words)
    return ngrams, _marked(word_of, ngram_of, len(words), len(ngrams))


def _marked(rows: np.ndarray, columns: np.ndarray, height: int, width: int) -> csr_array:
    """Return a matrix with 1 at these places, however often each is among them."""
    matrix = csr_array((np.ones(len(rows), np.float32), (rows, columns)), (height, width))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _count(in_rows: csr_array, of_items: csr_array | None, by_class: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return the score of each n-gram, float64 [n-grams], and the number of rows that have it, int64 [n-grams].

    in_rows: the items of rows, [rows, items]; of_items: the n-grams of items, [items, n-grams], None if items are
    n-grams; by_class: the rows of classes, [classes, rows].
    """
    width = in_rows.shape[1] if of_items is None else of_items.shape[1]
    on_rows, on_classes = np.zeros(width, np.int64), csr_array((by_class.shape[0], width), dtype=np.float64)
    for start, end in _row_ranges(in_rows):
        part = in_rows[start:end] if of_items is None else in_rows[start:end] @ of_items
        part.data[:] = 1  # several words of a row may have the same part
        on_rows += np.bincount(part.indices, minlength=width)
        on_classes += by_class[:, start:end] @ part
    return _chi_squared(on_classes, by_class.sum(1) / by_class.sum()), on_rows


def _row_ranges(in_rows: csr_array) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with few enough items to be counted at once; a long row is a range by itself."""
    steps = np.arange(0, in_rows.nnz, _ITEMS_AT_ONCE)
    bounds = np.unique([*np.searchsorted(in_rows.indptr, steps), in_rows.shape[0]])
    return zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)


def _chi_squared(counts: csr_array, shares: np.ndarray) -> np.ndarray:
    """Return scores, float64 [n-grams]. counts: of rows, [classes, n-grams]; shares: of rows, [classes]."""
    totals = counts.sum(0)
    distinct, place = np.unique(totals, return_inverse=True)
    absent = np.array([_divided(total * shares, 0).sum() for total in distinct])  # as if no class had a row
    present = counts.tocoo()
    expected = totals[present.col] * shares[present.row]
    more = _divided(expected, present.data) - _divided(expected, 0)
    return absent[place] + np.bincount(present.col, more, len(totals))


def _divided(expected: np.ndarray, counted: np.ndarray | int) -> np.ndarray:
    return (counted - expected) ** 2 / (expected + 0.5)


def _at_least(scores: np.ndarray, candidates: np.ndarray, count: int) -> np.ndarray:
    """Return the candidates whose score is at least that of the best but `count`."""
    if len(candidates) <= count:
        return candidates
    of_candidates = scores[candidates]
    return candidates[of_candidates >= np.partition(of_candidates, -count)[-count]]
