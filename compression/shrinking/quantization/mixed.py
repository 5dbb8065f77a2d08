"""Mixed precision: the setting that does least harm within a size, or the smallest one that loses little."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from common.errors import UserError
from common.progress import say
from compression.shrinking.quantization.hulls import first, larger, path
from compression.shrinking.quantization.maker import Maker
from compression.shrinking.quantization.scheme import BITS, Scheme, Setting
from compression.shrinking.quantization.sensitivity import options

ROUNDING = 1e-6
"""Points of a score that are no loss: floats are not exact."""
HOPELESS = 3.0
"""Points beyond what may be lost at which no smaller setting is looked at: scores go up and down by less than that."""
ROOM = 0.99
"""Share of the bytes to fill before training: trained codes pack to about a percent more."""
AGAIN = 0.998
"""Where they have packed to more than there are bytes: how much less than in proportion to fill in the next attempt."""

if TYPE_CHECKING:
    from compression.shrinking.context import CompressionContext
    from compression.students.student import Student

    History = list[dict[str, Any]] | None


def points_of(
    context: CompressionContext, maker: Maker, schemes: Mapping[str, Scheme], fixed: Mapping[str, int | None]
) -> list[Setting]:
    """The settings to choose from, largest first. Measures what quantizing each matrix does on validation.

    schemes: name of matrix -> a scheme whose bits are to be chosen, but for those of the parts in `fixed`.
    """
    tried = {name: [scheme] if fixed.get(name.split(".")[0]) else _widths(scheme) for name, scheme in schemes.items()}
    return path(options(context.student, context.tokenizer, context.held_out, maker, tried))


def _widths(scheme: Scheme) -> list[Scheme]:
    """The scheme with all bits, and of evenly spaced codes also the ternary ones."""
    if scheme.quantizer == "ternary":
        raise UserError("--quantizer ternary has but one width; --max-bytes and --max-loss choose among widths")
    widths = [dataclasses.replace(scheme, bits=bits) for bits in BITS]
    if scheme.quantizer == "affine":
        widths.append(dataclasses.replace(scheme, quantizer="ternary", bits=2))
    return widths


def within_bytes(context: CompressionContext, maker: Maker, points: list[Setting], most: int) -> Setting:
    """The least harmful setting whose packed file has at most so many bytes; its student is put into the context.

    Training changes what codes can be packed to: where the file has become too large, a setting is trained that is as
    much smaller. Raises UserError, with the smallest size there can be, when nothing fits.
    """

    sizes: dict[frozenset[tuple[str, Scheme]], int] = {}

    def size(setting: Setting) -> int:
        key = frozenset(setting.items())
        if key not in sizes:  # packing takes seconds, and each attempt asks for many of the same
            maker.make(setting, tune=False)
            sizes[key] = context.packed_size()
        return sizes[key]

    def largest(fill: float) -> Setting:
        """The one that fills so many bytes before training; where none fits, the smallest there is."""
        place = first(len(points), lambda place: size(points[place]) <= fill)
        return points[-1] if place is None else larger(points, place, lambda setting: size(setting) <= fill)

    setting = largest(most * ROOM if context.settings.tune_epochs else most)
    before = size(setting)
    if before > most:
        maker.make(setting, tune=False)
        smallest = _smallest(context, most, before)
        raise UserError(f"--max-bytes {most}: the smallest that {context.parent.name} can become is {smallest} bytes")
    while True:
        maker.make(setting, tune=True)
        reached = context.packed_size()
        if reached <= most:
            return setting
        if setting == points[-1]:
            raise UserError(
                f"--max-bytes {most}: after training the smallest that {context.parent.name} became is {reached} bytes"
            )
        say(f"{context.folder.name}: {reached:,} bytes after training, {most:,} asked for: on with fewer bits")
        setting = largest(before * most / reached * AGAIN)
        before = size(setting)


def _smallest(context: CompressionContext, most: int, size: int) -> int:
    """The size again under the name that a budget of so many bytes gives: the name is in the file."""
    name = context.folder.name.replace(f"max{most}", f"max{size}")
    return dataclasses.replace(context, folder=context.folder.with_name(name)).packed_size()


def within_loss(context: CompressionContext, maker: Maker, points: list[Setting], loss: float) -> Setting:
    """The smallest setting that loses at most so many points of the validation score; its student is put into the context.

    With --tune-epochs the settings beyond the one found are then trained, to see how far down training helps.
    Raises UserError, with the least loss there can be, when every setting loses more.
    """
    exact = context.score()
    good: dict[int, tuple[Student, History]] = {}

    def too_bad(place: int, tune: bool) -> bool:
        maker.make(points[place], tune)
        lost = 100 * (exact - context.score())
        say(f"{context.folder.name}: setting {place + 1} of {len(points)} loses {lost:.2f} points")
        if lost <= loss + ROUNDING:
            good[place] = context.student, context.history
            return False
        losses.append(lost)
        return True

    losses: list[float] = []
    first(len(points), lambda place: too_bad(place, False))
    # Losses do not rise evenly with every bit: a setting beyond the first bad one may be good again.
    for place in range(max(good, default=-1) + 1, len(points)):
        if too_bad(place, False) and losses[-1] > loss + HOPELESS:
            break
    if context.settings.tune_epochs:
        start, untuned = max(good, default=0), dict(good)
        good.clear()
        first(len(points) - start, lambda place: too_bad(start + place, True))
        if not good:  # training may have done harm
            good.update(untuned)
    if not good:
        raise UserError(f"--max-loss {loss:g}: {context.parent.name} loses {min(losses):.2f} points at the least")
    context.student, context.history = good[max(good)]
    return points[max(good)]
