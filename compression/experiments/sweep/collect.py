"""Results of a sweep's runs: rows, failures and the report. Only reads files, without PyTorch."""

from __future__ import annotations

from common.config import build
from common.errors import UserError
from common.progress import say
from common.store.files import read_json
from common.store.store import Store
from compression.experiments.fit.state import FILE as FIT_FILE
from compression.experiments.report import write_report
from compression.experiments.report.record import RESULTS_FILE, ExperimentRecord, RecordedRun, read_record
from compression.experiments.report.results import Row, read_results, write_results
from compression.experiments.sweep.runs import RunFolder, RunRecord


def collect(paths: Store, record: ExperimentRecord) -> list[Row]:
    """Gather the rows of an experiment's finished runs into its results.json. Returns them."""
    folder = paths.experiment(record.name)
    file = folder / RESULTS_FILE
    if file.exists():
        try:
            read_results(file)
        except UserError as error:
            say(f"{error}; it is written again from the runs")
    shared = sorted((folder / "shared").glob("*/result.json"))  # of the teachers, by the shared jobs
    rows = [row for path in shared for row in read_results(path)]
    for run, ended in _ended(paths, record):
        if ended.status == "finished":
            try:
                rows += [{**row, "cell": run.cell} for row in read_results(RunFolder(paths, ended.id).results)]
            except UserError as error:
                say(f"left out: {error}")
    write_results(file, rows)
    return rows


def _ended(paths: Store, record: ExperimentRecord) -> list[tuple[RecordedRun, RunRecord]]:
    return [(run, ended) for run in record.runs if run.id and (ended := RunFolder(paths, run.id).record())]


def report(paths: Store, name: str) -> tuple[ExperimentRecord, list[Row]]:
    """Write an experiment's report from its record and rows. Returns both.

    The rows are gathered again if the runs are in the workspace. Raises UserError for an unknown experiment, and for
    rows that were changed by hand.
    """
    folder = paths.experiment(name)
    record = read_record(folder)
    none_yet = record.kind == "sweep" and not (folder / RESULTS_FILE).exists()
    rows = collect(paths, record) if none_yet or _ended(paths, record) else read_results(folder / RESULTS_FILE)
    if fitted := read_json(folder / FIT_FILE).get("result") if (folder / FIT_FILE).exists() else None:
        from compression.experiments.fit.page import write_fit_report  # PyTorch loads here
        from compression.experiments.fit.result import FitResult

        write_fit_report(folder, rows, record, build(FitResult, fitted))
    else:
        write_report(folder, rows, record)
    return record, rows


def failures(paths: Store, record: ExperimentRecord) -> list[RunRecord]:
    """Return the records of an experiment's runs that failed."""
    return [ended for _, ended in _ended(paths, record) if ended.status == "failed"]
