"""Small tasks, and files of a teacher's answers to their rows."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tiny
import tiny_labels
import tiny_tags
from own_task import NAMES, labelled_rows, own_task, write_yaml

from common.data.prepare import prepare
from common.data.split import load_split
from common.data.tasks import load_task
from common.store.workspace import Workspace
from compression.augmentation.preprocess import preprocess

RNG = np.random.default_rng(7)
GOOD = {"logit_thumbs down": 0.5, "logit_thumbs up": 1}
"""Logits of one row."""


def prepared_task(tmp_path, kind="labels"):
    """(paths, task) of a small task of a kind, with its splits."""
    paths = Workspace(tmp_path / "workspace")
    match kind:
        case "labels":
            task = own_task(tmp_path / "task", labelled_rows(60))
        case "multilabel":
            task = load_task(str(tiny_labels.write_task(tmp_path / "task", tiny_labels.labelled(60))))
        case "tags":
            task = load_task(str(tiny_tags.write_task(tmp_path / "task", 40)))
        case "numbers":
            task = own_task(tmp_path / "task", [(t, 1 + i % 4) for i, (t, _) in enumerate(tiny.sentences(60))],
                            labels=None, kind="numbers", range=[1, 4])  # fmt: skip
        case "pairs":
            rows = [(text, f"{text} again", NAMES[label]) for text, label in tiny.sentences(60)]
            (tmp_path / "task").mkdir()
            with (tmp_path / "task" / "rows.csv").open("w", newline="") as file:
                csv.writer(file).writerows([("review", "reply", "verdict"), *rows])
            columns = {"sentence1": "review", "sentence2": "reply", "label": "verdict"}
            task = load_task(write_yaml(tmp_path / "task", {"all": "rows.csv"}, columns=columns))
    prepare(paths, task, None, tiny.SEED)
    return paths, task


def imported(paths, task, file, name="api", rows=("processed",), **given):
    about = {"model_name": name, "generate_loss": rows, "logits_from": file, **given}
    return preprocess(tiny.prepare_settings(paths.root, task.argument, **about))


def exported(paths, task, file, name="api", rows=("processed",)):
    preprocess(tiny.prepare_settings(paths.root, task.argument, model_name=name, generate_loss=rows, logits_to=file))
    return file


def answers(paths, task, of, name="train"):
    """Objects of a row's texts, under our own names, and `of(row)`, in another order than the rows."""
    split = load_split(paths, task, name)
    rows = [
        dict(zip(("sentence1", "sentence2"), texts, strict=False)) for texts in zip(*split.sentences(), strict=True)
    ]
    return [rows[i] | of(i) for i in RNG.permutation(len(rows))]


def write(path, objects):
    """Objects as a file of the kind that the suffix says."""
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(each) + "\n" for each in objects))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(objects), path)
        case ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(objects[0]))
                writer.writeheader()
                writer.writerows(objects)
    return path


def random_logits(paths, task, name="train"):
    """16-bit floats of all sizes."""
    count = len(load_split(paths, task, name))
    return (RNG.normal(size=(count, task.outputs)) * 10 ** RNG.uniform(-6, 3, (count, 1))).astype(np.float16)
