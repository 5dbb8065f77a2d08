"""Exact values of the losses of hidden states and attention maps, worked out by hand."""

import math

import pytest
import torch

from compression.distillation.state_losses import (
    attention_kl,
    attention_mse,
    attention_score_mse,
    hidden_cosine,
    hidden_mse,
)


def close(loss, value):
    assert loss.shape == ()
    assert loss.item() == pytest.approx(value, rel=1e-5)


MASK = torch.tensor([[True, True], [True, False]])
"""Of two texts of at most two tokens; the fourth position is padding, with any content."""


def test_losses_of_hidden_states_are_means_over_tokens():
    student = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [9.0, 9.0]]])
    teacher = torch.tensor([[[1.0, 0.0], [2.0, 0.0]], [[-1.0, 0.0], [0.0, 0.0]]])
    close(hidden_mse(student, teacher, MASK), (0 + (4 + 4) / 2 + 16 / 2) / 3)
    close(hidden_cosine(student, teacher, MASK), (0 + 1 + 2) / 3)
    close(hidden_cosine(5 * student, teacher, MASK), 1)


def test_losses_of_attention_maps_are_means_over_heads_and_tokens():
    # One head; maps [text, head, token, what it attends to].
    student = torch.tensor([[[[0.5, 0.5], [0.5, 0.5]]], [[[1.0, 0.0], [0.3, 0.7]]]])
    teacher = torch.tensor([[[[0.75, 0.25], [0.5, 0.5]]], [[[1.0, 0.0], [1.0, 0.0]]]])
    for heads in (1, 2):
        maps = [each.repeat(1, heads, 1, 1) for each in (student, teacher)]
        close(attention_mse(*maps, MASK), 2 * 0.25**2 / 3)
        close(attention_kl(*maps, MASK), (0.75 * math.log(1.5) + 0.25 * math.log(0.5)) / 3)


def test_attention_scores_are_compared_pair_by_pair_of_tokens():
    """TinyBERT's equation 7, the mean over heads and pairs: pairs with padding do not count, whatever they hold."""
    anything = float("inf")
    student = torch.tensor([[[[1.0, -2.0], [0.0, 3.0]]], [[[5.0, anything], [anything, -anything]]]])
    teacher = torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]], [[[4.0, -anything], [-7.0, anything]]]])
    for heads in (1, 2):
        close(attention_score_mse(*(each.repeat(1, heads, 1, 1) for each in (student, teacher)), MASK), (4 + 9 + 1) / 5)
    student.requires_grad_()
    attention_score_mse(student, teacher, MASK).backward()
    assert student.grad.flatten().tolist() == pytest.approx([0, -0.8, 0, 1.2, 0.4, 0, 0, 0])
