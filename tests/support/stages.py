"""Scores of a saved model, and a student's logits, as the commands make them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.data.split import Split
from compression.evaluation.evaluate import evaluate
from compression.evaluation.settings import EvaluateSettings
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits

CPU = torch.device("cpu")


def scored(workspace: Path, name: str | Path, task: str = "sst-2", **given: Any) -> list[dict[str, Any]]:
    """The rows of a model's scores, one for each test split."""
    settings = {"task": task, "workspace": workspace, "model_name": str(name), "cpu": True, "loadbar": False}
    return evaluate(EvaluateSettings(**{**settings, **given}))


def score_of(workspace: Path, name: str | Path, task: str = "sst-2", **given: Any) -> dict[str, Any]:
    """The scores of a model on a task with one test split."""
    (row,) = scored(workspace, name, task, **given)
    return row


def logits_of(folder: Path, split: Split) -> np.ndarray:
    """Logits of the student of a folder over the rows of a split, float32 [n, outputs]."""
    student, tokenizer, _ = load_student(folder, CPU)
    return student_logits(student, encode_split(tokenizer, split), CPU)
