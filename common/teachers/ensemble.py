"""Ensembles: a teacher whose logits are the mean of other teachers' logits (Hinton et al., 2015, sections 3 and 5).

An ensemble has no files but its manifest, which names its members: teachers of the same task in the workspace.
"""

from pathlib import Path
from typing import Any

import pydantic

from common.data.tasks import Task, load_task
from common.errors import UserError
from common.store.artifact import Artifact, artifact_at
from common.store.step import Context, Step
from common.store.workspace import Workspace
from common.teachers.saving import save_teacher, teacher_facts
from common.teachers.settings import FinetuneSettings
from common.training.models import ModelConfig, find_model, read_config


class Ensemble(Step):
    """A teacher without files of its own: the mean of other teachers of the task."""

    task: Task = pydantic.Field(exclude=True)
    settings: FinetuneSettings = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the members. Raises UserError when one is missing, not a teacher, an ensemble, or elsewhere."""
        members = [_member(self.settings, name) for name in self.settings.ensemble]
        return {member.name: artifact_at(paths.model(self.task.name, member.name)) for member in members}

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Write nothing: the manifest names the members."""
        lineage = {task for artifact in inputs.values() for task in read_config(artifact.path).trained_on}
        facts = teacher_facts(self.task, "ensemble", self.settings.seed, tuple(sorted(lineage)))
        return {**facts, "members": tuple(inputs)}


def combine(settings: FinetuneSettings) -> Path:
    """Build a teacher of those that --ensemble names. Returns its model folder. Raises UserError as `Ensemble` does."""
    task = load_task(settings.task)
    return save_teacher(settings, Ensemble(task=task, settings=settings), task, settings.ensemble_name)


def _member(settings: FinetuneSettings, name: str) -> ModelConfig:
    if "/" in name:
        raise UserError(f"--ensemble: {name}: members are named, and lie in the same workspace")
    _, config = find_model(settings.paths, load_task(settings.task), name)
    if config.kind != "teacher":
        raise UserError(f"--ensemble: {name} is a student; an ensemble is of teachers")
    if config.members:
        raise UserError(f"--ensemble: {name} is an ensemble itself: name {' '.join(config.members)} instead")
    return config
