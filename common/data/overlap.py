"""Carving validation (and test) from train without leaks.

SST-2's train rows are overlapping phrases of the same sentences, so a random slice of them leaks. The rules, for every
task: (1) draw rows: whole sentences only if the task says so, rows whose first sentences are equal or near (they differ
only in marks and signs) together, rows without a label only if no row has one, and never the last row of a label;
(2) remove from train every remaining row that equals a drawn row (see `text_key`), shares one of its sentences or has
them in the other order (pairs), or is contained in it (single sentences).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from common.data.split import Split
from common.data.tasks import Carve
from common.data.text import near_key, text_key, words_in
from common.seeds import derive

# Shorter texts ("yes", "very good") recur by chance; dropping them would cost rows and prevent no leak.
FEW_WORDS = 4

FIRST_SYMBOL = "\u2190"
"""The first of Unicode's arrows, signs and pictographs; the symbols below it are punctuation."""
_EDGES = re.compile(r"^(?:- - |['\"] )+|(?: - -| [.,;:!?。、'\"])+$")
"""Signs around a sentence, in its key, that need not be in the text that contains it."""
_LARGE_GROUP = 4
"""Near texts are not drawn together if they are more than 1 / _LARGE_GROUP of the rows to draw."""

Keys = list[list[str]]
"""For each column of sentences, one comparison key per row."""


def text_keys(split: Split) -> Keys:
    """Return `text_key` of every sentence: equal keys are the same text."""
    return _in_order(split, [list(map(text_key, texts)) for texts in split.sentences()])


def near_keys(split: Split) -> Keys:
    """Return `near_key` of every sentence; if it has no words, its symbols, such as hearts."""
    columns = [
        [near_key(text) or (text if max(text, default="") >= FIRST_SYMBOL else "") for text in texts]
        for texts in split.sentences()
    ]
    return _in_order(split, columns)


def _in_order(split: Split, columns: Keys) -> Keys:
    # Rows with the same first column are carved together: for answers, all questions about a context.
    return columns[::-1] if split.kind.always_pairs else columns


def take_keys(keys: Keys, rows: np.ndarray) -> Keys:
    """Return the keys of the given rows, in the given order."""
    return [[column[row] for row in rows] for column in keys]


def carve(
    split: Split, how: Carve, seed: int, keys: Keys, near: Keys, benchmark: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Choose rows to carve and rows to keep. Returns (carved, kept): sorted row indices; the rest are dropped.

    keys, near: `text_keys` and `near_keys` of the split. benchmark: whether pairs that share a near sentence with a
    drawn pair are dropped too, as in the published splits: 44 of QQP's 372,708 rows, and one of MRPC's and of MNLI's.
    """
    allowed = split.labelled if split.labelled.any() else np.ones(len(split), bool)
    count = int(allowed.sum())
    most = min(how.rows or round(count * (how.fraction or 0)), count // 2)
    eligible = whole_rows(near[0]) if how.whole_sentences else range(len(split))
    groups = _groups([row for row in eligible if allowed[row]], keys[0], near[0], max(2, most // _LARGE_GROUP))
    # Only classes have a last row, not numbers, lists of labels, tags or answers.
    labels = split.labels if split.kind.one_class else np.full(len(split), -1)
    left = Counter(labels[labels >= 0].tolist())
    drawn: list[int] = []
    for i in np.random.default_rng(derive("carve", seed)).permutation(len(groups)):
        if len(drawn) >= most:
            break
        taken = Counter(labels[groups[i]].tolist())
        if any(left[label] == rows for label, rows in taken.items()):
            continue
        left.subtract(taken)
        drawn += groups[i]
    carved = np.array(sorted(drawn), np.int64)
    leaking = touching(keys, take_keys(keys, carved))
    if benchmark and len(keys) > 1:
        leaking = np.union1d(leaking, sharing(near, take_keys(near, carved)))
    return carved, np.setdiff1d(np.arange(len(split)), np.union1d(carved, leaking))


def _groups(rows: Iterable[int], keys: list[str], near: list[str], most: int) -> list[list[int]]:
    """Return rows that are drawn together: those with near texts or, if they are more than `most`, the same text."""
    groups: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        groups[near[row]].append(row)
    divided: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name, members in groups.items():
        for row in members:
            divided[name, keys[row] if len(members) > most else ""].append(row)
    return [divided[name] for name in sorted(divided)]


class _Texts:
    """Index of keys by their runs of FEW_WORDS words, to find keys that contain another one without comparing all."""

    def __init__(self) -> None:
        self._holders: dict[str, list[str]] = defaultdict(list)

    def add(self, key: str) -> None:
        for run in set(_runs(key)):
            self._holders[run].append(key)

    def contain(self, key: str) -> bool:
        """Return whether a text with more words contains `key`, which has at least FEW_WORDS words."""
        if words_in(key) < FEW_WORDS:
            return False
        key = _EDGES.sub("", key)
        fewest: list[str] = []
        for run in _runs(key):
            holders = self._holders.get(run)
            if not holders:
                return False
            fewest = holders if not fewest or len(holders) < len(fewest) else fewest
        return any(f" {key} " in f" {text} " and words_in(text) > words_in(key) for text in fewest)


def _runs(key: str) -> Iterator[str]:
    """Return all runs of FEW_WORDS words or signs."""
    words = key.split()
    return (" ".join(words[start : start + FEW_WORDS]) for start in range(len(words) - FEW_WORDS + 1))


def whole_rows(keys: list[str]) -> list[int]:
    """Return rows of FEW_WORDS words or more that are not part of a longer row."""
    longest_first = sorted(range(len(keys)), key=lambda row: -len(keys[row].split()))
    texts = _Texts()
    whole = []
    for row in longest_first:
        if words_in(keys[row]) < FEW_WORDS or texts.contain(keys[row]):
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
    repeated = [i for i, row in enumerate(in_either_order(zip(*keys, strict=True))) if row in whole]
    if len(keys) > 1:
        return np.union1d(np.array(repeated, np.int64), sharing(keys, held_out))
    texts = _Texts()
    for key in held_out[0]:
        texts.add(key)
    parts = [i for i, key in enumerate(keys[0]) if texts.contain(key)]
    return np.union1d(np.array(repeated, np.int64), np.array(parts, np.int64))


def sharing(keys: Keys, held_out: Keys) -> np.ndarray:
    """Return rows of `keys`, int64, with a sentence of FEW_WORDS words or more that a held-out row has."""
    shared = {key for column in held_out for key in column if words_in(key) >= FEW_WORDS}
    return np.array([i for i, row in enumerate(zip(*keys, strict=True)) if not shared.isdisjoint(row)], np.int64)


def in_either_order(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the texts of each row, sorted, so that a pair and the same pair in the other order are equal."""
    return [tuple(sorted(row)) for row in rows]


def duplicates(split: Split, keys: Keys) -> np.ndarray:
    """Return rows that repeat the text and the label of another row, or only its text and have no label.

    int64, sorted. The first row of each text and label is not returned. keys: `text_keys` of the split.
    """
    seen: set[tuple[str, ...] | tuple[tuple[str, ...], bytes]] = set()
    repeated = []
    texts = list(zip(*keys, strict=True))
    for row in np.argsort(~split.labelled, kind="stable").tolist():
        same = (texts[row], split.labels[row].tobytes()) if split.labelled[row] else texts[row]
        if same in seen:
            repeated.append(row)
        seen |= {same, texts[row]}
    return np.array(sorted(repeated), np.int64)


def contradictions(split: Split, keys: Keys) -> list[tuple[int, int]]:
    """Return, for each text with more than one label (or list of labels), two rows that differ in it.

    keys: `text_keys` of the split.
    """
    first: dict[tuple[str, ...], int] = {}
    different: dict[tuple[str, ...], tuple[int, int]] = {}
    texts = list(zip(*keys, strict=True))
    for row in np.flatnonzero(split.labelled).tolist():
        other = first.setdefault(texts[row], row)
        if split.labels[row].tobytes() != split.labels[other].tobytes():
            different.setdefault(texts[row], (other, row))
    return list(different.values())
