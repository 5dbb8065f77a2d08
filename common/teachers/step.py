"""Common parts of all ways to build a teacher: the step, and the encoder as an input."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pydantic

from common.data.tasks import Task
from common.store.artifact import MANIFEST, Artifact, artifact_at
from common.store.files import fingerprint
from common.store.step import Step
from common.teachers.settings import FinetuneSettings
from common.training.models import SUBFOLDERS


class TeacherStep(Step):
    """Base of the steps that build a teacher."""

    task: Task = pydantic.Field(exclude=True)
    arch: str = pydantic.Field(exclude=True)
    """Short name of the encoder."""

    def make(self, settings: FinetuneSettings) -> Path:
        """Build the teacher and name it. Returns its model folder; a finished one is reused."""
        paths, name = settings.paths, settings.name
        return paths.make(self, settings.context(name), alias=paths.model(self.task.name, name)).path

    def facts(self, trained_on: Iterable[str], seed: int = 0) -> dict[str, Any]:
        """Return the facts of the teacher's manifest.

        trained_on: every task whose rows it has seen; seed: 0 if nothing was drawn.
        """
        return {**teacher_facts(answers_of(self.task), self.arch, seed), "trained_on": tuple(sorted(trained_on))}


def answers_of(task: Task) -> dict[str, Any]:
    """Return the facts of a model's manifest that its task determines: name, labels, and kinds of text and labels."""
    return {"task": task.name, "labels": task.labels, "pair": task.pair, "task_kind": task.kind.name}


def teacher_facts(answers: dict[str, Any], arch: str, seed: int = 0) -> dict[str, Any]:
    """Return the facts that every teacher's manifest has. answers: as `answers_of` returns them."""
    return {"kind": "teacher", "stage": "teacher", **answers, "arch": arch, "seed": seed}


def encoder_at(source: str) -> Artifact:
    """Return an encoder as an input: a model folder, another folder with all its files, or a name on a hub."""
    folder = Path(source)
    if (folder / MANIFEST).exists():
        return artifact_at(folder)
    if folder.name in SUBFOLDERS and (folder.parent / MANIFEST).exists():
        return artifact_at(folder.parent).at(folder.name)
    return Artifact.of_folder(folder) if folder.is_dir() else Artifact(fingerprint(source), folder, source)
