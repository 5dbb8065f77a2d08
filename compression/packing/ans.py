"""The entropy coder's writing half: rANS (Duda, 2013) over many states side by side. The reading half is in runtime.py.

Symbol i belongs to state i mod lanes, so that numpy decodes one symbol of every lane at a time. States begin at 2^16
plus two bytes that would be stored raw otherwise: the decoder ends where the encoder began and finds them there, so a
lane costs little as long as there are such bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from compression.packing.head import HeadWriter
from compression.runtime import MOST_STEPS, PAIR_BITS, PairModel, frequencies, pair_lanes, step_weights

_STATE = 1 << 16
_MOST_STEPS, _USUAL_STEPS = MOST_STEPS // 2, 1024
_TOP_STEP = 60


def table_steps(counts: np.ndarray) -> np.ndarray:
    """Return a table's bytes for symbols with these counts: quarter powers of two below the top one, 0 for none."""
    counts = counts[: int(np.flatnonzero(counts)[-1]) + 1].astype(np.float64)
    with np.errstate(divide="ignore"):
        steps = np.maximum(1, _TOP_STEP + np.round(4 * np.log2(counts / counts.max())))
    return np.where(counts > 0, steps, 0).astype(np.uint8)


def write_table(head: HeadWriter, steps: np.ndarray) -> None:
    """Write a table as the runtime reads it: the number of symbols less one, then differences of the steps."""
    head.byte(len(steps) - 1)
    head.bytes(np.diff(steps, prepend=np.uint8(0)).astype(np.uint8).tobytes())


def table_bits(steps: np.ndarray, bits: int) -> np.ndarray:
    """Return what each symbol costs with a table, in bits; a high cost for those that the table lacks."""
    return symbol_bits(step_weights(steps), bits)


def symbol_bits(weights: np.ndarray, bits: int) -> np.ndarray:
    """As table_bits, for weights."""
    frequency = frequencies(weights, bits)
    return np.where(frequency > 0, bits - np.log2(np.maximum(frequency, 1)), 40.0)


@dataclasses.dataclass
class Coded:
    """Symbols to be coded, with the table of each. weights: int64, one array a table; bits: what each symbol takes."""

    symbols: np.ndarray
    tables: np.ndarray
    weights: list[np.ndarray]


def encode_stream(arrays: Sequence[Coded], bits: int, spare: bytes) -> tuple[bytes, int]:
    """Return (a stream, how many of the spare bytes its states carry)."""
    total = sum(len(array.symbols) for array in arrays)
    if not total:
        return b"", 0
    # A lane takes a byte or so that holds nothing, and two more where no spare bytes are left to carry.
    lanes = max(-(-total // _MOST_STEPS), min(len(spare) // 2, -(-total // _USUAL_STEPS)))
    frequency, start = _looked_up(arrays, bits)
    carried = spare[: 2 * lanes]
    states = _first_states(carried, lanes)
    starts = range((total - 1) // lanes * lanes, -1, -lanes)
    words = [_push(states, frequency[i : i + lanes], start[i : i + lanes], bits) for i in starts]
    head = HeadWriter()
    head.number(lanes)
    stream = head.data + states.astype("<u4").tobytes() + b"".join(reversed(words))
    return stream, len(carried)


def encode_pairs(letters: str, indices: np.ndarray, pairs: np.ndarray, words: bool, spare: bytes) -> tuple[bytes, int]:
    """As encode_stream, for the parts of a vocabulary's unions: tables depend on the pairs before, see PairModel."""
    if not len(pairs):
        return b"", 0
    lanes = pair_lanes(len(pairs))
    model = PairModel(letters, indices, words)
    steps = []
    for first in range(0, len(pairs), lanes):
        block = pairs[first : first + lanes]
        for side in (0, 1):
            frequency = model.frequencies(side, first + len(block))
            begin = np.cumsum(frequency) - frequency
            steps.append((frequency[block[:, side]].astype(np.uint64), begin[block[:, side]].astype(np.uint64)))
        model.learn(first, block)
    carried = spare[: 2 * lanes]
    states = _first_states(carried, lanes)
    words_out = [_push(states, f, s, PAIR_BITS) for f, s in reversed(steps)]
    return states.astype("<u4").tobytes() + b"".join(reversed(words_out)), len(carried)


def _first_states(carried: bytes, lanes: int) -> np.ndarray:
    return np.frombuffer(carried + bytes(2 * lanes - len(carried)), "<u2").astype(np.uint64) + np.uint64(_STATE)


def _push(states: np.ndarray, f: np.ndarray, s: np.ndarray, bits: int) -> bytes:
    """Code one symbol of each lane, in place; returns the words that overflow. f, s: frequencies and first slots."""
    x = states[: len(f)]
    full = x >= f << np.uint64(32 - bits)
    words = (x[full] & np.uint64(0xFFFF)).astype("<u2").tobytes()
    x[full] >>= np.uint64(16)
    x[:] = (x // f << np.uint64(bits)) + x % f + s
    return words


def _looked_up(arrays: Sequence[Coded], bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return frequency and first slot of every symbol, uint64."""
    looked_up, starts = [], []
    for array in arrays:
        tables = [frequencies(weights, bits) for weights in array.weights]
        widest = max(map(len, tables))
        frequency = np.stack([np.pad(table, (0, widest - len(table))) for table in tables])
        begin = np.cumsum(frequency, 1) - frequency
        looked_up.append(frequency[array.tables, array.symbols])
        starts.append(begin[array.tables, array.symbols])
    return np.concatenate(looked_up).astype(np.uint64), np.concatenate(starts).astype(np.uint64)
