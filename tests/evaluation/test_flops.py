"""FLOPs by hand: multiply-adds of matrix products, times two."""

import numpy as np
import pytest
import torch
from packed_students import ALIGNED, ARCHS, CLASSIFIER, DIM, HIDDEN, KERNEL, TRANSFORMER, TRANSFORMERS, write_student

from common.data.split import Split
from common.kinds.registry import KINDS
from common.teachers.huggingface.teacher import HuggingFaceTeacher
from compression.evaluation.scoring import flops, multiply_out
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits

CPU = torch.device("cpu")
LABELS = 3
TEXT, OTHER = "a film", "so boring !"
N, M = len(TEXT), len(OTHER)
"""Tokens of students that read characters."""


def split(*pairs):
    first, second = ([pair[side] for pair in pairs if len(pair) > side] for side in range(2))
    return Split(first, second or None, np.zeros(len(pairs), np.int64), np.arange(len(pairs)))


def counted(folder, rows, *about, **given):
    student, tokenizer, _ = load_student(write_student(folder / "s", *about, **given), CPU)
    multiply_out(student)
    return flops(lambda some: student_logits(student, encode_split(tokenizer, some), CPU), rows)


def classifier(width):
    return width * CLASSIFIER + CLASSIFIER * LABELS


def encoded(arch, n, dim=DIM):
    """Multiply-adds of an encoder over n tokens. A transformer reads the special tokens as well."""
    if arch in TRANSFORMERS:
        width, small, inner = (TRANSFORMER[name] for name in ("encoder_hidden_dim", "adapters", "intermediate_dim"))
        linear = 4 * width * width + 2 * width * inner + 2 * 2 * width * small
        layers = TRANSFORMER["iterations" if arch == "recursive" else "layers"]
        return n * dim * width + layers * (n * linear + 2 * n * n * width)
    of_token = {
        "ffn": 0,
        "rnn": 2 * (dim * HIDDEN + HIDDEN * HIDDEN),
        "bilstm": 2 * 4 * (dim * HIDDEN + HIDDEN * HIDDEN),
        "gru": 2 * 3 * (dim * HIDDEN + HIDDEN * HIDDEN),
        "conv": KERNEL * dim * 2 * HIDDEN,
    }
    return n * of_token[arch]


WIDTHS = {"ffn": DIM, "rnn": 2 * HIDDEN, "bilstm": 2 * HIDDEN, "gru": 2 * HIDDEN, "conv": HIDDEN}
WIDTHS |= dict.fromkeys(TRANSFORMERS, TRANSFORMER["encoder_hidden_dim"])


@pytest.mark.parametrize("arch", ARCHS)
def test_a_student_of_single_texts(arch, tmp_path):
    special = 2 if arch in TRANSFORMERS else 0
    expected = 2 * (encoded(arch, N + special) + classifier(WIDTHS[arch]))
    assert counted(tmp_path, split([TEXT]), arch, "char") == expected


def test_a_mean_and_a_maximum_make_the_classifiers_input_twice_as_wide(tmp_path):
    assert counted(tmp_path, split([TEXT]), "ffn", "char", pooling="both") == 2 * classifier(2 * DIM)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_student_of_pairs(arch, tmp_path):
    if arch in TRANSFORMERS:
        expected = 2 * (encoded(arch, N + M + 3) + classifier(WIDTHS[arch]))
    else:
        expected = 2 * (encoded(arch, N) + encoded(arch, M) + classifier(4 * WIDTHS[arch]))
    assert counted(tmp_path, split([TEXT, OTHER]), arch, "char", pair=True) == expected


@pytest.mark.parametrize("arch", ["bilstm", "conv"])
def test_a_student_that_aligns_pairs(arch, tmp_path):
    token = WIDTHS[arch] + DIM
    attention = 3 * N * M * token  # the scores once, and what each text reads of the other
    fusion = (N + M) * 3 * token * WIDTHS[arch]  # the difference needs no product of its own
    encoders = encoded(arch, N, DIM + 1) + encoded(arch, M, DIM + 1)
    expected = 2 * (encoders + attention + fusion + classifier(4 * WIDTHS[arch]))
    assert counted(tmp_path, split([TEXT, OTHER]), arch, "char", **ALIGNED) == expected


@pytest.mark.parametrize("form", ["pruned", "affine-row", "codebook", "product"])
def test_the_form_of_its_matrices_makes_no_difference(form, tmp_path):
    rows = split([TEXT])
    assert counted(tmp_path, rows, "bilstm", "hash", form) == counted(tmp_path, rows, "bilstm", "hash")


def test_the_mean_is_over_texts_without_padding(tmp_path):
    rows = split([TEXT], [OTHER], [OTHER])
    assert counted(tmp_path, rows, "rnn", "char") == round(
        2 * ((encoded("rnn", N) + 2 * encoded("rnn", M)) / 3 + classifier(2 * HIDDEN))
    )


def test_a_teacher(encoder, tmp_path):
    about = CPU, torch.float32, 50
    teacher = HuggingFaceTeacher(encoder, KINDS["labels"], ("bad", "good"), *about, new_head=True)
    n, width, inner = len(teacher.tokenizer(TEXT)["input_ids"]), 16, 32
    layer = n * (4 * width * width + 2 * width * inner) + 2 * n * n * width
    assert flops(teacher.logits, split([TEXT])) == 2 * (layer + width * width + width * 2)
