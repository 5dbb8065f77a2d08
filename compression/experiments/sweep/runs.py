"""Runs and experiments of a workspace, from their files alone, without PyTorch: status, time, rows and reports.

runs/<id>/run.json        the run, and how it goes; `running` counts only while its process exists
runs/<id>/result.json     rows of its models
runs/<id>/log.txt         its output

A run is finished if its record says so and the models it saved exist.
"""

import datetime
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from common.config import Settings, build
from common.errors import UserError
from common.progress import say
from common.store.artifact import points_to
from common.store.files import read_json
from common.store.processes import Process
from common.store.store import Store
from common.tables import scores_text, text_table
from compression.evaluation.rows import Row
from compression.experiments.fit.page import write_fit_report
from compression.experiments.fit.result import FitResult
from compression.experiments.fit.state import FIT_FILE
from compression.experiments.report import write_report
from compression.experiments.report.record import RECORD_FILE, RESULTS_FILE, ExperimentRecord, RecordedRun, read_record
from compression.experiments.report.results import grouped, read_results, write_results

Status = Literal["waiting", "running", "finished", "failed"]
_SPEED = (
    *("student_arch", "pair_encoder", "embedding_type", "embedding_dim", "encoder_hidden_dim", "layers", "iterations"),
    *("intermediate_dim", "heads", "kernel_width", "max_tokens", "batch_size", "precision"),
    *("only_original_data", "augmented", "align_hidden", "align_attention", "align_embedding", "align_last", "chains"),
)
"""Settings that the time per row depends on."""
_LAST_LINES = 15


class RunRecord(Settings):
    """Contents of a run's run.json."""

    id: str
    status: Status = "waiting"
    family: str
    """8 hex digits shared by runs that distil the same student with different seeds."""
    task: str
    settings: dict[str, Any]
    """Settings of all its steps."""
    inputs: dict[str, str]
    """Role -> key of each input."""
    error: str | None = None
    seconds: float = 0.0
    work: int = 0
    """Training rows times epochs, for estimates; 0 if no student was trained, because it was finished before."""
    started: str = ""
    """In UTC."""
    host: str = ""
    process: Process | None = None
    """The process that does it, or did."""
    threads: int

    @property
    def speed(self) -> tuple[object, ...]:
        """What the seconds per row and epoch depend on."""
        return (self.task, self.threads, *(str(self.settings.get(name)) for name in _SPEED))


class RunFolder:
    """A run's folder in a workspace."""

    def __init__(self, paths: Store, identity: str) -> None:
        self.paths = paths
        self.folder = paths.run(identity)
        self.file = self.folder / "run.json"
        self.results = self.folder / "result.json"
        self.log = self.folder / "log.txt"

    def record(self) -> RunRecord | None:
        """Return the record of a run that has begun, else None; also None if it is damaged, so the run is repeated."""
        try:
            return build(RunRecord, read_json(self.file))
        except UserError:
            return None

    def status(self) -> Status:
        """Return the run's status, from its files and the store: a finished run without its rows or models is waiting.

        A process of another machine is assumed to be alive.
        """
        record = self.record()
        if record is None:
            return "waiting"
        if record.status == "running":
            return "running" if record.process and record.process.is_alive() is not False else "waiting"
        if record.status == "finished":
            try:
                models = {row["model"]: row["config_hash"] for row in read_results(self.results)}
            except UserError:  # missing, damaged, or changed by hand
                return "waiting"
            for name, key in models.items():
                if not (points_to(self.paths.model(record.task, name), key) and self.paths.get(key)):
                    return "waiting"
        return record.status

    def elapsed(self) -> float:
        """Return the seconds since a process began to execute the run."""
        return max(0.0, time.time() - self.file.stat().st_mtime) if self.file.exists() else 0.0

    def last_line(self) -> str:
        """Return the last non-empty line of the log, or an empty string."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Estimator:
    """Estimates from the seconds per row and epoch of finished runs of the same speed, else of the same sweep."""

    def __init__(self, paths: Store, sweep: Iterable[RunRecord] = ()) -> None:
        """sweep: all runs of the sweep to estimate."""
        records = [RunFolder(paths, file.parent.name).record() for file in paths.run("").glob("*/run.json")]
        ended = [record for record in records if record and record.status == "finished" and record.work]
        ids = {run.id for run in sweep}
        self._of_speed = grouped(ended, lambda record: record.speed)
        self._of_sweep = [record for record in ended if record.id in ids]

    def seconds(self, runs: Iterable[RunRecord]) -> float | None:
        """Return the seconds that the runs take one after the other, or None if no similar run has finished."""
        similar = [(run, self._of_speed.get(run.speed, self._of_sweep)) for run in runs]
        if not all(ended for _, ended in similar):
            return None
        return sum(statistics.median(one.seconds / one.work for one in ended) * run.work for run, ended in similar)


def duration(seconds: float) -> str:
    """Return '42 s', '12 min', '3 h 5 min' or '2 d 4 h'."""
    minutes = round(seconds / 60)
    hours = minutes // 60
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _begun(paths: Store, record: ExperimentRecord) -> list[tuple[RecordedRun, RunRecord]]:
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
    results = folder / RESULTS_FILE
    here = any(RunFolder(paths, run.id).file.exists() for run in record.runs if run.id)
    rows = collect(paths, record) if here or not results.exists() else read_results(results)
    fitted = read_json(folder / FIT_FILE) if (folder / FIT_FILE).exists() else {}
    if "result" in fitted:
        write_fit_report(folder, rows, record, build(FitResult, fitted["result"]))
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
        kind = one.get("kind", "damaged")
        done = f"{one['finished']}/{one['runs']}" if one.get("runs") else ""
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
        runs = []
        for run in record.runs:
            known = RunFolder(paths, run.id).record() if run.id else None
            state = {"id": run.id, "cell": run.cell, "seed": run.seed, "status": _status(paths, run)}
            ended = {"seconds": known.seconds, "error": known.error} if known else {"seconds": None, "error": None}
            runs.append({**state, **ended})
        return {**record.model_dump(mode="json"), "runs": runs}
    folders = sorted(paths.run("").glob(f"{name}*")) if name.isalnum() and len(name) >= 4 else []
    if len(folders) > 1:
        raise UserError(f"{name!r} fits {len(folders)} runs; give more digits")
    if not folders:
        read_record(paths.experiment(name))  # raises the UserError that lists the experiments
    folder = RunFolder(paths, folders[0].name)
    known = folder.record()
    log = folder.log.read_text(encoding="utf-8", errors="replace").splitlines() if folder.log.exists() else []
    return {
        **(known.model_dump(mode="json") if known else {"id": folders[0].name}),
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
            cell = " ".join(run["cell"].values())
            took = "" if run["seconds"] is None else duration(run["seconds"])
            body.append([run["id"] or "", cell, str(run["seed"]), run["status"], took, run["error"] or ""])
        header = ("run", "cell", "seed", "status", "time", "error")
        lines += ["", text_table(header, body, [False, False, True, False, True, False])] if body else []
        return "\n".join(lines)
    lines = [f"run {shown['id']}: {shown['status']}"]
    lines += [f"{key}: {shown[key]}" for key in ("error", "seconds", "host", "started") if shown.get(key) is not None]
    lines += [f"  {key} = {value}" for key, value in shown.get("settings", {}).items()]
    for row in shown["rows"]:
        size = f"{row['bytes_gzip']:,} bytes gzipped"
        lines.append(f"{row['model']} on {row['split']}: {scores_text(row['metrics'])}; {size}")
    return "\n".join([*lines, "log:", *(f"  {line}" for line in shown["log"])])
