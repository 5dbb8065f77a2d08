"""Models in the store: what their manifests say, and the checks before a model is used.

A model is an artifact with the alias models/<task>/<name>. The facts of its manifest say what it is (kind, task,
labels, architecture); settings, inputs and actions say how it was built.
"""

import difflib
from pathlib import Path
from typing import Any, Literal

from common.config import OLD_NAMES, Settings, build
from common.data.tasks import Task, check_no_overlap
from common.errors import UserError
from common.store.artifact import MANIFEST, Action, read_manifest
from common.store.workspace import Workspace

WEIGHTS_FILE = "model.safetensors"
ADAPTERS_FILE = "adapters.safetensors"
"""In place of WEIGHTS_FILE for a teacher that is an encoder in another folder, and adapters."""
NAMES_SHOWN = 8
"""Models named, those of the most similar names, when one is missing."""
GENERAL = "general"
"""In place of a task: students pretrained on plain text, from which those of any task can start."""
SUBFOLDERS = ("huggingface", "fairseq")
"""Folders in which teacher backends keep their files, weights and tokenizer, loadable by their own library."""


class ModelConfig(Settings):
    """What a model's manifest says about it."""

    name: str
    """Name of the model, its folder's name."""
    key: str
    """Identity of settings and inputs: equal exactly when the same model would come out."""
    kind: Literal["teacher", "student"]
    """Which of the two it is."""
    stage: Literal["teacher", "general", "distilled", "factorized", "pruned", "quantized"]
    """The last action on it."""
    task: str
    """Task it was trained for."""
    labels: tuple[str, ...]
    """Label names by class index; none for regression."""
    pair: bool
    """Whether it reads two sentences."""
    tokens: bool = False
    """Whether it gives every word a label, not the text."""
    arch: str
    """Teacher: its source, such as minilm, or ensemble. Student: bilstm, rnn, ffn or conv."""
    seed: int
    """Seed it was trained with."""
    select_on: str = "validation"
    """Split that chose its checkpoint; `test` only to reproduce the thesis."""
    teacher: str | None = None
    """Name of the teacher whose logits it learned from."""
    parent: str | None = None
    """Name of the model it was pruned or quantized from."""
    trained_on: tuple[str, ...] = ()
    """Every task whose rows it has seen."""
    alpha: float | None = None
    """Weight of the labels it was distilled with."""
    augmented: bool = False
    """Whether augmented rows were among its training rows."""
    trained_parameters: int | None = None
    """Numbers that training could change, where these are adapters and a head."""
    base: str | None = None
    """General student, by name or folder, whose file holds the weights that are not in a student's own."""
    base_key: str | None = None
    """Key of the base."""
    members: tuple[str, ...] = ()
    """Names of the teachers that an ensemble is the mean of; they lie beside it."""
    settings: dict[str, Any] = {}
    """Settings of the last action."""
    student: dict[str, Any] = {}
    """A student's own settings: all that is needed to build it."""
    compression: dict[str, Any] = {}
    """Ranks, sparsity and bits as reached, and which parts round their inputs."""
    actions: tuple[Action, ...] = ()
    """Everything done to it, in order, with the settings."""

    @property
    def distillation(self) -> dict[str, Any]:
        """Settings a student was distilled with: tuning its descendants uses the same."""
        return flat(self.actions[0].settings) if self.actions else {}

    def facts(self) -> dict[str, Any]:
        """Return the model's facts, as its manifest has them."""
        return self.model_dump(mode="json", exclude={"name", "key", "parent", "settings", "actions"})

    @property
    def outputs(self) -> int:
        """Width of the model's output: one logit a class, or the one number of a regression."""
        return len(self.labels) or 1


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a step's settings without their groups, as flags have them; what is unset is left out."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            values |= flat(value)
        elif value is not None:
            values[name] = value
    return values


def read_config(folder: Path) -> ModelConfig:
    """Return what a model's manifest says. Raises UserError when the folder is not a model."""
    if not folder.is_dir():
        raise UserError(f"no model {folder.name!r} in {folder.parent}{_others(folder)}")
    try:
        manifest = read_manifest(folder)
        about = {"name": folder.name, "key": manifest.key, "parent": manifest.parent, "actions": manifest.actions}
        return build(ModelConfig, manifest.facts, {"settings": flat(manifest.settings)}, about)
    except UserError as error:
        raise UserError(f"{folder} is not a model: {error}") from error


def saved_models(folder: Path) -> list[Path]:
    """Return the folders of a task's models, by name."""
    return sorted(path.parent for path in folder.glob(f"[!.]*/{MANIFEST}"))


def _others(folder: Path) -> str:
    names = [model.name for model in saved_models(folder.parent)]
    if not names:
        return "; none has been trained yet"
    near = difflib.get_close_matches(folder.name, names, NAMES_SHOWN, 0.0) if len(names) > NAMES_SHOWN else names
    more = f", and {len(names) - len(near)} more" if len(near) < len(names) else ""
    return f"; there are: {', '.join(near)}{more}"


def model_folder(paths: Workspace, task: Task, name: str) -> Path:
    """Where a model is, there or not: by its name, or by the path of its folder. Raises UserError for no such name."""
    return Path(name) if "/" in name else paths.model(task.models_task, name)


def general_folder(paths: Workspace, name: str) -> Path:
    """Where a general student is, there or not: by its name, or by the path of its folder."""
    return Path(name) if "/" in name else paths.model(GENERAL, name)


def find_model(paths: Workspace, task: Task, name: str, arch: str | None = None) -> tuple[Path, ModelConfig]:
    """Folder and config of a model by name, or by path of its folder, checked against task and architecture.

    Raises UserError when it is missing, of another task (naming the leak where tasks overlap) or another architecture,
    or when the task's labels are others than those it learned.
    """
    folder = model_folder(paths, task, name)
    config = read_config(folder)
    check_no_overlap(list(config.trained_on), task.name)
    if config.task != task.models_task:
        raise UserError(f"{name} was trained for task {config.task}, not {task.models_task}")
    if config.labels != task.labels:
        raise UserError(f"{name} learned the labels {_listed(config.labels)}, {task.name} has {_listed(task.labels)}")
    if arch is not None and OLD_NAMES.get(arch, arch) != config.arch:
        raise UserError(f"{name} has architecture {config.arch}, not {arch}")
    return folder, config


def _listed(labels: tuple[str, ...]) -> str:
    return ", ".join(labels) or "none"


def members_of(folder: Path) -> list[Path]:
    """Folders of an ensemble's members; none of any other model, or of a folder that is none."""
    if not (folder / MANIFEST).exists():
        return []
    return [folder.with_name(name) for name in read_config(folder).members]


def training_folder(folder: Path) -> Path:
    """Return where a model in training keeps its state until it is finished."""
    return folder.with_name(f"{folder.name}.training")


def weights_file(folder: Path) -> Path:
    """The one weights file of a model folder: a student's own, or the teacher backend's. An ensemble has none."""
    if members := members_of(folder):
        raise UserError(f"{folder.name} is an ensemble: name one of {', '.join(path.name for path in members)}")
    own = folder / WEIGHTS_FILE
    files = (own, *(folder / name / file for name in SUBFOLDERS for file in (WEIGHTS_FILE, ADAPTERS_FILE)))
    found = [path for path in files if path.exists()]
    if not found:
        raise UserError(f"{folder}: holds no {WEIGHTS_FILE}")
    return found[0]


def load_weights(folder: Path) -> dict[str, Any]:
    """Return name -> tensor of a model's weights file, of a student with adapters also those of the general one.

    Raises UserError when a file is missing or damaged, or when the general student is gone, or another.
    """
    from common.training.checkpoint import load_tensors  # PyTorch, which reading configs does not need

    below = base_file(folder, read_config(folder))
    return {**(load_tensors(below)[0] if below else {}), **load_tensors(weights_file(folder))[0]}


def base_file(folder: Path, config: ModelConfig) -> Path | None:
    """The weights file below a student's own, checked; None where its own holds all. Raises UserError for another."""
    if config.base is None:
        return None
    # By name it lies beside this one's task, wherever the workspace is moved.
    place = Path(config.base) if "/" in config.base else folder.parent.parent / GENERAL / config.base
    file = place / WEIGHTS_FILE
    if not file.exists():
        raise UserError(f"{folder.name} has adapters for {config.base}, which is not there")
    if read_config(place).key != config.base_key:
        raise UserError(f"{folder.name} has adapters for another model than {config.base} is now")
    return file


def is_apart(folder: Path) -> bool:
    """Whether a model's weights file holds adapters and a head alone."""
    return weights_file(folder).name == ADAPTERS_FILE or read_config(folder).base is not None
