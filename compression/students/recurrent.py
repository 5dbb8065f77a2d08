"""The BiLSTM and RNN students: one LSTM or Elman RNN (tanh) in each direction over padded batches.

Section 6.1.4 of the thesis; the BiLSTM is after Tang et al. (2019). Settings: configs/students/bilstm.yaml, rnn.yaml.
"""

import torch
from torch import nn

from compression.students.layers import Recurrent, max_pool
from compression.students.spec import StudentSpec


class BidirectionalEncoder(nn.Module):
    """Two one-directional LSTMs or RNNs; the second reads each sentence from its last token to its first.

    Each direction's "last" state is the one that has read the whole sentence (seed fault 1), and since the reversal
    stays within a sentence's own length, padding is only ever read after it.
    """

    def __init__(self, spec: StudentSpec) -> None:
        super().__init__()
        settings, kind = spec.settings, {"bilstm": "lstm", "rnn": "rnn"}[spec.arch]
        self.forward_rnn = Recurrent(kind, settings.embedding_dim, settings.encoder_hidden_dim)
        self.backward_rnn = Recurrent(kind, settings.embedding_dim, settings.encoder_hidden_dim)
        self.pooling = settings.pooling

    def forward(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """vectors: [batch, time, input_dim], lengths: int64 [batch] -> [batch, 2 hidden_dim]."""
        forward, backward = self.forward_rnn(vectors), self.backward_rnn(reverse(vectors, lengths))
        return torch.cat([self.pool(states, lengths) for states in (forward, backward)], 1)

    def states(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return both directions' states at each token: [batch, time, input_dim] -> [batch, time, 2 hidden_dim]."""
        backward = reverse(self.backward_rnn(reverse(vectors, lengths)), lengths)
        return torch.cat([self.forward_rnn(vectors), backward], 2)

    def pool(self, states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """states: [batch, time, hidden_dim] -> [batch, hidden_dim]: the state after the last token, or the maximum."""
        if self.pooling == "last":
            return states[torch.arange(len(lengths), device=states.device), lengths - 1]
        return max_pool(states, lengths)


def reverse(vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return each sentence's tokens in reverse order, padding left at the end. vectors: [batch, time, dim]."""
    steps = torch.arange(vectors.shape[1], device=vectors.device)
    indices = lengths[:, None] - 1 - steps
    indices = torch.where(indices >= 0, indices, steps)
    return vectors.gather(1, indices[..., None].expand_as(vectors))
