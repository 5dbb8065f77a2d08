"""A step: one way to build an artifact, with exactly the settings that change its result."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from common.config import Settings
from common.store.artifact import Artifact
from common.store.files import fingerprint
from common.store.workspace import Workspace


@dataclasses.dataclass(frozen=True)
class Context:
    """How and where a step runs. Nothing here changes a result, so nothing here is part of a key."""

    paths: Workspace
    cpu: bool = False
    """Run on the CPU even if there is a GPU."""
    force: bool = False
    """Rebuild artifacts that exist, and let a name point to another artifact."""
    work: Path = Path()
    """Folder for the state of an unfinished build: kept after a stop, removed when the artifact is published."""
    key: str = ""
    """Key of the artifact that is being built."""
    name: str = ""
    """Name of the artifact, for progress bars and messages."""


class Step(Settings):
    """Base of all steps. Its fields are part of the key; a field with `exclude=True` names an input instead."""

    version: ClassVar[int] = 1
    """Increased when the same settings and inputs give another result than before."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return what the step reads, by role. Raises UserError, with a command, for an input that is missing."""
        return {}

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Write the artifact's files into the folder `out`. Returns facts for its manifest."""
        raise NotImplementedError

    @classmethod
    def kind(cls) -> str:
        """Return the name of this kind of step, as written in manifests."""
        return cls.__name__.lower()

    def key(self, inputs: dict[str, Artifact]) -> str:
        """Return the identity of the artifact: a hash of kind, version, settings and the keys of all inputs."""
        keys = {role: artifact.key for role, artifact in inputs.items()}
        return fingerprint([self.kind(), self.version, self.model_dump(mode="json"), keys])
