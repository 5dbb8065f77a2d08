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
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.cli import set_environment
from common.config import Settings, build
from common.data.tasks import load_task
from common.errors import UserError
from common.progress import show_bars
from common.stopping import graceful
from common.store.files import files_in
from common.store.settings import StageSettings
from compression.experiments.jobs import Job, check_jobs, job_class

__all__ = ["Built", "UserError", "compress", "distill", "evaluate", "finetune", "fit", "pack", "preprocess", "prune",
           "quantize"]  # fmt: skip


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


def preprocess(**settings: Any) -> dict[str, Any]:
    """Prepare a task's data: splits, augmented rows, teacher logits. Returns file -> number of rows.

    settings: those of preprocess.py.

    Example: preprocess(task="sst-2", data_dir="../glue"); preprocess(task="sst-2", generate_loss="processed")
    """
    with _stage("preprocess", settings) as checked:
        from compression.augmentation.preprocess import preprocess

        return preprocess(checked)


def finetune(**settings: Any) -> Built:
    """Fine-tune a teacher. settings: those of finetune.py.

    Example: finetune(task="sst-2", max_epochs=1)
    """
    with _stage("finetune", settings) as checked:
        from common.teachers.finetune import finetune

        return _built(checked, finetune(checked))


def compress(**settings: Any) -> list[Built]:
    """Run `compression_actions`. Returns the students built, or the student that files were built from.

    settings: those of compress.py.

    Example: compress(task="sst-2", compression_actions=["distill", "quantize", "pack"], student_arch="ffn")
    """
    with _stage("compress", settings) as checked:
        from compression.shrinking.chain import compress

        return [_built(checked, folder) for folder in compress(checked)]


def distill(**settings: Any) -> Built:
    """Distil a student. settings: those of compress.py.

    Example: distill(task="rotten-tomatoes", student_arch="ffn", epochs=3)
    """
    return _act("distill", None, settings)


def prune(student: Built | str | None = None, **settings: Any) -> Built:
    """Prune a student.

    student: the result of another function, or a name (then also pass `task`); settings: those of compress.py.

    Example: prune(student, prune_threshold=0.4)
    """
    return _act("prune", student, settings)


def quantize(student: Built | str | None = None, **settings: Any) -> Built:
    """Quantize a student.

    student: the result of another function, or a name (then also pass `task`); settings: those of compress.py.

    Example: quantize(student, bits=4)
    """
    return _act("quantize", student, settings)


def pack(student: Built | str | None = None, **settings: Any) -> Built:
    """Write a student's packed file.

    student: the result of another function, or a name (then also pass `task`); settings: those of compress.py.

    Example: pack(student).path
    """
    built = _act("pack", student, settings)
    paths = StageSettings(task=built.task, workspace=built.workspace).paths
    return dataclasses.replace(built, path=paths.packed(load_task(built.task).models_task, built.name))


def evaluate(model: Built | str | None = None, **settings: Any) -> list[dict[str, Any]]:
    """Score a model on test. Returns the rows of results.json, one per test split.

    model: the result of another function, or a name (then also pass `task`); settings: those of evaluate.py. With
    packed=True, the packed file is scored.

    Example: evaluate(student)[0]["metrics"]
    """
    with _stage("evaluate", {**_of(model, "model_name"), **settings}) as checked:
        from compression.evaluation.evaluate import evaluate

        return evaluate(checked)


def fit(**settings: Any) -> Any:
    """Train a packed classifier of at most `max_bytes` on a labelled file. settings: those of `experiment.py fit`.

    Example: fit(file="reviews.csv", text="review", label="verdict", max_bytes=32_000, minutes=15, output="reviews.fwt")
    """
    from compression.experiments.fit.settings import FitSettings

    checked = build(FitSettings, _as_typed(FitSettings, settings))
    with _running():
        from compression.experiments.fit.fit import fit, plan_fit

        return plan_fit(checked) if checked.dry_run else fit(checked)


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
    history = folder / "history.jsonl"
    lines = history.read_text(encoding="utf-8").splitlines() if history.exists() else []
    records = map(json.loads, lines)
    kept = [record.get("score") for record in records if record.get("kept")]
    scores = {}
    if kept and None not in kept:
        metric = load_task(settings.task).all_metrics[0]
        scores = {f"validation {metric}": max(kept)}
    return Built(folder.name, settings.task, folder, settings.workspace, scores)
