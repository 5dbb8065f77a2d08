"""The stages as Python functions, with the names and defaults of the command line.

    import compression

    compression.preprocess(task="rotten-tomatoes")
    student = compression.distill(task="rotten-tomatoes", student_arch="ffn", alpha=1, only_original_data=True)
    packed = compression.pack(compression.quantize(student, max_bytes=32_000))
    packed.path, packed.bytes

A function builds the settings as its script does and runs the same stage: the same settings give the same model with
the same name, and finished work is reused. Errors that a script prints are raised as UserError. The first interrupt
stops work at a point where nothing is lost. No large library is imported before the settings are checked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from common.cli import set_environment
from common.config import Settings, build
from common.data.readers.records import is_missing
from common.data.tasks import load_task
from common.errors import UserError
from common.progress import show_bars
from common.stopping import graceful
from common.store.files import files_in, whole_file
from common.store.settings import StageSettings, WorkspaceSettings
from common.training.models import read_history
from compression.experiments.fit.settings import FitSettings
from compression.experiments.jobs import Job, check_jobs, job_class

if typing.TYPE_CHECKING:
    import pyarrow as pa

    from compression.experiments.fit.result import FitResult

__all__ = ["Built", "UserError", "compress", "distill", "evaluate", "finetune", "fit", "pack", "preprocess", "prune",
           "quantize"]  # fmt: skip
F = typing.TypeVar("F", bound=Callable[..., Any])


def _with_settings(cls: type[Settings]) -> Callable[[F], F]:
    """Return a decorator for a function of `**settings`: `help` and notebooks show each setting and its default."""

    def documented(function: F) -> F:
        signature = inspect.signature(function)
        parameters = [
            value for value in signature.parameters.values() if value.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        for name, field in cls.model_fields.items():
            if name not in signature.parameters:
                default = inspect.Parameter.empty if field.is_required() else field.get_default()
                keyword = inspect.Parameter.KEYWORD_ONLY
                parameters.append(inspect.Parameter(name, keyword, default=default, annotation=field.annotation))
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return documented


@dataclasses.dataclass(frozen=True)
class Built:
    """A model or packed file that a function built, or found already built.

    name: name in the workspace; path: the model's folder, or the packed file; task, workspace: where other functions
    find the model; scores: for a trained model, the validation score of the epoch whose weights it has; the best one
    if these are the mean of several epochs.
    """

    name: str
    task: str
    path: Path
    workspace: Path
    scores: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of the packed file, or total size of the files in the model's folder."""
        return sum(path.stat().st_size for path in ([self.path] if self.path.is_file() else files_in(self.path)))


@_with_settings(job_class("preprocess"))
def preprocess(**settings: Any) -> dict[str, Any]:
    """Prepare a task's data: splits, augmented rows, teacher logits. Returns file -> number of rows.

    settings: those of preprocess.py.

    Example: preprocess(task="sst-2", data_dir="../glue"); preprocess(task="sst-2", generate_loss="processed")
    """
    with _stage("preprocess", settings) as checked:
        from compression.augmentation.preprocess import preprocess

        return preprocess(checked)


@_with_settings(job_class("finetune"))
def finetune(**settings: Any) -> Built:
    """Fine-tune a teacher. settings: those of finetune.py.

    Example: finetune(task="sst-2", max_epochs=1)
    """
    with _stage("finetune", settings) as checked:
        from common.teachers.finetune import finetune

        return _built(checked, finetune(checked))


@_with_settings(job_class("compress"))
def compress(**settings: Any) -> list[Built]:
    """Run `compression_actions`. Returns the students built, or the student that files were built from.

    settings: those of compress.py.

    Example: compress(task="sst-2", compression_actions=["distill", "quantize", "pack"], student_arch="ffn")
    """
    with _stage("compress", settings) as checked:
        from compression.shrinking.chain import compress

        return [_built(checked, folder) for folder in compress(checked)]


@_with_settings(job_class("compress"))
def distill(**settings: Any) -> Built:
    """Distil a student. settings: those of compress.py.

    Example: distill(task="rotten-tomatoes", student_arch="ffn", epochs=3)
    """
    return _act("distill", None, settings)


@_with_settings(job_class("compress"))
def prune(student: Built | str | None = None, **settings: Any) -> Built:
    """Prune a student.

    student: the result of another function, or a name (then also pass `task`); settings: those of compress.py.

    Example: prune(student, prune_threshold=0.4)
    """
    return _act("prune", student, settings)


@_with_settings(job_class("compress"))
def quantize(student: Built | str | None = None, **settings: Any) -> Built:
    """Quantize a student.

    student: the result of another function, or a name (then also pass `task`); settings: those of compress.py.

    Example: quantize(student, bits=4)
    """
    return _act("quantize", student, settings)


@_with_settings(job_class("compress"))
def pack(student: Built | str | None = None, **settings: Any) -> Built:
    """Write a student's packed file.

    student: the result of another function, or a name (then also pass `task`); settings: those of compress.py.

    Example: pack(student).path
    """
    built = _act("pack", student, settings)
    paths = StageSettings(task=built.task, workspace=built.workspace).paths
    return dataclasses.replace(built, path=paths.packed(load_task(built.task).models_task, built.name))


@_with_settings(job_class("evaluate"))
def evaluate(model: Built | str | None = None, **settings: Any) -> list[dict[str, Any]]:
    """Score a model on test. Returns the rows of results.json, one per test split.

    model: the result of another function, or a name (then also pass `task`); settings: those of evaluate.py. With
    packed=True, the packed file is scored.

    Example: evaluate(student)[0]["metrics"]
    """
    with _stage("evaluate", {**_of(model, "model_name"), **settings}) as checked:
        from compression.evaluation.evaluate import evaluate

        return evaluate(checked)


@_with_settings(FitSettings)
def fit(
    texts: Iterable[Any] | None = None,
    labels: Iterable[Any] | None = None,
    file: Path | str | None = None,
    **settings: Any,
) -> FitResult:
    """Train a packed classifier of at most `max_bytes` on labelled texts, or on a labelled file.

    texts: one text or a pair of texts a row, such as a list or a column of a table; labels: a label, a list of labels,
    a number, or a list of the words' tags a row, None where it is unknown; file: a file of texts and labels, instead of
    both; settings: those of `experiment.py fit`. Returns the result: its scores, its packed files, and `predict`.
    Raises UserError as the command does.

    Example: fit(frame["review"], frame["verdict"], max_bytes=32_000, minutes=5, output="reviews.fwt")
    """
    if (texts is None) != (labels is None) or (texts is None) == (file is None):
        raise UserError("fit takes texts and labels, or a file")
    if texts is not None and labels is not None:
        columns, table = _table(list(texts), list(labels))
        folder = Path(settings.get("workspace", WorkspaceSettings().workspace))
        file = _written(table, folder)
        settings |= {"text": columns, "label": "label"}
    checked = build(FitSettings, _as_typed(FitSettings, {"file": file, **settings}))
    with _running():
        from compression.experiments.fit.fit import fit, plan_fit

        return plan_fit(checked) if checked.dry_run else fit(checked)


def _table(texts: list[Any], labels: list[Any]) -> tuple[tuple[str, ...], pa.Table]:
    """Return the names of the columns of texts, and texts and labels as a table."""
    import pyarrow as pa

    if len(texts) != len(labels):
        raise UserError(f"fit: {len(texts):,} texts, but {len(labels):,} labels")
    columns = {"text": texts}
    if any(isinstance(text, tuple | list) for text in texts):
        for place, text in enumerate(texts, 1):
            if not isinstance(text, tuple | list) or len(text) != 2:
                raise UserError(f"fit: texts are pairs, but text {place} is not")
        columns = {"text1": [first for first, _ in texts], "text2": [second for _, second in texts]}
    several = any(isinstance(label, tuple | list) for label in labels)
    values = [None if is_missing(label) else label if several else str(label) for label in labels]
    try:
        return tuple(columns), pa.table({**columns, "label": values})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UserError(f"fit: texts and labels are not of one kind ({error})") from None


def _written(table: pa.Table, workspace: Path) -> Path:
    """Write a table to a file of the workspace that its content names. Returns the path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    path = workspace / "fit" / f"{hashlib.sha256(content).hexdigest()[:12]}.parquet"
    with whole_file(path) as partial:
        partial.write_bytes(content)
    return path


def _act(action: str, student: Built | str | None, settings: dict[str, Any]) -> Built:
    return compress(**{**_of(student, "load_trained_model"), **settings, "compression_actions": (action,)})[-1]


def _of(model: Built | str | None, field: str) -> dict[str, Any]:
    """Return the settings that name a model."""
    if isinstance(model, Built):
        return {field: model.name, "task": model.task, "workspace": model.workspace}
    return {} if model is None else {field: model}


@contextlib.contextmanager
def _stage(kind: str, settings: dict[str, Any]) -> Iterator[Any]:
    """Yield a stage's settings, checked as by its script, and run the block in the same way as a script."""
    job = Job(kind, _as_typed(job_class(kind), settings))
    check_jobs([job], settings)
    checked = job.settings()
    show_bars(checked.loadbar)
    with _running():
        yield checked


def _as_typed(cls: type[Settings], settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings in the form of the command line: a single word is accepted for a flag that takes several."""
    several = {name for name, field in cls.model_fields.items() if typing.get_origin(field.annotation) is tuple}
    return {name: (value,) if name in several and isinstance(value, str) else value for name, value in settings.items()}


@contextlib.contextmanager
def _running() -> Iterator[None]:
    set_environment()
    with graceful():
        yield


def _built(settings: Any, folder: Path) -> Built:
    kept = [record.get("score") for record in read_history(folder) if record.get("kept")]
    scores = {}
    if kept and None not in kept:
        metric = load_task(settings.task).all_metrics[0]
        scores = {f"validation {metric}": max(kept)}
    return Built(folder.name, settings.task, folder, settings.workspace, scores)
