"""Ensembles: a teacher whose logits are the mean of other teachers' logits (Hinton et al., 2015, sections 3 and 5).

An ensemble is a model folder with a config.json alone, which names its members: teachers of the same task beside it.
"""

from pathlib import Path

from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import fingerprint
from common.teachers.load import teacher_fingerprint
from common.teachers.settings import FinetuneSettings
from common.teachers.untrained import save_untrained
from common.training.models import ModelConfig, find_model


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
