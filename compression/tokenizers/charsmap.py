"""The normalisation rules in sentencepiece's model files, as differences from the rules that the runtime has.

A model file holds its rules compiled: a double-array trie of the replaced texts (Aoe, 1989, in the layout of the
darts-clone library) and the replacements, 240 KB. The runtime takes the usual rules from Python's own Unicode tables,
so that a packed file holds only the differences.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import struct
import unicodedata
from collections.abc import Iterator, Sequence

from common.errors import UserError
from compression.runtime import IDENTITY, NFKC, NMT_NFKC, Normaliser

MOST_RULES, MOST_KEY = 4000, 64
_KNOWN = {
    "7e46d9e08af4b6a37991b04fb8388644c1595a0abcd0f26d6a5d575e2a3663ea": NFKC,
    "1e2c7b43d3ee9755ceaa2ac335e253d8703604e0249ee1e81156c92b46423844": NMT_NFKC,
}
"""SHA-256 of charsmaps that are exactly a base, as the tests check, so that nothing needs to be compared."""


@functools.lru_cache(maxsize=4)
def express(charsmap: bytes) -> tuple[int, dict[str, str | None]]:
    """Return the base of a compiled charsmap, and rules that differ from it: None where a rule of the base is missing.

    Raises UserError if the charsmap is damaged, or if there are too many rules.
    """
    if not charsmap:
        return IDENTITY, {}
    known = _KNOWN.get(hashlib.sha256(charsmap).hexdigest())
    return (known, {}) if known is not None else differences(read_rules(charsmap))


def differences(rules: dict[str, str]) -> tuple[int, dict[str, str | None]]:
    """Return the base from which the fewest rules differ, and these rules, as `express` does."""
    by_base: dict[int, dict[str, str | None]] = {}
    for base in (NMT_NFKC, NFKC, IDENTITY):
        expected = base_rules(base)
        differing = (key for key in rules.keys() | expected.keys() if rules.get(key) != expected.get(key))
        by_base[base] = {key: rules.get(key) for key in sorted(differing)}
        if not by_base[base]:
            break
    base, more = min(by_base.items(), key=lambda item: len(item[1]))
    if len(more) > MOST_RULES:
        raise UserError(f"cannot be used, its normalisation differs from NFKC in {len(more):,} rules")
    return base, more


def read_rules(charsmap: bytes) -> dict[str, str]:
    """Return the rules of a compiled charsmap: text -> replacement. Raises UserError when it is damaged."""
    try:
        length = struct.unpack_from("<I", charsmap)[0]
        units = struct.unpack_from(f"<{length // 4}I", charsmap, 4)
        texts = charsmap[4 + length :]
        return {key.decode(): texts[at : texts.index(b"\0", at)].decode() for key, at in _walk(units)}
    except (ValueError, IndexError, struct.error) as error:
        raise UserError(f"its normalisation rules are damaged ({error})") from None


def _walk(units: Sequence[int]) -> Iterator[tuple[bytes, int]]:
    """Yield all (key, value) of a double array. A unit: label in bits 0 to 7, end of a key in 8, offset above."""
    children: dict[int, list[int]] = {}
    for index, unit in enumerate(units):
        if 0 < unit & (1 << 31 | 0xFF) < 256:
            children.setdefault(index ^ unit & 0xFF, []).append(index)
    waiting = [(_offset(units[0]), b"")]
    while waiting:
        base, key = waiting.pop()
        for index in children.get(base, ()):
            unit = units[index]
            longer, below = key + bytes([unit & 0xFF]), index ^ _offset(unit)
            if unit >> 8 & 1:
                yield longer, units[below] & ((1 << 31) - 1)
            if len(longer) < MOST_KEY:
                waiting.append((below, longer))


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)


@functools.cache
def base_rules(base: int) -> dict[str, str]:
    """Return all rules of a base, as the runtime applies them."""
    if base == IDENTITY:
        return {}
    normaliser = Normaliser(base, {})
    # Characters that decompose: no others have a rule, except the base's own.
    characters = [c for c in map(chr, range(1, 0x110000)) if not "\ud800" <= c <= "\udfff" and _decomposes(c)]
    keys = [*characters, *normaliser.rules, *normaliser.later]
    rules = {key: value for key in keys if (value := normaliser.rule(key)) is not None}
    # Sequences: every way to write a composed character's decomposition with single characters.
    spellings: dict[str, list[str]] = {}
    whole: set[str] = set()
    for c in dict.fromkeys([*characters, *normaliser.later]):
        parts = normaliser.decomposed(c)
        if len(parts) == 1:
            spellings.setdefault(parts, [parts]).append(c)
        else:
            whole.add(parts)
    for parts in whole:
        if (value := normaliser.rule(parts)) is not None:
            for key in map("".join, itertools.product(*(spellings.get(part, [part]) for part in parts))):
                rules.setdefault(key, value)
    return rules


def _decomposes(character: str) -> bool:
    return bool(unicodedata.decomposition(character)) or "\uac00" <= character <= "\ud7a3"
