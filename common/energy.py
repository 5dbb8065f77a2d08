"""Energy of the machine's processors, as Linux counts it (RAPL, running average power limit)."""

from collections.abc import Iterator
from pathlib import Path

COUNTERS = Path("/sys/class/powercap")
"""Folder of Linux's counters, one folder each: `name`, and `energy_uj` in microjoules, which starts again at 0 after
`max_energy_range_uj`."""


class EnergyMeter:
    """Counts the joules of all processors from its creation on. What other programs use is included.

    Source: Documentation/power/powercap/powercap.rst of Linux.
    """

    def __init__(self) -> None:
        self._before = dict(_counts())

    def joules(self) -> float | None:
        """Return the joules used so far; None if the machine has no counter, or none that this user may read."""
        used = [
            (after - self._before[folder]) % int((folder / "max_energy_range_uj").read_text())
            for folder, after in _counts()
            if folder in self._before
        ]
        return sum(used) / 1e6 if used else None


def _counts() -> Iterator[tuple[Path, int]]:
    """Yield the folder and microjoules of each readable counter of a whole processor; others count parts of these."""
    for folder in sorted(COUNTERS.glob("intel-rapl:*")):
        try:
            if (folder / "name").read_text().startswith("package"):
                yield folder, int((folder / "energy_uj").read_text())
        except OSError:  # usually only root may read it
            continue
