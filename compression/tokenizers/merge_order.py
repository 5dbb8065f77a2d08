"""The order of byte pairs in groups, which a packed file stores in fewer bits.

The order of n merges takes log2(n!) bits, about half of all that they take. Merges next to each other have nearly the
same frequency, so their order matters little to how text is split: within a group they are sorted by their left parts,
and a file stores the differences of these (compression.runtime.vocabulary). A group has a quarter as many merges as all
groups before it, but at least 16, and fewer where the next merges are made of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compression.runtime.vocabulary import largest_group

_ROUNDS = 4
Pair = tuple[int, int]
"""The indexes of both parts of a merge among all symbols: characters, then merges."""


def grouped_order(characters: str, merges: Sequence[str]) -> list[str]:
    """Return the merges in groups, each sorted by its left parts; unchanged if a merge has no parts."""
    rest, known, order, sizes = list(merges), set(characters), [], []
    while rest:  # the next merges whose parts are known
        group = [merge for merge in rest if is_formed(merge, known)][: largest_group(len(order))]
        if not group:  # what is left has no parts
            return list(merges)
        known.update(group)
        rest = [merge for merge in rest if merge not in known]
        order += group
        sizes.append(len(group))
    first = len(characters)
    parts = most_frequent_parts(choices_of_parts(characters, order, sizes))
    position = np.arange(first + len(order))
    for size in sizes:
        group_of = range(first, first + size)
        position[sorted(group_of, key=lambda index: tuple(position[parts[index - len(characters)]]))] = group_of
        first += size
    return [order[index] for index in np.argsort(position[len(characters) :])]


def group_sizes(characters: str, merges: Sequence[str]) -> list[int]:
    """Return the sizes of the groups in which the merges, in this order, can be written."""
    sizes: list[int] = []
    known, group = set(characters), set[str]()
    for number, merge in enumerate(merges):
        is_full = len(group) == largest_group(number - len(group))
        if is_full or not is_formed(merge, known):
            sizes.append(len(group))
            known, group = known | group, set()
        group.add(merge)
    return [*sizes, len(group)] if group else sizes


def choices_of_parts(characters: str, merges: Sequence[str], sizes: Sequence[int]) -> list[list[Pair]]:
    """Return all pairs of symbols that form each merge, from groups before its own. sizes: of the groups."""
    index_of = {symbol: index for index, symbol in enumerate([*characters, *merges])}
    starts = np.repeat(len(characters) + np.cumsum([0, *sizes])[:-1], sizes).tolist()
    choices = []
    for merge, start in zip(merges, starts, strict=True):
        pairs = [(index_of[a], index_of[b]) for a, b in _halves(merge) if a in index_of and b in index_of]
        choices.append([pair for pair in pairs if max(pair) < start])
    return choices


def most_frequent_parts(choices: Sequence[Sequence[Pair]]) -> np.ndarray:
    """Return for each merge the pair whose symbols are most often parts, int64 [merges, 2]: it takes the fewest bits.

    choices: at least one pair for each merge. The result does not depend on the order of merges.
    """
    parts = np.array([pairs[0] for pairs in choices], np.int64).reshape(-1, 2)
    symbols = 1 + max((max(pair) for pairs in choices for pair in pairs), default=0)
    for _ in range(_ROUNDS):
        left, right = (np.bincount(parts[:, side], minlength=symbols) for side in (0, 1))
        frequent = [max(pairs, key=lambda pair: left[pair[0]] * right[pair[1]]) for pairs in choices]
        parts = np.array(frequent, np.int64).reshape(-1, 2)
    return parts


def is_formed(merge: str, known: set[str]) -> bool:
    """Return whether two known symbols form a merge."""
    return any(a in known and b in known for a, b in _halves(merge))


def _halves(merge: str) -> list[tuple[str, str]]:
    return [(merge[:i], merge[i:]) for i in range(1, len(merge))]
