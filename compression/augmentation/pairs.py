"""New pairs of texts of train for a teacher to label: near texts, random texts, and pairs whose label is implied.

The partner of a first text is always a second text of train, so a premise is paired only with hypotheses. Held-out
texts are not used. `Fresh` decides which pairs are written, since different parts may yield the same pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.text import TfidfVectorizer

from common.data.overlap import near_keys
from common.data.split import Split, read_split, split_table
from common.data.text import split_words
from common.errors import UserError
from common.launch.shards import PartFunction
from common.progress import Advance
from common.seeds import derive
from common.stopping import check
from compression.augmentation.fresh import held_out_keys
from compression.augmentation.methods import METHODS

_COMMON_TEXTS, _COMMON_SHARE = 1_000, 0.05
"""Words in more texts than this number and this share are ignored: they are uninformative and cost most products."""
_MOST_PRODUCTS = 10_000_000
"""Maximum number of products of words in memory at a time, about 120 MB."""

Candidate = tuple[int, int, int]
"""Number of a train row, and the indices of the two texts of a new pair."""


class Texts:
    """The distinct texts of a split of pairs, ignoring case, spacing and punctuation, each in its first spelling.

    rows: int64 [n, 2], indices of each row's texts; usable: bool [texts], False for texts without words and held-out
    texts.
    """

    def __init__(self, train: Split, held_out: set[str]) -> None:
        index: dict[str, int] = {}
        self.texts: list[str] = []
        self.rows = np.empty((len(train), 2), np.int64)
        for column, (keys, texts) in enumerate(zip(near_keys(train), train.sentences(), strict=True)):
            for row, (key, text) in enumerate(zip(keys, texts, strict=True)):
                if key not in index:
                    index[key] = len(self.texts)
                    self.texts.append(text)
                self.rows[row, column] = index[key]
        self.usable = np.array([key != "" and key not in held_out for key in index], bool)
        self._first_rows = np.unique(self.rows[:, 0], return_index=True)[1]

    def new_firsts(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows whose first text is usable and is not the first text of an earlier row."""
        rows = rows[np.isin(rows, self._first_rows)]
        return rows[self.usable[self.rows[rows, 0]]]

    @property
    def seconds(self) -> np.ndarray:
        """Sorted indices of the usable second texts, int64."""
        seconds = np.unique(self.rows[:, 1])
        return seconds[self.usable[seconds]]


class Source:
    """Base class of the ways to find new pairs. k: maximum number of pairs for a first text or a row."""

    draws: ClassVar[bool] = True
    """Whether the pairs depend on the seed."""
    keeps_labels: ClassVar[bool] = False
    """Whether a pair has its row's label, which follows from the task's label of equal meaning; else it has none."""

    def __init__(
        self, texts: Texts, k: int, seed: int = 0, labels: np.ndarray | None = None, equivalence: int | None = None
    ) -> None:
        """labels: of train's rows; equivalence: class index of the label of equal meaning."""
        self._texts, self._k, self._seed, self._seconds = texts, k, seed, texts.seconds

    def candidates(self, rows: np.ndarray) -> Iterator[Candidate]:
        """Yield candidates from rows of train, whose numbers these are."""
        raise NotImplementedError


class NearTexts(Source):
    """Pairs each first text with the k second texts of highest TF-IDF cosine similarity.

    Ties are broken by index. A text's neighbours do not depend on the other rows of the call. Raises UserError if no
    text has usable words.
    """

    draws = False

    def __init__(self, texts: Texts, k: int, *others: object) -> None:
        super().__init__(texts, k)
        most = max(_COMMON_TEXTS, int(_COMMON_SHARE * len(self._seconds)))
        self._vectorizer = TfidfVectorizer(analyzer=split_words, max_df=most, dtype=np.float32)
        try:
            vectors = self._vectorizer.fit_transform([texts.texts[i] for i in self._seconds])
        except ValueError as error:  # the vocabulary is empty
            raise UserError(f"no text has a word to find neighbours by: {error}") from error
        self._by_word = vectors.T.tocsr()  # [words, texts]

    def candidates(self, rows: np.ndarray) -> Iterator[Candidate]:
        """Yield the nearest texts of the rows' first texts, nearest first."""
        rows = self._texts.new_firsts(rows)
        if not len(rows):
            return
        firsts = self._texts.rows[rows, 0]
        queries = self._vectorizer.transform([self._texts.texts[i] for i in firsts])
        for start, end in self._blocks(queries):
            check()
            similar = (queries[start:end] @ self._by_word).tocsr()
            for i in range(start, end):
                of_row = slice(*similar.indptr[i - start : i - start + 2])
                for second in self._nearest(firsts[i], similar.indices[of_row], similar.data[of_row]):
                    yield int(rows[i]), int(firsts[i]), second

    def _nearest(self, first: int, columns: np.ndarray, scores: np.ndarray) -> list[int]:
        if len(scores) > self._k + 1:  # one more than k, because the text itself may be among them
            best = np.flatnonzero(scores >= np.partition(scores, -self._k - 1)[-self._k - 1])
            columns, scores = columns[best], scores[best]
        seconds = self._seconds[columns]
        return [second for second in seconds[np.lexsort((seconds, -scores))].tolist() if second != first][: self._k]

    def _blocks(self, queries: csr_array) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of blocks of queries whose products fit in memory."""
        products = np.concatenate([[0], np.cumsum(np.diff(self._by_word.indptr)[queries.indices])])[queries.indptr]
        start = 0
        while start < len(products) - 1:
            end = int(np.searchsorted(products, products[start] + _MOST_PRODUCTS, "right")) - 1
            end = max(end, start + 1)
            yield start, end
            start = end


class RandomTexts(Source):
    """Pairs each first text with k random second texts."""

    def candidates(self, rows: np.ndarray) -> Iterator[Candidate]:
        """Yield random pairs for each row whose first text is new; draws depend only on (seed, row)."""
        if not len(self._seconds):
            return
        for row in self._texts.new_firsts(rows).tolist():
            rng = np.random.default_rng(derive("recombine", self._seed, row))
            for second in rng.choice(self._seconds, self._k).tolist():
                yield row, int(self._texts.rows[row, 0]), second


class EquivalentTexts(Source):
    """Replaces one text of a row by an equivalent text, at most k times per row; the row's label is kept.

    Texts are equivalent if a chain of rows with the label `equivalence` connects them (transitive closure). Rows
    without a label are not used, nor are rows with another label whose two texts are equivalent through other rows.
    """

    keeps_labels = True

    def __init__(self, texts: Texts, k: int, seed: int, labels: np.ndarray, equivalence: int | None) -> None:
        super().__init__(texts, k, seed)
        first, second = texts.rows[labels == equivalence].T
        size = len(texts.texts)
        joined = csr_array((np.ones(len(first), bool), (first, second)), shape=(size, size))
        _, self._group = connected_components(joined, directed=False)
        together = self._group[texts.rows[:, 0]] == self._group[texts.rows[:, 1]]
        self._follows = (labels >= 0) & (together == (labels == equivalence))
        usable = np.flatnonzero(texts.usable)
        self._members = usable[np.argsort(self._group[usable], kind="stable")]
        self._starts = np.searchsorted(self._group[self._members], np.arange(self._group.max(initial=0) + 2))

    def candidates(self, rows: np.ndarray) -> Iterator[Candidate]:
        """Yield up to k pairs for each row; the choice depends only on (seed, row)."""
        for row in rows[self._follows[rows]].tolist():
            first, second = self._texts.rows[row].tolist()
            pairs = [(first, other) for other in self._equivalent(second)]
            pairs += [(other, second) for other in self._equivalent(first)]
            pairs = [pair for pair in pairs if {*pair} != {first, second} and pair[0] != pair[1]]
            if len(pairs) > self._k:
                rng = np.random.default_rng(derive("closure", self._seed, row))
                pairs = [pairs[i] for i in np.sort(rng.permutation(len(pairs))[: self._k])]
            yield from ((row, *pair) for pair in pairs)

    def _equivalent(self, text: int) -> list[int]:
        group = self._group[text]
        return self._members[self._starts[group] : self._starts[group + 1]].tolist()


def open_pairs(
    method: str, partners: int, seed: int, equivalence: int | None, train_file: Path, held_out: tuple[Path, ...]
) -> PartFunction:
    """Read train and index its texts. Returns the function that finds new pairs for a part of its rows.

    Different parts may yield equal rows. method: a name of METHODS whose record is a `Source`; partners: k;
    equivalence: class index of the label of equal meaning, for sources that keep labels; held_out: split files whose
    texts must not appear in new pairs.
    """
    train = read_split(train_file)
    texts = Texts(train, held_out_keys(held_out))
    source: Source = METHODS[method].function(texts, partners, seed, train.labels, equivalence)

    def pairs(rows: Split, first_row: int, advance: Advance) -> pa.Table:
        numbers = np.arange(first_row, first_row + len(rows))
        row, first, second = np.array(list(source.candidates(numbers)), np.int64).reshape(-1, 3).T
        unknown = train.kind.unknown_labels(len(row), train.labels.shape[1:])
        labels = train.labels[row] if source.keeps_labels else unknown
        columns = ([texts.texts[i] for i in column] for column in (first, second))
        advance(len(rows))
        return split_table(Split(*columns, labels, row, train.kind))

    return pairs
