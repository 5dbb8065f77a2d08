"""The kinds of task, by name."""

from typing import Annotated

import pydantic

from common.kinds.answers import Answers
from common.kinds.base import Kind, Labels
from common.kinds.multilabel import Multilabel
from common.kinds.numbers import Numbers
from common.kinds.tags import Tags

LABELS, MULTILABEL, NUMBERS, TAGS, ANSWERS = Labels(), Multilabel(), Numbers(), Tags(), Answers()
KINDS: dict[str, Kind] = {kind.name: kind for kind in (LABELS, MULTILABEL, NUMBERS, TAGS, ANSWERS)}
"""Name of a kind in YAML files, flags and manifests -> its object. A further kind adds itself here."""


def kind_of(name: str | Kind) -> Kind:
    """Return the kind of that name. Raises ValueError for an unknown name."""
    if isinstance(name, Kind):
        return name
    if name not in KINDS:
        raise ValueError(f"unknown kind {name!r} ({', '.join(KINDS)})")
    return KINDS[name]


NamedKind = Annotated[
    Kind, pydantic.PlainValidator(kind_of), pydantic.PlainSerializer(lambda kind: kind.name, return_type=str)
]
"""Type of a field of settings that holds a kind and is written as its name."""
