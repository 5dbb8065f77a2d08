"""The FFN student: the mean of a sentence's embeddings (section 6.1.4). Settings: configs/students/ffn.yaml."""

import torch
from torch import nn

from compression.students.layers import padding_mask
from compression.students.spec import StudentSpec


class MeanEncoder(nn.Module):
    """Mean over a sentence's tokens; it has no weights."""

    def __init__(self, spec: StudentSpec) -> None:
        super().__init__()

    def forward(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """vectors: [batch, time, dim], lengths: int64 [batch] -> [batch, dim]."""
        return (vectors * padding_mask(vectors, lengths)).sum(1) / lengths[:, None]
