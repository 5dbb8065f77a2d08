"""A bidirectional recurrent encoder over padded batches, in which padding changes nothing."""

import torch
from torch import nn

from compression.students.layers import Recurrent, maximum


class BidirectionalEncoder(nn.Module):
    """Two one-directional LSTMs or RNNs; the second reads each sentence from its last token to its first.

    Each direction's "last" state is the one that has read the whole sentence (seed fault 1), and since the reversal
    stays within a sentence's own length, padding is only ever read after it.
    """

    def __init__(self, kind: str, input_dim: int, hidden_dim: int, pooling: str) -> None:
        """kind: lstm or rnn."""
        super().__init__()
        self.forward_rnn = Recurrent(kind, input_dim, hidden_dim)
        self.backward_rnn = Recurrent(kind, input_dim, hidden_dim)
        self.pooling = pooling
        self.output_dim = 2 * hidden_dim

    def forward(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """vectors: [batch, time, input_dim], lengths: int64 [batch] -> [batch, 2 hidden_dim]."""
        forward, backward = self.forward_rnn(vectors), self.backward_rnn(reverse(vectors, lengths))
        return torch.cat([self.pool(states, lengths) for states in (forward, backward)], 1)

    def states(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """What both directions know at each token: [batch, time, input_dim] -> [batch, time, 2 hidden_dim]."""
        backward = reverse(self.backward_rnn(reverse(vectors, lengths)), lengths)
        return torch.cat([self.forward_rnn(vectors), backward], 2)

    def pool(self, states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """states: [batch, time, hidden_dim] -> [batch, hidden_dim]: the state after the last token, or the maximum."""
        if self.pooling == "last":
            return states[torch.arange(len(lengths), device=states.device), lengths - 1]
        return maximum(states, lengths)


def reverse(vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Each sentence's tokens in reverse order, padding left at the end. vectors: [batch, time, dim]."""
    steps = torch.arange(vectors.shape[1], device=vectors.device)
    places = lengths[:, None] - 1 - steps
    places = torch.where(places >= 0, places, steps)
    return vectors.gather(1, places[..., None].expand_as(vectors))
