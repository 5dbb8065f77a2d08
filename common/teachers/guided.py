"""Rows that a model learns from: a share of train, augmented rows of these, and a teacher's answers to both."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from common.data.split import Split, concatenate, load_split, rows_of_sources
from common.data.tasks import Task
from common.seeds import drawn
from common.store.workspace import Workspace
from common.teachers.logits import load_logits


def draw_rows(
    paths: Workspace, task: Task, augmented: Iterable[str], seed: int, share: float, bootstrap: float = 1.0
) -> tuple[Split, dict[str, np.ndarray]]:
    """Return the rows to learn from, and their indices in the split "train" and in each set of augmented rows.

    share: of the rows of train, with the augmented rows made from these; bootstrap: share of those. A pair made of the
    texts of two rows is included only if both are drawn.
    """
    train = load_split(paths, task, "train")
    kept = drawn(len(train), share, seed, "downsample")
    split, rows = train.take(kept), {"train": kept}
    others = set(itertools.chain(*train.sentences())).difference(*split.sentences()) if share < 1 else set()
    for name in augmented:
        more = load_split(paths, task, name)
        chosen = rows_of_sources(more, kept)
        if others:  # source_rows has the source of a pair's first text alone
            texts = zip(*more.take(chosen).sentences(), strict=True)
            chosen = chosen[[others.isdisjoint(each) for each in texts]]
        rows[name] = chosen[drawn(len(chosen), bootstrap, seed, "bootstrap")]
        split = concatenate(split, more.take(rows[name]))
    return split, rows


def with_answers(
    paths: Workspace, task: Task, teacher: str, split: Split, rows: Mapping[str, np.ndarray]
) -> tuple[Split, np.ndarray]:
    """Return the rows that `draw_rows` returned, with labels for all, and the teacher's logits over them.

    The label of an augmented or unlabelled row is the teacher's choice. Raises UserError as `load_logits` does.
    """
    logits = task.kind.join_logits([load_logits(paths, task, teacher, name)[chosen] for name, chosen in rows.items()])
    own = np.arange(len(split)) < len(rows["train"])
    return split.with_choices(task, logits, split.labelled & own), logits
