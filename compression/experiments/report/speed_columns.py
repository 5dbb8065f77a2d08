"""Columns of speed and memory, as measured by `evaluate --time`, and notes on how to read them."""

from __future__ import annotations

from collections.abc import Iterable

from compression.experiments.report.results import Row
from compression.experiments.report.seed_groups import MILLISECONDS
from compression.experiments.report.table import Entry, number_entry

MEASURES = {
    "sentences_per_second": ("Sentences/s", 1),
    MILLISECONDS: ("ms for one", 1),
    "peak_memory": ("Peak memory, MB", 1e6),
    "flops": ("MFLOPs for one", 1e6),
}
"""Name of a speed in results.json -> heading, and the unit in which it is shown."""
FASTER = "times_faster"
"""The teacher's milliseconds per text divided by the model's; computed, not in results.json."""
HEADINGS = {name: title for name, (title, _) in MEASURES.items()} | {FASTER: "× faster"}
_RUNTIMES = {
    "numpy": "packed files by the NumPy runtime",
    "c": "packed files by the C runtime",
    "pytorch": "teachers by PyTorch",
}


def speed_entry(name: str, value: float | None) -> Entry:
    """Return the entry of a speed with a name in HEADINGS, to three digits; a dash if it is unknown."""
    if name == FASTER:
        return ratio_entry(value)
    unit = MEASURES[name][1]
    digits = sum((value or 0) / unit < limit for limit in (99.5, 9.95, 0.995, 0.0995))
    return number_entry(value, f",.{digits}f", unit)


def ratio_entry(value: float | None) -> Entry:
    """Return the entry of how many times faster, or smaller, a model is than its teacher."""
    return number_entry(value, ",.0f" if value is None or value >= 9.95 else ".1f")


def speed_notes(rows: Iterable[Row]) -> list[str]:
    """Return notes on how to read the columns, one or two sentences each; empty if nothing was timed."""
    speeds = [row["speed"] for row in rows if row.get("speed")]
    runtimes = {speed.get("runtime") for speed in speeds}
    by = ", ".join(text for name, text in _RUNTIMES.items() if name in runtimes)
    known = [
        (
            speeds,
            f"Speeds are of CPU time on one thread, tokenizing included ({by}): sentences a second of up to 1,000 rows "
            "together, and the median milliseconds of 100 rows one by one.",
        ),
        (
            any(speed.get("peak_memory") for speed in speeds),
            "Peak memory is what loading the packed file and answering add to a process with the runtime.",
        ),
        (
            any(speed.get("flops") for speed in speeds),
            "FLOPs are of an average row: two for each multiply-add of matrix products, and nothing else.",
        ),
        (len(runtimes) > 1, "Times faster: the teacher's milliseconds for one divided by the model's."),
    ]
    return [note for applies, note in known if applies]
