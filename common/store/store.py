"""The store: builds every artifact once, finds it again by its key, publishes it atomically, and gives it names.

<workspace>/store/<key>            link to the artifact's folder; replacing the link is what publishes or replaces it
<workspace>/store/<key>.<digits>/  the folder: manifest.json and the step's own files
<workspace>/store/<key>.work/      state of an unfinished build, for resuming
<workspace>/<alias>                link to store/<key>: the name that a user or a default gives to an artifact,
                                   such as models/sst-2/minilm (workspace.py has them all)
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import importlib.metadata
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError
from common.progress import say
from common.stopping import at_once
from common.store.artifact import MANIFEST, Action, Artifact, Manifest, folder_of, paths_of, points_to, read_manifest
from common.store.files import files_in, whole_folder, write_json
from common.store.locks import if_free, only_one
from common.store.step import Context, Step
from common.store.temporary import discard, put_away, remove_leftovers, temporary
from common.store.workspace import Workspace

_WORK = ".work"
_LIBRARIES = ("torch", "transformers", "numpy", "sentencepiece")


class Store(Workspace):
    """All artifacts of a workspace, by key and by name."""

    def get(self, key: str) -> Artifact | None:
        """Return the artifact of a key, or None if there is none or a file of it is missing or truncated."""
        folder = self._link(key)
        try:
            manifest = read_manifest(folder)
        except UserError:
            return None
        whole = all(_size(folder / name) == size for name, size in manifest.files.items())
        return Artifact(key, folder) if whole else None

    def is_unfinished(self, key: str) -> bool:
        """Return whether a stopped build of a key's artifact has left state to resume from."""
        return self._work(key).is_dir()

    def make(
        self, step: Step, context: Context, alias: Path | None = None, file: str = "", replace: bool = False
    ) -> Artifact:
        """Return the artifact of a step, at its alias if it has one; it is built unless it exists.

        alias: name to give it, a path in the workspace; with `file`, a name for this file of the artifact. replace: let
        the name point to another artifact than before even without `context.force`.
        Raises UserError when the name belongs to another artifact, or another process is building this one.
        """
        with at_once():  # reads files, and has nothing to save
            inputs = step.inputs(self)
        key = step.key(inputs)
        what = context.name or (alias.name if alias else f"{step.kind()} {key}")
        with contextlib.ExitStack() as locks:
            if alias:
                locks.enter_context(only_one(alias, what))
                if not (replace or context.force):
                    self._check_name(alias, key)
            locks.enter_context(only_one(self._link(key), what))
            if context.force or self.get(key) is None:
                self._build(step, key, inputs, context)
            else:
                say(f"{what}: up to date")
            if alias:
                if not points_to(alias, key):  # files of the model that the name stood for
                    for derived in self.made_from_model(alias):
                        derived.unlink(missing_ok=True)
                self._point(alias, self._link(key) / file)
        return Artifact(key, alias or self._link(key), alias.name if alias else "")

    def unfinished(self, step: Step) -> Path:
        """Return the folder with the state of a step's unfinished build, if there is one."""
        return self._work(step.key(step.inputs(self)))

    def continue_as(self, stopped: Step, step: Step) -> None:
        """Let a step's build continue from the state of another one's, which is the same up to there."""
        state = self.unfinished(stopped)
        if state.is_dir():
            target = self.unfinished(step)
            discard(target)
            state.rename(target)

    def _link(self, key: str) -> Path:
        return self.root / "store" / key

    def _work(self, key: str) -> Path:
        return self.root / "store" / f"{key}{_WORK}"

    def _check_name(self, alias: Path, key: str) -> None:
        if (folder_of(alias) / MANIFEST).exists() and not points_to(alias, key):
            raise UserError(
                f"{alias.name!r} in {alias.parent} was built with other settings or inputs; choose another name, or "
                "--force to replace it"
            )

    def _build(self, step: Step, key: str, inputs: dict[str, Artifact], context: Context) -> None:
        link, started = self._link(key), time.monotonic()
        work = self._work(key)
        self._remove_replaced(link)
        folder = link.with_name(f"{key}.{uuid.uuid4().hex[:8]}")
        parent = inputs.get("parent")
        before = read_manifest(parent.path).actions if parent else ()
        input_keys = {role: artifact.key for role, artifact in inputs.items()}
        with whole_folder(folder) as partial:
            write_json(partial / MANIFEST, {"inputs": input_keys})  # read by `clean`, which keeps them
            running = dataclasses.replace(
                context,
                key=key,
                work=work,
                names={role: artifact.name for role, artifact in inputs.items()},
                cache=self.cache(),
                downloads=self.downloads(),
            )
            try:
                facts = step.run(paths_of(inputs), partial, running)
            except UserError as error:
                raise UserError(_with_names(str(error), inputs)) from error
            manifest = Manifest(
                kind=step.kind(),
                version=step.version,
                key=key,
                settings=step.model_dump(mode="json"),
                inputs=input_keys,
                actions=(*before, Action(kind=step.kind(), settings=step.model_dump(mode="json"))),
                parent=parent.name if parent else None,
                facts=facts,
                files={
                    str(path.relative_to(partial)): path.stat().st_size
                    for path in files_in(partial)
                    if path != partial / MANIFEST
                },
                libraries=dict(_versions()),
                seconds=round(time.monotonic() - started, 3),
                built=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            )
            write_json(partial / MANIFEST, manifest.model_dump(mode="json"))
        try:
            self._point(link, folder)
            discard(work)
        finally:
            self._remove_replaced(link)

    def _remove_replaced(self, link: Path) -> None:
        """Remove the folders of this key that nothing points to, and the state of the build that was published."""
        for folder in self._replaced(link):
            discard(folder)

    @staticmethod
    def _replaced(link: Path) -> Iterator[Path]:
        current = link.resolve()
        for folder in link.parent.glob(f"{link.name}.*"):
            if folder.suffix != _WORK:
                outdated = folder.resolve() != current
            else:  # state newer than the link belongs to an interrupted --force
                outdated = link.is_symlink() and folder.stat().st_mtime_ns <= link.lstat().st_mtime_ns
            if outdated:
                yield folder

    def remove_leftovers(self) -> None:
        """Remove the files that killed commands have left in the workspace, but not those of running processes."""
        remove_leftovers(self.root)
        try:
            names = os.listdir(self.root / "store")  # noqa: PTH208 - thousands of names, no paths
        except OSError:
            return
        present, parts = set(names), collections.Counter(name.partition(".")[0] for name in names)
        for name in names:
            key, _, kind = name.partition(".")
            # A published artifact has a link and a folder; without a link, only the state of a build is kept.
            if key and kind and (parts[key] > 2 or (key not in present and f".{kind}" != _WORK)):
                # Builds of this key are refused while the lock is held, so the folders are removed after its release.
                with contextlib.suppress(OSError), if_free(self._link(key)) as free:
                    away = [put_away(folder) for folder in self._replaced(self._link(key))] if free else []
                for folder in away:
                    shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def _point(link: Path, target: Path) -> None:
        """Point a link to a folder, in one atomic replacement. The link is relative: a workspace can be moved."""
        link.parent.mkdir(parents=True, exist_ok=True)
        relative = os.path.relpath(target, link.parent)
        if link.is_symlink() and str(link.readlink()) == relative:
            return
        new = temporary(link)
        new.symlink_to(relative)
        try:
            new.replace(link)
        except IsADirectoryError:
            raise UserError(f"{link}: a folder of that name exists that this program did not create") from None
        finally:
            new.unlink(missing_ok=True)


def _with_names(message: str, inputs: dict[str, Artifact]) -> str:
    """Return a message with the names of artifacts in place of their paths in the store."""
    for artifact in inputs.values():
        if artifact.key in artifact.path.parts:  # not a file from outside
            message = message.replace(str(artifact.path), artifact.name)
    return message


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _versions() -> Iterator[tuple[str, str]]:
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)
