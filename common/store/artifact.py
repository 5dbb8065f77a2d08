"""Artifacts: built folders with a manifest that says what they are and what they were built from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.config import Settings, build
from common.errors import UserError
from common.store.files import file_sha256, files_in, fingerprint, read_json

MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A built folder, or a file from outside the store, and the key that identifies its content.

    path: where it is, by its key and not by its alias, so that what is read there always has this key; one file of an
    artifact, if only this file is an input. name: the alias's name, for messages; empty without one.
    """

    key: str
    path: Path
    name: str = ""

    @classmethod
    def of_file(cls, path: Path) -> Artifact:
        """Return a file from outside the store as an input: its key is a hash of its bytes. Raises UserError."""
        return cls(file_sha256(path), path, path.name)

    @classmethod
    def of_folder(cls, folder: Path) -> Artifact:
        """Return a folder from outside the store as an input: its key is a hash of the names and bytes of its files."""
        files = [(str(path.relative_to(folder)), file_sha256(path)) for path in files_in(folder)]
        return cls(fingerprint(files), folder, folder.name)

    def at(self, name: str) -> Artifact:
        """Return one of the artifact's files, or a folder in it, as an input."""
        return dataclasses.replace(self, path=self.path / name)


def paths_of(inputs: Mapping[str, Artifact]) -> dict[str, Path]:
    """Return role -> path of the inputs of a step, as its `run` gets them."""
    return {role: artifact.path for role, artifact in inputs.items()}


class Action(Settings):
    """One thing that was done to a model: a kind of step and its settings."""

    kind: str
    settings: dict[str, Any]


class Manifest(Settings):
    """Contents of an artifact's manifest.json."""

    kind: str
    """Kind of step that built it."""
    version: int
    """The step's version."""
    key: str
    """Identity: a hash of kind, version, settings and the keys of inputs."""
    settings: dict[str, Any]
    """The step's settings."""
    inputs: dict[str, str]
    """Role -> key of each input."""
    actions: tuple[Action, ...]
    """Everything done to a model so far, in order: the actions of the input `parent`, then this step."""
    parent: str | None = None
    """Name of the input `parent` when it was built, if there is one."""
    facts: dict[str, Any] = {}
    """Facts on the result, as the step's `run` returns them."""
    files: dict[str, int]
    """Size in bytes of each file."""
    libraries: dict[str, str] = {}
    """Versions of the libraries that results depend on."""
    seconds: float
    """Duration of the build; of its last part if it was resumed."""
    built: str
    """Time of the build, in UTC."""


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of an artifact, by its folder or one of its files. Raises UserError if missing or damaged."""
    return build(Manifest, read_json(folder_of(path) / MANIFEST))


def find(alias: Path, missing: str) -> Artifact:
    """Return the artifact that a name points to. Raises UserError, ending in `missing`, when there is none."""
    if not (folder_of(alias) / MANIFEST).exists():
        raise UserError(f"{alias}: no such file; {missing}")
    return artifact_at(alias)


def artifact_at(path: Path) -> Artifact:
    """Return the artifact that a name points to, or that of a file's name, at its place in the store.

    Raises UserError when there is no manifest.
    """
    folder = folder_of(path).resolve()  # once: the name may point elsewhere a moment later
    key = read_manifest(folder).key
    link = folder.with_name(key)  # stays valid if the artifact of this key is built again
    place = link if (link / MANIFEST).exists() else folder
    return Artifact(key, place / path.resolve().name if path.is_file() else place, path.name)


def folder_of(path: Path) -> Path:
    """Return the folder of the artifact that a name points to; the name may be that of one of its files."""
    return path.resolve().parent if path.is_file() else path


def points_to(alias: Path, key: str) -> bool:
    """Return whether a name points to the artifact of this key."""
    try:
        return artifact_at(alias).key == key
    except UserError:
        return False
