"""experiment.json, the description of an experiment. A report needs only this file and results.json."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic
import yaml
from pydantic_core import to_jsonable_python

from common.config import Settings, bases_of, build, load_yaml
from common.errors import UserError
from common.store.files import read_json
from common.store.workspace import one_word
from compression.augmentation.label_shift import LabelShares
from compression.experiments.report.results import grouped, write_lines

RECORD_FILE = "experiment.json"
RESULTS_FILE = "results.json"
WITHOUT_EFFECT = ("workspace", "cpu", "loadbar", "force", "json_", "launcher", "workers")
"""Settings that do not change the results."""


class TableLayout(Settings):
    """A table of means and deviations: the axes of its rows and of its columns.

    The score of a task with several test splits (MNLI's matched and mismatched) is their mean, as in the thesis.
    """

    rows: tuple[str, ...] = pydantic.Field(min_length=1)
    """Axes whose values make the rows; `stage` may be one (distilled, +p, +q, +p+q), and `task`."""
    columns: tuple[str, ...] = pydantic.Field(min_length=1)
    """Axes whose values make the columns; the best mean across them is bold in every row."""
    sizes: bool = False
    """Show the bytes of the packed model behind each score."""


class Quote(Settings):
    """The thesis's own figures to show next to ours."""

    table: str
    """Its table, as configs/reference names it: 7.1, 7.2, ..., A.2."""
    task: str | None = None
    """The task of the quoted figures; unset means each row's own."""


class RecordedRun(Settings):
    """One run of a sweep: a cell of the grid with one seed."""

    id: str | None = None
    """The run's id, which names its folder in the workspace; None until the run's inputs exist."""
    cell: dict[str, str]
    """Axis -> label of the value."""
    seed: int
    settings: dict[str, Any]
    """The settings given to it, without defaults."""


class ExperimentRecord(Settings):
    """Contents of experiment.json."""

    name: str
    """Name of the experiment's folder."""
    title: str
    """Heading of the report."""
    kind: Literal["chain", "sweep"]
    """A list of jobs, or a grid of runs."""
    definition: str
    """File and flags of the experiment, in words; they tell experiments of the same name apart."""
    files: dict[str, str] = {}
    """Name -> text of the experiment's YAML file and of its base; an archive has them as files."""
    jobs: tuple[dict[str, Any], ...] = ()
    """Jobs with their settings: a chain's own, or those a sweep's runs share."""
    settings: dict[str, Any] = {}
    """A sweep's fixed settings."""
    axes: dict[str, tuple[str, ...]] = {}
    """Axis -> labels of its values, in order."""
    seeds: tuple[int, ...] = ()
    """Seeds of a sweep."""
    runs: tuple[RecordedRun, ...] = ()
    """Runs of a sweep, in order."""
    table: TableLayout | None = None
    """Table of means and deviations that the report shows first."""
    quote: Quote | None = None
    """Figures of the thesis to show next to ours."""
    labels: tuple[LabelShares, ...] = ()
    """Label distributions of the data."""
    summary: tuple[str, ...] = ()
    """Sentences that the report begins with."""


def definition_of(source: str, *flags: Mapping[str, Any]) -> str:
    """Return an experiment's definition in words: its file or jobs, and the flags that change the results."""

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):  # as `--set` takes it
            plain = to_jsonable_python(value, fallback=str)
            return yaml.safe_dump(plain, default_flow_style=True, width=float("inf")).strip()
        # The path of a file or folder differs from working folder to working folder.
        exists = isinstance(value, str | Path) and os.path.exists(value)  # noqa: PTH110 - no error for a long text
        return Path(value).absolute().name if exists else str(value)

    values = {key: value for of_job in flags for key, value in of_job.items() if key not in WITHOUT_EFFECT}
    return " ".join([source, *(f"{key}={text(value)}" for key, value in sorted(values.items()))])


def definition_files(path: Path) -> dict[str, str]:
    """Return name -> text of an experiment's YAML file, and of its bases and theirs."""
    files = {path.name: path.read_text(encoding="utf-8")}
    for base in bases_of(path, load_yaml(path)):
        files |= definition_files(base)
    return files


def check_name_is_free(folder: Path, definition: str) -> None:
    """Raise UserError if the folder holds an experiment of a different definition; its file may have been edited."""
    there = read_record(folder).definition if (folder / RECORD_FILE).exists() else definition
    if there != definition:
        raise UserError(
            f"experiment {folder.name!r} already exists, from {there!r}, but this one is from {definition!r}; "
            f"give this one another --name, or remove {folder} (finished models are kept)"
        )


def write_record(folder: Path, record: ExperimentRecord) -> None:
    """Write experiment.json into an experiment's folder, one run per line."""
    write_lines(folder / RECORD_FILE, record.model_dump(mode="json", exclude_defaults=True))


def read_record(folder: Path) -> ExperimentRecord:
    """Return an experiment's record. Raises UserError if it is missing or malformed, or names files elsewhere."""
    if not (folder / RECORD_FILE).exists():
        others = sorted(path.parent.name for path in folder.parent.glob(f"[!.]*/{RECORD_FILE}"))
        known = f" (there are: {', '.join(others)})" if others else "; none has been run yet"
        raise UserError(f"no experiment {folder.name!r} in {folder.parent}{known}")
    try:
        record = build(ExperimentRecord, read_json(folder / RECORD_FILE))
        for name in (record.name, *record.files, *(run.id for run in record.runs if run.id)):
            one_word(name, "a file or folder")
    except UserError as error:
        raise UserError(f"{folder / RECORD_FILE}: not an experiment's record: {error}") from error
    return record


def settings_lines(record: ExperimentRecord) -> list[str]:
    """Return JSON objects, one per line: the jobs, the settings shared by all runs, then the settings each cell adds.

    The runs of a cell differ only in their seeds and are one line.
    """
    lines: list[Any] = [*record.jobs]
    if record.settings or record.runs:
        lines.append({"seeds": record.seeds, "settings": record.settings})
    for first, *others in grouped(record.runs, lambda run: str(sorted(run.cell.items()))).values():
        shared = {"seed": first.seed, **record.settings}
        seeds = [first.seed, *(run.seed for run in others)]
        some = {} if seeds == [*record.seeds] else {"seeds": seeds}
        added = {name: value for name, value in first.settings.items() if shared.get(name) != value}
        lines.append({"cell": first.cell, **some, "settings": added})
    return [json.dumps(line, ensure_ascii=False, default=str) for line in lines]
