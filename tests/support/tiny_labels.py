"""A tiny corpus of texts with any number of labels: what a film review praises, and which parts it names."""

import json
from pathlib import Path

import tiny
import yaml

LABELS = ["praise", "film", "plot"]


def labelled(rows: int) -> list[tuple[str, list[str]]]:
    """Texts and their labels: some have none, and some all."""
    found = []
    for text, good in tiny.sentences(rows):
        words = text.split()
        found.append((text, ["praise"] * good + [label for label in LABELS[1:] if label in words]))
    return found


def write_rows(path: Path, rows: list[tuple[str, list[str] | None]]) -> None:
    """A JSONL file of texts and lists of labels."""
    path.write_text("".join(json.dumps({"text": text, "label": labels}) + "\n" for text, labels in rows))


def write_task(folder: Path, rows: list[tuple[str, list[str] | None]], **changed: object) -> Path:
    """A JSONL file of texts and its task's YAML file, whose path is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "rows.jsonl", rows)
    task = {"name": "topics", "kind": "multilabel", "labels": LABELS, "source": {"files": {"all": "rows.jsonl"}}}
    (folder / "topics.yaml").write_text(yaml.safe_dump({**task, **changed}))
    return folder / "topics.yaml"
