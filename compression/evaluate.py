"""The work of evaluate.py: scores of any saved model on a task's test splits, as rows of results.json."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from common.cli import StageSettings
from common.errors import UserError
from common.tasks import Task, load_task

if TYPE_CHECKING:
    import numpy as np

    from common.data import Split
    from common.models import ModelConfig
    from common.teachers import Teacher

TIMED_PASSES = 3


class EvaluateSettings(StageSettings):
    """Settings of evaluate.py (the thesis's table C.4 and what goes beyond it)."""

    model_name: str
    """Model to score: its name in the workspace, or the path of its folder."""
    arch: str | None = None
    """Check that the model has this architecture."""
    split: Literal["test", "validation", "train"] = "test"
    """Rows to score; test means every test split of the task."""
    time: bool = False
    """Also time the model: sentences a second, and milliseconds for one sentence alone."""
    json_: bool = False
    """Print the rows of results.json to stdout instead of a table."""


def evaluate(settings: EvaluateSettings) -> list[dict[str, Any]]:
    """Score a model and save the rows in its folder (see `result_file`). Returns one row a split."""
    from common.data import load_split
    from common.models import find_model
    from common.workspace import write_json
    from compression.sizes import measure

    task = load_task(settings.task)
    folder, config = find_model(settings.paths, task, settings.model_name, settings.arch)
    predict = load_predictor(folder, config, settings.cpu)
    sizes = measure(folder)
    rows = []
    for name in _split_names(settings, task):
        split = load_split(settings.paths, task, name)
        started = time.perf_counter()
        logits = predict(split)
        seconds = time.perf_counter() - started
        row = identity(task, name, config, folder) | sizes
        row |= {"rows": len(split), "metrics": _metrics(settings, task, config, name, split, logits)}
        row["data"] = _data_fingerprint(settings, task, name)
        row["seconds"] = {"train": _training_seconds(folder), "evaluate": round(seconds, 4)}
        if settings.time:
            row["speed"] = _speed(predict, split)
        rows.append(row)
    if settings.split == "test":
        write_json(result_file(folder, config, task), rows)
    return rows


def _split_names(settings: EvaluateSettings, task: Task) -> tuple[str, ...]:
    if settings.split == "test":
        return task.test_splits
    if settings.split not in task.splits:
        raise UserError(f"{task.name} has no {settings.split} rows (it has: {', '.join(task.splits)})")
    return (settings.split,)


def result_file(folder: Path, config: ModelConfig, task: Task) -> Path:
    """Where a model's scores are kept: result.json, or result-ax.json for those on another task than its own."""
    return folder / ("result.json" if task.name == config.task else f"result-{task.name}.json")


def finished_rows(settings: EvaluateSettings) -> list[dict[str, Any]]:
    """The rows of an earlier evaluation of this very model on this very data, by these metrics; none where none was."""
    from common.metrics import AGREEMENTS
    from common.models import find_model
    from common.workspace import read_json

    task = load_task(settings.task)
    folder, config = find_model(settings.paths, task, settings.model_name, settings.arch)
    saved = result_file(folder, config, task)
    if settings.force or settings.time or settings.split != "test" or not saved.exists():
        return []
    rows = read_json(saved)
    now = [(config.fingerprint, _data_fingerprint(settings, task, split)) for split in task.test_splits]
    same = [(row["config_hash"], row["data"]) for row in rows] == now
    # Rows without labels have no score, or agreement alone.
    known = (list(task.all_metrics), [], *([name] for name in AGREEMENTS))
    return rows if same and all(list(row["metrics"]) in known for row in rows) else []


def _data_fingerprint(settings: EvaluateSettings, task: Task, split: str) -> str | None:
    from common.data import read_metadata

    return read_metadata(settings.paths.split(task.name, split)).get("fingerprint")


def load_predictor(folder: Path, config: ModelConfig, cpu: bool) -> Any:
    """A function from a Split to logits, float32 [n, outputs], for a teacher or a student."""
    from common.devices import pick_device, pick_dtype

    device = pick_device(cpu)
    if config.kind == "teacher":
        from common.teachers import load_teacher

        teacher = load_teacher(folder, device, pick_dtype("auto", device))
        return lambda split: _with_bar(teacher, split, config.name)
    from compression.scoring import encode_split, student_logits
    from compression.student_store import load_student

    student, tokenizer, _ = load_student(folder, device)
    return lambda split: student_logits(student, encode_split(tokenizer, split), device, config.name)


def _with_bar(teacher: Teacher, split: Split, label: str) -> np.ndarray:
    from common.progress import counter

    with counter(label, len(split)) as advance:
        return teacher.logits(split, advance)


def identity(task: Task, split: str | None, config: ModelConfig, folder: Path) -> dict[str, Any]:
    """What identifies a row of results.json: everything but sizes and scores."""
    student = config.student
    return {
        "task": task.name,
        "split": split,
        "model": config.name,
        "stage": config.stage,
        "student_arch": config.arch if config.kind == "student" else None,
        "embedding_type": student.get("embedding_type"),
        "embedding_dim": student.get("embedding_dim"),
        "vocab_size": student.get("vocab_size"),
        "alpha": config.alpha,
        "augmented": config.augmented,
        "seed": config.seed,
        "teacher": config.teacher,
        "select_on": config.select_on,
        "run": str(folder),
        "config_hash": config.fingerprint,
    }


def _metrics(
    settings: EvaluateSettings, task: Task, config: ModelConfig, name: str, split: Split, logits: np.ndarray
) -> dict[str, float]:
    """The task's metrics over labelled rows; where no row has a label, how far a student agrees with its teacher."""
    import numpy as np

    from common.metrics import agreement, score
    from common.teachers.logits import load_logits

    labelled = np.flatnonzero(split.labelled)
    if len(labelled):
        return score(task, split.labels[labelled], logits[labelled])
    if config.teacher is None:
        return {}
    return agreement(task, load_logits(settings.paths, task, config.teacher, name, split), logits)


def _training_seconds(folder: Path) -> float | None:
    """Seconds of training noted in history.jsonl; models made by pruning or quantizing have none of their own."""
    history = folder / "history.jsonl"
    if not history.exists():
        return None
    return json.loads(history.read_text(encoding="utf-8").splitlines()[-1])["seconds"]


def _speed(predict: Any, split: Split) -> dict[str, float]:
    """Best of a few passes, so that a busy machine disturbs least. Tokenizing is part of it."""
    import numpy as np

    from common.progress import show_bars

    show_bars(False)
    one = split.take(np.arange(1))
    return {
        "sentences_per_second": round(len(split) / _best_time(predict, split), 1),
        "milliseconds_for_one": round(1000 * _best_time(predict, one), 3),
    }


def _best_time(predict: Any, split: Split) -> float:
    times = []
    for _ in range(TIMED_PASSES):
        started = time.perf_counter()
        predict(split)
        times.append(time.perf_counter() - started)
    return min(times)
