"""Artifacts: built folders with a manifest that says what they are and what they were built from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from common.config import Settings, build
from common.errors import UserError
from common.store.files import file_sha256, fingerprint, read_json

MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A built folder, or a file from outside the store, and the key that identifies its content.

    path: its alias if it has one, so that its name is the one that the user chose; the alias may be that of a file.
    """

    key: str
    path: Path

    @classmethod
    def of_file(cls, path: Path) -> Artifact:
        """Return a file from outside the store as an input: its key is a hash of its bytes. Raises UserError."""
        return cls(file_sha256(path), path)

    @classmethod
    def of_folder(cls, folder: Path) -> Artifact:
        """Return a folder from outside the store as an input: its key is a hash of the names and bytes of its files."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return cls(fingerprint([(str(path.relative_to(folder)), file_sha256(path)) for path in files]), folder)


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
    """Name of the input `parent`, if there is one."""
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


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest in an artifact's folder. Raises UserError when it is missing or damaged."""
    return build(Manifest, read_json(folder / MANIFEST))


def find(alias: Path, missing: str) -> Artifact:
    """Return the artifact that a name points to. Raises UserError, ending in `missing`, when there is none."""
    if not (folder_of(alias) / MANIFEST).exists():
        raise UserError(f"{alias}: no such file; {missing}")
    return artifact_at(alias)


def artifact_at(path: Path) -> Artifact:
    """Return the artifact in a folder, or that of a file's folder. Raises UserError when there is no manifest."""
    return Artifact(read_manifest(folder_of(path)).key, path)


def folder_of(path: Path) -> Path:
    """Return the folder of the artifact that a name points to; the name may be that of one of its files."""
    return path.resolve().parent if path.is_file() else path


def points_to(alias: Path, key: str) -> bool:
    """Return whether a name points to the artifact of this key."""
    try:
        return artifact_at(alias).key == key
    except UserError:
        return False
