"""Losses of hidden states and attention maps, as plain functions.

Each is a mean over tokens: `mask`, bool [batch, length], is true at a text's tokens. All are computed in 32 bits,
whatever the precision of training.
"""

from collections.abc import Callable

import torch
from torch.nn import functional as F


def hidden_mse(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of hidden states [batch, length, width] (TinyBERT's equations 8 and 9)."""
    return F.mse_loss(student[mask].float(), teacher[mask].float())


def hidden_cosine(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return 1 - cosine of hidden states [batch, length, width] (MiniALBERT's equation 8)."""
    return 1 - F.cosine_similarity(student[mask].float(), teacher[mask].float()).mean()


def attention_mse(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the squared error of attention maps [batch, heads, length, length], summed over the last dimension.

    A sum, unlike a mean, does not shrink as texts get longer.
    """
    return (student.float() - teacher.float()).square().sum(3).transpose(1, 2)[mask].mean()


def attention_score_mse(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of attention scores before the softmax [batch, heads, length, length].

    TinyBERT's equation 7, averaged over heads and pairs of tokens. Its official code also counts pairs with padding, as
    errors of 0.
    """
    pairs = mask[:, :, None] & mask[:, None, :]
    return F.mse_loss(student.permute(0, 2, 3, 1)[pairs].float(), teacher.permute(0, 2, 3, 1)[pairs].float())


def attention_kl(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return KL(teacher || student) of attention maps [batch, heads, length, length] (MiniALBERT's equation 7)."""
    student, teacher = student.float(), teacher.float()
    tiny = torch.finfo(student.dtype).tiny
    divergence = teacher * (teacher.clamp(min=tiny).log() - student.clamp(min=tiny).log())
    return divergence.sum(3).transpose(1, 2)[mask].mean()


StateLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
HIDDEN_LOSSES: dict[str, StateLoss] = {"mse": hidden_mse, "cosine": hidden_cosine}
ATTENTION_LOSSES: dict[str, StateLoss] = {"mse": attention_mse, "kl": attention_kl}
