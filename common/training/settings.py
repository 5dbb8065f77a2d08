"""Settings of learning from a teacher's logits, for students and for teachers that learn from another teacher."""

from typing import Literal

import pydantic

from common.choices import described, used_by
from common.config import Settings, Uses
from common.training.distillation_losses import LOSSES


class LogitsSettings(Settings):
    """Distillation."""

    alpha: float = pydantic.Field(0.0, ge=0, le=1)
    """Weight of the labels: 1 learns from labels only, 0 from the teacher only."""
    loss: Literal[tuple(LOSSES)] = pydantic.Field(
        "mse", description=described("Distillation loss. With several labels a text, softmax means sigmoid.", LOSSES)
    )
    temperature: float = pydantic.Field(3.0, gt=0)
    """Temperature of the softmax."""

    def _uses(self) -> Uses:
        yield from used_by("loss", self.loss, LOSSES)
