"""Classification with a student in PyTorch, as in evaluate.py; see ways.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from ways import Classify, run

from common.progress import show_bars
from compression.students.batch import EncodedRows
from compression.students.saved import load_student
from compression.students.scoring import student_logits

CPU = torch.device("cpu")


def pytorch(model: str) -> Classify:
    """Return a function from sentences to the labels predicted by the student in a folder."""
    torch.set_num_threads(1)
    show_bars(False)
    student, tokenizer, config = load_student(Path(model), CPU)

    def classify(texts: list[str]) -> list[str]:
        logits = student_logits(student, EncodedRows(tokenizer.encode(texts)), CPU)
        return [config.labels[i] for i in logits.argmax(1)]

    return classify


if __name__ == "__main__":
    run(pytorch)
