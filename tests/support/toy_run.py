"""A training run of a linear model over twelve rows."""

import numpy as np
import torch
from torch import nn

from common.training.batching import shuffled_batches
from common.training.loop import Run, over_rows


def toy(tmp_path, scores=(0.5,), **changed):
    """A run of a linear model over twelve rows; `scores` are what validation says, epoch by epoch."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    inputs, targets = torch.randn(12, 3), torch.randn(12, 1)
    output = iter(scores)
    seen = []

    def validate():
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return next(output)

    run = Run(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.1),
        batches=lambda epoch: shuffled_batches(np.ones(12, np.int64), 5, 1, epoch),
        losses=over_rows(lambda rows: nn.functional.mse_loss(model(inputs[rows]), targets[rows])),
        validate=validate,
        epochs=len(scores),
        patience=99,
        seed=1,
        state_file=tmp_path / "run.training" / "state.safetensors",
    )
    for name, value in changed.items():
        setattr(run, name, value)
    return run, seen
