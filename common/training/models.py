"""Models in the store: their manifests and histories, and the checks before a model is used.

A model is an artifact with the alias models/<task>/<name>. The facts of its manifest describe it (kind, task, labels,
architecture); settings, inputs and actions record how it was built. This module imports no PyTorch: --help reads it.
"""

import difflib
import json
from pathlib import Path
from typing import Any, Literal

from common.config import OLD_NAMES, Settings, build
from common.data.task_use import check_no_overlap
from common.data.tasks import Task
from common.errors import UserError
from common.installed import typed
from common.kinds.registry import LABELS, NamedKind
from common.store.artifact import MANIFEST, Action, points_to, read_manifest
from common.store.workspace import Workspace, workspace_of

WEIGHTS_FILE = "model.safetensors"
ADAPTERS_FILE = "adapters.safetensors"
"""Replaces WEIGHTS_FILE for a teacher that consists of adapters and an encoder in another folder."""
_HISTORY_FILE = "history.jsonl"
NAMES_SHOWN = 8
"""How many models a message about a missing one lists, the most similar names first."""
GENERAL = "general"
"""Stands in for a task: students pretrained on plain text, from which students of any task can start."""
LINEAR_FOLDER = "linear"
"""Folder of the files of a linear teacher."""
SUBFOLDERS = ("huggingface", LINEAR_FOLDER)
"""Folders in which teachers keep their files; transformers loads the first one."""


class ModelConfig(Settings):
    """A model's manifest, as the program uses it."""

    name: str
    key: str
    """Identity of settings and inputs: two models with the same key are the same."""
    kind: Literal["teacher", "student"]
    stage: Literal["teacher", "general", "distilled", "factorized", "pruned", "quantized"]
    """The last action on it."""
    task: str
    labels: tuple[str, ...]
    """Label names by class index; none for numbers."""
    pair: bool
    task_kind: NamedKind = LABELS
    """Kind of its task."""
    f1: bool = False
    """Whether its task is scored by the F1 of the second of two labels, or its questions may have no answer: its packed
    file then has a threshold."""
    arch: str
    """Teacher: its source, such as minilm, or ensemble. Student: its value of --student-arch."""
    seed: int
    select_on: str = "validation"
    """Split that chose its checkpoint; `test` only to reproduce the thesis, `none` for the last epoch."""
    calibration: dict[str, float] | None = None
    """Temperature and threshold of its probabilities, if it has learned from validation's rows; else None, and they are
    fitted to these."""
    teacher: str | None = None
    """Name of the teacher whose logits it learned from."""
    parent: str | None = None
    """Name of the model it was pruned or quantized from."""
    trained_on: tuple[str, ...] = ()
    """Every task whose rows it has seen."""
    alpha: float | None = None
    """Weight of the labels in its distillation."""
    augmented: bool = False
    """Whether augmented rows were among its training rows."""
    trained_parameters: int | None = None
    """Number of trained parameters, if only adapters and a head were trained."""
    base: str | None = None
    """General student whose file holds the weights that this student's own file lacks: its folder, as
    `Workspace.relative` returns it."""
    base_key: str | None = None
    encoder: str | None = None
    """Encoder that a teacher was fine-tuned from: a name for --arch, an absolute path, or a
    ./path from the workspace."""
    members: tuple[str, ...] = ()
    """Names of the teachers that an ensemble is the mean of, in the same folder."""
    imported: bool = False
    """Whether it is a teacher whose logits come from files: it has no weights."""
    sizes: dict[str, int] = {}
    """`parameters` and `bytes_model` of such a teacher, if its file of logits has them."""
    settings: dict[str, Any] = {}
    """Settings of the last action."""
    student: dict[str, Any] = {}
    """A student's own settings: all that is needed to build it."""
    compression: dict[str, Any] = {}
    """Ranks, sparsity and bits that were reached, and which parts round their inputs."""
    actions: tuple[Action, ...] = ()
    """Everything done to it, in order, with the settings."""

    @property
    def learned_validation(self) -> bool:
        """Whether validation's rows were among its training rows."""
        return self.calibration is not None

    @property
    def distillation(self) -> dict[str, Any]:
        """Settings a student was distilled with: tuning its descendants uses the same."""
        return flat(self.actions[0].settings) if self.actions else {}

    def facts(self) -> dict[str, Any]:
        """Return the model's facts, as its manifest has them."""
        return self.model_dump(mode="json", exclude={"name", "key", "parent", "settings", "actions"})

    @property
    def outputs(self) -> int:
        """Width of the model's output: one logit a label, or one number."""
        return self.task_kind.outputs(self.labels)


def tasks_seen(source: str) -> tuple[str, ...]:
    """Return every task whose rows a model of ours has seen; none for other encoders. source: folder or name."""
    folder = Path(source).parent if Path(source).name in SUBFOLDERS else Path(source)
    return read_config(folder).trained_on if (folder / MANIFEST).exists() else ()


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a step's settings flattened, without groups, as flags are; unset ones are left out."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            values |= flat(value)
        elif value is not None:
            values[name] = value
    return values


def read_config(folder: Path) -> ModelConfig:
    """Return a model's manifest. Raises UserError when the folder is not a model, naming the models next to it."""
    if not folder.is_dir():
        raise UserError(missing_model(folder))
    try:
        manifest = read_manifest(folder)
        history = {"parent": manifest.parent, "actions": manifest.actions, "settings": flat(manifest.settings)}
        return build(ModelConfig, manifest.facts, {"name": folder.name, "key": manifest.key}, history)
    except UserError as error:
        raise UserError(f"{folder} is not a model: {error}") from error


def write_history(folder: Path, history: list[dict[str, Any]]) -> None:
    """Write history.jsonl into a model's folder: one JSON object per epoch, one per line."""
    (folder / _HISTORY_FILE).write_text("".join(json.dumps(record) + "\n" for record in history), encoding="utf-8")


def read_history(folder: Path) -> list[dict[str, Any]]:
    """Return what `write_history` wrote into a model's folder; empty if its last action trained nothing."""
    file = folder / _HISTORY_FILE
    return list(map(json.loads, file.read_text(encoding="utf-8").splitlines())) if file.exists() else []


def missing_model(folder: Path) -> str:
    """Return the error for a folder that is not there, with the names of the models next to it."""
    names = [model.name for model in saved_models(folder.parent)]
    shown = difflib.get_close_matches(folder.name, names, NAMES_SHOWN, 0.0) if len(names) > NAMES_SHOWN else names
    more = f", and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    others = f"there are: {', '.join(shown)}{more}" if names else "none has been trained yet"
    return f"no model {folder.name!r} in {folder.parent}; {others}"


def saved_models(folder: Path) -> list[Path]:
    """Return the folders of a task's models, by name."""
    return sorted(path.parent for path in folder.glob(f"[!.]*/{MANIFEST}"))


def model_folder(paths: Workspace, task: str, name: str) -> Path:
    """Return the folder of a model of a task (or GENERAL), built or not. name: its name, or the path of its folder.

    Raises UserError for an invalid name.
    """
    return Path(name) if "/" in name else paths.model(task, name)


def find_model(paths: Workspace, task: Task, name: str, arch: str | None = None) -> tuple[Path, ModelConfig]:
    """Return a model's folder and manifest, checked against task and architecture. name: its name or folder path.

    Raises UserError if the model is missing, belongs to another task (naming the leak if the tasks overlap), has
    another architecture, or learned other labels than the task's.
    """
    folder = model_folder(paths, task.models_task, name)
    config = read_config(folder)
    check_no_overlap(config.trained_on, task, paths)
    if config.task != task.models_task:
        raise UserError(f"{name} was trained for task {config.task}, not {task.models_task}")
    if config.labels != task.labels:
        learned, expected = (", ".join(labels) or "none" for labels in (config.labels, task.labels))
        raise UserError(f"{name} learned the labels {learned}, {task.name} has {expected}")
    if config.task_kind is not task.kind:
        raise UserError(f"{name} predicts {config.task_kind.name}, {task.name} has {task.kind.name}")
    if arch is not None:
        check_arch(name, config, arch)
    return folder, config


def check_arch(name: str, config: ModelConfig, arch: str) -> None:
    """Raise UserError if a model has another architecture. arch: its name here or in the thesis."""
    if config.arch not in (arch, OLD_NAMES.get(arch)):
        raise UserError(f"{name} has architecture {config.arch}, not {arch}")


def only_teacher(paths: Workspace, task: Task) -> str:
    """Return the name of the task's one teacher. Raises UserError when there is none, or several to choose from."""
    configs = [read_config(folder) for folder in saved_models(paths.root / "models" / task.models_task)]
    teachers = [config.name for config in configs if config.kind == "teacher"]
    if not teachers:
        command = f"{typed('finetune')} --task {task.models_of or task.argument}"
        raise UserError(f"no teacher for {task.name} yet; run: {command}")
    if len(teachers) > 1:
        listed = ", ".join(teachers)
        raise UserError(f"several teachers for {task.name} ({listed}); name one with --model-name or --teacher")
    return teachers[0]


def members_of(folder: Path) -> list[Path]:
    """Return the folders of an ensemble's members, by their keys and in the order of their names in its config.

    Empty for any other model, or a folder without a manifest.
    """
    if not (folder / MANIFEST).exists():
        return []
    store, keys = folder.resolve().parent, read_manifest(folder).inputs
    return [store / keys[f"member {name}"] for name in read_config(folder).members]


def check_runs(folder: Path) -> None:
    """Check that a model can be run. Raises UserError if it, or a member of an ensemble, was imported as logits."""
    if not (folder / MANIFEST).exists():
        return
    config = read_config(folder)
    if config.imported:
        raise UserError(f"{folder.name} was imported as logits: there is no model to run or measure")
    for name, member in zip(config.members, members_of(folder), strict=True):
        if read_config(member).imported:
            raise UserError(f"{folder}: its member {name} was imported as logits: there is no model to run or measure")


def check_members(folder: Path) -> None:
    """Check that the names of an ensemble's members still mean its members. Raises UserError. Other models pass."""
    for name, member in zip(read_config(folder).members, members_of(folder), strict=True):
        if member.name != read_config(folder.with_name(name)).key:
            raise UserError(
                f"{folder}: its member {name} has been replaced; run {typed('finetune')} --ensemble again, with --force"
            )


def weights_file(folder: Path) -> Path:
    """Return the weights file of a model: a student's own, or the teacher backend's.

    Raises UserError for ensembles, and for teachers of imported logits.
    """
    check_runs(folder)
    if members_of(folder):
        raise UserError(f"{folder.name} is an ensemble: name one of {', '.join(read_config(folder).members)}")
    in_subfolders = (folder / name / file for name in SUBFOLDERS for file in (WEIGHTS_FILE, ADAPTERS_FILE))
    for path in (folder / WEIGHTS_FILE, *in_subfolders):
        if path.exists():
            return path
    raise UserError(f"{folder}: contains no {WEIGHTS_FILE}")


def base_file(folder: Path, config: ModelConfig) -> Path | None:
    """Return the weights file of the general student that a student has adapters for; None if there is none.

    It is in the same store, or in the folder `base` of another workspace. Raises UserError if it is missing.
    """
    if config.base is None or config.base_key is None:
        return None
    base = folder.resolve().with_name(config.base_key)
    elsewhere = workspace_of(folder).root / config.base
    if not base.exists() and points_to(elsewhere, config.base_key):
        base = elsewhere
    if not (base / WEIGHTS_FILE).exists():
        raise UserError(f"{folder} needs the general student {config.base}, which does not exist any more")
    return base / WEIGHTS_FILE


def encoder_path(paths: Workspace, encoder: str) -> str:
    """Return a recorded encoder as a value of --arch: a folder's path, or a name."""
    return str(paths.root / encoder) if encoder.startswith("./") else encoder


def is_linear(folder: Path) -> bool:
    """Return whether a model is a linear teacher, on tf-idf or on vectors of a frozen encoder."""
    return (folder / LINEAR_FOLDER).is_dir()


def is_apart(folder: Path) -> bool:
    """Return whether a model's weights file holds only adapters and a head."""
    return weights_file(folder).name == ADAPTERS_FILE or read_config(folder).base is not None
