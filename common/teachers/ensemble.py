"""Ensembles: a teacher whose logits are the mean of other teachers' logits (Hinton et al., 2015, sections 3 and 5).

An ensemble is a model folder with a config.json alone, which names its members: teachers of the same task beside it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from common.data.split import Split
from common.data.tasks import load_task
from common.errors import UserError
from common.progress import Advance, nothing
from common.store.workspace import fingerprint
from common.teachers.base import States, Teacher
from common.teachers.load import load_teacher
from common.teachers.logits import teacher_fingerprint
from common.teachers.settings import FinetuneSettings
from common.teachers.untrained import save_untrained
from common.training.models import ModelConfig, find_model, members_of, read_config


class EnsembleTeacher:
    """Several teachers asked one after the other."""

    def __init__(self, members: Sequence[Teacher]) -> None:
        self.members = list(members)

    @classmethod
    def load(cls, folder: Path, device: torch.device, dtype: torch.dtype) -> "EnsembleTeacher":
        """Load an ensemble's members. Raises UserError when one is missing, or another than when it was made."""
        if teacher_fingerprint(folder) != read_config(folder).fingerprint:
            raise UserError(f"{folder}: a member is another than when it was made; run finetune.py --ensemble again")
        return cls([load_teacher(member, device, dtype) for member in members_of(folder)])

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Mean of the members' logits, float32 [n, outputs]; a row is done when the last member has seen it."""
        *others, last = self.members
        parts = [*(member.logits(split) for member in others), last.logits(split, advance)]
        return np.mean(parts, axis=0, dtype=np.float32)

    def states(self, split: Split) -> States:
        """Raises UserError: an ensemble has several."""
        raise UserError("an ensemble has no hidden states of its own: name one of its members")


def combine(settings: FinetuneSettings) -> Path:
    """Save the teachers that --ensemble names as one. Returns its model folder; a finished one is reused.

    Raises UserError when a member is missing, no teacher, an ensemble itself, or lies elsewhere.
    """
    task = load_task(settings.task)
    members = [_member(settings, name) for name in settings.ensemble]
    config = ModelConfig(
        name=settings.ensemble_name,
        kind="teacher",
        stage="teacher",
        task=task.name,
        labels=task.labels,
        pair=task.pair,
        tokens=task.tokens,
        arch="ensemble",
        seed=settings.seed,
        trained_on=tuple(sorted({name for member in members for name in member.trained_on})),
        members=settings.ensemble,
        settings={"ensemble": settings.ensemble},
        fingerprint=fingerprint([teacher_fingerprint(settings.paths.model(task.name, it.name)) for it in members]),
    )
    return save_untrained(settings, config)


def _member(settings: FinetuneSettings, name: str) -> ModelConfig:
    if "/" in name:
        raise UserError(f"--ensemble: {name}: members are named, and lie in the same workspace")
    _, config = find_model(settings.paths, load_task(settings.task), name)
    if config.kind != "teacher":
        raise UserError(f"--ensemble: {name} is a student; an ensemble is of teachers")
    if config.members:
        raise UserError(f"--ensemble: {name} is an ensemble itself: name {' '.join(config.members)} instead")
    return config
