"""A task of the user's own: a YAML file with columns review and verdict, and files of every kind."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import tiny

from common.data.tasks import load_task
from common.data.text import normalise

NAMES = ("thumbs down", "thumbs up")
WORLD = [
    "שלום עולם, מה שלומך?",
    "مرحبا بالعالم",
    "great 👍🏽👨‍👩‍👧 !",
    "😀",
    "😡",
    "नमस्ते दुनिया",
    "❤",
    "☹",
    "日本語の文",
]
"""Right-to-left text, emoji made of several characters, text of nothing but symbols, combining vowels."""


def write_yaml(folder, files, name="mine", **changed):
    """The YAML file of a task with columns review and verdict."""
    columns = {"sentence1": "review", "label": "verdict"}
    task = {"name": name, "labels": list(NAMES), "columns": columns, "source": {"files": files}, **changed}
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({key: value for key, value in task.items() if value is not None}))
    return str(path)


def write_csv(path, rows, header=("review", "verdict")):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def write_tsv(path, rows):
    lines = ["review\tverdict", *(f"{normalise(text)}\t{label}" for text, label in rows)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


def write_jsonl(path, rows):
    lines = (json.dumps({"verdict": label, "review": text}, ensure_ascii=len(text) % 2 == 0) for text, label in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


def write_parquet(path, rows):
    texts, labels = zip(*rows, strict=True)
    pq.write_table(pa.table({"verdict": pa.array(labels).dictionary_encode(), "review": list(texts)}), path)


WRITERS = {"csv": write_csv, "tsv": write_tsv, "jsonl": write_jsonl, "parquet": write_parquet}


def labelled_rows(count=160, gaps=0):
    """Rows of a learnable task; every `gaps`-th has no label."""
    texts = tiny.sentences(count)
    return [(text, "" if gaps and i % gaps == 0 else NAMES[label]) for i, (text, label) in enumerate(texts)]


def own_task(folder, rows, name="mine", **changed):
    """A task of one CSV file, loaded."""
    folder.mkdir(exist_ok=True)
    write_csv(folder / "rows.csv", rows)
    return load_task(write_yaml(folder, {"all": "rows.csv"}, name, **changed))
