"""What a packed file says of its model: for a terminal, and as a model card to publish the file with."""

from __future__ import annotations

import json
from pathlib import PurePath

from . import Model

_PIPELINES = {"tags": "token-classification", "answers": "question-answering"}
"""Kind of task -> Hugging Face's name for it; of all others text-classification."""

_CARD = """---
license: other
license_name: unknown
library_name: featherweight
pipeline_tag: {pipeline}
tags:
- featherweight
model_name: {name}
---
# {title}

A text model in one file of {size:,} bytes, `{file}`, packed by Featherweight. Name the licence of the data that it was
trained on in the header above, and its scores and limits here.

{table}

```python
import featherweight

model = featherweight.load("{file}")
model.predict({example})
```
"""


def facts(model: Model) -> dict[str, str]:
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


def card(model: Model, path: str) -> str:
    """Return a model card: Markdown with a YAML header, as Hugging Face reads it. path: of the packed file."""
    file = PurePath(path).name
    rows = [f"| {name} | {value} |".replace("\n", " ") for name, value in facts(model).items()]
    return _CARD.format(
        pipeline=_PIPELINES.get(model.kind, "text-classification"),
        name=json.dumps(model.name),  # YAML reads JSON's strings
        title=" ".join(model.name.split()),
        size=model.bytes,
        file=file if file.endswith(".fwt") else f"{file}.fwt",
        table="\n".join(["| | |", "|---|---|", *rows]),
        example=[("a text", "another text")] if model.pair else ["a text"],
    )
