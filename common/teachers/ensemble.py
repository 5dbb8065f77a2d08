"""Ensembles: a teacher whose logits are the mean of other teachers' logits (Hinton et al., 2015, sections 3 and 5).

An ensemble has no files except its manifest, which names its members: teachers of the same task in the workspace.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from common.data.split import Split
from common.errors import UserError
from common.progress import Advance, nothing
from common.store.artifact import Artifact, artifact_at
from common.store.step import Context, Inputs
from common.store.workspace import Workspace
from common.teachers.base import States, Teacher
from common.teachers.step import TeacherStep
from common.training.models import find_model, read_config


class Ensemble(TeacherStep):
    """A teacher without files: the mean of other teachers of the task."""

    arch: str = pydantic.Field("ensemble", exclude=True)
    members: tuple[str, ...] = pydantic.Field(exclude=True)
    """Their names."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the members. Raises UserError if one is missing, not a teacher, an ensemble, or given by path."""
        for name in self.members:
            if "/" in name:
                raise UserError(f"--ensemble: {name}: give the names of teachers in this workspace, not paths")
            _, config = find_model(paths, self.task, name)
            if config.kind != "teacher":
                raise UserError(f"--ensemble: {name} is a student; an ensemble consists of teachers")
            if config.members:
                raise UserError(f"--ensemble: {name} is an ensemble itself: name {' '.join(config.members)} instead")
        return {f"member {name}": artifact_at(paths.model(self.task.name, name)) for name in self.members}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write nothing: the manifest names the members."""
        trained_on = {task for member in inputs.values() for task in read_config(member).trained_on}
        return {**self.facts(trained_on), "members": tuple(context.names.values())}


class EnsembleTeacher:
    """A teacher that runs several teachers, one after the other, and returns the mean of their logits."""

    def __init__(self, members: Sequence[Teacher]) -> None:
        self.members = list(members)

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return the mean of the members' logits, float32, of the shape of theirs (see Teacher.logits).

        `advance` is called with the rows of the last member.
        """
        *others, last = self.members
        parts = [*(member.logits(split) for member in others), last.logits(split, advance)]
        return np.mean(parts, axis=0, dtype=np.float32)

    def states(self, split: Split) -> States:
        """Raise UserError: an ensemble has no hidden states of its own."""
        raise UserError("an ensemble has no hidden states: name one of its members")
