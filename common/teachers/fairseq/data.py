"""A task's rows in fairseq's binary format, as its GLUE preprocessing writes them."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.data.ragged import EncodedText
from common.data.tasks import Task
from common.teachers.fairseq.tokens import RobertaTokens


def binarize(folder: Path, name: str, rows: EncodedText, labels: np.ndarray, tokens: RobertaTokens, task: Task) -> None:
    """Write a split as fairseq's "train" or "valid", whichever `name` is.

    labels: class indices, or for regression scores scaled to [0, 1]. input0 holds rows as the model reads them, with
    special tokens, so that training and scoring cannot differ. The label dictionary keeps the order of the classes.
    """
    for part in ("input0", "label"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(tokens.files["dict.txt"], folder / "input0" / "dict.txt")
    ids = (rows.ids[start:end, 0] for start, end in zip(rows.offsets, rows.offsets[1:], strict=False))
    _write_rows(folder / "input0" / name, ids, len(tokens))
    if task.regression:
        (folder / "label" / f"{name}.label").write_text("".join(f"{score}\n" for score in labels.tolist()))
        return
    (folder / "label" / "dict.txt").write_text("".join(f"{i} 1\n" for i in range(task.outputs)))
    _write_rows(folder / "label" / name, ([tokens.dictionary.nspecial + label] for label in labels), task.outputs)


def _write_rows(path: Path, rows: Iterable[Any], symbols: int) -> None:
    from fairseq.data import indexed_dataset

    builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", vocab_size=symbols)
    for row in rows:
        builder.add_item(torch.as_tensor(np.asarray(row, np.int64)))
    builder.finalize(f"{path}.idx")
