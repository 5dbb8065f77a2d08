"""Settings of learning from a teacher's logits, for students and for teachers that learn from another teacher."""

from typing import Literal

import pydantic

from common.config import Settings


class LogitsSettings(Settings):
    """Distillation."""

    alpha: float = pydantic.Field(0.0, ge=0, le=1)
    """Weight of the labels: 1 learns from labels only, 0 from the teacher only."""
    loss: Literal["mse", "temperature-softmax", "kl"] = "mse"
    """Distillation loss: mse of logits, mse of softmax with temperature (the thesis's for FFN), or Hinton's T^2 KL.
    For multilabel tasks the last two use each label's sigmoid."""
    temperature: float = pydantic.Field(3.0, gt=0)
    """Temperature of temperature-softmax and kl."""
