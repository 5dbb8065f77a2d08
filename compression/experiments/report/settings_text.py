"""What was run, in a few lines of JSON: what all runs share once, then what each cell adds."""

from __future__ import annotations

import json
from typing import Any

from compression.experiments.report.record import ExperimentRecord, RecordedRun


def settings_lines(record: ExperimentRecord) -> list[str]:
    """A JSON object a line: jobs, seeds, settings of all runs, then each cell with those that only some have.

    Runs of a cell differ in their seeds alone and are one line.
    """
    lines = [_line(job) for job in record.jobs]
    if not record.runs:
        return [*lines, *([_line({"settings": record.settings})] if record.settings else [])]
    shared = _shared(record.runs)
    lines.append(_line({"seeds": record.seeds, "settings": shared}))
    cells: dict[tuple, RecordedRun] = {}
    seeds: dict[tuple, list[int]] = {}
    for run in record.runs:
        key = tuple(sorted(run.cell.items()))
        cells.setdefault(key, run)
        seeds.setdefault(key, []).append(run.seed)
    for key, run in cells.items():
        others = {name: value for name, value in _without_seed(run).items() if name not in shared}
        fewer = {"seeds": seeds[key]} if set(seeds[key]) != set(record.seeds) else {}
        lines.append(_line({"cell": run.cell, **fewer, "settings": others}))
    return lines


def _shared(runs: tuple[RecordedRun, ...]) -> dict[str, Any]:
    """Settings that every run has, with the same value."""
    first, *others = map(_without_seed, runs)
    return {name: value for name, value in first.items() if all(name in run and run[name] == value for run in others)}


def _without_seed(run: RecordedRun) -> dict[str, Any]:
    return {name: value for name, value in run.settings.items() if name != "seed"}


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
