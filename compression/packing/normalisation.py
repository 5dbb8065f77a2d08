"""sentencepiece's normalisation rules as the runtime knows them, and what a model has beyond that.

A model file holds its rules compiled: a double-array trie of what is replaced (Aoe, 1989, in the layout of the darts-clone
library) and the replacements, 240 KB. The runtime makes the usual rules from Python's own Unicode tables, so that a packed
file holds only the differences.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import struct
import unicodedata

import numpy as np

from common.errors import UserError
from compression.runtime import IDENTITY, NFKC, NMT_NFKC, Normaliser

MOST_RULES = 4000
_KNOWN = {"1e2c7b43d3ee9755ceaa2ac335e253d8703604e0249ee1e81156c92b46423844": NMT_NFKC}
"""SHA-256 of charsmaps that are exactly a base: what the tests find out, packing need not find out each time."""


@functools.lru_cache(maxsize=4)
def express(charsmap: bytes) -> tuple[int, dict[str, str | None]]:
    """(base, rules beyond it; None where a rule of the base does not hold). Raises UserError when these are too many."""
    if not charsmap:
        return IDENTITY, {}
    known = _KNOWN.get(hashlib.sha256(charsmap).hexdigest())
    return (known, {}) if known is not None else differences(read_rules(charsmap))


def differences(rules: dict[str, str]) -> tuple[int, dict[str, str | None]]:
    """As `express`, for rules: the base that leaves the fewest."""
    found = []
    for base in (NMT_NFKC, NFKC, IDENTITY):
        made = base_rules(base)
        more: dict[str, str | None] = {key: value for key, value in rules.items() if made.get(key) != value}
        more |= {key: None for key in made if key not in rules}
        found.append((base, dict(sorted(more.items()))))
    base, more = min(found, key=lambda pair: len(pair[1]))
    if len(more) > MOST_RULES:
        raise UserError(f"cannot be packed: its normalisation differs from NFKC in {len(more):,} rules")
    return base, more


def read_rules(charsmap: bytes) -> dict[str, str]:
    """Rules of a compiled charsmap: text -> replacement. Raises UserError when it is damaged."""
    try:
        length = struct.unpack_from("<I", charsmap)[0]
        units = np.frombuffer(charsmap[4 : 4 + length], "<u4").astype(np.int64)
        texts = charsmap[4 + length :]
        return {
            key.decode(): texts[value : texts.index(b"\0", value)].decode() for key, value in _walk(units).items()
        }
    except (ValueError, IndexError, struct.error) as error:
        raise UserError(f"its normalisation rules are damaged ({error})") from None


def _walk(units: np.ndarray) -> dict[bytes, int]:
    """All keys of a double array, level by level. A unit: label in bits 0 to 7, leaf mark in 8, offset from bit 10."""
    found: dict[bytes, int] = {}
    places, keys = np.array([_offset(units[:1])[0]]), np.zeros((1, 0), np.uint8)
    labels = np.arange(1, 256)
    while len(places):
        children = places[:, None] ^ labels
        inside = children < len(units)
        real = inside & (units[np.where(inside, children, 0)] & (1 << 31 | 0xFF) == labels)
        parent, label = np.nonzero(real)
        here = children[parent, label]
        keys = np.concatenate([keys[parent], labels[label, None].astype(np.uint8)], 1)
        places = here ^ _offset(units[here])
        leaves = np.flatnonzero(units[here] >> 8 & 1)
        values = units[places[leaves]] & ((1 << 31) - 1)
        found |= zip(map(bytes, keys[leaves]), values.tolist(), strict=True)
    return found


def _offset(units: np.ndarray) -> np.ndarray:
    return units >> 10 << ((units & 1 << 9) >> 6)


@functools.cache
def base_rules(base: int) -> dict[str, str]:
    """All rules of a base, as the runtime would apply them."""
    normaliser = Normaliser(base, {})
    characters = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    keys = [*characters, *normaliser.own]
    rules = {key: value for key in keys if (value := normaliser.rule(key)) is not None}
    if base == IDENTITY:
        return rules
    # Sequences: every way to write the decomposition of a composed character by single ones.
    spellings: dict[str, list[str]] = {}
    whole: dict[str, str] = {}
    for c in characters:
        letters = normaliser.decomposed(c)
        if len(letters) == 1:
            spellings.setdefault(letters, []).append(c)
        elif unicodedata.normalize("NFC", letters) == unicodedata.normalize("NFC", c):
            whole[letters] = c
    for letters in whole:
        for key in map("".join, itertools.product(*(spellings.get(letter, [letter]) for letter in letters))):
            value = normaliser.rule(key)
            if value is not None:
                rules[key] = value
    return rules
