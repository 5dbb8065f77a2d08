"""What a packed file says of its model: for a terminal, and as a model card to publish the file with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

from . import Model, PackedError, load
from ._train.compression.runtime import PACKED_SUFFIX
from .zoo import find_card

_PIPELINES = {"tags": "token-classification", "answers": "question-answering"}
"""Kind of task -> Hugging Face's name for it; of all others text-classification."""

_CARD = """---
{header}
---
# {title}

{opening}

{facts}

{notes}

```python
import featherweight

model = featherweight.load("{file}")
model.predict({example})
```
"""
_OPENING = "A text model in one file of {size:,} bytes, `{file}`, packed by Featherweight."
_UNKNOWN = "Name the licence of the data that it was trained on in the header above, and its scores and limits here."


def facts(model: Model | SimpleNamespace) -> dict[str, str]:
    """Return the properties of a packed file, in words."""
    answers = {"tags": "a tag for each word", "answers": "a part of the second text, or none", "numbers": "a number"}
    several = "any number of labels" if model.kind == "multilabel" else "one label"
    known = {
        "name": model.name,
        "task": model.task,
        "reads": "pairs of texts" if model.pair else "texts",
        "answers": answers.get(model.kind, several),
        "labels": ", ".join(model.labels),
        "bytes": f"{model.bytes:,}",
        "network": f"{model.arch}, {model.embedding}",
        "threshold": "" if model.threshold is None else f"{model.threshold:.4f}",
    }
    return {name: value for name, value in known.items() if value}


def card(path: str) -> str:
    """Return a model card of a packed file: Markdown with a YAML header, as Hugging Face reads it.

    path: of the file, or the name of a model of the zoo, which need not be here. A file of the zoo is known by its
    SHA-256, and its card has the scores and the licence of the data. Raises PackedError.
    """
    try:
        model = load(path)
        entry = find_card("sha256", hashlib.sha256(model.packed).hexdigest())
        if entry:
            model.name = entry["name"]  # the file may have been renamed
    except PackedError:
        entry = find_card("name", path)
        if entry is None or Path(path).exists():
            raise
        model = _model_of(entry)
    file = PurePath(path).name.removesuffix(PACKED_SUFFIX) + PACKED_SUFFIX
    pipeline = _PIPELINES.get(model.kind, "text-classification")
    header = {
        "license": "other",
        "license_name": f"data-of-{entry['task']}" if entry else "unknown",
        "library_name": "featherweight",
        "pipeline_tag": pipeline,
        "tags": ["featherweight"],
        "model_name": model.name,
        **(_scores_for_machines(entry, pipeline) if entry else {}),
    }
    opening = _OPENING.format(size=model.bytes, file=file)
    rows = [(name, value.replace("\n", " ")) for name, value in facts(model).items()]
    return _CARD.format(
        header="\n".join(f"{name}: {json.dumps(value)}" for name, value in header.items()),  # YAML reads JSON
        title=" ".join(model.name.split()),
        opening=f"{entry['notes']['question']} {opening}" if entry else opening,
        facts=_table(("", ""), rows),
        notes="\n".join(_notes(entry)) if entry else _UNKNOWN,
        file=file,
        example=[("a text", "another text")] if model.pair else ["a text"],
    )


def _model_of(entry: dict[str, Any]) -> SimpleNamespace:
    """Return what `facts` reads of a model, from the zoo's card."""
    kinds = {"words": "tags", "answers": "answers"}
    return SimpleNamespace(
        **{name: entry[name] for name in ("name", "task", "labels", "bytes")},
        pair=entry["kind"] in ("pairs", "answers"),
        kind=kinds.get(entry["kind"], "labels" if entry["labels"] else "numbers"),
        arch=entry["architecture"]["student"],
        embedding=entry["architecture"]["embedding_type"],
        threshold=None,
    )


def _scores_for_machines(entry: dict[str, Any], pipeline: str) -> dict[str, Any]:
    results = [
        {
            "task": {"type": pipeline},
            "dataset": {"name": entry["task"], "type": entry["task"], "split": name},
            "metrics": [{"type": metric, "value": round(value, 4)} for metric, value in split["metrics"].items()],
        }
        for name, split in entry["test"].items()
    ]
    metrics = [metric["type"] for metric in results[0]["metrics"]]
    return {
        "datasets": [entry["task"]],
        "metrics": metrics,
        "model-index": [{"name": entry["name"], "results": results}],
    }


def _notes(entry: dict[str, Any]) -> list[str]:
    notes, splits = entry["notes"], entry["test"]
    scores = [
        (name.replace("_", " "), f"{split['rows']:,}", metric.replace("_", " "), f"{100 * value:.2f}")
        for name, split in splits.items()
        for metric, value in split["metrics"].items()
    ]
    return [
        _table(("rows of", "", "score of this file", "× 100"), scores),
        "",
        "## Data and licence",
        "",
        f"- Data: {notes['data']}, {notes['source']}.",
        f"- Licence of the data: {notes['licence']}.",
        f"- Use, if this licence binds a model that is trained on the data: {notes['use']}.",
        "",
        "## Limits",
        "",
        *(f"- {limit[0].upper()}{limit[1:]}." for limit in notes["limits"]),
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
