"""The convolutional student: one gated convolution, and the maximum over time. Settings: configs/students/conv.yaml.

After Dauphin et al. (2017), "Language Modeling with Gated Convolutional Networks": values times sigmoids of gates
(their equation 1), both linear in a window of tokens. A window is centred at its token.
"""

import torch
from torch import nn

from common.errors import UserError
from compression.students.layers import Linear, max_pool, padding_mask
from compression.students.spec import StudentSpec


class ConvolutionalEncoder(nn.Module):
    """A gated linear unit over each token's window, then the largest of each unit's states."""

    def __init__(self, spec: StudentSpec) -> None:
        """Raises UserError for a pooling other than the maximum."""
        super().__init__()
        settings = spec.settings
        if settings.pooling != "max":
            raise UserError(f"--pooling {settings.pooling}: a convolution has no last state; take max")
        self.kernel_width = settings.kernel_width
        # The first half of the rows gives values, the second half gates: the order of torch's glu.
        self.convolution = Linear(self.kernel_width * settings.embedding_dim, 2 * settings.encoder_hidden_dim)

    def forward(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """vectors: [batch, time, dim], lengths: int64 [batch] -> [batch, hidden_dim]."""
        return max_pool(self.states(vectors, lengths), lengths)

    def states(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the units over each token's window: [batch, time, dim] -> [batch, time, hidden_dim]."""
        padded = vectors * padding_mask(vectors, lengths)
        return nn.functional.glu(self.convolution(windows(padded, self.kernel_width)), -1)


def windows(vectors: torch.Tensor, width: int) -> torch.Tensor:
    """[batch, time, dim] -> [batch, time, width * dim]: each token among its neighbours, zeros beyond both ends."""
    time, reach = vectors.shape[1], width // 2
    padded = nn.functional.pad(vectors, (0, 0, reach, reach))
    return torch.cat([padded[:, shift : shift + time] for shift in range(width)], 2)
