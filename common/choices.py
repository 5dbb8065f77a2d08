"""Registries: dicts of the records that a flag chooses from. Its values, its help, and refusals are read from them."""

import dataclasses
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

from common.config import Uses, flag


@dataclasses.dataclass(frozen=True)
class Choice:
    """A record of a registry."""

    help: str
    """What it does, for --help."""
    path: str
    """Module and name, as in "package.module:name", of the function or class that does it."""
    settings: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)
    """Settings that only this choice, and others that name them, take."""

    @property
    def function(self) -> Any:
        """What `path` names; imported only here, because --help does not wait for PyTorch."""
        return pkgutil.resolve_name(self.path)


def described(text: str, choices: Mapping[str, Choice]) -> str:
    """Return the help of a flag: a text, followed by what each choice does."""
    return f"{text} " + "; ".join(f"{name}: {choice.help}" for name, choice in choices.items()) + "."


def one_of(names: Sequence[str]) -> str:
    """Return the names as "a, b or c"."""
    return f"{', '.join(names[:-1])} or {names[-1]}" if names[1:] else names[0]


def used_by(field: str, chosen: str | None, choices: Mapping[str, Choice]) -> Uses:
    """Yield groups, as `Settings._uses`, of the settings that some choices take. chosen: None for no choice."""
    for name in dict.fromkeys(name for choice in choices.values() for name in choice.settings):
        takers = [key for key, choice in choices.items() if name in choice.settings]
        yield chosen in takers, [name], f"without {flag(field)} {one_of(takers)}"
