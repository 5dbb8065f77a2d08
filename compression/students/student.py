"""Students: embedding -> encoder -> classifier, for single sentences and pairs."""

import itertools
from collections.abc import Collection

import torch
from torch import nn

from common.errors import UserError
from compression.runtime.shapes import GATES, TRANSFORMERS
from compression.students.batch import Batch
from compression.students.embeddings import make_embedding
from compression.students.encoders import BagEncoder, BidirectionalEncoder, ConvolutionalEncoder, counted, max_pool
from compression.students.layers import Linear
from compression.students.pairs import PairAlignment, Text, compare, shared_tokens
from compression.students.settings import StudentSettings
from compression.students.spec import StudentSpec
from compression.students.transformer import Sentences, Trace, TransformerEncoder

ENCODERS = {
    "ffn": BagEncoder,
    "conv": ConvolutionalEncoder,
    **dict.fromkeys(GATES, BidirectionalEncoder),
    **dict.fromkeys(TRANSFORMERS, TransformerEncoder),
}


class Student(nn.Module):
    """A tiny classifier (or regressor). Its children are the parts that pruning, quantization and analysis name."""

    def __init__(
        self, arch: str, settings: StudentSettings, outputs: int, pair: bool = False, by_word: bool = False
    ) -> None:
        """Build with fresh weights; by_word: as in StudentSpec. Raises UserError for an unknown architecture."""
        super().__init__()
        if arch not in ENCODERS:
            raise UserError(f"unknown student architecture {arch!r}; there are {', '.join(ENCODERS)}")
        spec = StudentSpec(arch, settings, outputs, pair, by_word)
        self.arch, self.embedding_type = arch, settings.embedding_type
        self.reads_together = arch in TRANSFORMERS  # a pair, as one text; else each sentence is encoded by itself
        self.aligns, self.symmetric = spec.encoder.align, settings.symmetric
        self.blocks = spec.encoder.blocks
        self.embedding = make_embedding(spec)
        self.encoder = ENCODERS[arch](spec)
        if self.aligns:
            composition = ENCODERS[arch](spec, spec.encoder.compared) if spec.encoder.compose else None
            self.encoder.alignment = PairAlignment(spec.encoder, composition)
        self.dropout = nn.Dropout(settings.dropout)
        self.classifier = nn.Sequential(
            Linear(spec.encoder.output, settings.cls_hidden_dim),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            Linear(settings.cls_hidden_dim, outputs),
        )

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return logits [batch, outputs], or [batch, words, outputs] if every word has logits.

        For pairs the words are those of the second text, after "no answer".
        """
        return self.classifier(self.dropout(self.encode(batch)))

    def encode(self, batch: Batch) -> torch.Tensor:
        """Return the inputs of the classifier, [batch, width], or [batch, words, width] if every word has logits."""
        sentences = self._vectors(batch)
        if self.reads_together:
            return _read(self.encoder(*sentences), batch)
        if batch.word_starts is not None and batch.second is None:
            return at_indices(self.encoder.states(*sentences[0]), batch.word_starts)
        if batch.word_starts is not None:
            first, second = self._texts(sentences, batch)
            (states,) = self.encoder.alignment(second, first, True)
            # "No answer" is represented by the maximum of each unit over all tokens.
            words = at_indices(states, batch.word_starts[:, 1:])
            return torch.cat([max_pool(states, second[1])[:, None], words], 1)
        if len(sentences) == 1:
            return self.encoder(*sentences[0])
        if self.aligns:
            return compare(*self.encoder.alignment(*self._texts(sentences, batch)), self.symmetric)
        return compare(*(self.encoder(*sentence) for sentence in sentences), self.symmetric)

    def traced(self, batch: Batch) -> tuple[torch.Tensor, Trace]:
        """Return the logits of `forward`, and a transformer's hidden states and attention maps."""
        trace = self.encoder.trace(*self._vectors(batch))
        return self.classifier(self.dropout(_read(trace.hidden[-1], batch))), trace

    def vector(self, name: str) -> torch.Tensor:
        """Return a bias or the scale of a norm, by its name in StudentSpec.vectors."""
        if name.endswith("_rnn.bias"):
            return self.get_submodule(name.removesuffix(".bias")).bias
        return self.get_parameter(name)

    @torch.no_grad()
    def round_vectors(self, parts: Collection[str]) -> None:
        """Round biases and the scales of norms to bfloat16, in place: a packed file then stores half of their bytes.

        parts: of the student, such as "encoder". The sum of a recurrent layer's biases becomes its first one.
        """
        for module in (module for part in parts for module in self.get_submodule(part).modules()):
            if getattr(module, "bias_hh", None) is not None:
                module.bias_ih += module.bias_hh
                module.bias_hh.zero_()
            for parameter in module.parameters(recurse=False):
                if parameter.dim() == 1:
                    parameter.copy_(parameter.bfloat16())

    def _vectors(self, batch: Batch) -> Sentences:
        """Return the encoder's arguments for each sentence: vectors of tokens, lengths, and for a bag their counts."""
        texts = ((text.ids, text.lengths) for text in batch.sentences)
        if isinstance(self.encoder, BagEncoder):
            texts = itertools.starmap(counted, texts)
        return tuple((self.dropout(self.embedding(ids)), *others) for ids, *others in texts)

    def _texts(self, sentences: Sentences, batch: Batch) -> list[Text]:
        """Return the tokens of each text of the pairs: their states and vectors."""
        texts = []
        for (vectors, lengths), shared in zip(sentences, shared_tokens(*batch.sentences), strict=True):
            states = self.encoder.states(torch.cat([vectors, shared[..., None]], 2), lengths)
            texts.append((torch.cat([states, vectors], 2), lengths))
        return texts


def _read(states: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the classifier's inputs from a transformer's states [batch, time, width], special tokens included.

    They are the first token's state, [batch, width], or if words have logits the states of their first tokens,
    [batch, words, width]. For pairs these are the second text's words, after the first token's state for "no answer".
    """
    if batch.word_starts is None:
        return states[:, 0]
    if batch.second is None:
        return at_indices(states, 1 + batch.word_starts)
    places = 2 + batch.lengths[:, None] + batch.word_starts  # behind the first token, the first text and a separator
    places[:, 0] = 0
    return at_indices(states, places)


def at_indices(states: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return the states of some tokens: [batch, time, dim] and int64 [batch, words] -> [batch, words, dim].

    An index of -1 gives an arbitrary state, which must not be used.
    """
    return states.gather(1, indices.clamp(min=0)[..., None].expand(-1, -1, states.shape[2]))
