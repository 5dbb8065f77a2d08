"""Mixed precision: the bits with the least distortion within a size, or the fewest bits within a loss.

Distortion is the mean squared change of the logits over validation text when one matrix is quantized. It shows small
differences that a score over a few hundred rows does not, and the distortions of several matrices approximately add up:
their errors are independent. Each matrix's options lie on a curve of size and distortion. Walking along the lower
convex hulls of these curves, always by the step that adds the least distortion per byte saved, is the Lagrangian choice
of bits (Shoham and Gersho, 1988).
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.special import entr

from common.errors import UserError
from common.progress import say
from compression.shrinking.quantization.builder import StudentBuilder
from compression.shrinking.quantization.scheme import BITS, CODED_BITS, Scheme, Setting
from compression.shrinking.step import CPU, CompressionContext
from compression.students.scoring import encode_split, student_logits
from compression.students.student import Student
from compression.students.weights import Dense, Matrix, replace_matrix

ROWS = 300
"""Rows of validation that distortion is measured on, at most."""
ROUNDING = 1e-6
"""Tolerance for a loss, in points of a score: floats are not exact."""
HOPELESS = 3.0
"""Points above --max-loss at which the search for a smaller setting ends: scores fluctuate by less than that."""
FILLED = 0.97
"""Share of the budget that a trained file has to fill; a smaller one is trained once more, with more bits."""
RETRY = 0.998
"""Factor on the budget after an attempt with too many or too few bytes, in addition to proportional scaling."""


@dataclasses.dataclass(frozen=True)
class Option:
    """A way to quantize a matrix. size: estimated bytes after entropy coding."""

    scheme: Scheme
    size: float
    distortion: float


Options = dict[str, list[Option]]
"""Name of matrix -> the ways to quantize it."""


def options_of(
    context: CompressionContext, builder: StudentBuilder, schemes: Mapping[str, Scheme], fixed: Collection[str]
) -> Options:
    """Return the ways to quantize each matrix. The student is left with float weights.

    schemes: name of matrix -> a scheme whose bits are to be chosen, except in the parts `fixed`.
    """
    held_out = context.held_out
    encoded = encode_split(context.tokenizer, held_out.take(np.arange(min(ROWS, len(held_out)))))
    exact = student_logits(context.student, encoded, CPU, "sensitivity")
    options: Options = {name: [] for name in schemes}
    pairs = []
    for name, asked in schemes.items():
        tried = [asked] if name.split(".")[0] in fixed else _widths(asked)
        pairs += [(name, scheme) for scheme in tried]
    for number, (name, scheme) in enumerate(pairs, 1):
        matrix = builder.quantized(name, scheme)
        replace_matrix(context.student, name, matrix)
        changed = student_logits(context.student, encoded, CPU, f"sensitivity {number}/{len(pairs)}")
        replace_matrix(context.student, name, Dense(builder.weights[name]))
        options[name].append(Option(scheme, coded_size(matrix), float(np.nanmean(np.square(changed - exact)))))
    return options


def _widths(scheme: Scheme) -> list[Scheme]:
    """Return the scheme at every number of bits; of affine codes 8 bits, below which coded ones have less error."""
    if scheme.quantizer == "affine":
        return [dataclasses.replace(scheme, bits=8), *_widths(dataclasses.replace(scheme, quantizer="coded"))]
    widths = CODED_BITS if scheme.quantizer == "coded" else BITS
    return [dataclasses.replace(scheme, bits=bits) for bits in widths]


def coded_size(matrix: Matrix) -> float:
    """Estimate a quantized matrix's bytes in a packed file: the entropy of its codes, and its ranges."""
    size = 0.0
    for name, tensor in matrix.named_buffers():
        if tensor.dtype == torch.uint8:
            shares = np.bincount(tensor.flatten().numpy()) / tensor.numel()
            size += entr(shares).sum() / np.log(2) * tensor.numel() / 8
        else:  # two bytes of a scale are not zero
            size += tensor.numel() * (2 if name in ("scale", "value") else 4)
    return size


def frontier(options: Mapping[str, Sequence[Option]]) -> list[Setting]:
    """Return settings from the largest to the smallest; each changes one matrix of the one before it."""
    hulls = {name: hull(some) for name, some in options.items()}
    # Slopes rise along each hull: sorted steps keep the order of every matrix's own.
    steps = sorted(
        (slope(*pair), name, index)
        for name, line in hulls.items()
        for index, pair in enumerate(itertools.pairwise(line), 1)
    )
    points = [{name: line[0].scheme for name, line in hulls.items()}]
    for _, name, index in steps:
        points.append({**points[-1], name: hulls[name][index].scheme})
    return points


def hull(options: Sequence[Option]) -> list[Option]:
    """Return the lower convex hull of a matrix's options, from the largest to the smallest."""
    line: list[Option] = []
    for option in sorted(options, key=lambda option: (option.distortion, option.size)):
        if line and option.size >= line[-1].size:
            continue  # neither smaller nor of less distortion
        while len(line) > 1 and slope(line[-2], line[-1]) >= slope(line[-1], option):
            line.pop()
        line.append(option)
    return line


def slope(larger: Option, smaller: Option) -> float:
    """Return the distortion that each saved byte adds."""
    return (smaller.distortion - larger.distortion) / (larger.size - smaller.size)


def within_bytes(context: CompressionContext, builder: StudentBuilder, options: Options, most: int) -> Setting:
    """Return the setting of least distortion whose packed file has at most `most` bytes; build its student.

    Training changes the size of the packed codes: when the file has become too large, a smaller setting is trained,
    and once a larger one when the file has become much smaller.
    Raises UserError, with the smallest possible size, when nothing fits.
    """
    points = frontier(options)
    sizes: dict[frozenset[tuple[str, Scheme]], int] = {}

    def size(setting: Setting) -> int:
        key = frozenset(setting.items())
        if key not in sizes:  # packing takes seconds, and attempts repeat settings
            builder.build(setting, tune=False)
            sizes[key] = context.packed_size()
        return sizes[key]

    def largest(most: float) -> Setting:
        """Return the largest setting of at most this many bytes before training; if none fits, the smallest one."""
        index = first(len(points), lambda index: size(points[index]) <= most)
        return points[-1] if index is None else filled(points[index], options, lambda setting: most - size(setting))

    setting = largest(most)
    if size(setting) > most:
        raise UserError(f"--max-bytes {most}: the smallest file of {context.parent.name} has {size(setting)} bytes")
    kept: tuple[Setting, Student, list[dict[str, Any]] | None] | None = None
    for attempt in itertools.count():
        builder.build(setting, tune=True)
        trained = context.packed_size()
        if trained <= most:
            kept = setting, context.student, context.history
        elif kept is None and setting == points[-1]:
            raise UserError(
                f"--max-bytes {most}: the smallest file of {context.parent.name} after training has {trained} bytes"
            )
        if kept is not None and (attempt or trained >= FILLED * most or not context.step.tuning):
            break
        other = largest(size(setting) * most / trained * RETRY)
        if kept is not None and other == setting:
            break
        say(f"{context.name}: {trained:,} bytes of {most:,} after training: training again with other bits")
        setting = other
    setting, context.student, context.history = kept
    return setting


def within_loss(context: CompressionContext, builder: StudentBuilder, points: list[Setting], loss: float) -> Setting:
    """Return the smallest setting that loses at most `loss` points of the validation score; build its student.

    With --tune-epochs, the settings after it are then trained, to find the smallest that training brings within the
    loss. Raises UserError, with the least possible loss, if every setting loses more.
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
    # The loss is not monotonic: a setting after the first bad one may be good again.
    for index in range(max(good, default=-1) + 1, len(points)):
        if fails(index, False) and losses[-1] > loss + HOPELESS:
            break
    if context.step.tuning:
        start, untuned = max(good, default=0), dict(good)
        good.clear()
        first(len(points) - start, lambda index: fails(start + index, True))
        good = good or untuned  # training may have made them worse
    if not good:
        raise UserError(f"--max-loss {loss:g}: {context.parent.name} loses at least {min(losses):.2f} points")
    context.student, context.history = good[max(good)]
    return points[max(good)]


def first(count: int, holds: Callable[[int], bool]) -> int | None:
    """Return the first of `count` indices at which a monotonic condition holds, by bisection; None if it never does.

    If it holds, it has been evaluated at the preceding index too.
    """
    return bisect.bisect_left(range(count - 1), True, key=holds) if holds(count - 1) else None


def filled(setting: Setting, options: Options, room: Callable[[Setting], float]) -> Setting:
    """Return a setting that also takes options of less distortion, on the hulls or above them, for as long as they fit.

    The option that lowers distortion most comes first. room: bytes that a setting leaves; negative if it does not fit.
    """
    tried: set[tuple[str, Scheme]] = set()
    while True:
        left = room(setting)
        now = {
            name: next(option for option in some if option.scheme == setting[name]) for name, some in options.items()
        }
        better = [
            (now[name].distortion - option.distortion, name, option.scheme)
            for name, some in options.items()
            for option in some
            if option.distortion < now[name].distortion
            and option.size - now[name].size <= left
            and (name, option.scheme) not in tried
        ]
        if not better:
            return setting
        _, name, scheme = max(better, key=lambda change: change[0])
        tried.add((name, scheme))
        wider = {**setting, name: scheme}
        if room(wider) >= 0:
            setting = wider
