"""The experiments and runs of a workspace and their status, for `experiment.py list`, `show` and `sweep --dry-run`."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.store.store import Store
from common.tables import text_table
from compression.experiments.report.record import RECORD_FILE, RESULTS_FILE, RecordedRun, read_record
from compression.experiments.report.results import read_results
from compression.experiments.sweep.runs import RunFolder, duration

_LAST_LINES = 15


def experiments(paths: Store) -> list[dict[str, Any]]:
    """Return every experiment of a workspace, the last changed first. A damaged record is listed with its error."""
    files = paths.root.glob(f"experiments/[!.]*/{RECORD_FILE}")
    return [_experiment(paths, file) for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)]


def _experiment(paths: Store, file: Path) -> dict[str, Any]:
    changed = datetime.datetime.fromtimestamp(file.stat().st_mtime).isoformat(" ", "minutes")
    named: dict[str, Any] = {"name": file.parent.name, "changed": changed}
    try:
        record = read_record(file.parent)
    except UserError as error:
        return {**named, "error": str(error)}
    counts = Counter(_status(paths, run) for run in record.runs)
    by_status = {status: counts[status] for status in ("finished", "failed", "running")}
    described = {"kind": record.kind, "made_from": record.definition, "title": record.title, "runs": len(record.runs)}
    return {**named, **described, **by_status, "results": (file.parent / RESULTS_FILE).exists()}


def _status(paths: Store, run: RecordedRun) -> str:
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
        return {**record.model_dump(mode="json"), "runs": [_run_of(paths, run) for run in record.runs]}
    runs = sorted(paths.run("").glob(f"{name}*")) if name.isalnum() and len(name) >= 4 else []
    if len(runs) > 1:
        raise UserError(f"{name!r} fits {len(runs)} runs; give more digits")
    if not runs:
        read_record(paths.experiment(name))  # raises the UserError that lists the experiments
    folder = RunFolder(paths, runs[0].name)
    record = folder.record()
    log = folder.log.read_text(encoding="utf-8", errors="replace").splitlines() if folder.log.exists() else []
    return {
        **(record.model_dump(mode="json") if record else {"id": runs[0].name}),
        "status": folder.status(),
        "rows": read_results(folder.results) if folder.results.exists() else [],
        "log": log[-_LAST_LINES:],
    }


def _run_of(paths: Store, run: RecordedRun) -> dict[str, Any]:
    """Return a run of an experiment with its status."""
    ended = RunFolder(paths, run.id).record() if run.id else None
    known = {"id": run.id, "cell": run.cell, "seed": run.seed, "status": _status(paths, run)}
    return {**known, "seconds": ended and ended.seconds, "error": ended and ended.error}


def show_text(shown: dict[str, Any]) -> str:
    """Return the result of `show` as text for a terminal."""
    if "kind" not in shown:
        return _run_text(shown)
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


def _run_text(shown: dict[str, Any]) -> str:
    lines = [f"run {shown['id']}: {shown['status']}"]
    lines += [f"{key}: {shown[key]}" for key in ("error", "seconds", "host", "started") if shown.get(key) is not None]
    lines += [f"  {key} = {value}" for key, value in shown.get("settings", {}).items()]
    for row in shown["rows"]:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in row["metrics"].items())
        lines.append(f"{row['model']} on {row['split']}: {scores}; {row['bytes_gzip']:,} bytes gzipped")
    return "\n".join([*lines, "log:", *(f"  {line}" for line in shown["log"])])


def plan_text(plan: dict[str, Any]) -> str:
    """Return the plan of a sweep (`--dry-run`) as text for a terminal."""
    lines = [f"{plan['name']}: {plan['cells']} cells x {len(plan['seeds'])} seeds = {plan['runs']} runs"]
    lines += [f"before them, once for {task}: {', '.join(kinds)}" for task, kinds in plan["shared"].items() if kinds]
    if plan["inputs"] != "there":
        made = "the jobs before them make their inputs, from which the time is estimated"
        missing = f"the runs' inputs do not exist: {plan['inputs']}"
        return "\n".join([*lines, f"{plan['runs']} to do; {made}" if all(plan["shared"].values()) else missing])
    same = plan["runs"] - plan["distinct"]
    lines += [f"{same} cells are the same run as others"] if same else []
    left = plan["distinct"] - plan["finished"] - plan["failed"]
    lines.append(f"{plan['finished']} finished before, {plan['failed']} failed, {left} to do")
    if left:
        seconds = plan["seconds"]
        lines.append(
            f"time: {'no run like them has finished yet' if seconds is None else f'about {duration(seconds)}'}"
        )
    return "\n".join(lines)
