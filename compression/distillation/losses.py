"""Losses of distillation, as plain functions. Logits are [batch, outputs]; every loss is a mean over the batch.

Those of a transformer's inside are means over tokens: inside, bool [batch, length], says where a text has one.
"""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from common.training.loop import label_loss


def mse(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Mean squared error of raw logits (equation 6.1; Tang et al., 2019). The temperature has no part in it."""
    return F.mse_loss(student, teacher)


def temperature_softmax(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """MSE(softmax(student / T), softmax(teacher / T)), as the thesis trains its FFN (section 6.1.3, T = 3)."""
    return F.mse_loss((student / temperature).softmax(1), (teacher / temperature).softmax(1))


def kl(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)) (Hinton et al., 2015).

    The factor T^2 keeps the gradients' size the same whatever the temperature (section 2 of that paper).
    """
    log_student, log_teacher = (student / temperature).log_softmax(1), (teacher / temperature).log_softmax(1)
    return F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True) * temperature**2


DISTILLATION_LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]] = {
    "mse": mse,
    "temperature-softmax": temperature_softmax,
    "kl": kl,
}


def combined(
    logits: torch.Tensor,
    labels: torch.Tensor,
    teacher: torch.Tensor | None,
    alpha: float,
    loss: str,
    temperature: float,
) -> torch.Tensor:
    """alpha * loss of the labels + (1 - alpha) * distillation loss (equation 6.3).

    labels: int64 [batch], or float32 [batch] for regression, whose label loss is the mean squared error;
    teacher: logits, or None where alpha is 1 and no teacher takes part. Of tokens, logits are those of all words in a
    row, [words, outputs], labels and the teacher's logits padded, [batch, words] and [batch, words, outputs].
    """
    if alpha == 1 or teacher is None:
        return label_loss(logits, labels)
    if teacher.dim() == 3:
        teacher = teacher[~teacher[..., 0].isnan()]
    distillation = DISTILLATION_LOSSES[loss](logits, teacher, temperature)
    return distillation if alpha == 0 else alpha * label_loss(logits, labels) + (1 - alpha) * distillation


def hidden_mse(student: torch.Tensor, teacher: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """Mean squared error of hidden states [batch, length, width] (TinyBERT's equations 8 and 9)."""
    return F.mse_loss(student[inside], teacher[inside])


def hidden_cosine(student: torch.Tensor, teacher: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """1 - cosine of hidden states [batch, length, width] (MiniALBERT's equation 8)."""
    return 1 - F.cosine_similarity(student[inside], teacher[inside]).mean()


def attention_mse(student: torch.Tensor, teacher: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """Squared error of attention maps [batch, heads, length, length], summed over what a token attends to.

    TinyBERT's equation 7, of the maps after softmax: a sum, so that it does not shrink as texts grow.
    """
    return (student - teacher).square().sum(3).transpose(1, 2)[inside].mean()


def attention_kl(student: torch.Tensor, teacher: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """KL(teacher || student) of attention maps [batch, heads, length, length] (MiniALBERT's equation 7)."""
    tiny = torch.finfo(student.dtype).tiny
    divergence = teacher * (teacher.clamp(min=tiny).log() - student.clamp(min=tiny).log())
    return divergence.sum(3).transpose(1, 2)[inside].mean()


def masked_lm(guesses: torch.Tensor, pieces: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of masked pieces (MiniALBERT's equation 6). guesses: [guesses, pieces]; pieces: int64 [guesses]."""
    return F.cross_entropy(guesses, pieces)


def masked_kl(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """KL(teacher || student) of what both guess at masked pieces, [guesses, pieces] (MiniALBERT's equation 10)."""
    return kl(student, teacher, 1.0)


InsideLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
HIDDEN_LOSSES: dict[str, InsideLoss] = {"mse": hidden_mse, "cosine": hidden_cosine}
ATTENTION_LOSSES: dict[str, InsideLoss] = {"mse": attention_mse, "kl": attention_kl}
