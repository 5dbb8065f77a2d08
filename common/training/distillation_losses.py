"""The losses of --loss. This module imports no large library, because --help uses it."""

import dataclasses

from common.choices import Choice
from common.data.tasks import Task
from common.errors import UserError


@dataclasses.dataclass(frozen=True)
class DistillationLoss(Choice):
    """A loss between logits.

    Its function: student's and teacher's logits [batch, outputs], temperature, whether labels are independent -> mean.
    """

    over_rows: bool = False
    """Whether the mean is over rows, not over all numbers."""

    @property
    def distributions(self) -> bool:
        """Whether it compares distributions over labels, which a temperature softens and a regression does not have."""
        return "temperature" in self.settings


_MODULE = "common.training.losses"
_SOFTENED = ("temperature",)
LOSSES = {
    "mse": DistillationLoss("squared error of logits", f"{_MODULE}:mse"),
    "temperature-softmax": DistillationLoss(
        "squared error of the softmax (the thesis's for FFN)", f"{_MODULE}:temperature_softmax", settings=_SOFTENED
    ),
    "kl": DistillationLoss("Hinton's T^2 KL divergence", f"{_MODULE}:kl", over_rows=True, settings=_SOFTENED),
}


def check_loss(task: Task, loss: str) -> None:
    """Raise UserError if a loss compares distributions, but the task's labels are numbers."""
    if LOSSES[loss].distributions and not task.kind.has_distributions:
        raise UserError(f"--loss {loss} is for classification; {task.name} is of kind {task.kind.name}: use mse")
