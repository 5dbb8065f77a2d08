"""Add a model of a finished experiment to the zoo: its packed file, its card and a line of zoo/README.md.

python zoo/publish.py averaged --model "BiLSTM, averaged, 12 KB" --name sst-2-12k
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Literal

sys.path.insert(1, str(Path(__file__).parents[1]))
sys.path.insert(2, str(Path(__file__).parents[1] / "docs" / "results"))

from archive import portable, read_finished
from card import Card, Family, Scores, Spread, TaskNotes, Teacher, Training, read_cards
from common.cli import run_script
from common.config import CONFIG_DIR, build, load_yaml, nearest, parse_flags
from common.data.split import load_split
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.store.artifact import paths_of, read_manifest
from common.store.files import whole_file, write_json, write_text
from common.store.settings import WorkspaceSettings
from common.store.workspace import Workspace
from common.teachers.guided import draw_rows, learning_inputs
from common.teachers.logits import saved_logits
from common.training.models import ModelConfig, members_of, read_config
from compression.distillation.settings import RowsSettings
from compression.evaluation.evaluate import saved_rows
from compression.evaluation.models import data_fingerprint
from compression.evaluation.packed_scores import labelled_score, packed_logits, scored_threshold
from compression.evaluation.scoring import load_own_packed
from compression.evaluation.settings import EvaluateSettings
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.results import Row, SeedGroup, SplitResults, mean_over_splits
from compression.packing import pack_student
from compression.runtime import PACKED_SUFFIX, Model, is_name, load_bytes
from compression.students.threshold import HALF
from merge import merged
from readme import readme

_NOTES = "tasks.yaml"


class PublishSettings(WorkspaceSettings):
    """Publication."""

    most_used = ("name", "model", "task")

    name: str
    """Name of the model in the zoo, such as sst-2-12k."""
    task: str | None = None
    """Task of the model; unset: the experiment's only one."""
    model: str | None = None
    """Family of models, named as in tables of sizes ('BiLSTM, 12 KB'), whose best seed on validation is published; or
    the name of a single model. Unset: the experiment's only family."""
    zoo: Path = Path("zoo")
    """Folder of the zoo, with tasks.yaml."""


def publish(settings: PublishSettings, experiment: str) -> Path:
    """Add a model of a finished experiment to the zoo: packed file, card, README.md. Returns the packed file's path.

    Raises UserError for an unknown experiment, task or model, for a model that is not packed or was rebuilt since the
    experiment, and for a task without notes in zoo/tasks.yaml.
    """
    if not is_name(settings.name):
        raise UserError(f"--name {settings.name}: a name has only letters, digits, points and hyphens")
    paths, finished = settings.paths, read_finished(settings.paths.experiment(experiment))
    task = _task(settings, finished.rows)
    results = merged({experiment: finished.rows}, task.name)
    group, row = _choose(settings.model, results)
    folder = paths.model(task.models_task, row["model"])
    config = read_config(folder)
    if config.key != row["config_hash"]:
        raise UserError(f"{folder}: rebuilt after the experiment; run the experiment again")
    packed_settings = EvaluateSettings(task=task.argument, workspace=paths.root, model_name=config.name)
    packed = load_own_packed(packed_settings, folder, config)
    data = pack_student(folder, packed.temperature, packed.threshold or HALF, packed.rejects)
    model = load_bytes(data)
    card = Card(
        name=settings.name,
        task=task.name,
        notes=_notes(settings.zoo / _NOTES, task),
        kind=_kind(model),
        labels=model.labels,
        range=task.range,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        test={name: score_on(paths, task, name, model) for name in task.test_splits},
        seed=config.seed,
        family=_family(group),
        architecture=_architecture(config),
        parameters=row["parameters"],
        teacher=_teacher(paths, results, task, config),
        training=_training(paths, task, config),
        command=_command(finished.record, paths),
        date=read_manifest(folder).built[:10],
    )
    path = settings.zoo / f"{settings.name}{PACKED_SUFFIX}"
    with whole_file(path) as partial:
        partial.write_bytes(data)
    write_json(path.with_suffix(".json"), card.model_dump(mode="json"))
    write_text(settings.zoo / "README.md", readme(read_cards(settings.zoo)))
    return path


def score_on(paths: Workspace, task: Task, name: str, model: Model) -> Scores:
    """Return the scores of a packed model on a prepared split. Raises UserError if the split is missing."""
    split = load_split(paths, task, name)
    metrics = labelled_score(task, split, packed_logits(model, split), model.temperature, scored_threshold(model))
    return Scores(rows=len(split), data=data_fingerprint(paths, task, name), metrics=metrics)


def _task(settings: PublishSettings, rows: list[Row]) -> Task:
    known = sorted({row["task"] for row in rows})
    name = settings.task or (known[0] if len(known) == 1 else None)
    if name not in known:
        raise UserError(f"--task: the experiment has models of {', '.join(known)}{nearest(name or '', known)}")
    return load_task(name)


def _choose(name: str | None, results: SplitResults) -> tuple[SeedGroup, Row]:
    """Return the family selected by --model, and its best seed on validation or the single model that --model names."""
    students = [group for group in results.groups if not (group.is_teacher or group.is_peer)]
    families = {group.name: group for group in students}
    models = {row["model"]: (group, row) for group in students for row in group.rows}
    if name in models:
        return models[name]
    if name is None and len(students) == 1:
        name = students[0].name
    if name not in families:
        near = nearest(name or "", [*families, *models])
        raise UserError(f"--model: the experiment's students of {results.task} are {'; '.join(families)}{near}")
    group = families[name]
    if any(row["validation"] is None for row in group.rows):
        return group, group.rows[0]
    metric = next(iter(group.rows[0]["validation"]))
    return group, max(group.rows, key=lambda row: row["validation"][metric])


def _notes(path: Path, task: Task) -> TaskNotes:
    notes = load_yaml(path).get(task.name.replace("-", "_"))  # as load_yaml returns keys
    if notes is None:
        raise UserError(f"{path}: has no notes on {task.name} ({', '.join(TaskNotes.model_fields)})")
    return build(TaskNotes, notes)


def _family(group: SeedGroup) -> Family | None:
    if len(group.rows) < 2:
        return None
    stats = {name: group.metric(name) for name in group.rows[0]["metrics"]}
    metrics = {name: Spread(mean=stat.mean, sd=stat.sd) for name, stat in stats.items() if stat and stat.sd is not None}
    return Family(name=group.name, seeds=tuple(row["seed"] for row in group.rows), metrics=metrics)


def _kind(model: Model) -> Literal["texts", "pairs", "words", "answers"]:
    names = {"answers": "answers", "tags": "words"}
    return names.get(model.kind, "pairs" if model.pair else "texts")


def _architecture(config: ModelConfig) -> dict[str, Any]:
    sizes = ("embedding_type", "embedding_dim", "vocab_size", "encoder_hidden_dim", "cls_hidden_dim")
    if config.student.get("pair_encoder", "compare") != "compare":
        sizes = (*sizes, "pair_encoder")
    without = {"encoder_hidden_dim"} if config.arch == "ffn" else set()
    values = {name: config.student[name] for name in sizes if name not in without}
    return {"student": config.arch, **values, "actions": [action.kind for action in config.actions]}


def _teacher(paths: Workspace, results: SplitResults, task: Task, config: ModelConfig) -> Teacher | None:
    if config.teacher is None or (config.alpha == 1 and not config.augmented):
        return None
    folder = paths.model(task.models_task, config.teacher)
    teacher = read_config(folder)
    row = next((one.rows[0] for one in results.groups if one.rows[0]["model"] == teacher.name), None)
    row = row or mean_over_splits(saved_rows(paths, task, folder, teacher), task.test_splits)
    if row is None and not teacher.imported:
        command = f"python evaluate.py --task {task.argument} --model-name {teacher.name}"
        raise UserError(f"{config.name}: there are no scores of its teacher; run: {command}")
    members = [read_config(member) for member in members_of(folder)] or [teacher]
    encoders = tuple(member.name if member.imported else Path(member.arch).name for member in members)
    row = row or {"bytes_model": None, "metrics": {}}  # the teacher was imported without answers for test
    return Teacher(name=teacher.name, encoders=encoders, bytes=row["bytes_model"], metrics=row["metrics"])


def _training(paths: Workspace, task: Task, config: ModelConfig) -> Training:
    values = {name: value for name, value in config.distillation.items() if name in RowsSettings.model_fields}
    settings = build(RowsSettings, values)
    names = settings.augmented_sets
    filtered = config.teacher if settings.min_confidence else None
    inputs = paths_of(learning_inputs(paths, task, names, filtered))
    split, drawn = draw_rows(inputs, config.seed, settings.downsample_data, settings.bootstrap_data_ratio)
    counts = {name: len(drawn[name]) for name in names}
    if filtered:
        for name in names:
            logits = saved_logits(task, inputs[f"logits {name}"])[drawn[name]]
            counts[name] = int((task.kind.confidence(task, logits) >= settings.min_confidence).sum())
    manifests = {name: read_manifest(paths.augmented(task.name, name)) for name in names}
    made = {
        name: {key: value for key, value in manifest.settings.items() if key not in ("seed", "method")}
        for name, manifest in manifests.items()
    }
    return Training(
        # Without a teacher, rows without a label are left out.
        rows=len(drawn["train"]) if config.teacher else int(split.labelled.sum()),
        augmented_rows=sum(counts.values()) if names else None,
        augmentation=made if len(made) > 1 else next(iter(made.values()), None),
        alpha=config.alpha,
    )


def _command(record: ExperimentRecord, paths: Workspace) -> str:
    """Return the command of an experiment for a shell, without paths of this machine."""
    first, *flags = re.split(r" (?=\w+=)", str(portable(record.definition, paths.root)))
    shipped = [path for path in (CONFIG_DIR / "experiments").rglob(first) if first.endswith(".yaml")]
    file = shipped[0].relative_to(CONFIG_DIR.parent).as_posix() if shipped else first
    word = "sweep" if record.kind == "sweep" else "run" if record.files else ""
    words = ["python", "experiment.py", *filter(None, [word, file])]
    for one in flags:
        name, value = one.split("=", 1)
        words += ["--set", one] if word == "sweep" else ["--" + name.replace("_", "-"), value]
    return shlex.join(words)


def main() -> None:
    """Publish the model that the command line names."""
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    usage = "publish.py EXPERIMENT --name NAME [flags]"
    settings = parse_flags(PublishSettings, sys.argv[1 + len(names) :], __doc__, usage=usage)
    if len(names) != 1:
        raise UserError(f"usage: {usage}")
    path = publish(settings, names[0])
    print(f"published: {path}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    run_script(main)
