"""The commands of experiment.py that load PyTorch and Matplotlib: run, sweep and report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from common.cli import print_json
from common.store.settings import QuerySettings
from compression.experiments.chain import Plan
from compression.experiments.report import terminal_report
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.results import Row
from compression.experiments.report.results_page import has_page, write_page
from compression.experiments.run import run_plan
from compression.experiments.sweep import sweep as sweeps
from compression.experiments.sweep.plan import plan_text
from compression.experiments.sweep.settings import SweepSettings


def run(plan: Plan) -> None:
    """Run a chain and print its results."""
    rows, record = run_plan(plan)
    _print_results(rows, record, plan.workspace.experiment(plan.name))


def sweep(settings: SweepSettings, file: str) -> None:
    """Run a grid, or only describe it, and print its results. Exits with 1 where a run failed."""
    if settings.dry_run:
        plan = sweeps.plan_sweep(Path(file), settings)
        print_json(plan) if settings.json_ else print(plan_text(plan))
        return
    record = sweeps.sweep(Path(file), settings)
    record, rows = sweeps.report(settings.paths, record.name)
    failed = sweeps.failures(settings.paths, record)
    if settings.json_:
        print_json({"name": record.name, "runs": len(record.runs), "failed": [run.id for run in failed], "rows": rows})
    else:
        _print_results(rows, record, settings.paths.experiment(record.name))
    if failed:
        print(
            f"error: {len(failed)} of {len(record.runs)} runs failed; {failed[0].id}: {failed[0].error}; "
            f"see: experiment.py show {record.name}; again with: --retry-failed",
            file=sys.stderr,
        )
        raise SystemExit(1)


def report(settings: QuerySettings, name: str) -> None:
    """Write the report of an experiment, or the page of a folder of archived ones, and print where it is."""
    if has_page(Path(name)):
        paths = list(map(str, write_page(Path(name))))
        print_json(paths) if settings.json_ else print(f"page: {paths[0]}")
        return
    record, rows = sweeps.report(settings.paths, name)
    print_json(rows) if settings.json_ else _print_results(rows, record, settings.paths.experiment(name))


def _print_results(rows: Sequence[Row], record: ExperimentRecord, folder: Path) -> None:
    if rows:
        print(terminal_report(rows, record))
    print(f"report: {folder / 'report.html'}")
