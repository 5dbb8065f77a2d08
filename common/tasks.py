"""The task registry: one YAML file a task in configs/tasks, or a YAML file of the user's own."""

from pathlib import Path
from typing import Literal

import pydantic

from common.config import CONFIG_DIR, Settings, build, load_yaml, nearest
from common.errors import UserError

TASK_DIR = CONFIG_DIR / "tasks"


class Source(Settings):
    """Where a task's files come from."""

    kind: Literal["glue", "package", "files"]
    """glue: an archive or an unpacked folder; package: data files inside an installed Python package; files: paths."""
    files: dict[str, str]
    """Split name -> file. `all` means one file from which validation and test are carved."""
    folder: str = ""
    """Folder of the files inside the archive (glue) or beside the task's YAML (files)."""
    url: str | None = None
    """Official address of the archive."""
    sha256: str | None = None
    """Checksum of the archive."""
    package: str | None = None
    """Importable name of the package."""
    install: str = ""
    """How to install the package, for the message that says it is missing."""
    where: dict[str, str] = {}
    """Keep only rows with these values in these columns."""


class Carve(Settings):
    """How a split is carved from train."""

    rows: int | None = pydantic.Field(None, gt=0)
    """Number of rows to aim for."""
    fraction: float | None = pydantic.Field(None, gt=0, lt=0.5)
    """Or a fraction of all rows."""
    whole_sentences: bool = False
    """Draw only rows that no other row contains (SST-2's whole sentences)."""


class Task(Settings):
    """One classification task."""

    name: str
    """Name in the workspace and on the command line."""
    labels: tuple[str, ...] = pydantic.Field(min_length=2)
    """Label names; a label's place is its class index."""
    label_values: tuple[str, ...]
    """What the files hold for each label, in the same order."""
    columns: dict[Literal["sentence1", "sentence2", "label"], str]
    """Our column -> the file's column. With sentence2 the task is one of sentence pairs."""
    metrics: tuple[Literal["accuracy", "f1"], ...] = ("accuracy",)
    """Metrics to report; the first one chooses checkpoints."""
    source: Source
    """Where the files come from."""
    validation: Carve
    """How validation is carved from train."""
    test: Carve | None = None
    """How test is carved, where there is no file of its own."""
    augment_fraction: float = pydantic.Field(1.0, gt=0, le=1)
    """Share of augmented rows to keep."""
    overlaps: tuple[str, ...] = ()
    """Tasks that share sentences with this one."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> "Task":
        if len(self.labels) != len(self.label_values):
            raise ValueError("labels and label_values must have the same length")
        if "sentence1" not in self.columns or "label" not in self.columns:
            raise ValueError("columns must name sentence1 and label")
        return self

    @property
    def pair(self) -> bool:
        """Whether rows have two sentences."""
        return "sentence2" in self.columns

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Names of the splits that evaluate scores: test, or MNLI's test_matched and test_mismatched."""
        return tuple(name for name in self.source.files if name.startswith("test")) or ("test",)

    def selection_split(self, select_on: str) -> str:
        """The split that chooses a checkpoint: validation, or the first test split to reproduce the thesis."""
        return "validation" if select_on == "validation" else self.test_splits[0]


def known_tasks() -> list[str]:
    """Names of the shipped tasks."""
    return sorted(path.stem for path in TASK_DIR.glob("*.yaml"))


def load_task(name: str) -> Task:
    """The task of that name, or of that YAML file. Raises UserError, suggesting the nearest name."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else TASK_DIR / f"{name}.yaml"
    if not path.exists():
        known = known_tasks()
        raise UserError(f"unknown task {name!r}{nearest(name, known)} (tasks: {', '.join(known)})")
    try:
        task = build(Task, load_yaml(path))
        if task.source.kind == "files":
            source = task.source.model_copy(update={"folder": str(path.parent.resolve() / task.source.folder)})
            task = task.model_copy(update={"source": source})
        return task
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def check_no_overlap(trained_on: list[str], scored_on: str) -> None:
    """Refuse to score (or teach) on a task whose sentences the model may have been trained on.

    Raises UserError when any task in `trained_on` is another task that overlaps `scored_on`.
    """
    overlaps = load_task(scored_on).overlaps if scored_on in known_tasks() else ()
    for task in trained_on:
        if task != scored_on and task in overlaps:
            raise UserError(
                f"refused: the model was trained on {task}, whose sentences overlap those of {scored_on}; "
                "its score would be of sentences it has seen"
            )
