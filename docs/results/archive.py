"""Copy finished experiments, without paths and names of the machine, to a folder that can be committed.

    python docs/results/archive.py packed --to docs/results

<folder>/<name>/ holds experiment.json and results.json, as in a workspace, and the YAML file of the experiment.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[2]))

from common.cli import run_script
from common.config import build, parse_flags
from common.errors import UserError
from common.store.files import read_json, whole_folder, write_text
from common.store.settings import WorkspaceSettings
from compression.experiments.report.record import RESULTS_FILE, ExperimentRecord, read_record, write_record
from compression.experiments.report.results import Row, read_results, write_results

_OF_A_MACHINE = {"host", "hostname", "user", "username", "pid", "started", "ended", "date", "created"}
"""Fields that identify a machine, person or time; no setting has these names."""
_PATH = re.compile(r"""(?<![^\s='"(\[,])(?:(?:~\w*|\.\.)?/|[A-Za-z]:[/\\])[^\s'",)\]]*""")
"""A path that begins at a root, a home or the parent folder, also inside a word: `data_dir=/data/glue`."""


class ArchiveSettings(WorkspaceSettings):
    """Archiving."""

    to: Path = Path("docs/results")
    """Folder of archived experiments; each is written to a folder of its own name in it, whole or not at all."""


@dataclasses.dataclass(frozen=True)
class Archived:
    """A finished experiment: its record and its rows."""

    record: ExperimentRecord
    rows: Sequence[Row]


def archive(settings: ArchiveSettings, names: Sequence[str]) -> list[Path]:
    """Archive all of the experiments or none. Returns their new folders.

    Raises UserError if an experiment is unfinished or its rows were changed by hand.
    """
    finished = [read_finished(settings.paths.experiment(name)) for name in names]
    root, folders = settings.paths.root, []
    for one in finished:
        record = build(ExperimentRecord, portable(one.record.model_dump(mode="json", exclude={"files"}), root))
        folders.append(settings.to / record.name)
        with whole_folder(folders[-1]) as partial:
            write_record(partial, record)
            write_results(partial / RESULTS_FILE, [portable(row, root) for row in one.rows])
            for name, text in one.record.files.items():
                write_text(partial / name, text)
    return folders


def read_finished(folder: Path) -> Archived:
    """Return an experiment's record and rows, from a workspace or an archive.

    Raises UserError for an unknown experiment, for rows that were changed by hand, and if a run has no rows.
    """
    record = read_record(folder)
    name = f"experiment {record.name}"
    if not (folder / RESULTS_FILE).exists():
        raise UserError(f"{name}: unfinished, there are no results yet")
    rows = read_results(folder / RESULTS_FILE)
    if not rows and not record.labels:
        raise UserError(f"{name}: no model was evaluated")
    # The status of a chain's last run is in sacred's files, which archives do not contain.
    runs = [path for path in folder.glob("sacred/*/run.json") if path.parent.name.isdecimal()]
    if record.kind == "chain" and runs:
        status = read_json(max(runs, key=lambda path: int(path.parent.name))).get("status")
        if status != "COMPLETED":
            raise UserError(f"{name}: its last run is {str(status).lower()}, not completed")
    planned = {(run.id, *sorted(run.cell.items())) for run in record.runs}
    with_rows = {(row.get("run_id"), *sorted(row["cell"].items())) for row in rows if row.get("cell") is not None}
    if missing := planned - with_rows:
        raise UserError(
            f"{name}: {len(missing)} of {len(planned)} runs have no rows, and unfinished experiments are not archived; "
            f"see: experiment.py show {record.name}"
        )
    if with_rows - planned:
        raise UserError(f"{name}: some rows are from runs that it no longer has; run it again")
    return Archived(record, rows)


def portable(value: Any, root: Path, key: str = "") -> Any:
    """Return a value of a record or row without a machine's paths and names; numbers and settings are unchanged.

    Paths in the workspace `root` become relative to it, and other paths are reduced to their last component. A row's
    `run` is reduced to the model's folder even if the workspace was moved. Names of machines and users, and times of
    day, are left out.
    """
    if isinstance(value, dict):
        return {name: portable(one, root, name) for name, one in value.items() if name not in _OF_A_MACHINE}
    if isinstance(value, list | tuple):
        return [portable(one, root, key) for one in value]
    if not isinstance(value, str):
        return value
    if key == "run" and "models" in Path(value).parts[-3:-2]:
        return "/".join(Path(value).parts[-3:])
    if key == "data_dir" or _PATH.match(value) or (key == "run" and Path(value).is_relative_to(root)):
        return _short(value, root)
    return _PATH.sub(lambda match: _short(match.group(), root), value)


def _short(path: str, root: Path) -> str:
    for base in (root, root.resolve()):
        if Path(path).is_relative_to(base):
            return Path(path).relative_to(base).as_posix()
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def main() -> None:
    """Archive the experiments that the command line names."""
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    usage = "archive.py NAME ... [flags]"
    settings = parse_flags(ArchiveSettings, sys.argv[1 + len(names) :], __doc__, usage=usage)
    if not names:
        raise UserError(f"usage: {usage}")
    for folder in archive(settings, names):
        print(f"archived: {folder}")


if __name__ == "__main__":
    run_script(main)
