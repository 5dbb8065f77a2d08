"""The entropy coder's writing half: rANS (Duda, 2013) over many lanes. The reading half is compression.runtime.entropy.

Symbol i belongs to lane i mod lanes, so that NumPy decodes one symbol of every lane at a time. Initial states are 2^16
plus two bytes that would otherwise be stored raw: the decoder ends in the encoder's initial state and finds them there,
so a lane costs little as long as there are such bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compression.packing.header import HeaderWriter
from compression.runtime.entropy import CODE_BITS, LOWEST_STATE, MOST_STEPS, Array, frequencies, step_weights
from compression.runtime.vocabulary import PAIR_BITS, PairModel, pair_lanes

_MOST_STEPS, _USUAL_STEPS = MOST_STEPS // 2, 1024
_TOP_STEP = 60

Slots = tuple[np.ndarray, np.ndarray]
"""Frequency and first slot of each symbol, uint64."""


def table_steps(counts: np.ndarray) -> np.ndarray:
    """Return a table's bytes for symbols with these counts: quarter powers of two below the top one, 0 for none."""
    counts = counts[: int(np.flatnonzero(counts)[-1]) + 1].astype(np.float64)
    with np.errstate(divide="ignore"):
        steps = np.maximum(1, _TOP_STEP + np.round(4 * np.log2(counts / counts.max())))
    return np.where(counts > 0, steps, 0).astype(np.uint8)


def write_table(header: HeaderWriter, steps: np.ndarray) -> None:
    """Write a table as the runtime reads it: the number of symbols less one, then differences of the steps."""
    header.byte(len(steps) - 1)
    header.data += np.diff(steps, prepend=np.uint8(0)).astype(np.uint8).tobytes()


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
    slots = (np.concatenate(frequency).astype(np.uint64), np.concatenate(first).astype(np.uint64))
    steps = [(slots[0][i : i + lanes], slots[1][i : i + lanes]) for i in range(0, total, lanes)]
    stream, carried = _encode(steps, lanes, CODE_BITS, spare)
    header = HeaderWriter()
    header.number(lanes)
    return bytes(header.data) + stream, carried


def encode_pairs(
    characters: str, indexes: np.ndarray, pairs: np.ndarray, words: bool, spare: bytes
) -> tuple[bytes, int]:
    """Encode the parts of a vocabulary's merges as encode_stream; tables depend on earlier pairs, see PairModel."""
    if not len(pairs):
        return b"", 0
    lanes = pair_lanes(len(pairs))
    model = PairModel(characters, indexes, words)
    steps = []
    for first in range(0, len(pairs), lanes):
        block = pairs[first : first + lanes]
        for side in (0, 1):
            frequency = model.frequencies(side, first + len(block)).astype(np.uint64)
            start = np.cumsum(frequency) - frequency
            steps.append((frequency[block[:, side]], start[block[:, side]]))
        model.learn(first, block)
    return _encode(steps, lanes, PAIR_BITS, spare)


def _encode(steps: Sequence[Slots], lanes: int, bits: int, spare: bytes) -> tuple[bytes, int]:
    """steps: the symbols that are decoded at the same time, one per lane; the last lanes may have none."""
    carried = spare[: 2 * lanes]
    states = np.frombuffer(carried.ljust(2 * lanes, b"\0"), "<u2").astype(np.uint64) + np.uint64(LOWEST_STATE)
    words = []
    for frequency, first in reversed(steps):
        x = states[: len(frequency)]
        full = x >= frequency << np.uint64(32 - bits)
        words.append((x[full] & np.uint64(0xFFFF)).astype("<u2").tobytes())
        x[full] >>= np.uint64(16)
        x[:] = (x // frequency << np.uint64(bits)) + x % frequency + first
    return states.astype("<u4").tobytes() + b"".join(reversed(words)), len(carried)
