"""Students with random weights that answer decidedly, and their own logits."""

import tiny
import torch

from common.data.text import normalise
from common.kinds import registry
from common.kinds.spans import ENDS
from compression.students.batch import EncodedRows
from compression.students.embeddings import load_tokenizer
from compression.students.saved import load_student
from compression.students.scoring import student_logits
from compression.students.settings import StudentSettings
from compression.students.student import Student

CPU = torch.device("cpu")
TEXTS = ["a gorgeous , witty film", "", "boring !", "naïve  café\t☃", "the the the " * 300]
KINDS = {
    "single": {"task": "sst-2", "labels": ("negative", "positive"), "pair": False},
    "pair": {"task": "qqp", "labels": ("different", "same"), "pair": True},
    "aligned": {
        "task": "qqp",
        "labels": ("different", "same"),
        "pair": True,
        "arch": "bilstm",
        "pair_encoder": "align",
    },
    "score": {"task": "sts-b", "labels": (), "pair": True},
}


ANSWERS = {
    "task": "squad",
    "labels": ENDS,
    "pair": True,
    "task_kind": "answers",
    "arch": "conv",
    "pair_encoder": "align",
}


def save(folder, task, labels, pair, arch="ffn", task_kind=None, f1=False, **given):
    sizes = {"embedding_dim": 6, "encoder_hidden_dim": 5, "vocab_size": 90, "cls_hidden_dim": 7, "max_tokens": 50}
    pooling = "mean" if arch == "ffn" else "max"
    settings = StudentSettings(embedding_type="hash", pooling=pooling, **sizes, **given)
    torch.manual_seed(3)
    kind = registry.KINDS[task_kind or ("labels" if labels else "numbers")]
    student = Student(arch, settings, kind.outputs(labels), pair, kind.by_word)
    with torch.no_grad():
        student.classifier[3].weight.value *= 40  # far from one half, and not all alike
    shape = {"task": task, "labels": labels, "pair": pair, "task_kind": kind.name}
    shape |= {"f1": f1, "student": settings.model_dump(mode="json")}
    return tiny.save_student(folder, student, load_tokenizer(settings, folder), arch=arch, **shape)


def own(folder, *sentences):
    """The student's own logits over one list of sentences, or two."""
    student, tokenizer, _ = load_student(folder, CPU)
    encoded = (tokenizer.encode([normalise(text) for text in each]) for each in sentences)
    return student_logits(student, EncodedRows(*encoded), CPU)
