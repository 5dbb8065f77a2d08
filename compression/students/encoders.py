"""Encoders that read each sentence by itself: the FFN, the recurrent students, and the convolutional one.

Each maps vectors, float32 [batch, time, dim], and lengths, int64 [batch], to [batch, width]; a bag also needs counts.
`states` maps them to a state at each token, [batch, time, width]. Settings: configs/students/.
"""

import torch
from torch import nn

from compression.students.layers import Linear, Recurrent
from compression.students.spec import StudentSpec


class BagEncoder(nn.Module):
    """The mean of a sentence's embeddings (section 6.1.4 of the thesis), their maximum, or both; it has no weights.

    Both: the sum divided by the square root of the number of tokens, then the maximum. A mean would grow fainter with
    the length of a text: few of its tokens speak for a label.
    """

    def __init__(self, spec: StudentSpec) -> None:
        super().__init__()
        self.pooling = spec.encoder.pooling

    def forward(self, vectors: torch.Tensor, lengths: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Return the mean or maximum over each sentence's tokens, [batch, dim], or both, [batch, 2 dim].

        vectors: of a sentence's different tokens; lengths: their number; counts: see `counted`.
        """
        if self.pooling == "max":
            return max_pool(vectors, lengths)
        total = (vectors * counts[..., None]).sum(1)
        tokens = counts.sum(1, keepdim=True)
        if self.pooling == "mean":
            return total / tokens
        return torch.cat([total / tokens.sqrt(), max_pool(vectors, lengths)], 1)


class BidirectionalEncoder(nn.Module):
    """Two LSTMs, GRUs or Elman RNNs (section 6.1.4; Tang et al., 2019); one reads each sentence from end to start.

    Each direction's "last" state is the one that has read the whole sentence, and since the reversal stays within a
    sentence's own length, padding is only ever read after it.
    """

    def __init__(self, spec: StudentSpec, dim: int | None = None) -> None:
        """dim: width of the vectors, if other than that of the student's tokens."""
        super().__init__()
        settings = spec.settings
        self.forward_rnn, self.backward_rnn = (
            Recurrent(spec.arch, dim or spec.encoder.input, settings.encoder_hidden_dim) for _ in range(2)
        )
        self.pooling = settings.pooling

    def forward(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return both directions' states after the whole sentence, or their maxima, [batch, 2 hidden_dim]."""
        directions = self.forward_rnn(vectors), self.backward_rnn(reverse(vectors, lengths))
        if self.pooling == "max":
            return torch.cat([max_pool(states, lengths) for states in directions], 1)
        rows = torch.arange(len(lengths), device=lengths.device)
        return torch.cat([states[rows, lengths - 1] for states in directions], 1)

    def states(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return both directions' states at each token, [batch, time, 2 hidden_dim]."""
        backward = reverse(self.backward_rnn(reverse(vectors, lengths)), lengths)
        return torch.cat([self.forward_rnn(vectors), backward], 2)


class ConvolutionalEncoder(nn.Module):
    """Gated linear units over the window centred at each token, then the maximum of each unit over the tokens.

    After Dauphin et al. (2017), "Language Modeling with Gated Convolutional Networks": values times sigmoids of gates
    (their equation 1), both linear in the window.
    """

    def __init__(self, spec: StudentSpec, dim: int | None = None) -> None:
        """dim: width of the vectors, if other than that of the student's tokens."""
        super().__init__()
        settings = spec.settings
        self.kernel_width = settings.kernel_width
        # The first half of the rows gives values, the second half gates: the order of torch's glu.
        self.convolution = Linear(self.kernel_width * (dim or spec.encoder.input), 2 * settings.encoder_hidden_dim)

    def forward(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the maximum over each sentence's windows, [batch, hidden_dim]."""
        return max_pool(self.states(vectors, lengths), lengths)

    def states(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the units at each token, [batch, time, hidden_dim]; windows are zero-padded beyond both ends."""
        time, reach = vectors.shape[1], self.kernel_width // 2
        padded = nn.functional.pad(vectors * padding_mask(vectors, lengths), (0, 0, reach, reach))
        windows = torch.cat([padded[:, shift : shift + time] for shift in range(self.kernel_width)], 2)
        return nn.functional.glu(self.convolution(windows), -1)


def counted(ids: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return each text's different tokens, [batch, time, width], their number, and how often each occurs.

    Long texts repeat many of their tokens, and a bag's order means nothing: training is several times as fast.
    ids: int64 [batch, time, width]; lengths: int64 [batch]. The number of different tokens is int64 [batch]; how often
    each occurs is float32 [batch, time], 0 where padded. Tokens of several integers are left as they are.
    """
    present = padding_mask(ids, lengths)[..., 0]
    if ids.shape[2] > 1:
        return ids, lengths, present.float()
    ordered = ids[..., 0].masked_fill(~present, torch.iinfo(ids.dtype).max).sort(1).values
    is_new = torch.diff(ordered, dim=1, prepend=torch.full_like(ordered[:, :1], -1)) != 0
    place = is_new.cumsum(1) - 1
    different = (is_new & present).sum(1)
    shape = ids.shape[0], int(place.max()) + 1
    counts = torch.zeros(shape, device=ids.device).scatter_add_(1, place, present.float())
    tokens = torch.zeros(shape, dtype=ids.dtype, device=ids.device).scatter_(1, place, ordered * present)
    return tokens[..., None], different, counts


def padding_mask(vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return a mask over padded vectors [batch, time, ...], true at tokens, bool [batch, time, 1]. lengths: [batch]."""
    return (torch.arange(vectors.shape[1], device=vectors.device) < lengths[:, None])[..., None]


def max_pool(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the maximum over each sentence's tokens: [batch, time, dim], int64 [batch] -> [batch, dim]."""
    return states.masked_fill(~padding_mask(states, lengths), float("-inf")).amax(1)


def reverse(vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return each sentence's tokens in reverse order, padding left at the end. vectors: [batch, time, dim]."""
    steps = torch.arange(vectors.shape[1], device=vectors.device)
    indices = lengths[:, None] - 1 - steps
    indices = torch.where(indices >= 0, indices, steps)
    return vectors.gather(1, indices[..., None].expand_as(vectors))
