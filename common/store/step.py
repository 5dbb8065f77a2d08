"""A step: one way to build an artifact, with exactly the settings that change its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from common.config import Settings
from common.store.artifact import Artifact
from common.store.files import fingerprint
from common.store.workspace import Workspace

Inputs = Mapping[str, Path]
"""Role -> path of each input of a step."""


@dataclasses.dataclass(frozen=True)
class Context:
    """How and where a step runs. Nothing here changes a result, so nothing here is part of a key."""

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
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Role -> name of each input, for messages and facts."""
    cache: Path = Path()
    """Folder for results that several steps share. Their files are named by a fingerprint of what they depend on."""
    downloads: Path = Path()
    """Folder of downloads, which are verified by their checksums."""


class Step(Settings):
    """Base of all steps. Its fields are part of the key.

    A field with `exclude=True` is not: it names an input for `inputs`, or describes an input (a task, the splits).
    """

    version: ClassVar[int] = 1
    """Increased when the same settings and inputs give another result than before."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return all that the step reads, by role. Raises UserError, with a command, for an input that is missing."""
        return {}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write the artifact's files into the folder `out`. Returns facts for its manifest.

        It reads nothing but `inputs`, the paths of the artifacts whose keys are part of its own key: a name that it
        looked up could point to another artifact by now.
        """
        raise NotImplementedError

    @classmethod
    def kind(cls) -> str:
        """Return the name of this kind of step, as written in manifests."""
        return cls.__name__.lower()

    def key(self, inputs: dict[str, Artifact]) -> str:
        """Return the identity of the artifact: a hash of kind, version, settings and the keys of all inputs."""
        keys = {role: artifact.key for role, artifact in inputs.items()}
        return fingerprint([self.kind(), self.version, self.model_dump(mode="json"), keys])
