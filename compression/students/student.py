"""Students: embedding -> encoder -> classifier, for single sentences and pairs."""

import torch
from torch import nn

from common.errors import UserError
from compression.students.bilstm import make_bilstm
from compression.students.conv import ConvolutionalEncoder
from compression.students.embeddings import make_embedding
from compression.students.ffn import MeanEncoder
from compression.students.layers import Linear
from compression.students.rnn import make_rnn
from compression.students.settings import StudentSettings
from compression.students.transformer import Sentences, Trace, make_recursive, make_transformer

TRANSFORMERS = {"transformer": make_transformer, "recursive": make_recursive}
"""Architectures that read a pair as one text; of the others each sentence is encoded by itself."""


class Student(nn.Module):
    """A tiny classifier (or regressor). Its children are the parts that pruning, quantization and analysis speak of."""

    def __init__(
        self, arch: str, settings: StudentSettings, outputs: int, pair: bool = False, tokens: bool = False
    ) -> None:
        """Build with fresh weights. tokens: whether it gives every word logits, not the text (an FFN cannot).

        Raises UserError for an unknown architecture.
        """
        super().__init__()
        self.tokens = tokens
        self.embedding = make_embedding(settings)
        self.encoder = make_encoder(arch, settings, pair)
        self.reads_together = arch in TRANSFORMERS
        width = self.encoder.output_dim * (4 if pair and not self.reads_together else 1)
        self.dropout = nn.Dropout(settings.dropout)
        self.classifier = nn.Sequential(
            Linear(width, settings.cls_hidden_dim),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            Linear(settings.cls_hidden_dim, outputs),
        )

    def encode(self, *sentences: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """What the classifier reads, [batch, width], of one or two of (ids [batch, time, width], lengths [batch]).

        Where every word has logits: [batch, words, width], of a sentence and the places of its words' first tokens,
        ([batch, words, 1], words of each [batch]).
        """
        if self.tokens:
            sentence, (places, _) = sentences
            return at_places(self.encoder.states(*self._vectors((sentence,))[0]), places)
        vectors = self._vectors(sentences)
        if self.reads_together:
            return self.encoder(*vectors)
        encoded = [self.encoder(*sentence) for sentence in vectors]
        return encoded[0] if len(encoded) == 1 else compare(*encoded)

    def forward(self, *sentences: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """One (ids, lengths), or two for pairs -> logits [batch, outputs], or [batch, words, outputs]."""
        return self.classifier(self.dropout(self.encode(*sentences)))

    def traced(self, *sentences: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, Trace]:
        """The logits of `forward`, with all that goes on inside a transformer on the way."""
        texts = sentences[:1] if self.tokens else sentences
        trace = self.encoder.trace(*self._vectors(texts))
        last = trace.hidden[-1]
        read = at_places(last[:, 1:], sentences[1][0]) if self.tokens else last[:, 0]
        return self.classifier(self.dropout(read)), trace

    def _vectors(self, sentences: Sentences) -> Sentences:
        return tuple((self.dropout(self.embedding(ids)), lengths) for ids, lengths in sentences)


def at_places(states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The states at some tokens: [batch, time, dim] and int64 [batch, words, 1] -> [batch, words, dim]."""
    return states.gather(1, places.expand(-1, -1, states.shape[2]))


def compare(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """[u; v; |u - v|; u * v] (equation 6.4). u, v: [batch, dim] -> [batch, 4 dim]."""
    return torch.cat([u, v, (u - v).abs(), u * v], 1)


def make_encoder(arch: str, settings: StudentSettings, pair: bool) -> nn.Module:
    """The encoder of an architecture. Raises UserError for an unknown one."""
    if arch in TRANSFORMERS:
        return TRANSFORMERS[arch](settings, pair)
    makers = {"bilstm": make_bilstm, "rnn": make_rnn, "ffn": MeanEncoder, "conv": ConvolutionalEncoder}
    if arch not in makers:
        raise UserError(f"unknown student architecture {arch!r}; there are {', '.join((*makers, *TRANSFORMERS))}")
    return makers[arch](settings)
