"""Mixed precision: the setting of least distortion within a size, or the smallest one that loses little."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from common.errors import UserError
from common.progress import say
from compression.shrinking.context import CompressionContext
from compression.shrinking.quantization.bit_allocation import frontier, measure
from compression.shrinking.quantization.builder import StudentBuilder
from compression.shrinking.quantization.scheme import BITS, Scheme, Setting
from compression.students.student import Student

ROUNDING = 1e-6
"""Points of a score that do not count as lost: floats are not exact."""
HOPELESS = 3.0
"""Points above --max-loss at which the search for a smaller setting ends: scores go up and down by less than that."""
ROOM = 0.99
"""Share of the bytes to fill before training: trained codes pack to about a percent more."""
RETRY = 0.998
"""When they packed to too many bytes: how much less than in proportion to fill in the next attempt."""


def settings_of(
    context: CompressionContext, builder: StudentBuilder, schemes: Mapping[str, Scheme], fixed: Collection[str]
) -> list[Setting]:
    """Return the settings to choose from, largest first.

    schemes: name of matrix -> a scheme whose bits are to be chosen, except in the parts `fixed`.
    """
    options = {name: [scheme] if name.split(".")[0] in fixed else _widths(scheme) for name, scheme in schemes.items()}
    return frontier(measure(context, builder, options))


def _widths(scheme: Scheme) -> list[Scheme]:
    """Return the scheme at every number of bits; with affine codes, the ternary scheme too."""
    if scheme.quantizer == "ternary":
        raise UserError("--quantizer ternary has but one width; --max-bytes and --max-loss choose among widths")
    widths = [dataclasses.replace(scheme, bits=bits) for bits in BITS]
    if scheme.quantizer == "affine":
        widths.append(dataclasses.replace(scheme, quantizer="ternary", bits=2))
    return widths


def within_bytes(context: CompressionContext, builder: StudentBuilder, points: list[Setting], most: int) -> Setting:
    """Return the setting of least distortion whose packed file has at most `most` bytes; build its student.

    Training changes the size of the packed codes: when the file has become too large, a smaller setting is trained.
    Raises UserError, with the smallest possible size, when nothing fits.
    """
    sizes: dict[frozenset[tuple[str, Scheme]], int] = {}

    def size(setting: Setting) -> int:
        key = frozenset(setting.items())
        if key not in sizes:  # packing takes seconds, and each attempt asks for many of the same
            builder.build(setting, tune=False)
            sizes[key] = context.packed_size()
        return sizes[key]

    def largest(most: float) -> Setting:
        """Return the largest setting of at most this many bytes before training; if none fits, the smallest one."""
        index = first(len(points), lambda index: size(points[index]) <= most)
        return points[-1] if index is None else widened(points, index, lambda setting: size(setting) <= most)

    setting = largest(most * ROOM if context.settings.tune_epochs else most)
    if size(setting) > most:
        builder.build(setting, tune=False)
        # The name, which has the budget in it, is in the file.
        name = context.name.replace(f"max{most}", f"max{size(setting)}")
        smallest = dataclasses.replace(context, name=name).packed_size()
        raise UserError(f"--max-bytes {most}: the smallest that {context.parent.name} can become is {smallest} bytes")
    while True:
        builder.build(setting, tune=True)
        trained = context.packed_size()
        if trained <= most:
            return setting
        if setting == points[-1]:
            raise UserError(
                f"--max-bytes {most}: after training the smallest that {context.parent.name} became is {trained} bytes"
            )
        say(f"{context.name}: {trained:,} bytes after training, above {most:,}: training again with fewer bits")
        setting = largest(size(setting) * most / trained * RETRY)


def within_loss(context: CompressionContext, builder: StudentBuilder, points: list[Setting], loss: float) -> Setting:
    """Return the smallest setting that loses at most `loss` points of the validation score; build its student.

    With --tune-epochs the settings after it are then trained, to see how far down training helps. Raises UserError,
    with the least possible loss, when every setting loses more.
    """
    exact = context.score()
    losses: list[float] = []
    good: dict[int, tuple[Student, list[dict[str, Any]] | None]] = {}

    def fails(index: int, tune: bool) -> bool:
        builder.build(points[index], tune)
        lost = 100 * (exact - context.score())
        say(f"{context.name}: setting {index + 1} of {len(points)} loses {lost:.2f} points")
        if lost <= loss + ROUNDING:
            good[index] = context.student, context.history
            return False
        losses.append(lost)
        return True

    first(len(points), lambda index: fails(index, False))
    # The loss does not rise with every step: a setting after the first bad one may be good again.
    for index in range(max(good, default=-1) + 1, len(points)):
        if fails(index, False) and losses[-1] > loss + HOPELESS:
            break
    if context.settings.tune_epochs:
        start, untuned = max(good, default=0), dict(good)
        good.clear()
        first(len(points) - start, lambda index: fails(start + index, True))
        good = good or untuned  # training may have done harm
    if not good:
        raise UserError(f"--max-loss {loss:g}: {context.parent.name} loses {min(losses):.2f} points at the least")
    context.student, context.history = good[max(good)]
    return points[max(good)]


def first(count: int, holds: Callable[[int], bool]) -> int | None:
    """Return the first of `count` indices at which a monotonic condition holds, by bisection; None if it never does.

    The condition was then evaluated at the index before it too.
    """
    return bisect.bisect_left(range(count - 1), True, key=holds) if holds(count - 1) else None


def widened(points: Sequence[Setting], index: int, fits: Callable[[Setting], bool]) -> Setting:
    """Return a point with steps of the frontier taken back wherever the result still fits, to use all bytes."""
    setting = points[index]
    for before, after in zip(reversed(points[:index]), reversed(points[1 : index + 1]), strict=True):
        (name,) = (name for name in after if after[name] != before[name])
        if setting[name] == after[name] and fits(wider := {**setting, name: before[name]}):
            setting = wider
    return setting
