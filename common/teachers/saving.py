"""What all ways to build a teacher share: the encoder as an input, the facts of the manifest, the name."""

from pathlib import Path
from typing import Any

from common.data.tasks import Task
from common.store.artifact import MANIFEST, Artifact, artifact_at
from common.store.files import fingerprint
from common.store.step import Step
from common.teachers.settings import FinetuneSettings
from common.training.models import SUBFOLDERS


def save_teacher(settings: FinetuneSettings, step: Step, task: Task, name: str) -> Path:
    """Build a teacher by any step and name it. Returns its model folder."""
    alias = settings.paths.model(task.name, name)
    return settings.paths.make(step, settings.context(name), alias=alias).path


def teacher_facts(task: Task, arch: str, seed: int, trained_on: tuple[str, ...]) -> dict[str, Any]:
    """Return what the manifest of a teacher says about it."""
    return {
        "kind": "teacher",
        "stage": "teacher",
        "task": task.name,
        "labels": task.labels,
        "pair": task.pair,
        "tokens": task.tokens,
        "arch": arch,
        "seed": seed,
        "trained_on": trained_on,
    }


def encoder_at(source: str) -> Artifact:
    """Return an encoder as an input: a model of ours, a folder with all its files, or a name on a hub."""
    folder = Path(source)
    for place in (folder, folder.parent) if folder.name in SUBFOLDERS else (folder,):
        if (place / MANIFEST).exists():
            return artifact_at(place)
    return Artifact.of_folder(folder) if folder.is_dir() else Artifact(fingerprint(source), folder)
