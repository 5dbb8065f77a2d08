"""How much a student's logits change if some of its matrices are replaced."""

import copy
from pathlib import Path

import numpy as np
import torch

from common.data.split import load_split
from common.data.tasks import load_task
from common.progress import without_bars
from common.store.workspace import Workspace
from compression.shrinking.pruning.vocabulary import row_uses
from compression.students.batch import EncodedRows
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits
from compression.students.weights import Dense, replace_matrix

ROWS = {"train": 20_000, "validation": 500}
"""The most rows of each split that are read."""
CPU = torch.device("cpu")


class LogitsProbe:
    """A student in a workspace. uses: name of an embedding's matrix -> how often train reads each row, int64 [rows]."""

    def __init__(self, folder: Path) -> None:
        """folder: workspace/models/TASK/NAME. Raises UserError if there is no student or no data."""
        self.student, tokenizer, config = load_student(folder, CPU)
        paths, task = Workspace(folder.absolute().parents[2]), load_task(config.task)

        def read(name: str) -> EncodedRows:
            split = load_split(paths, task, name)
            return encode_split(tokenizer, split.take(np.arange(min(ROWS[name], len(split)))))

        train, self.rows = read("train"), read("validation")
        texts = [text.ids for text in (train.text, train.second) if text is not None]
        self.uses = row_uses(self.student, np.concatenate(texts))
        self.logits = self._logits({})

    def change(self, replaced: dict[str, torch.Tensor]) -> float:
        """Return the mean squared change of the logits on validation, relative to their variance.

        replaced: name -> the matrix instead, of the same shape.
        """
        difference = self._logits(replaced) - self.logits
        return float((difference**2).mean() / self.logits.var(0).mean())

    def _logits(self, replaced: dict[str, torch.Tensor]) -> np.ndarray:
        student = copy.deepcopy(self.student)
        for name, dense in replaced.items():
            replace_matrix(student, name, Dense(dense.contiguous()))
        with without_bars():
            return student_logits(student, self.rows, CPU)
