"""`experiment.py clean`: finds and removes what nothing in a workspace leads to.

An artifact is in use if a name points to it, or if it is an input, directly or through others, of one that a name
points to or of a build in progress. Locks that no process holds and that guard nothing are removed too. The state of
unfinished builds is kept unless asked for, because the command that was stopped resumes from it.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from common.errors import UserError
from common.store.artifact import MANIFEST
from common.store.files import files_in, read_json
from common.store.locks import if_free
from common.store.settings import QuerySettings
from common.store.store import Store
from common.store.temporary import discard, remove_leftovers
from common.tables import human_bytes, text_table


class CleanSettings(QuerySettings):
    """Cleaning."""

    yes: bool = False
    """Remove what is shown."""
    unfinished: bool = False
    """Also the state of unfinished builds: the commands that were stopped then start from the beginning."""


@dataclasses.dataclass(frozen=True)
class Unused:
    """Something that can be removed. name: the key of an artifact or build, or the path of a lock's file.

    built_by: kind of the artifact's step.
    """

    kind: Literal["artifact", "unfinished build", "lock"]
    name: str
    bytes: int
    built_by: str = ""


def clean(settings: CleanSettings) -> list[Unused]:
    """Return what is unused, removed with `yes`; what another command is using by then is left, and not returned."""
    store = settings.paths
    if settings.yes:
        remove_leftovers(store.root, math.inf)
    unused = [item for item in _artifacts(store) if settings.unfinished or item.kind == "artifact"]
    if settings.yes:
        unused = [item for item in unused if _remove(store, item)]
    return [*unused, *_locks(store, {item.name for item in unused}, settings.yes)]


def as_text(unused: list[Unused], removed: bool) -> str:
    """Return what `clean` returns as text for a terminal."""
    body = [[item.kind, item.name, item.built_by, human_bytes(item.bytes)] for item in unused if item.kind != "lock"]
    locks = sum(item.kind == "lock" for item in unused)
    total = f"{human_bytes(sum(item.bytes for item in unused))} in {len(body)} artifacts and builds, {locks} locks"
    lines = [text_table(("", "key", "", "size"), body, [False, False, False, True])] if body else []
    end = ": removed" if removed else "; remove them with --yes"
    if not unused:
        end = ": nothing to remove"
    return "\n".join([*lines, total + end])


def _artifacts(store: Store) -> Iterator[Unused]:
    """Yield the artifacts and unfinished builds that are not in use."""
    in_use = _in_use(store)
    for path in sorted((store.root / "store").glob("[!.]*")):
        if path.suffix == ".work":
            yield Unused("unfinished build", path.stem, _size(path))
        elif path.is_symlink() and path.name not in in_use:
            kind = _manifest(path).get("kind", "damaged")
            yield Unused("artifact", path.name, _size(path.resolve()), str(kind))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in files_in(folder))


def _named(store: Store) -> set[str]:
    """Return the keys that names point to."""
    keys, root = set(), store.root.resolve()
    store_folder = root / "store"
    for folder in root.glob("[!.]*"):
        if folder == store_folder:
            continue
        for link in folder.rglob("*"):
            if not link.is_symlink():
                continue
            target = Path(os.path.normpath(link.parent / link.readlink()))
            if target.is_relative_to(store_folder):
                keys.add(target.relative_to(store_folder).parts[0].partition(".")[0])
    return keys


def _in_use(store: Store) -> set[str]:
    """Return the keys of named artifacts, of builds in progress, and of all artifacts that these were built from."""
    folder, in_use = store.root / "store", set[str]()
    new = _named(store)
    for building in folder.glob(f".*.partial/{MANIFEST}"):
        new |= set(_manifest(building.parent).get("inputs", {}).values())
    while new:
        in_use |= new
        inputs = [_manifest(folder / key).get("inputs", {}) for key in new]
        new = set().union(*(keys.values() for keys in inputs)) - in_use
    return in_use


def _manifest(folder: Path) -> dict[str, Any]:
    """Return a manifest's values, also those of a build in progress; empty if it is missing or damaged."""
    try:
        values = read_json(folder / MANIFEST)
    except (UserError, OSError):
        return {}
    return values if isinstance(values, dict) else {}


def _remove(store: Store, item: Unused) -> bool:
    """Remove an artifact or the state of a build. Returns False if another command uses it, or has named it."""
    link = store.root / "store" / item.name
    with if_free(link) as free:
        if not free or (item.kind == "artifact" and item.name in _named(store)):
            return False
        folders = [link.with_name(f"{link.name}.work")]
        if item.kind == "artifact":
            link.unlink(missing_ok=True)
            folders = [path for path in link.parent.glob(f"{link.name}.*") if path not in folders]
        for folder in folders:
            discard(folder)
    return True


def _locks(store: Store, removed: set[str], remove: bool) -> list[Unused]:
    """Return the locks that no process holds and that guard nothing, removed if asked for."""
    dead = []
    for file in sorted(store.root.rglob(".*.lock")):
        path = file.with_name(file.name[1:].removesuffix(".lock"))
        if os.path.lexists(path) and path.name not in removed:
            continue
        with if_free(path) as free:
            if free:
                dead.append(Unused("lock", store.relative(file), 0))
                if remove:
                    file.unlink(missing_ok=True)
    return dead
