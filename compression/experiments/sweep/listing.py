"""The work of `experiment.py list` and `show`: what there is in a workspace, and where it stands."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.store.workspace import Workspace
from common.tables import text_table
from compression.experiments.report.record import RECORD_FILE, RESULTS_FILE, ExperimentRecord, read_record
from compression.experiments.sweep.board import spoken
from compression.experiments.sweep.runs import RunFolder

_LAST_LINES = 15


def experiments(paths: Workspace) -> list[dict[str, Any]]:
    """Every experiment of a workspace, the one last changed first. A damaged record is listed with its error."""
    files = paths.root.glob(f"experiments/[!.]*/{RECORD_FILE}")
    newest_first = sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)
    return [_experiment(paths, file) for file in newest_first]


def _experiment(paths: Workspace, file: Path) -> dict[str, Any]:
    changed = datetime.datetime.fromtimestamp(file.stat().st_mtime).isoformat(" ", "minutes")
    told: dict[str, Any] = {"name": file.parent.name, "changed": changed}
    try:
        record = read_record(file.parent)
    except UserError as error:
        return {**told, "error": str(error)}
    counts = Counter(_status(paths, run.id) for run in record.runs)
    return {
        **told,
        "kind": record.kind,
        "made_from": record.definition,
        "title": record.title,
        "runs": len(record.runs),
        "finished": counts["finished"],
        "failed": counts["failed"],
        "running": counts["running"],
        "results": (file.parent / RESULTS_FILE).exists(),
    }


def _status(paths: Workspace, identity: str | None) -> str:
    return RunFolder(paths, identity).status() if identity else "waiting"


def experiments_text(found: Sequence[dict[str, Any]]) -> str:
    """The list as a table."""
    if not found:
        return "no experiments yet"
    header = ("name", "kind", "runs done", "failed", "changed", "made from")
    body = [
        [
            one["name"],
            one.get("kind", "damaged"),
            f"{one['finished']}/{one['runs']}" if one.get("runs") else "",
            str(one.get("failed") or ""),
            one["changed"],
            one.get("made_from", one.get("error", "")),
        ]
        for one in found
    ]
    return text_table(header, body, [False, False, True, True, False, False])


def show(paths: Workspace, name: str) -> dict[str, Any]:
    """All that is known of an experiment, or of one run by the first digits of its id.

    Raises UserError when there is neither, or when the digits fit several runs.
    """
    if (paths.experiment(name) / RECORD_FILE).exists():
        record = read_record(paths.experiment(name))
        return {
            **record.model_dump(mode="json"),
            "runs": [_run_line(paths, record, n) for n in range(len(record.runs))],
        }
    runs = sorted(paths.run("").glob(f"{name}*")) if name.isalnum() and len(name) >= 4 else []
    if len(runs) > 1:
        raise UserError(f"{name!r} fits {len(runs)} runs; give more digits")
    if not runs:
        read_record(paths.experiment(name))  # says which experiments there are
    return _run(paths, runs[0].name)


def _run_line(paths: Workspace, record: ExperimentRecord, number: int) -> dict[str, Any]:
    run = record.runs[number]
    ended = RunFolder(paths, run.id).record() if run.id else None
    told = {"id": run.id, "cell": run.cell, "seed": run.seed, "status": _status(paths, run.id)}
    return {**told, "seconds": ended.seconds if ended else None, "error": ended.error if ended else None}


def _run(paths: Workspace, identity: str) -> dict[str, Any]:
    folder = RunFolder(paths, identity)
    record = folder.record()
    log = folder.log.read_text(encoding="utf-8", errors="replace").splitlines() if folder.log.exists() else []
    rows = folder.rows() if folder.results.exists() else []
    told = record.model_dump(mode="json") if record else {"id": identity}
    return {**told, "status": folder.status(), "rows": rows, "log": log[-_LAST_LINES:]}


def show_text(told: dict[str, Any]) -> str:
    """What `show` found, for a terminal."""
    return _experiment_text(told) if "kind" in told else _run_text(told)


def _experiment_text(told: dict[str, Any]) -> str:
    lines = [told["title"], f"made from: {told['definition']}"]
    lines += [f"{axis}: {', '.join(labels)}" for axis, labels in told["axes"].items()]
    lines += ["job: " + " ".join(f"{key}={value}" for key, value in job.items()) for job in told["jobs"]]
    if told["runs"]:
        header = ("run", "cell", "seed", "status", "time", "error")
        body = [
            [
                run["id"] or "",
                " ".join(run["cell"].values()),
                str(run["seed"]),
                run["status"],
                "" if run["seconds"] is None else spoken(run["seconds"]),
                run["error"] or "",
            ]
            for run in told["runs"]
        ]
        lines += ["", text_table(header, body, [False, False, True, False, True, False])]
    return "\n".join(lines)


def _run_text(told: dict[str, Any]) -> str:
    lines = [f"run {told['id']}: {told['status']}"]
    lines += [f"{key}: {told[key]}" for key in ("error", "seconds", "host", "started") if told.get(key) is not None]
    lines += [f"  {key} = {value}" for key, value in told.get("settings", {}).items()]
    for row in told["rows"]:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in row["metrics"].items())
        lines.append(f"{row['model']} on {row['split']}: {scores}; {row['bytes_gzip']:,} bytes gzipped")
    return "\n".join([*lines, "log:", *(f"  {line}" for line in told["log"])])
