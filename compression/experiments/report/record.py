"""experiment.json: what an experiment is, beside results.json, which is what came out. Reports need these two alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic

from common.config import Settings, build
from common.errors import UserError
from common.store.files import read_json, write_json
from compression.augmentation.label_shift import LabelShares

RECORD_FILE = "experiment.json"
RESULTS_FILE = "results.json"


class TableLayout(Settings):
    """A table of means and deviations: which axes go down and which go across."""

    rows: tuple[str, ...] = pydantic.Field(min_length=1)
    """Axes whose values make the rows; `stage` may be one (distilled, +p, +q, +p+q), and `task`."""
    columns: tuple[str, ...] = pydantic.Field(min_length=1)
    """Axes whose values make the columns; the best mean across them is bold in every row."""
    sizes: bool = False
    """Say behind each score how many bytes the packed model has."""
    average_splits: bool = True
    """One score a task: the mean over its test splits (MNLI's matched and mismatched, as the thesis reports)."""


class Quote(Settings):
    """The thesis's own figures to stand beside ours."""

    table: str
    """Its table, as configs/reference names it: 7.1, 7.2, ..., A.2."""
    task: str | None = None
    """The task of the quoted figures; unset means each row's own."""


class RecordedRun(Settings):
    """One run of a sweep: a cell of the grid with one seed."""

    id: str | None = None
    """Its identity, the name of its folder in the workspace; None until its inputs exist."""
    cell: dict[str, str]
    """Axis -> label of the value it has."""
    seed: int
    """Its seed."""
    settings: dict[str, Any]
    """The settings it was given, without defaults."""


class ExperimentRecord(Settings):
    """Contents of experiment.json."""

    format: Literal[1] = 1
    """Version of this file's layout."""
    name: str
    """Name of the experiment's folder."""
    title: str
    """Heading of the report."""
    kind: Literal["chain", "sweep"]
    """A list of jobs, or a grid of runs."""
    definition: str
    """File and flags it was made from, in words: another experiment of this name has others."""
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
    """Figures of the thesis to show beside ours."""
    labels: tuple[LabelShares, ...] = ()
    """Label distributions of the data."""


def described(source: str, *flags: Mapping[str, Any]) -> str:
    """What an experiment was made from, in words: its file or jobs, and the flags that change what comes out."""
    given = {key: value for values in flags for key, value in values.items() if key not in NOT_ITS_MEANING}
    return " ".join([source, *(f"{key}={value}" for key, value in sorted(given.items()))])


NOT_ITS_MEANING = ("workspace", "cpu", "loadbar", "force", "json_", "launcher", "workers")
"""Settings that change nothing of what comes out."""


def check_name_is_free(folder: Path, definition: str) -> None:
    """Raises UserError when another experiment has this folder; one whose file was edited meanwhile is no other."""
    if not (folder / RECORD_FILE).exists():
        return
    there = read_record(folder).definition
    if there != definition:
        raise UserError(
            f"an experiment {folder.name!r} is there already, made from {there!r}, and this is {definition!r}; "
            f"give this one another --name, or remove {folder} (finished models are kept)"
        )


def write_record(folder: Path, record: ExperimentRecord) -> None:
    """Write experiment.json into an experiment's folder."""
    write_json(folder / RECORD_FILE, record.model_dump(mode="json"))


def read_record(folder: Path) -> ExperimentRecord:
    """An experiment's record. Raises UserError when there is none or it is malformed."""
    if not (folder / RECORD_FILE).exists():
        others = sorted(path.parent.name for path in folder.parent.glob(f"[!.]*/{RECORD_FILE}"))
        known = f" (there are: {', '.join(others)})" if others else "; none has been run yet"
        raise UserError(f"no experiment {folder.name!r} in {folder.parent}{known}")
    try:
        return build(ExperimentRecord, read_json(folder / RECORD_FILE))
    except UserError as error:
        raise UserError(f"{folder / RECORD_FILE}: not an experiment's record: {error}") from error
