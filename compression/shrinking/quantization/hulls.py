"""The settings worth choosing from: a path from the largest to the smallest, each the least harmful of its size.

Each matrix's options lie on a curve of size and harm. Going along the lower convex hulls of these curves, always by the
step that does least harm for each byte it saves, is the Lagrangian choice of bits (Shoham and Gersho, 1988).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

from compression.shrinking.quantization.scheme import Setting
from compression.shrinking.quantization.sensitivity import Option


def path(options: Mapping[str, Sequence[Option]]) -> list[Setting]:
    """Settings from the largest to the smallest, each one step of one matrix away from the one before it."""
    hulls = {name: hull(found) for name, found in options.items()}
    places = dict.fromkeys(hulls, 0)
    points = [{name: line[0].scheme for name, line in hulls.items()}]
    steps = [(price(line[0], line[1]), name) for name, line in hulls.items() if len(line) > 1]
    heapq.heapify(steps)
    while steps:
        _, name = heapq.heappop(steps)
        places[name] += 1
        line, place = hulls[name], places[name]
        points.append({**points[-1], name: line[place].scheme})
        if place + 1 < len(line):
            heapq.heappush(steps, (price(line[place], line[place + 1]), name))
    return points


def hull(options: Sequence[Option]) -> list[Option]:
    """The lower convex hull of a matrix's options, from the least harmful to the smallest: prices rise along it."""
    line: list[Option] = []
    for option in sorted(options, key=lambda option: (option.harm, option.size)):
        if line and option.size >= line[-1].size:
            continue  # no smaller, and no less harmful
        while len(line) > 1 and price(line[-2], line[-1]) >= price(line[-1], option):
            line.pop()
        line.append(option)
    return line


def price(larger: Option, smaller: Option) -> float:
    """Harm for each byte saved."""
    return (smaller.harm - larger.harm) / (larger.size - smaller.size)


def first(count: int, holds: Callable[[int], bool]) -> int | None:
    """The first of `count` points at which something holds that goes on to hold, by bisection; None if it never does.

    It has then been seen not to hold at the point before.
    """
    if not holds(count - 1):
        return None
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def larger(points: Sequence[Setting], place: int, fits: Callable[[Setting], bool]) -> Setting:
    """A point with steps taken back wherever the result still fits: bytes left over are not left unused."""
    setting = points[place]
    for before, after in zip(reversed(points[:place]), reversed(points[1 : place + 1]), strict=True):
        (name,) = (name for name in after if after[name] != before[name])
        if setting[name] == after[name] and fits(wider := {**setting, name: before[name]}):
            setting = wider
    return setting
