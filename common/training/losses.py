"""Losses of labels and of distillation from logits, as plain functions.

Logits are [batch, outputs]; a loss is a mean over the batch. Students and teachers are trained with these losses.
"""

import torch
from torch.nn import functional as F

from common.kinds.base import Kind
from common.training.distillation_losses import LOSSES


def mse(student: torch.Tensor, teacher: torch.Tensor, temperature: float, independent: bool = False) -> torch.Tensor:
    """Return the mean squared error of raw logits (equation 6.1; Tang et al., 2019), whatever the temperature."""
    return F.mse_loss(student, teacher)


def temperature_softmax(
    student: torch.Tensor, teacher: torch.Tensor, temperature: float, independent: bool = False
) -> torch.Tensor:
    """Return MSE(softmax(student / T), softmax(teacher / T)), the loss of the thesis's FFN (section 6.1.3, T = 3).

    independent: whether labels are independent of each other; it is then the sigmoid of each.
    """
    student, teacher = student / temperature, teacher / temperature
    if independent:
        return F.mse_loss(student.sigmoid(), teacher.sigmoid())
    return F.mse_loss(student.softmax(1), teacher.softmax(1))


def kl(student: torch.Tensor, teacher: torch.Tensor, temperature: float, independent: bool = False) -> torch.Tensor:
    """Return T^2 KL(softmax(teacher / T) || softmax(student / T)) (Hinton et al., 2015).

    The factor T^2 keeps the gradients' size the same whatever the temperature (section 2 of that paper). independent:
    whether labels are independent of each other; it is then the divergence of the sigmoid of each, with a mean instead
    of a sum over labels, as in the loss of the labels.
    """
    student, teacher = student / temperature, teacher / temperature
    if independent:
        share = teacher.sigmoid()
        yes = F.logsigmoid(teacher) - F.logsigmoid(student)
        no = F.logsigmoid(-teacher) - F.logsigmoid(-student)
        return (share * yes + (1 - share) * no).mean() * temperature**2
    log_student, log_teacher = student.log_softmax(1), teacher.log_softmax(1)
    return F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True) * temperature**2


def combined(
    kind: Kind,
    logits: torch.Tensor,
    labels: torch.Tensor,
    teacher: torch.Tensor | None,
    alpha: float,
    loss: str,
    temperature: float,
    shares: tuple[float, float] = (1.0, 1.0),
) -> torch.Tensor:
    """Return alpha * loss of the labels + (1 - alpha) * distillation loss (equation 6.3).

    logits, labels: as the kind's `label_loss` reads them; teacher: its logits, padded where logits are of words, or
    None if alpha is 1 and there are none. A word whose logits are NaN, at padding or because a student cut it off, is
    in no loss.
    shares: factors of the two losses, with which those of the parts of a batch add up to the batch's.
    """
    of_labels, of_logits = shares
    if alpha == 1 or teacher is None:
        return kind.label_loss(logits, labels) * of_labels
    chosen = LOSSES[loss]
    both = kind.compared(logits, teacher, chosen.distributions)
    distillation = chosen.function(*both, temperature, kind.independent) * of_logits
    if alpha == 0:
        return distillation
    return alpha * kind.label_loss(logits, labels) * of_labels + (1 - alpha) * distillation
