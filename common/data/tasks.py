"""Tasks: one YAML file each, in configs/tasks or written by the user."""

from pathlib import Path
from typing import Any, Literal

import pydantic

from common.config import CONFIG_DIR, Settings, build, load_yaml, nearest
from common.errors import UserError
from common.installed import typed
from common.kinds.multilabel import JOINED_BY
from common.kinds.registry import KINDS, LABELS, NamedKind
from common.reading import UTF_8, Encoding
from common.store.workspace import is_one_word

TASK_DIR = CONFIG_DIR / "tasks"
TASK_SUFFIXES = (".yaml", ".yml")
"""Ends of the names of tasks' files."""
FILE = "{file}"
"""Part of the address of files, for the name of one."""


class Source(Settings):
    """Where a task's files come from."""

    kind: Literal["glue", "package", "files"] = "files"
    """glue: an archive or an unpacked folder; package: data files inside an installed Python package; files: paths."""
    files: dict[str, str]
    """Split name -> file: `train` (or `all`, the same), `validation` and `test...` where they are not to be split off
    train, `unlabelled`, more rows to distil on, and `other`, texts that no label is for: the threshold of --reject of
    compress.py counts answers to them as wrong. The user's own are .csv, .tsv, .jsonl, .parquet or .txt, or .json
    for answers."""
    folder: str = ""
    """Folder of the files inside the archive (glue) or in the folder of the task's YAML (files)."""
    url: str | None = None
    """Official address of the archive, or of files that have none; {file} stands for the name of each."""
    sha256: str | None = None
    """Checksum of the archive. Files without an archive have none: the length that the server sends is checked, and
    later downloads must equal the first one."""
    package: str | None = None
    """Importable name of the package."""
    install: str = ""
    """How to install the package, for the message that says it is missing."""
    obtain: str = ""
    """Where to get files that have no archive with a checksum, for the error message."""
    header: tuple[str, ...] = ()
    """Names of the columns, in order, of files that have no header line."""
    encoding: Encoding = UTF_8
    """Encoding of text files, such as windows-1252."""
    where: dict[str, str] = {}
    """Keep only rows with these values in these columns."""

    @pydantic.model_validator(mode="after")
    def _check_paths(self) -> "Source":
        """Check that the names of an archive's files, which are unpacked under them, do not lead out of the folder."""
        if self.kind == "glue":
            files = [*self.files.values(), (self.url or "x").rsplit("/", 1)[-1]]
            for path in (self.folder, *files):
                if Path(path).is_absolute() or ".." in Path(path).parts:
                    raise ValueError(f"{path!r} is outside the archive's folder")
            if {"", "."} & {*files}:
                raise ValueError("a file has no name")
        return self


class Carve(Settings):
    """How to split rows off train: off its labelled rows, or off all rows if none has a label."""

    rows: int | None = pydantic.Field(None, gt=0)
    """Number of rows to aim for."""
    fraction: float | None = pydantic.Field(None, gt=0, lt=0.5)
    """Or a fraction of them."""
    whole_sentences: bool = False
    """Draw only rows that no other row contains (SST-2's whole sentences)."""


A_TENTH = Carve(fraction=0.1)
"""How to carve validation and test if neither a file nor a rule is given."""


class Task(Settings):
    """One task: texts, or pairs of texts, and labels of a kind (see common.kinds)."""

    name: str
    """Name in the workspace and on the command line."""
    kind: NamedKind = LABELS
    """labels: a text (or a pair) has one label; multilabel: any number of labels, also none; numbers: a number in
    `range`; tags: each of its words has an IOB tag, and files have a word and its tag a line; answers: rows are pairs
    of a question and a context that holds its answer, and files are SQuAD's JSON (1.1 or 2.0)."""
    labels: tuple[str, ...] = ()
    """Label names, in the order of their class indices. Empty for numbers; start and end for answers."""
    label_values: tuple[str, ...] = ()
    """Value of each label in the files, in the same order; unset means the label names themselves."""
    label_separator: str = pydantic.Field(JOINED_BY, min_length=1)
    """Separator of a row's labels in CSV and TSV files of a multilabel task; an empty cell is a row with none of the
    labels. JSONL and Parquet files have lists; a null there is a row whose labels are unknown."""
    range: tuple[float, float] | None = None
    """Lowest and highest score of a task of kind numbers."""
    columns: dict[Literal["sentence1", "sentence2", "label"], str] = {"sentence1": "text", "label": "label"}
    """Our column -> the file's column. With sentence2 rows are pairs of sentences; without label no row has one."""
    metrics: tuple[str, ...] = ()
    """Metrics to report; the first one chooses checkpoints. Unset means accuracy, for multilabel f1_micro, for
    numbers pearson, for tags entity_f1, for answers answer_f1 and exact_match."""
    source: Source
    """Where the files come from."""
    unanswerable: bool = False
    """For answers: whether questions may have no answer in their context, as in SQuAD 2.0."""
    symmetric: bool = False
    """Whether the order of a pair's texts makes no difference to its label."""
    models_of: str | None = None
    """Task whose models are scored here; this one has no training rows (GLUE's diagnostic set)."""
    validation: Carve | None = None
    """How validation is split off train where it has no file of its own; unset means a tenth."""
    test: Carve | None = None
    """How test is split off train where it has no file of its own; unset means a tenth."""
    augment_fraction: float = pydantic.Field(1.0, gt=0, le=1)
    """Share of the variants of --augment tinybert to keep."""
    equivalence: str | None = None
    """Label of pairs of texts with the same meaning: --augment closure follows chains of such pairs."""
    overlaps: tuple[str, ...] = ()
    """Tasks that share sentences with this one: names, or YAML files of the user's own, from the folder of this one."""
    file: str = ""
    """Path of the YAML file of a task of the user's own; set when it is read."""

    @pydantic.field_validator("labels", "label_values", mode="before")
    @classmethod
    def _as_text(cls, values: Any) -> Any:
        """Accept numbers without quotes, but not yes, no, true and false: YAML reads them as booleans."""
        if not isinstance(values, list | tuple):
            return values
        if any(isinstance(value, bool) for value in values):
            raise ValueError("put yes, no, true and false in quotes, as the files have them")
        return [str(value) if isinstance(value, int | float) else value for value in values]

    @pydantic.model_validator(mode="before")
    @classmethod
    def _name_outputs(cls, values: Any) -> Any:
        """Set the labels of a kind whose outputs have names of their own."""
        kind = KINDS.get(str(values.get("kind"))) if isinstance(values, dict) else None
        return {**values, "labels": values.get("labels") or kind.fixed_labels} if kind else values

    @pydantic.model_validator(mode="after")
    def _check_files(self) -> "Task":
        for field in ("name", "models_of"):
            name = getattr(self, field)
            if name is not None and not is_one_word(name):
                raise ValueError(f"{field}: {name!r} is not a task name; a name is one word without slashes")
        known = ("all", "train", "validation", "test", "unlabelled", "other")
        for name in self.source.files:
            if name not in known and not name.startswith("test_"):
                raise ValueError(f"source.files: unknown split {name!r}{nearest(name, known)} ({', '.join(known)})")
        if self.models_of and not all(name.startswith("test") for name in self.source.files):
            raise ValueError("models_of: a task that only scores models of another task has only test files")
        if not self.models_of and {"all", "train"} <= self.source.files.keys():
            raise ValueError("source.files: all and train mean the same; give one of them")
        for name, rule in (("validation", self.validation), ("test", self.test)):
            if rule and (self.models_of or any(file.startswith(name) for file in self.source.files)):
                raise ValueError(f"{name}: it cannot be split off train if it has a file, or if models_of is given")
        return self

    @pydantic.model_validator(mode="after")
    def _check(self) -> "Task":
        for kind in KINDS.values():
            for field in set(kind.fields) - set(self.kind.fields):
                if getattr(self, field) != Task.model_fields[field].default:
                    raise ValueError(f"{field} is for tasks of kind {kind.name}")
        self.kind.check(self)
        if self.label_values and len(self.labels) != len(self.label_values):
            raise ValueError("labels and label_values must have the same length")
        if any(len(set(names)) != len(names) for names in (self.labels, self.label_values)):
            raise ValueError("labels and label_values must not repeat")
        if "sentence1" not in self.columns:
            raise ValueError("columns must name sentence1")
        if self.symmetric and not self.pair:
            raise ValueError("symmetric: only pairs of texts have an order")
        for metric in self.metrics:
            if metric not in self.kind.metrics:
                raise ValueError(f"metric {metric} is not one of this kind of task ({', '.join(self.kind.metrics)})")
        if self.equivalence is not None and (not self.pair or self.equivalence not in self.labels):
            raise ValueError("equivalence must be one of the labels of a task on pairs")
        if "f1" in self.metrics and len(self.labels) > 2:
            raise ValueError(
                "f1 needs exactly two labels (it is computed for the second); with more labels use f1_macro"
            )
        return self

    @property
    def outputs(self) -> int:
        """Width of a model's output: one logit per label, or one number."""
        return self.kind.outputs(self.labels)

    @property
    def values(self) -> tuple[str, ...]:
        """Value of each label in the files."""
        return self.label_values or self.labels

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """Metrics to report, the one that chooses checkpoints first."""
        return self.metrics or self.kind.default_metrics

    @property
    def pair(self) -> bool:
        """Whether rows have two sentences."""
        return self.kind.always_pairs or "sentence2" in self.columns

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Names of the splits that evaluate scores: test, or MNLI's test_matched and test_mismatched."""
        return tuple(name for name in self.source.files if name.startswith("test")) or ("test",)

    @property
    def carving(self) -> dict[str, Carve]:
        """Splits without a file of their own, in the order they are carved from train -> how they are carved."""
        if self.models_of:
            return {}
        carving = {}
        if not any(name.startswith("test") for name in self.source.files):
            carving["test"] = self.test or A_TENTH
        if "validation" not in self.source.files:
            carving["validation"] = self.validation or A_TENTH
        return carving

    @property
    def argument(self) -> str:
        """The value of --task for this task: its name, or its YAML file if it is the user's own."""
        return self.file or self.name

    @property
    def prepare_command(self) -> str:
        """The command that prepares this task's splits, for messages."""
        return f"{typed('preprocess')} --task {self.argument}"

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of all splits."""
        return self.test_splits if self.models_of else ("train", "validation", *self.test_splits)

    @property
    def models_task(self) -> str:
        """Name of the task whose models are scored here, usually its own."""
        return self.models_of or self.name

    def selection_split(self, select_on: str) -> str:
        """Return the split that chooses a checkpoint: validation, or the first test split to reproduce the thesis."""
        return "validation" if select_on == "validation" else self.test_splits[0]


def known_tasks() -> list[str]:
    """Return the names of the shipped tasks."""
    return sorted(path.stem for path in TASK_DIR.glob("*.yaml"))


def load_task(name: str) -> Task:
    """Return the shipped task of that name, or the one in that YAML file.

    Raises UserError for an unknown name, suggesting the nearest, an invalid file, or a file with a shipped task's name.
    """
    name = str(name)  # YAML reads 5 as a number
    is_file, known = name.endswith(TASK_SUFFIXES), known_tasks()
    path = Path(name) if is_file else TASK_DIR / f"{name}.yaml"
    if not is_file and name not in known:
        listed = ", ".join(known)
        raise UserError(f"unknown task {name!r}{nearest(name, known)} (tasks: {listed}; or your own YAML file)")
    values = load_yaml(path)
    try:
        task = build(Task, values)
        if not is_file or path.parent.resolve() == TASK_DIR.resolve():
            return task
        if task.name in known:
            raise UserError(f"name: {task.name} is the name of a shipped task; give yours another")
        source = task.source
        if source.kind == "files":
            source = source.model_copy(update={"folder": str(path.parent.resolve() / source.folder)})
        overlaps = tuple(
            _name_of(path.parent / other) if other.endswith(TASK_SUFFIXES) else other for other in task.overlaps
        )
        return task.model_copy(update={"source": source, "file": name, "overlaps": overlaps})
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _name_of(path: Path) -> str:
    """Return the name of the task in a YAML file. Raises UserError if it has none."""
    name = load_yaml(path).get("name")
    if not isinstance(name, str):
        raise UserError(f"overlaps: {path} is not a task: it has no name")
    return name
