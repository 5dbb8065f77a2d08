"""Exact values of the losses of logits, worked out by hand."""

import math

import pytest
import torch

from common.kinds.registry import LABELS as LABELLED
from common.kinds.registry import MULTILABEL, NUMBERS
from common.training.losses import combined, kl, mse, temperature_softmax

LOG_3 = math.log(3)
STUDENT = torch.tensor([[0.0, LOG_3], [0.0, 0.0]])  # softmax: [1/4, 3/4], [1/2, 1/2]
TEACHER = torch.tensor([[LOG_3, 0.0], [0.0, 0.0]])  # softmax: [3/4, 1/4], [1/2, 1/2]
LABELS, UNLABELLED = torch.tensor([1, 0]), torch.tensor([-1, -1])
CROSS_ENTROPY = (math.log(4 / 3) + math.log(2)) / 2


def close(loss, value):
    assert loss.shape == ()
    assert loss.item() == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_losses_of_logits(temperature):
    odds = 3 ** (1 / temperature)  # softmax of log(3) / temperature against 0
    difference = 2 * odds / (1 + odds) - 1
    close(mse(STUDENT, TEACHER, temperature), 2 * LOG_3**2 / 4)
    close(temperature_softmax(STUDENT, TEACHER, temperature), 2 * difference**2 / 4)
    close(kl(STUDENT, TEACHER, temperature), temperature**2 * difference * LOG_3 / temperature / 2)
    close(kl(TEACHER, TEACHER, temperature), 0.0)


def test_the_direction_of_kl_is_teacher_first():
    # KL(teacher || student) with teacher [1/4, 3/4], student [1/2, 1/2].
    one, other = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, LOG_3]])
    close(kl(one, other, 1.0), 0.25 * math.log(0.5) + 0.75 * math.log(1.5))


@pytest.mark.parametrize(
    ("labels", "teacher", "alpha", "loss", "value"),  # at a temperature of 1
    [
        (LABELS, TEACHER, 1.0, "mse", CROSS_ENTROPY),
        (LABELS, None, 1.0, "kl", CROSS_ENTROPY),
        (LABELS, TEACHER, 0.0, "mse", LOG_3**2 / 2),
        (UNLABELLED, TEACHER, 0.0, "mse", LOG_3**2 / 2),
        (UNLABELLED, TEACHER, 0.0, "temperature-softmax", 0.125),
        (LABELS, TEACHER, 0.25, "kl", 0.25 * CROSS_ENTROPY + 0.75 * LOG_3 / 4),
        (LABELS, TEACHER, 0.5, "kl", 0.5 * CROSS_ENTROPY + 0.5 * LOG_3 / 4),
    ],
)
def test_alpha_weighs_labels_and_teacher(labels, teacher, alpha, loss, value):
    close(combined(LABELLED, STUDENT, labels, teacher, alpha, loss, 1.0), value)


def test_the_temperature_reaches_the_loss():
    assert combined(LABELLED, STUDENT, LABELS, TEACHER, 0.0, "kl", 2.0) == kl(STUDENT, TEACHER, 2.0)


@pytest.mark.parametrize(("alpha", "value"), [(0.0, 1 / 32), (0.5, (1 / 32 + 1 / 8) / 2), (1.0, 1 / 8)])
def test_a_regressions_losses_are_squared_errors(alpha, value):
    student, teacher, scores = torch.tensor([[0.5], [1.0]]), torch.tensor([[0.25], [1.0]]), torch.tensor([0.0, 1.0])
    close(combined(NUMBERS, student, scores, teacher, alpha, "mse", 3.0), value)


LISTS = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
SIGMOIDS = torch.tensor([[0.75, 0.5], [0.5, 0.25]]), torch.tensor([[0.5, 0.25], [0.5, 0.5]])
"""Probabilities of the student and of the teacher."""
STUDENT_OF_LISTS, TEACHER_OF_LISTS = map(torch.logit, SIGMOIDS)
LIST_ENTROPY = (-math.log(0.75) - math.log(0.5) - math.log(0.5) - math.log(0.75)) / 4


def bernoulli_by_hand(teacher, student):
    yes, no = teacher * math.log(teacher / student), (1 - teacher) * math.log((1 - teacher) / (1 - student))
    return yes + no


KL_OF_LISTS = (bernoulli_by_hand(0.5, 0.75) + bernoulli_by_hand(0.25, 0.5) + bernoulli_by_hand(0.5, 0.25)) / 4


@pytest.mark.parametrize(
    ("teacher", "alpha", "loss", "value"),  # at a temperature of 1
    [
        (None, 1.0, "kl", LIST_ENTROPY),
        (TEACHER_OF_LISTS, 1.0, "mse", LIST_ENTROPY),
        (TEACHER_OF_LISTS, 0.0, "mse", 3 * LOG_3**2 / 4),
        (TEACHER_OF_LISTS, 0.0, "temperature-softmax", 3 * 0.25**2 / 4),
        (TEACHER_OF_LISTS, 0.0, "kl", KL_OF_LISTS),
        (TEACHER_OF_LISTS, 0.25, "kl", 0.25 * LIST_ENTROPY + 0.75 * KL_OF_LISTS),
    ],
)
def test_labels_of_a_list_are_independent(teacher, alpha, loss, value):
    close(combined(MULTILABEL, STUDENT_OF_LISTS, LISTS, teacher, alpha, loss, 1.0), value)
    if alpha == 0:  # rows without labels
        close(combined(MULTILABEL, STUDENT_OF_LISTS, LISTS * math.nan, teacher, alpha, loss, 1.0), value)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_temperatures_divide_the_logits_of_independent_labels(temperature):
    shares = [(logits / temperature).sigmoid().flatten().tolist() for logits in (TEACHER_OF_LISTS, STUDENT_OF_LISTS)]
    pairs = list(zip(*shares, strict=True))
    hard = temperature**2 * sum(bernoulli_by_hand(*pair) for pair in pairs) / 4
    close(kl(STUDENT_OF_LISTS, TEACHER_OF_LISTS, temperature, True), hard)
    squares = sum((teacher - student) ** 2 for teacher, student in pairs) / 4
    close(temperature_softmax(STUDENT_OF_LISTS, TEACHER_OF_LISTS, temperature, True), squares)
    assert kl(TEACHER_OF_LISTS, TEACHER_OF_LISTS, temperature, True) == 0


def test_sure_answers_have_finite_losses_and_gradients():
    student, teacher = torch.tensor([[200.0, -200.0]], requires_grad=True), torch.tensor([[-200.0, -200.0]])
    loss = combined(MULTILABEL, student, torch.tensor([[0.0, 0.0]]), teacher, 0.5, "kl", 1.0)
    loss.backward()
    close(loss, (100 + 100) / 2)
    assert student.grad.flatten().tolist() == pytest.approx([0.5, 0.0])
