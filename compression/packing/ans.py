"""The entropy coder's writing half: rANS (Duda, 2013) over many lanes. The reading half is compression.runtime.entropy.

Symbol i belongs to lane i mod lanes, so that NumPy decodes one symbol of every lane at a time. Initial states are 2^16
plus two bytes that would otherwise be stored raw: the decoder ends in the encoder's initial state and finds them there,
so a lane costs little as long as there are such bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from compression.packing.header import HeaderWriter
from compression.runtime.entropy import CODE_BITS, LOWEST_STATE, MOST_STEPS, Array, frequencies, step_weights
from compression.runtime.vocabulary import PAIR_BITS, PairModel, pair_groups, pair_lanes

_MOST_STEPS, _USUAL_STEPS = MOST_STEPS // 2, 1024
_TOP_STEP = 60

_GAP_BITS = 0.4
"""Estimated cost of a bucket further."""


class Step(NamedTuple):
    """Symbols that are coded at the same time, one per lane: frequencies and first slots, uint64, of 1 << bits."""

    frequency: np.ndarray
    first: np.ndarray
    bits: int


def table_steps(counts: np.ndarray) -> np.ndarray:
    """Return a table's bytes for symbols with these counts: quarter powers of two below the top one, 0 for none."""
    counts = counts[: int(np.flatnonzero(counts)[-1]) + 1].astype(np.float64)
    with np.errstate(divide="ignore"):
        steps = np.maximum(1, _TOP_STEP + np.round(4 * np.log2(counts / counts.max())))
    return np.where(counts > 0, steps, 0).astype(np.uint8)


def write_table(header: HeaderWriter, steps: np.ndarray) -> None:
    """Write a table as the runtime reads it: the number of symbols less one, then differences of the steps."""
    header.byte(len(steps) - 1)
    header.data += np.diff(steps, prepend=np.uint8(0)).tobytes()


def table_bits(steps: np.ndarray) -> np.ndarray:
    """Return the cost of each symbol with a table, in bits; a high cost for symbols that the table lacks."""
    frequency = frequencies(step_weights(steps))
    return np.where(frequency > 0, CODE_BITS - np.log2(np.maximum(frequency, 1)), 40.0)


def stacked(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays as rows of one matrix, padded with zeros."""
    widest = max(map(len, rows))
    return np.stack([np.pad(row, (0, widest - len(row))) for row in rows])


def encode_stream(arrays: Sequence[Array], spare: bytes) -> tuple[bytes, int]:
    """Return (a stream of coded arrays, the number of spare bytes that its states carry)."""
    total = sum(array.count for array in arrays)
    if not total:
        return b"", 0
    # A lane costs about one byte, and two more if no spare bytes are left to carry.
    lanes = max(-(-total // _MOST_STEPS), min(len(spare) // 2, -(-total // _USUAL_STEPS)))
    frequency, first = [], []
    for array in arrays:
        of_tables = stacked([frequencies(weights) for weights in array.weights])
        chosen = array.tables(), array.values
        frequency.append(of_tables[chosen])
        first.append((np.cumsum(of_tables, 1) - of_tables)[chosen])
    steps = _steps(np.concatenate(frequency), np.concatenate(first), CODE_BITS, lanes)
    stream, carried = encode_steps(steps, lanes, spare)
    header = HeaderWriter()
    header.number(lanes)
    return bytes(header.data) + stream, carried


def pair_steps(
    characters: str, indexes: np.ndarray, pairs: np.ndarray, words: bool, sizes: Sequence[int]
) -> tuple[list[Step], np.ndarray]:
    """Return the steps that encode the parts of a vocabulary's merges, and the differences of their groups' buckets.

    pairs: int64 [merges, 2]; sizes: of the groups, empty if there are none. See compression.runtime.vocabulary.
    """
    model, lanes = PairModel(characters, indexes, words), pair_lanes(len(pairs))
    steps, gaps = [], [np.zeros(0, np.int64)]
    for group in pair_groups(indexes, sizes):
        block = pairs[group.first : group.end]
        for side, shift in enumerate((PAIR_BITS - group.bits, PAIR_BITS)):
            frequency = model.frequencies(side, group.known)
            ends = np.cumsum(frequency)
            low, high = ends[block[:, side]] - frequency[block[:, side]], ends[block[:, side]]
            start = np.zeros_like(low)
            if shift < PAIR_BITS:
                buckets = _buckets(low, high, shift)
                gaps.append(np.diff(buckets, prepend=0))
                start = buckets << shift
                low, high = np.maximum(low, start), np.minimum(high, start + (1 << shift))
            steps += _steps(high - low, low - start, shift, lanes)
        model.learn(group.first, block)
    return steps, np.concatenate(gaps)


def _buckets(low: np.ndarray, high: np.ndarray, shift: int) -> np.ndarray:
    """Return the bucket of each interval [low, high) of ascending ones, int64: the one that takes the fewest bits."""
    buckets, at = [], 0
    for first, last in zip(low.tolist(), high.tolist(), strict=True):
        choices = range(max(at, first >> shift), ((last - 1) >> shift) + 1)
        covered = [min(last, (b + 1) << shift) - max(first, b << shift) for b in choices]
        costs = [_GAP_BITS * number - math.log2(part) for number, part in enumerate(covered)]
        at = choices[costs.index(min(costs))]
        buckets.append(at)
    return np.array(buckets, np.int64)


def _steps(frequency: np.ndarray, first: np.ndarray, bits: int, lanes: int) -> list[Step]:
    """Return the steps of symbols, of which each lane takes one at a time."""
    slots = np.stack([frequency, first]).astype(np.uint64)
    return [Step(*slots[:, start : start + lanes], bits) for start in range(0, len(frequency), lanes)]


def encode_steps(steps: Sequence[Step], lanes: int, spare: bytes) -> tuple[bytes, int]:
    """Return (the stream of these steps, the number of spare bytes that its states carry).

    lanes: symbols that are decoded at the same time; the last lanes of a step may have none.
    """
    carried = spare[: 2 * lanes]
    states = np.frombuffer(carried.ljust(2 * lanes, b"\0"), "<u2").astype(np.uint64) + np.uint64(LOWEST_STATE)
    words = []
    for frequency, first, bits in reversed(steps):
        x = states[: len(frequency)]
        full = x >= frequency << np.uint64(32 - bits)
        words.append((x[full] & np.uint64(0xFFFF)).astype("<u2").tobytes())
        x[full] >>= np.uint64(16)
        x[:] = (x // frequency << np.uint64(bits)) + x % frequency + first
    return states.astype("<u4").tobytes() + b"".join(reversed(words)), len(carried)
