"""Losses of labels and of distillation from logits, as plain functions.

Logits are [batch, outputs]; a loss is a mean over the batch. Students and teachers are trained with these losses.
"""

from collections.abc import Callable

import torch
from torch.nn import functional as F


def mse(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return the mean squared error of raw logits (equation 6.1; Tang et al., 2019), whatever the temperature."""
    return F.mse_loss(student, teacher)


def temperature_softmax(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return MSE(softmax(student / T), softmax(teacher / T)), the loss of the thesis's FFN (section 6.1.3, T = 3)."""
    return F.mse_loss((student / temperature).softmax(1), (teacher / temperature).softmax(1))


def kl(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return T^2 KL(softmax(teacher / T) || softmax(student / T)) (Hinton et al., 2015).

    The factor T^2 keeps the gradients' size the same whatever the temperature (section 2 of that paper).
    """
    log_student, log_teacher = (student / temperature).log_softmax(1), (teacher / temperature).log_softmax(1)
    return F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True) * temperature**2


def temperature_sigmoid(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return MSE(sigmoid(student / T), sigmoid(teacher / T)): `temperature_softmax` for independent labels."""
    return F.mse_loss((student / temperature).sigmoid(), (teacher / temperature).sigmoid())


def bernoulli_kl(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return T^2 KL(teacher || student) of each label's probability, sigmoid(logits / T): a mean over labels too.

    It is `kl` for independent labels, with a mean instead of a sum over labels, as in the loss of the labels.
    """
    student, teacher = student / temperature, teacher / temperature
    share = teacher.sigmoid()
    yes = F.logsigmoid(teacher) - F.logsigmoid(student)
    no = F.logsigmoid(-teacher) - F.logsigmoid(-student)
    return (share * yes + (1 - share) * no).mean() * temperature**2


DISTILLATION_LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]] = {
    "mse": mse,
    "temperature-softmax": temperature_softmax,
    "kl": kl,
}
MULTILABEL_LOSSES = {"mse": mse, "temperature-softmax": temperature_sigmoid, "kl": bernoulli_kl}
"""The same for multilabel tasks."""


def combined(
    logits: torch.Tensor,
    labels: torch.Tensor,
    teacher: torch.Tensor | None,
    alpha: float,
    loss: str,
    temperature: float,
    shares: tuple[float, float] = (1.0, 1.0),
) -> torch.Tensor:
    """Return alpha * loss of the labels + (1 - alpha) * distillation loss (equation 6.3).

    labels: int64 [batch], float32 [batch] for regression, whose label loss is the mean squared error, or float32
    [batch, outputs] for multilabel, whose losses use each label's sigmoid instead of the softmax;
    teacher: its logits, or None if alpha is 1 and there are none. For tokens, logits are those of all words,
    concatenated, [words, outputs]; labels [batch, words] and the teacher's logits [batch, words, outputs] are padded.
    For spans, logits are padded too, and the words of a row are the classes of its start and of its end (see
    label_loss). A word whose logits are NaN, at padding or because a student cut it off, is in no loss.
    shares: factors of the two losses, with which those of the parts of a batch add up to the batch's.
    """
    of_labels, of_logits = shares
    if alpha == 1 or teacher is None:
        return label_loss(logits, labels) * of_labels
    both = logits, teacher
    if logits.dim() == 3:
        # The teacher's are padded to the longest row of all, and it read words that the student did not.
        both = logits, teacher[:, : logits.shape[1]].masked_fill(logits.isnan(), torch.nan)
        both = [each[~each.isnan()] if loss == "mse" else by_ends(each) for each in both]
    elif teacher.dim() == 3:
        both = logits, teacher[~teacher[..., 0].isnan()]
    losses = MULTILABEL_LOSSES if is_multilabel(labels) else DISTILLATION_LOSSES
    distillation = losses[loss](*both, temperature) * of_logits
    return distillation if alpha == 0 else alpha * label_loss(logits, labels) * of_labels + (1 - alpha) * distillation


def is_multilabel(targets: torch.Tensor) -> bool:
    """Return whether targets are 1 or 0 for each label of a text, float32 [batch, outputs]."""
    return targets.dim() == 2 and targets.is_floating_point()


def label_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return cross-entropy with classes int64 [batch], or for regression mean squared error, float32 [batch].

    For multilabel, binary cross-entropy with 1 or 0 for each label, float32 [batch, outputs], a mean over labels too.
    For tokens, logits are [words of all texts, outputs] and targets padded, int64 [batch, words]. For spans, logits are
    padded, [batch, 1 + words, 2], and targets the first and last word of the answer, int64 [batch, 2]; the mean is
    over the ends of answers that have a logit.
    """
    if logits.dim() == 3:
        # An end that was cut off cannot be found: no other word is right instead, and nothing is learned from it.
        cut = logits.gather(1, targets[:, None])[:, 0].isnan()
        kept = targets.masked_fill(cut, _IGNORED)
        return F.cross_entropy(by_ends(logits), kept.flatten(), reduction="sum") / (~cut).sum().clamp(min=1)
    if is_multilabel(targets):
        return F.binary_cross_entropy_with_logits(logits, targets)
    if targets.dim() == 2:
        targets = targets[targets >= 0]
    if targets.is_floating_point():
        return F.mse_loss(logits[:, 0], targets)
    return F.cross_entropy(logits, targets)


def by_ends(logits: torch.Tensor) -> torch.Tensor:
    """Return start and end of each row as two classifications over its words: [batch, words, 2] -> [2 batch, words].

    Padding (NaN) becomes a logit so low that its probability is zero.
    """
    return logits.masked_fill(logits.isnan(), _IMPOSSIBLE).transpose(1, 2).flatten(0, 1)


_IGNORED = -100
"""Class that cross-entropy leaves out."""
_IMPOSSIBLE = -1e4
"""Logit of padding; finite, because the difference of two infinite logits would be NaN."""
