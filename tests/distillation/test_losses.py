"""Exact values of every loss, worked out by hand."""

import math

import pytest
import torch

from compression.distillation.losses import (
    attention_kl,
    attention_mse,
    combined,
    hidden_cosine,
    hidden_mse,
    kl,
    mse,
    temperature_softmax,
)

STUDENT = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])  # softmax: [1/4, 3/4], [1/2, 1/2]
TEACHER = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])  # softmax: [3/4, 1/4], [1/2, 1/2]
LABELS = torch.tensor([1, 0])
CROSS_ENTROPY = (math.log(4 / 3) + math.log(2)) / 2


def close(loss, value):
    assert loss.shape == ()
    assert loss.item() == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 9.0])
def test_mse_is_the_mean_over_batch_and_classes_whatever_the_temperature(temperature):
    close(mse(STUDENT, TEACHER, temperature), 2 * math.log(3) ** 2 / 4)


def share_at(temperature):
    """softmax of log(3) / temperature against 0."""
    odds = 3 ** (1 / temperature)
    return odds / (1 + odds)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_temperature_softmax(temperature):
    close(temperature_softmax(STUDENT, TEACHER, temperature), 2 * (2 * share_at(temperature) - 1) ** 2 / 4)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_kl_has_the_factor_t_squared(temperature):
    row = (2 * share_at(temperature) - 1) * math.log(3) / temperature
    close(kl(STUDENT, TEACHER, temperature), temperature**2 * row / 2)


def test_kl_of_equal_logits_is_zero_and_its_direction_is_teacher_first():
    close(kl(TEACHER, TEACHER, 3.0), 0.0)
    one, other = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, math.log(3)]])
    # KL(teacher || student) with teacher [1/4, 3/4], student [1/2, 1/2].
    close(kl(one, other, 1.0), 0.25 * math.log(0.5) + 0.75 * math.log(1.5))


def test_the_size_of_kl_gradients_hardly_depends_on_temperature():
    sizes = []
    for temperature in (10.0, 100.0):
        student = STUDENT.clone().requires_grad_()
        kl(student, TEACHER, temperature).backward()
        sizes.append(student.grad.norm().item())
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


def test_alpha_one_is_the_labels_alone():
    close(combined(STUDENT, LABELS, TEACHER, 1.0, "mse", 3.0), CROSS_ENTROPY)
    close(combined(STUDENT, LABELS, None, 1.0, "kl", 3.0), CROSS_ENTROPY)


@pytest.mark.parametrize(("loss", "value"), [("mse", math.log(3) ** 2 / 2), ("temperature-softmax", 0.125)])
@pytest.mark.parametrize("labels", [LABELS, torch.tensor([-1, -1])], ids=["labelled", "unlabelled"])
def test_alpha_zero_is_the_teacher_alone(loss, value, labels):
    close(combined(STUDENT, labels, TEACHER, 0.0, loss, 1.0), value)


@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_between_them_both_are_weighed(alpha):
    distillation = math.log(3) / 4
    close(combined(STUDENT, LABELS, TEACHER, alpha, "kl", 1.0), alpha * CROSS_ENTROPY + (1 - alpha) * distillation)


def test_the_temperature_reaches_the_loss():
    losses = {combined(STUDENT, LABELS, TEACHER, 0.0, "kl", t).item() for t in (1.0, 2.0, 4.0)}
    assert len(losses) == 3


SCORES, SCORED, TAUGHT = torch.tensor([[0.5], [1.0]]), torch.tensor([0.0, 1.0]), torch.tensor([[0.25], [1.0]])


@pytest.mark.parametrize(("alpha", "value"), [(0.0, 1 / 32), (0.5, (1 / 32 + 1 / 8) / 2), (1.0, 1 / 8)])
def test_a_regressions_losses_are_squared_errors(alpha, value):
    close(combined(SCORES, SCORED, TAUGHT, alpha, "mse", 3.0), value)


MASK = torch.tensor([[True, True], [True, False]])
"""Of two texts of at most two tokens; the fourth position is padding, with any content."""


def test_losses_of_hidden_states_are_means_over_tokens():
    student = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [9.0, 9.0]]])
    teacher = torch.tensor([[[1.0, 0.0], [2.0, 0.0]], [[-1.0, 0.0], [0.0, 0.0]]])
    close(hidden_mse(student, teacher, MASK), (0 + (4 + 4) / 2 + 16 / 2) / 3)
    close(hidden_cosine(student, teacher, MASK), (0 + 1 + 2) / 3)
    assert hidden_cosine(5 * student, teacher, MASK).item() == pytest.approx(1)


def test_losses_of_attention_maps_are_means_over_heads_and_tokens():
    # One head; maps [text, head, token, what it attends to].
    student = torch.tensor([[[[0.5, 0.5], [0.5, 0.5]]], [[[1.0, 0.0], [0.3, 0.7]]]])
    teacher = torch.tensor([[[[0.75, 0.25], [0.5, 0.5]]], [[[1.0, 0.0], [1.0, 0.0]]]])
    close(attention_mse(student, teacher, MASK), 2 * 0.25**2 / 3)
    close(attention_kl(student, teacher, MASK), (0.75 * math.log(1.5) + 0.25 * math.log(0.5)) / 3)
    two_heads = [torch.cat([maps, maps], 1) for maps in (student, teacher)]
    assert attention_kl(*two_heads, MASK).item() == pytest.approx(attention_kl(student, teacher, MASK).item())
