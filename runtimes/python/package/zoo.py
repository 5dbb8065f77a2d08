"""All models of the project's zoo, as their cards describe them; large ones are not in the wheel."""

from __future__ import annotations

import hashlib
import http.client
import json
import urllib.request
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from . import PackedError, zoo_names
from ._train.compression.classifier import write_whole
from ._train.compression.runtime import PACKED_SUFFIX, zoo_hint

_ZOO = Path(__file__).parent / "_train" / "zoo"
_ADDRESS = ("http://", "https://")
"""How an address starts; urllib opens others, too."""
_SECONDS = 60
"""Longest time to wait for the next bytes of a download."""


def cards() -> list[dict[str, Any]]:
    """Return the cards of the zoo, sorted by task and then by size; zoo/card.py of the repository describes them."""
    read = (json.loads(path.read_text(encoding="utf-8")) for path in _ZOO.glob("*.json"))
    return sorted(read, key=lambda card: (card["task"], card["bytes"]))


def find_card(field: str, value: str) -> dict[str, Any] | None:
    """Return the card with this value of a field, such as its name; None if there is none."""
    return next((card for card in cards() if card[field] == value), None)


def listing() -> str:
    """Return a table of the zoo: for each task the licence of its data, for each model bytes and a score."""
    here, lines = set(zoo_names()), []
    for task, of_task in groupby(cards(), lambda card: card["task"]):
        models = list(of_task)
        notes = models[0]["notes"]
        lines += [f"{task}: {notes['title']}", f"  licence of the data: {notes['licence']}", f"  use: {notes['use']}"]
        for card in models:
            missing = "" if card["name"] in here else "not here"
            lines.append(f"  {card['name']:18} {card['bytes']:8,} bytes   {_score(card):22} {missing}".rstrip())
    return "\n".join([*lines, "", "Copy a model, from a path or an address: featherweight zoo NAME --from FOLDER"])


def _score(card: dict[str, Any]) -> str:
    scores = [split["metrics"] for split in card["test"].values()]
    metric = next(iter(scores[0]))
    return f"{metric.replace('_', ' ')} " + " / ".join(f"{100 * split[metric]:.2f}" for split in scores)


def fetch(name: str, folder: str) -> str:
    """Copy a model of the zoo to the current folder, from one that has its file. Returns the file's name.

    folder: a path, or an http(s) address. Raises PackedError for an unknown name, a file that cannot be read or has
    other bytes than the zoo's, and a copy that cannot be written.
    """
    card = find_card("name", name)
    if card is None:
        raise PackedError(f"{name}: not a model of the zoo{zoo_hint(name)}")
    file = name + PACKED_SUFFIX
    source = f"{folder.rstrip('/')}/{file}" if folder.startswith(_ADDRESS) else str(Path(folder, file))
    try:
        with _opened(source) as stream:
            packed = stream.read(card["bytes"] + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise PackedError(f"{source}: {getattr(error, 'strerror', None) or error}") from None
    if hashlib.sha256(packed).hexdigest() != card["sha256"]:
        raise PackedError(f"{source}: not the zoo's {name}, its SHA-256 differs; nothing is written")
    try:
        write_whole(file, packed)
    except OSError as error:
        raise PackedError(f"{file}: {error.strerror}") from None
    return file


def _opened(source: str) -> BinaryIO:
    if source.startswith(_ADDRESS):
        return urllib.request.urlopen(source, timeout=_SECONDS)
    return Path(source).open("rb")
