"""Experiments and runs of a workspace: their rows, reports, failures and status. Only reads files, without PyTorch."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from typing import Any

from common.config import build
from common.errors import UserError
from common.progress import say
from common.store.files import read_json
from common.store.store import Store
from common.tables import text_table
from compression.evaluation.rows import Row
from compression.experiments.fit.state import FILE as FIT_FILE
from compression.experiments.report import write_report
from compression.experiments.report.record import (
    RECORD_FILE,
    RESULTS_FILE,
    ExperimentRecord,
    RecordedRun,
    read_record,
)
from compression.experiments.report.results import read_results, write_results
from compression.experiments.sweep.runs import RunFolder, RunRecord, Status, duration

_LAST_LINES = 15


def _begun(paths: Store, record: ExperimentRecord) -> list[tuple[RecordedRun, RunRecord]]:
    """Return the runs of an experiment that have begun, with their records."""
    return [(run, begun) for run in record.runs if run.id and (begun := RunFolder(paths, run.id).record())]


def collect(paths: Store, record: ExperimentRecord) -> list[Row]:
    """Gather the rows of an experiment's finished runs into its results.json. Returns them."""
    folder = paths.experiment(record.name)
    if (folder / RESULTS_FILE).exists():
        try:
            read_results(folder / RESULTS_FILE)
        except UserError as error:
            say(f"{error}; it is written again from the runs")
    shared = sorted((folder / "shared").glob("*.json"))  # of the teachers, by the shared jobs
    rows = [row for path in shared for row in read_results(path)]
    for run, begun in _begun(paths, record):
        if begun.status == "finished":
            try:
                rows += [{**row, "cell": run.cell} for row in read_results(RunFolder(paths, begun.id).results)]
            except UserError as error:
                say(f"left out: {error}")
    write_results(folder / RESULTS_FILE, rows)
    return rows


def report(paths: Store, name: str) -> tuple[ExperimentRecord, list[Row]]:
    """Write an experiment's report from its record and rows. Returns both.

    The rows are gathered again if the runs are in the workspace. Raises UserError for an unknown experiment, and for
    rows that were changed by hand.
    """
    folder = paths.experiment(name)
    record = read_record(folder)
    none_yet = record.kind == "sweep" and not (folder / RESULTS_FILE).exists()
    rows = collect(paths, record) if none_yet or _begun(paths, record) else read_results(folder / RESULTS_FILE)
    if fitted := read_json(folder / FIT_FILE).get("result") if (folder / FIT_FILE).exists() else None:
        from compression.experiments.fit.page import write_fit_report  # PyTorch loads here
        from compression.experiments.fit.result import FitResult

        write_fit_report(folder, rows, record, build(FitResult, fitted))
    else:
        write_report(folder, rows, record)
    return record, rows


def failures(paths: Store, record: ExperimentRecord) -> list[RunRecord]:
    """Return the records of an experiment's runs that failed."""
    return [begun for _, begun in _begun(paths, record) if begun.status == "failed"]


def experiments(paths: Store) -> list[dict[str, Any]]:
    """Return every experiment of a workspace, the last changed first. A damaged record is listed with its error."""
    files = paths.root.glob(f"experiments/[!.]*/{RECORD_FILE}")
    listed = []
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        changed = datetime.datetime.fromtimestamp(file.stat().st_mtime).isoformat(" ", "minutes")
        one: dict[str, Any] = {"name": file.parent.name, "changed": changed}
        listed.append(one)
        try:
            record = read_record(file.parent)
        except UserError as error:
            one["error"] = str(error)
            continue
        counts = Counter(_status(paths, run) for run in record.runs)
        one |= {"kind": record.kind, "made_from": record.definition, "title": record.title, "runs": len(record.runs)}
        one |= {status: counts[status] for status in ("finished", "failed", "running")}
        one["results"] = (file.parent / RESULTS_FILE).exists()
    return listed


def _status(paths: Store, run: RecordedRun) -> Status:
    return RunFolder(paths, run.id).status() if run.id else "waiting"


def experiments_text(listed: Sequence[dict[str, Any]]) -> str:
    """Return the list as a table."""
    if not listed:
        return "no experiments yet"
    body = []
    for one in listed:
        kind, done = one.get("kind", "damaged"), f"{one['finished']}/{one['runs']}" if one.get("runs") else ""
        made_from = one.get("made_from", one.get("error", ""))
        body.append([one["name"], kind, done, str(one.get("failed") or ""), one["changed"], made_from])
    header = ("name", "kind", "runs done", "failed", "changed", "made from")
    return text_table(header, body, [False, False, True, True, False, False])


def show(paths: Store, name: str) -> dict[str, Any]:
    """Return an experiment with the status of its runs, or one run by the first digits of its id.

    Raises UserError if neither exists, or if the digits match several runs.
    """
    if (paths.experiment(name) / RECORD_FILE).exists():
        record = read_record(paths.experiment(name))
        begun = {run.id: known for run, known in _begun(paths, record)}
        runs = []
        for run in record.runs:
            known = begun.get(run.id)
            state = {"id": run.id, "cell": run.cell, "seed": run.seed, "status": _status(paths, run)}
            runs.append({**state, "seconds": known and known.seconds, "error": known and known.error})
        return {**record.model_dump(mode="json"), "runs": runs}
    found = sorted(paths.run("").glob(f"{name}*")) if name.isalnum() and len(name) >= 4 else []
    if len(found) > 1:
        raise UserError(f"{name!r} fits {len(found)} runs; give more digits")
    if not found:
        read_record(paths.experiment(name))  # raises the UserError that lists the experiments
    folder = RunFolder(paths, found[0].name)
    known = folder.record()
    log = folder.log.read_text(encoding="utf-8", errors="replace").splitlines() if folder.log.exists() else []
    return {
        **(known.model_dump(mode="json") if known else {"id": found[0].name}),
        "status": folder.status(),
        "rows": read_results(folder.results) if folder.results.exists() else [],
        "log": log[-_LAST_LINES:],
    }


def show_text(shown: dict[str, Any]) -> str:
    """Return the result of `show` as text for a terminal."""
    if "kind" in shown:
        lines = [shown["title"], f"made from: {shown['definition']}"]
        lines += [f"{axis}: {', '.join(labels)}" for axis, labels in shown["axes"].items()]
        lines += ["job: " + " ".join(f"{key}={value}" for key, value in job.items()) for job in shown["jobs"]]
        body = []
        for run in shown["runs"]:
            cell, took = " ".join(run["cell"].values()), "" if run["seconds"] is None else duration(run["seconds"])
            body.append([run["id"] or "", cell, str(run["seed"]), run["status"], took, run["error"] or ""])
        header = ("run", "cell", "seed", "status", "time", "error")
        lines += ["", text_table(header, body, [False, False, True, False, True, False])] if body else []
        return "\n".join(lines)
    lines = [f"run {shown['id']}: {shown['status']}"]
    lines += [f"{key}: {shown[key]}" for key in ("error", "seconds", "host", "started") if shown.get(key) is not None]
    lines += [f"  {key} = {value}" for key, value in shown.get("settings", {}).items()]
    for row in shown["rows"]:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in row["metrics"].items())
        lines.append(f"{row['model']} on {row['split']}: {scores}; {row['bytes_gzip']:,} bytes gzipped")
    return "\n".join([*lines, "log:", *(f"  {line}" for line in shown["log"])])
