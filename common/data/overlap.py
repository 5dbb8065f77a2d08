"""Carving validation (and test) from train without leaks.

SST-2's train rows are overlapping phrases of the same sentences, so a random slice of them leaks. The rules, for every
task: (1) draw rows: whole sentences only if the task says so, rows whose first sentences are equal or near (they differ
only in marks and signs) together, rows without a label only if no row has one, and never the last row of a label;
(2) remove from train every remaining row that equals a drawn row (see `text_key`), shares one of its sentences or has
them in the other order (pairs), or is contained in it (single sentences).
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from common.data.split import Split
from common.data.tasks import Carve
from common.data.text import near_key, text_key, words_in
from common.kinds.ragged import offsets_of
from common.seeds import derive

# Shorter texts ("yes", "very good") recur by chance; dropping them would cost rows and prevent no leak.
FEW_WORDS = 4

FIRST_SYMBOL = "\u2190"
"""The first of Unicode's arrows, signs and pictographs; the symbols below it are punctuation."""
_BEFORE, _AFTER = re.compile(r"(?:- - |['\"] )*"), " .,;:!?。、'\""
"""Signs around a sentence, in its key, that need not be in the text that contains it; also dashes ("- -") after it."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd factor of the hash of a run of words; equal hashes of different runs cost time and change nothing."""
_LARGE_GROUP = 4
"""Near texts are not drawn together if they are more than 1 / _LARGE_GROUP of the rows to draw."""

Keys = list[list[str]]
"""For each column of sentences, one comparison key per row."""


def text_keys(split: Split) -> Keys:
    """Return `text_key` of every sentence: equal keys are the same text."""
    return _in_order(split, [list(map(text_key, texts)) for texts in split.sentences()])


def near_keys(split: Split) -> Keys:
    """Return `near_key` of every sentence; if it has no words, its symbols, such as hearts."""
    columns = [[near_key(text) or _symbols(text) for text in texts] for texts in split.sentences()]
    return _in_order(split, columns)


def _symbols(text: str) -> str:
    return text if max(text, default="") >= FIRST_SYMBOL else ""


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


def _groups(rows: list[int], keys: list[str], near: list[str], most: int) -> list[list[int]]:
    """Return rows that are drawn together: those with near texts or, if they are more than `most`, the same text."""
    sizes = Counter(near[row] for row in rows)
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        groups[near[row], keys[row] if sizes[near[row]] > most else ""].append(row)
    return [groups[name] for name in sorted(groups)]


def parts_of(keys: list[str], holders: list[str]) -> np.ndarray:
    """Return which keys of FEW_WORDS words or more are part of a holder that has more words, bool [keys].

    Texts are compared by their runs of FEW_WORDS words or signs: only holders with the rarest run of a key can have it.
    """
    ids: dict[str, int] = defaultdict(itertools.count().__next__)
    stripped = list(map(_without_edges, keys))
    runs, starts = _runs(stripped, ids)
    held, held_starts = _runs(holders, ids)
    order = np.argsort(held, kind="stable")
    held, holder_of = held[order], np.repeat(np.arange(len(holders)), np.diff(held_starts))[order]
    first, last = np.empty(len(runs), np.int64), np.empty(len(runs), np.int64)
    ascending = np.argsort(runs)  # searching for runs in their order is ten times as fast
    first[ascending] = np.searchsorted(held, runs[ascending], "left")
    last[ascending] = np.searchsorted(held, runs[ascending], "right")
    is_part = np.zeros(len(keys), bool)
    for row, (start, end) in enumerate(itertools.pairwise(starts.tolist())):
        counts = last[start:end] - first[start:end]
        if not len(counts) or not counts.min():
            continue
        words = words_in(keys[row])
        rarest = start + counts.argmin()
        is_part[row] = words >= FEW_WORDS and any(
            f" {stripped[row]} " in f" {holders[holder]} " and words_in(holders[holder]) > words
            for holder in np.unique(holder_of[first[rarest] : last[rarest]])
        )
    return is_part


def _without_edges(key: str) -> str:
    key = key[_BEFORE.match(key).end() :].rstrip(_AFTER)
    while key.endswith(" - -"):
        key = key[:-4].rstrip(_AFTER)
    return key


def _runs(keys: list[str], ids: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return a hash of each run of FEW_WORDS words or signs, uint64 [runs], and where each key's begin, [keys + 1].

    ids: the number of each word; words that it lacks are added.
    """
    words = [[ids[word] for word in key.split()] for key in keys]
    lengths = np.array([len(numbers) for numbers in words], np.int64)
    flat = np.fromiter(itertools.chain.from_iterable(words), np.uint64, int(lengths.sum()))
    hashes = np.zeros(max(0, len(flat) - FEW_WORDS + 1), np.uint64)
    for place in range(FEW_WORDS):
        hashes = hashes * _FACTOR + flat[place : place + len(hashes)]
    ends = np.repeat(np.cumsum(lengths), lengths)[: len(hashes)]  # of the key in which each run begins
    counts = np.maximum(0, lengths - FEW_WORDS + 1)
    return hashes[np.arange(len(hashes)) + FEW_WORDS <= ends], offsets_of(counts)


def whole_rows(keys: list[str]) -> list[int]:
    """Return rows of FEW_WORDS words or more that are not part of a longer row."""
    is_part = parts_of(keys, keys)
    return [row for row, key in enumerate(keys) if not is_part[row] and words_in(key) >= FEW_WORDS]


def touching(keys: Keys, held_out: Keys) -> np.ndarray:
    """Return rows of `keys`, int64, that repeat, share a sentence with (pairs) or are part of a held-out row.

    A pair in the other order is repeated too.
    """
    whole = set(in_either_order(zip(*held_out, strict=True)))
    repeated = [i for i, row in enumerate(in_either_order(zip(*keys, strict=True))) if row in whole]
    others = sharing(keys, held_out) if len(keys) > 1 else np.flatnonzero(parts_of(keys[0], held_out[0]))
    return np.union1d(np.array(repeated, np.int64), others)


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
        seen.update((same, texts[row]))
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
