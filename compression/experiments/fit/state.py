"""Decisions of a fit, saved in a file so that a resumed fit decides the same and finds the models already built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from common.config import Settings, build
from common.errors import UserError
from common.store.files import read_json, write_json

FILE = "fit.json"
OPENING = "opening"
"""Name of the first decision."""
TEACHER = "teacher"
"""Name of the teacher in the workspace."""
TRAINED, TUNED, PACKED = "trained", "tuned", "packed"
"""First words of the decisions about a student; the second word is its name in the workspace."""
S = TypeVar("S", bound=Settings)


class State:
    """Decisions taken so far. identity: fingerprint of the user's file."""

    def __init__(self, folder: Path, identity: str) -> None:
        """Read the decisions in the experiment's folder. Raises UserError if they belong to a different user file."""
        self.file = folder / FILE
        self.values: dict[str, Any] = read_json(self.file) if self.file.exists() else {"identity": identity}
        if not isinstance(self.values, dict) or self.values.get("identity") != identity:
            raise UserError(
                f"experiment {folder.name}: the file has changed since the experiment started; "
                "start over with --force, or give another --name"
            )

    def get(self, name: str, cls: type[S]) -> S | None:
        """Return a decision, or None if it has not been taken yet."""
        return build(cls, self.values[name]) if name in self.values else None

    def decide(self, name: str, cls: type[S], choose: Callable[[], S]) -> S:
        """Return the saved decision, or take it with `choose` and save it."""
        before = self.get(name, cls)
        if before is not None:
            return before
        self.save(name, choose())
        return build(cls, self.values[name])

    def save(self, name: str, value: Settings) -> None:
        """Save a value, in place of the one saved before."""
        self.values[name] = value.model_dump(mode="json")
        write_json(self.file, self.values)


def models_in(folder: Path) -> list[str]:
    """Return the names of the models that the decisions in an experiment's folder are about, and the teacher's."""
    try:
        words = [name.partition(" ") for name in read_json(folder / FILE)]
    except (UserError, OSError, TypeError, AttributeError):  # missing or damaged
        words = []
    return [TEACHER, *dict.fromkeys(model for kind, _, model in words if kind in (TRAINED, TUNED, PACKED))]
