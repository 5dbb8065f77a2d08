"""Quantization-aware training: the student sees what will be saved, gradients go straight through, and it helps."""

import itertools

import numpy as np
import pytest
import tiny
import torch

from common.data.data import load_split
from common.data.tasks import load_task
from common.store.workspace import Workspace
from compression.shrinking.chain import compress
from compression.shrinking.quantization.aware import FITS, Aware, Refitter, settle
from compression.shrinking.quantization.scheme import Scheme
from compression.students.batch import Batch
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.students.weights import Affine, Codebook, matrices, replace_matrix

CPU = torch.device("cpu")
SCHEMES = [
    Scheme("affine", 4),
    Scheme("affine", 2, "tensor"),
    Scheme("affine", 3, "column", "minmax"),
    Scheme("ternary", 2),
    Scheme("codebook", 3, "tensor"),
]


def weights():
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
    weight[:, ::3] = 0
    return weight


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_it_computes_with_exactly_what_is_saved(scheme):
    aware = Aware(weights(), scheme)
    with torch.no_grad():
        aware.value += 0.1 * weights()
    saved = aware.rounded()
    assert isinstance(saved, Codebook if scheme.quantizer == "codebook" else Affine)
    assert torch.equal(aware.dense(), saved.dense())
    ids = torch.tensor([[3, 0], [3, 5]])
    assert torch.equal(aware.select(ids), saved.select(ids))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_the_gradient_goes_straight_through_but_not_to_what_is_pruned(scheme):
    aware, factors = Aware(weights(), scheme), torch.arange(48.0).view(6, 8)
    (aware.dense() * factors).sum().backward()
    assert torch.equal(aware.value.grad, factors.masked_fill(weights() == 0, 0))
    aware.value.grad = None
    aware.select(torch.tensor([1, 1])).sum().backward()
    expected = torch.zeros(6, 8)
    expected[1] = 2.0
    assert torch.equal(aware.value.grad, expected.masked_fill(weights() == 0, 0))


def small_student():
    torch.manual_seed(1)
    sizes = {"embedding_dim": 6, "vocab_size": 40, "encoder_hidden_dim": 5, "cls_hidden_dim": 7}
    return Student("bilstm", StudentSettings(**sizes), outputs=2, pair=False).eval()


def test_settling_changes_no_logit():
    student = small_student()
    for name, matrix in list(matrices(student)):
        replace_matrix(student, name, Aware(matrix.dense().detach(), Scheme("affine", 3)))
    text = Batch(torch.randint(0, 40, (3, 9, 1)), torch.tensor([9, 2, 5]))
    with torch.no_grad():
        before = student(text)
        settle(student)
        assert torch.equal(student(text), before)
    assert all(isinstance(matrix, Affine) for _, matrix in matrices(student))


def test_ranges_follow_the_weights_now_and_then():
    student = small_student()
    aware = Aware(weights(), Scheme("affine", 3))
    replace_matrix(student, "classifier.0.weight", aware)
    refitter, steps = Refitter(student), 200
    fits = 0
    for before, after in itertools.pairwise(step / steps for step in range(steps + 1)):
        with torch.no_grad():
            aware.value *= 1.01
        scale = aware.scale
        refitter.step(before, after)
        fits += not torch.equal(aware.scale, scale)
    assert fits == FITS
    assert refitter.finished(0.0)
    torch.testing.assert_close(aware.scale, Scheme("affine", 3).fit(aware.value.detach())["scale"])


def quantized(workspace, parent, **way):
    values = tiny.small(augmented="tinybert", batch_size=16, **way)
    actions = {"compression_actions": ("quantize",), "load_trained_model": parent.name}
    return compress(tiny.compress_settings(task="sst-2", workspace=workspace, **actions, **values))[0]


def logits(folder, workspace):
    student, tokenizer, _ = load_student(folder, CPU)
    split = load_split(Workspace(workspace), load_task("sst-2"), "test")
    return student_logits(student, encode_split(tokenizer, split), CPU)


SLOWLY = {"epochs": 8, "dropout": 0.0}
"""A convolution of five units has hardly begun to learn after three epochs."""


@pytest.mark.parametrize(
    ("arch", "embedding", "how"),
    [("bilstm", "bpe", {}), ("rnn", "char", {}), ("ffn", "hash", {}), ("conv", "bpe", SLOWLY)],
)
def test_training_brings_a_student_of_two_bits_nearer_to_what_it_was(workspace, arch, embedding, how):
    values = tiny.small(**{"student_arch": arch, "embedding_type": embedding, "epochs": 3, **how})
    (parent,) = compress(tiny.compress_settings(task="sst-2", workspace=workspace, **values))
    way = {"bits": 2, "guide": "student", "tune_lr": 0.01, "loss": "mse"}  # a distance of logits
    at_once, tuned = quantized(workspace, parent, **way), quantized(workspace, parent, tune_epochs=4, **way)
    assert tuned.name.startswith(f"{at_once.name}-t4s")
    exact, *changed = (logits(folder, workspace) for folder in (parent, at_once, tuned))
    before, after = (float(np.square(other - exact).mean()) for other in changed)
    assert after < 0.7 * before


@pytest.mark.parametrize("guide", ["teacher", "student"])
def test_the_same_command_gives_the_same_bytes(workspace, guide):
    values = tiny.small(student_arch="ffn", embedding_type="hash", epochs=1)
    (parent,) = compress(tiny.compress_settings(task="sst-2", workspace=workspace, **values))
    way = {"bits": 3, "quantizer": "codebook", "guide": guide, "tune_epochs": 1}
    once = (quantized(workspace, parent, **way) / "model.safetensors").read_bytes()
    assert (quantized(workspace, parent, force=True, **way) / "model.safetensors").read_bytes() == once
