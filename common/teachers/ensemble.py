"""Ensembles: a teacher whose logits are the mean of other teachers' logits (Hinton et al., 2015, sections 3 and 5).

An ensemble is a model folder with a config.json alone, which names its members: teachers of the same task beside it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import torch

from common.data.split import Split
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.progress import Advance, nothing
from common.store.artifact import Artifact, artifact_at, read_manifest
from common.store.step import Context, Step
from common.store.workspace import Workspace
from common.teachers.base import States, Teacher
from common.teachers.load import load_teacher
from common.teachers.saving import save_teacher, teacher_facts
from common.teachers.settings import FinetuneSettings
from common.training.models import ModelConfig, find_model, members_of, read_config


class EnsembleTeacher:
    """Several teachers asked one after the other."""

    def __init__(self, members: Sequence[Teacher]) -> None:
        self.members = list(members)

    @classmethod
    def load(cls, folder: Path, device: torch.device, dtype: torch.dtype) -> "EnsembleTeacher":
        """Load an ensemble's members. Raises UserError when one is missing or was replaced."""
        keys = read_manifest(folder).inputs
        if any(keys[member.name] != artifact_at(member).key for member in members_of(folder)):
            raise UserError(f"{folder}: a member was replaced since; run finetune.py --ensemble again")
        return cls([load_teacher(member, device, dtype) for member in members_of(folder)])

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Mean of the members' logits, float32 [n, outputs]; a row is done when the last member has seen it."""
        *others, last = self.members
        parts = [*(member.logits(split) for member in others), last.logits(split, advance)]
        return np.mean(parts, axis=0, dtype=np.float32)

    def states(self, split: Split) -> States:
        """Raises UserError: an ensemble has several."""
        raise UserError("an ensemble has no hidden states of its own: name one of its members")


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
