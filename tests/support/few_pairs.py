"""A small QQP whose train shares questions with dev, as the real one does."""

from pathlib import Path

import tiny

from common.data.split import Split, read_split
from common.data.text import near_key
from common.store.workspace import Workspace
from compression.augmentation.preprocess import preprocess

Rows = list[tuple[str, str, int]]


def prepared(folder: Path, train: Rows, dev: Rows) -> Workspace:
    """A workspace with the splits of QQP; validation is drawn from train."""
    header = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
    for name, rows in (("train", train), ("dev", dev)):
        lines = [[str(i), "0", "0", a, b, str(y)] for i, (a, b, y) in enumerate(rows)]
        tiny.write_tsv(folder / "QQP" / f"{name}.tsv", header, lines)
    preprocess(tiny.prepare_settings(folder / "w", "qqp", data_dir=folder))
    return Workspace(folder / "w")


def augmented(paths: Workspace, method: str, task: str = "qqp", **given) -> Split:
    """Rows by a method of --augment."""
    preprocess(tiny.prepare_settings(paths.root, task, augment=method, **given))
    return read_split(paths.augmented(task, given.get("augmented", method)))


def splits(paths: Workspace) -> tuple[Split, list[Split]]:
    """QQP's train and its held-out splits."""
    train, *others = (read_split(paths.split("qqp", name)) for name in ("train", "validation", "test"))
    return train, others


def pairs_of(rows: Split) -> list[tuple[str, str]]:
    """The near keys of each pair."""
    return list(zip(*(map(near_key, column) for column in rows.sentences()), strict=True))


def texts_of(*several: Split) -> set[str]:
    """The near keys of all texts."""
    return {near_key(text) for rows in several for column in rows.sentences() for text in column}
