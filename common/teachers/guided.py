"""Rows that a model learns from: a share of train, augmented rows of these, and a teacher's answers to both."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from common.data.split import Split, concatenate, find_rows, find_splits, read_split, rows_of_sources
from common.data.tasks import Task
from common.errors import UserError
from common.seeds import drawn
from common.store.artifact import Artifact, read_manifest
from common.store.step import Inputs
from common.store.workspace import Workspace
from common.teachers.logits import find_logits, saved_logits


def learning_inputs(
    paths: Workspace, task: Task, augmented: Iterable[str], teacher: str | None = None, validation: bool = False
) -> dict[str, Artifact]:
    """Return what a model learns from: splits, sets of augmented rows and, with a teacher, its logits over all rows.

    validation: whether it learns from validation's rows too. Raises UserError, with the command to run, if an input is
    missing or out of date.
    """
    inputs = {"splits": find_splits(paths, task)} | {f"rows {name}": find_rows(paths, task, name) for name in augmented}
    if teacher:
        splits = ("train", "validation") if validation else ("train",)
        inputs |= {f"logits {name}": find_logits(paths, task, teacher, name) for name in (*splits, *augmented)}
    return inputs


def held_out_inputs(paths: Workspace, task: Task, split: str, teacher: str | None) -> dict[str, Artifact]:
    """Return the splits and, if no row of the held-out split has a label, the teacher's logits over it.

    Raises UserError if there is no such split.
    """
    splits = find_splits(paths, task)
    labelled = read_manifest(splits.path).facts["labelled"]
    if split not in labelled:
        raise UserError(f"{task.name} was prepared with --no-validation: models are chosen by --select-on test")
    if labelled[split] or teacher is None:
        return {"splits": splits}
    return {"splits": splits, f"logits {split}": find_logits(paths, task, teacher, split)}


def split_file(inputs: Inputs, split: str) -> Path:
    """Return the file of a split, among the inputs of a step that reads splits."""
    return inputs["splits"] / f"{split}.parquet"


def draw_rows(
    inputs: Inputs, seed: int, share: float, bootstrap: float = 1.0, validation: bool = False
) -> tuple[Split, dict[str, np.ndarray]]:
    """Return the rows to learn from, and their indices in each split and in each set of augmented rows.

    inputs, validation: those of `learning_inputs`; share: of the rows of train, with the augmented rows made from
    these; bootstrap: share of those. A pair made of the texts of two rows is included only if both are drawn.
    """
    train = read_split(split_file(inputs, "train"))
    kept = drawn(len(train), share, seed, "downsample")
    split, rows = train.take(kept), {"train": kept}
    if validation:
        more = read_split(split_file(inputs, "validation"))
        split, rows["validation"] = concatenate(split, more), np.arange(len(more))
    others = set(train.texts()).difference(split.texts()) if share < 1 else set()
    for name in augmented_rows(inputs):
        more = read_split(inputs[f"rows {name}"])
        chosen = rows_of_sources(more, kept)
        if others:  # source_rows has the source of a pair's first text alone
            texts = zip(*more.take(chosen).sentences(), strict=True)
            chosen = chosen[[others.isdisjoint(pair) for pair in texts]]
        rows[name] = chosen[drawn(len(chosen), bootstrap, seed, "bootstrap")]
        split = concatenate(split, more.take(rows[name]))
    return split, rows


def augmented_rows(inputs: Inputs) -> list[str]:
    """Return the names of the augmented rows among the inputs of a step, in order."""
    return [role.removeprefix("rows ") for role in inputs if role.startswith("rows ")]


def with_answers(inputs: Inputs, task: Task, split: Split, rows: Mapping[str, np.ndarray]) -> tuple[Split, np.ndarray]:
    """Return the rows that `draw_rows` returned, with labels for all, and the teacher's logits over them.

    The label of an augmented or unlabelled row is the teacher's choice.
    """
    parts = [saved_logits(task, inputs[f"logits {name}"])[chosen] for name, chosen in rows.items()]
    logits = task.kind.join_logits(parts)
    augmented = sum(len(rows[name]) for name in augmented_rows(inputs))
    are_own = np.arange(len(split)) < len(split) - augmented
    return split.with_choices(task, logits, split.labelled & are_own), logits
