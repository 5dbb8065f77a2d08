"""Plan of a fit: divides the time among the stages, from speeds measured on this machine. Pure functions.

A teacher is worth its time only if it can learn from enough rows and label all of them: labels of many rows teach
students more than a teacher's logits over few rows. The teacher's work is the first of a list of choices that fits
the time: many epochs and variants, then fewer, then shorter inputs, then fewer rows to learn from.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pydantic

from common.config import Settings

LEAST_SECONDS = 100.0
"""With less time no teacher is tried: loading one takes 20 seconds on a slow machine."""
FEWEST_FOR_TEACHER = 3000
"""Minimum number of rows that a teacher learns from, or all rows if there are fewer."""
STUDENTS_SHARE = 0.35
"""Share of the time for choosing and training students if there is a teacher."""
_RESERVE = 0.12
_LENGTHS = (128, 96, 64, 48, 32)
VARIANTS = (8, 4, 2, 1)
"""Possible numbers of variants of a row, the best first."""
_TEACHER_STEPS = 150
"""Minimum number of optimizer steps of a teacher; with few rows it trains for more epochs."""
_TEACHER_BATCH = 16


class Speeds(Settings):
    """Measurements of this machine and file. Speeds are per second, the teacher's in word pieces."""

    start: float
    """Seconds for loading the libraries, a measure of how slow the machine is."""
    prepare: float
    """Rows read, split and checked for leaks per second."""
    words: float
    """Mean number of words of a row; for pairs, of both texts together."""
    pieces: tuple[int, ...] = ()
    """Numbers of word pieces of some rows; empty if no teacher was measured."""
    load: float = 0.0
    """Seconds to load the teacher."""
    train: float = 0.0
    """Word pieces that the teacher trains on per second."""
    infer: float = 0.0
    """Word pieces that the teacher predicts on per second."""

    def mean_pieces(self, length: int) -> float:
        """Return the mean number of word pieces of a row truncated to a length."""
        return sum(min(count, length) for count in self.pieces) / len(self.pieces)


class TeacherPlan(Settings):
    """The teacher's part of the plan: its rows, epochs and inputs, and the variants that it labels."""

    rows: int
    """Rows to learn from."""
    epochs: int
    max_tokens: int
    variants: int
    """Variants of each row that students learn from."""
    batch_size: int = 32

    def share(self, train_rows: int) -> float:
        """Return --downsample-data."""
        return 1.0 if self.rows >= train_rows else round(self.rows / train_rows, 6)


class Plan(Settings):
    """The stages and their estimated seconds."""

    rows: int
    """Rows of the file that are used."""
    teacher: TeacherPlan | None
    why: str
    """Description of the teacher's work, or the reason for no teacher."""
    seconds: dict[str, float] = pydantic.Field(default_factory=dict)
    """Stage -> estimated seconds."""


def make_plan(speeds: Speeds, rows: int, held_out: int, left: float) -> Plan:
    """Return a plan that is estimated to take at most `left` seconds.

    rows: usable rows of the file; held_out: how many of them are validation and test rows.
    """
    reserve = reserve_of(speeds, left)
    most = max(50, int(0.15 * left * speeds.prepare))  # rows that there is time to read again, split and check
    used = min(rows, most)
    held_out = min(held_out, used // 3)
    why = "--minutes is too short for a teacher" if left < LEAST_SECONDS else "no teacher was measured"
    if left >= LEAST_SECONDS and speeds.pieces:
        why = "fine-tuning one and labelling all rows would take longer than the time allows"
        train = max(1, used - held_out)
        for choice in _choices(train):
            seconds = teacher_seconds(speeds, choice, train, held_out)
            seconds["splits"] = used / speeds.prepare
            if sum(seconds.values()) <= (1 - STUDENTS_SHARE) * left - reserve:
                seconds["students"] = left - reserve - sum(seconds.values())
                seconds["quantize, pack, evaluate"] = reserve
                return Plan(rows=used, teacher=choice, why=_words(choice, train), seconds=seconds)
    splits = used / speeds.prepare
    seconds = {"splits": min(splits, 0.3 * left), "students": 0.0, "quantize, pack, evaluate": min(reserve, 0.5 * left)}
    seconds["students"] = left - sum(seconds.values())
    return Plan(rows=used, teacher=None, why=why, seconds=seconds)


def reserve_of(speeds: Speeds, left: float) -> float:
    """Return the seconds reserved for quantizing, packing, scoring and the report."""
    return min(0.45 * left, max(_RESERVE * left, 10 + speeds.start))


def teacher_seconds(speeds: Speeds, choice: TeacherPlan, labelled: int, held_out: int) -> dict[str, float]:
    """Return the estimated seconds of each of the teacher's stages. labelled: number of train rows."""
    pieces = speeds.mean_pieces(choice.max_tokens)
    learned, read = choice.rows * pieces / speeds.train, pieces / speeds.infer
    seconds = {"teacher": speeds.load + choice.epochs * (learned + held_out / 2 * read)}
    if choice.variants:
        # The neighbours of a word are looked up only once.
        seconds["augment"] = speeds.start + labelled * choice.variants * speeds.words / 100_000
    seconds["logits"] = speeds.load / 3 + labelled * (1 + choice.variants) * read
    return seconds


def _choices(train: int) -> Iterator[TeacherPlan]:
    """Yield possible plans of the teacher, the best first. train: number of rows that it labels."""
    batch = _TEACHER_BATCH if train < 2000 else 32
    most = min(10, max(3, math.ceil(_TEACHER_STEPS / math.ceil(train / batch))))
    fewest = min(FEWEST_FOR_TEACHER, train)

    def choice(share: float, epochs: int, length: int, variants: int) -> TeacherPlan:
        rows = max(fewest, int(share * train))
        return TeacherPlan(rows=rows, epochs=epochs, max_tokens=length, variants=variants, batch_size=batch)

    longest = _LENGTHS[0]
    for variants in VARIANTS:
        yield choice(1, most, longest, variants)
    for epochs, variants in itertools.product(sorted({most // 2, 2}, reverse=True), (4, 2, 1)):
        yield choice(1, max(2, epochs), longest, variants)
    for length in _LENGTHS[:3]:
        for epochs in (2, 1):
            yield choice(1, epochs, length, 0)
    for length in _LENGTHS[2:]:
        for power in range(1, 60):
            if 0.8**power * train > fewest:
                yield choice(0.8**power, 1, length, 0)
        yield choice(0, 1, length, 0)


def _words(choice: TeacherPlan, train: int) -> str:
    rows = "all rows" if choice.rows >= train else f"{choice.rows:,} of {train:,} rows"
    variants = f", {choice.variants} variant{'s' * (choice.variants > 1)} of each row" if choice.variants else ""
    epochs = f"{choice.epochs} epoch{'s' * (choice.epochs > 1)}"
    return f"fine-tuned on {rows} for {epochs}, inputs cut at {choice.max_tokens} word pieces{variants}"
