"""Which run is which: a hash of the steps it consists of, and of the artifacts they read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.data.split import find_splits
from common.store.artifact import Artifact
from common.store.files import fingerprint
from common.training.models import flat
from compression.distillation.distill import Distill
from compression.shrinking.chain import SHRINK
from compression.shrinking.settings import CompressSettings


@dataclasses.dataclass(frozen=True)
class RunIdentity:
    """A run's steps and inputs, as its record has them."""

    id: str
    """16 hex digits that name the run."""
    family: str
    """8 hex digits shared by runs that distil the same student with other seeds, whatever they do to it afterwards."""
    settings: dict[str, Any]
    """Settings of all steps, without groups."""
    inputs: dict[str, str]
    """Role -> key of everything that is read."""


def identify(settings: CompressSettings, chains: Sequence[Sequence[str]]) -> RunIdentity:
    """Return the identity of a run. Raises UserError for an input that is missing or out of date.

    chains: lists of actions, each beginning with distill; empty for the settings' own.
    """
    chains = [list(chain) for chain in chains] or [list(settings.compression_actions)]
    step = Distill.of(settings)
    inputs = step.inputs(settings.paths)
    later = [[_dump(settings, action) for action in chain] for chain in chains]
    read: dict[str, Artifact] = {**inputs, "splits": find_splits(settings.paths, step.definition)}
    return RunIdentity(
        id=fingerprint([step.key(inputs), later]),
        family=step.model_copy(update={"seed": 0}).key(inputs)[:8],
        settings={**flat(step.model_dump(mode="json")), "chains": chains},
        inputs={role: artifact.key for role, artifact in read.items()},
    )


def _dump(settings: CompressSettings, action: str) -> Any:
    """Return what an action after distilling depends on, but for the student."""
    return [action, SHRINK[action].of(settings, Path()).model_dump(mode="json")] if action in SHRINK else action
