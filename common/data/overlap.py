"""Carving validation (and test) from train without leaks.

SST-2's train rows are overlapping phrases of the same sentences, so a random slice of them leaks. The rules, for every
task: (1) draw rows: whole sentences only if the task says so, rows with the same first sentence together, rows
without a label only if no row has one, and never the last row of a label; (2) remove from train every remaining row
that equals a drawn row up to case, spacing and punctuation, shares one of its sentences or has them in the other order
(pairs), or is contained in it (single sentences).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from common.data.split import Split
from common.data.tasks import Carve
from common.data.text import match_key
from common.seeds import derive

# Shorter texts ("yes", "very good") recur by chance; dropping them would cost rows and prevent no leak.
FEW_WORDS = 4

FIRST_SYMBOL = "\u2190"
"""The first of Unicode's arrows, signs and pictographs; the symbols below it are punctuation."""

Keys = list[list[str]]
"""For each column of sentences, one comparison key per row."""


def match_keys(split: Split) -> Keys:
    """Return `match_key` of every sentence; if it has no words, its symbols, such as hearts."""
    columns = [
        [match_key(text) or (text if max(text, default="") >= FIRST_SYMBOL else "") for text in texts]
        for texts in split.sentences()
    ]
    # Rows with the same first column are carved together: for answers, all questions about a context.
    return columns[::-1] if split.kind.always_pairs else columns


def take_keys(keys: Keys, rows: np.ndarray) -> Keys:
    """Return the keys of the given rows, in the given order."""
    return [[column[row] for row in rows] for column in keys]


def carve(split: Split, how: Carve, seed: int, keys: Keys) -> tuple[np.ndarray, np.ndarray]:
    """Choose rows to carve and rows to keep. Returns (carved, kept): sorted row indices; the rest are dropped.

    keys: `match_keys` of the split.
    """
    allowed = split.labelled if split.labelled.any() else np.ones(len(split), bool)
    count = int(allowed.sum())
    wanted = min(how.rows or round(count * (how.fraction or 0)), count // 2)
    # Rows that share a first sentence are drawn together.
    groups: dict[str, list[int]] = {}
    for row in whole_rows(keys[0]) if how.whole_sentences else range(len(split)):
        if allowed[row]:
            groups.setdefault(keys[0][row], []).append(row)
    # Only classes have a last row, not numbers, lists of labels, tags or answers.
    labels = split.labels if split.kind.one_class else np.full(len(split), -1)
    left = Counter(labels[labels >= 0].tolist())
    names = sorted(groups)
    drawn: list[int] = []
    for i in np.random.default_rng(derive("carve", seed)).permutation(len(names)):
        if len(drawn) >= wanted:
            break
        taken = Counter(labels[groups[names[i]]].tolist())
        if any(left[label] == count for label, count in taken.items()):
            continue
        left.subtract(taken)
        drawn += groups[names[i]]
    carved = np.array(sorted(drawn), np.int64)
    leaking = touching(keys, take_keys(keys, carved))
    return carved, np.setdiff1d(np.arange(len(split)), np.union1d(carved, leaking))


class _Texts:
    """Index of keys by their runs of FEW_WORDS words, to find keys that contain another one without comparing all."""

    def __init__(self) -> None:
        self._holders: dict[str, list[str]] = defaultdict(list)

    def add(self, key: str) -> None:
        for run in set(_runs(key)):
            self._holders[run].append(key)

    def contain(self, key: str, properly: bool = False) -> bool:
        """Return whether a text contains `key`, which has at least FEW_WORDS words. properly: only in a longer text."""
        fewest: list[str] = []
        for run in _runs(key):
            holders = self._holders.get(run)
            if not holders:
                return False
            fewest = holders if not fewest or len(holders) < len(fewest) else fewest
        return any(f" {key} " in f" {text} " and not (properly and text == key) for text in fewest)


def _runs(key: str) -> Iterator[str]:
    """Return all runs of FEW_WORDS words."""
    words = key.split()
    return (" ".join(words[start : start + FEW_WORDS]) for start in range(len(words) - FEW_WORDS + 1))


def whole_rows(keys: list[str]) -> list[int]:
    """Return rows of FEW_WORDS words or more that are not part of a longer row."""
    longest_first = sorted(range(len(keys)), key=lambda row: -len(keys[row].split()))
    texts = _Texts()
    whole = []
    for row in longest_first:
        if len(keys[row].split()) < FEW_WORDS or texts.contain(keys[row], properly=True):
            continue
        whole.append(row)
        # A row contained in another one need not be added: the longer row contains the same runs.
        texts.add(keys[row])
    return sorted(whole)


def touching(keys: Keys, held_out: Keys) -> np.ndarray:
    """Return rows of `keys`, int64, that repeat, share a sentence with (pairs) or are part of a held-out row.

    A pair in the other order is repeated too.
    """
    whole = set(in_either_order(zip(*held_out, strict=True)))
    if len(keys) == 1:
        texts = _Texts()
        for key in held_out[0]:
            texts.add(key)
        leaks = [texts.contain(key) for key in keys[0]]
    else:
        shared = {key for column in held_out for key in column if len(key.split()) >= FEW_WORDS}
        leaks = [not shared.isdisjoint(row) for row in zip(*keys, strict=True)]
    rows = in_either_order(zip(*keys, strict=True))
    return np.array([i for i, row in enumerate(rows) if leaks[i] or row in whole], np.int64)


def in_either_order(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the texts of each row, sorted, so that a pair and the same pair in the other order are equal."""
    return [tuple(sorted(row)) for row in rows]


def duplicates(split: Split, keys: Keys) -> np.ndarray:
    """Return rows that repeat another one's text up to case, spacing and punctuation: int64, sorted.

    The first row of each text is not returned, or the first one with a label if any has one. keys: the split's.
    """
    texts = list(zip(*keys, strict=True))
    seen: set[tuple[str, ...]] = set()
    repeated = []
    for row in np.argsort(~split.labelled, kind="stable").tolist():
        if texts[row] in seen:
            repeated.append(row)
        seen.add(texts[row])
    return np.array(sorted(repeated), np.int64)
