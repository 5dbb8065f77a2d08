"""Carving validation (and test) from train without leaks.

A random slice of SST-2's train rows is no validation set: rows are overlapping phrases of the same sentences. The rules
here, for every task: (1) draw rows, whole sentences only where the task says so, and rows that share a first sentence
together; (2) every remaining row that equals a drawn one up to case, spacing and punctuation, shares one of its
sentences (pairs), or is contained in it (single sentences), leaves train.
"""

import numpy as np

from common.data import Split
from common.seeds import derive
from common.tasks import Carve
from common.text import match_key

# Shorter texts ("yes", "very good") recur by chance; dropping them would cost rows and prevent no leak.
FEW_WORDS = 4


def carve(split: Split, how: Carve, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose rows to carve and rows to keep. Returns (carved, kept): sorted row indices; the rest are dropped."""
    keys = [[match_key(text) for text in texts] for texts in split.sentences()]
    wanted = how.rows or round(len(split) * (how.fraction or 0))
    wanted = min(wanted, len(split) // 2)
    drawn = _draw(keys[0], wanted, how.whole_sentences, seed)
    touched = _touching(keys, drawn)
    kept = np.setdiff1d(np.arange(len(split)), np.union1d(drawn, touched))
    return drawn, kept


def _draw(keys: list[str], wanted: int, whole_sentences: bool, seed: int) -> np.ndarray:
    """Rows drawn at random, a group of rows with one first sentence at a time, until `wanted` are there."""
    groups: dict[str, list[int]] = {}
    allowed = whole_rows(keys) if whole_sentences else range(len(keys))
    for row in allowed:
        groups.setdefault(keys[row], []).append(row)
    names = sorted(groups)
    drawn: list[int] = []
    for place in np.random.default_rng(derive("carve", seed)).permutation(len(names)):
        if len(drawn) >= wanted:
            break
        drawn += groups[names[place]]
    return np.array(sorted(drawn), np.int64)


def whole_rows(keys: list[str]) -> list[int]:
    """Rows of FEW_WORDS words or more whose words stand in no other, longer row in a run."""
    order = sorted(range(len(keys)), key=lambda row: -len(keys[row].split()))
    inside: set[str] = set()
    whole = []
    for row in order:
        words = keys[row].split()
        if keys[row] in inside or len(words) < FEW_WORDS:
            continue
        whole.append(row)
        # A row inside another adds nothing: its runs are runs of the longer one.
        inside.update(_runs(words, proper=True))
    return sorted(whole)


def _runs(words: list[str], proper: bool = False) -> set[str]:
    """All runs of FEW_WORDS words or more, joined by spaces; proper ones leave out the whole."""
    n = len(words)
    ends = ((start, end) for start in range(n) for end in range(start + FEW_WORDS, n + 1))
    return {" ".join(words[start:end]) for start, end in ends if not proper or end - start < n}


def _touching(keys: list[list[str]], drawn: np.ndarray) -> np.ndarray:
    """Rows that repeat, share a sentence with, or lie inside a drawn row."""
    whole = {tuple(column[row] for column in keys) for row in drawn}
    if len(keys) == 1:
        parts = set().union(*(_runs(keys[0][row].split()) for row in drawn)) if len(drawn) else set()
    else:
        parts = {column[row] for column in keys for row in drawn if len(column[row].split()) >= FEW_WORDS}
    return np.array(
        [row for row, texts in enumerate(zip(*keys, strict=True)) if texts in whole or not parts.isdisjoint(texts)],
        np.int64,
    )


def duplicates(split: Split) -> np.ndarray:
    """Rows that repeat an earlier row's text up to case, spacing and punctuation."""
    seen: set[tuple[str, ...]] = set()
    repeated = []
    for row, texts in enumerate(zip(*split.sentences(), strict=True)):
        key = tuple(match_key(text) for text in texts)
        if key in seen:
            repeated.append(row)
        seen.add(key)
    return np.array(repeated, np.int64)
