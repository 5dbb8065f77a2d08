"""A tiny corpus of texts with any number of labels: each label has words of its own."""

import json
from pathlib import Path

import numpy as np
import tiny
import yaml

WORDS = {"praise": tiny.GOOD, "house": tiny.THINGS[:4], "work": tiny.VERBS}
LABELS = list(WORDS)


def labelled(rows: int) -> list[tuple[str, list[str]]]:
    """Texts and their labels, of which some have none and some all: two words of each label, and words of none."""
    rng = np.random.default_rng(tiny.SEED)
    found = []
    for row in range(rows):
        labels = [label for label in LABELS if rng.random() < 0.4]
        words = [*rng.choice(tiny.NOUNS, 2, replace=False), f"{row} days"]
        words += [word for label in labels for word in rng.choice(WORDS[label], 2, replace=False)]
        found.append((" and ".join(rng.permutation(words)), labels))
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
