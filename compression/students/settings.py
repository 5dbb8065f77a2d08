"""Settings of students, apart from the models so that --help does not wait for PyTorch.

configs/students/<arch>.yaml holds each architecture's defaults, and under `pair:` those for sentence pairs.
"""

from pathlib import Path
from typing import Any, Literal

import pydantic

from common.config import CONFIG_DIR, Settings, Uses, load_yaml
from compression.runtime.shapes import ALIGNING, ARCHS, EMBEDDINGS, POOLINGS, SHARES, TRANSFORMERS

StudentArch = Literal[ARCHS]


class StudentSettings(Settings):
    """Student: its layers and its tokenizer."""

    embedding_type: Literal[EMBEDDINGS] = "bpe"
    """Tokens and their embedding: byte pairs, hashed words, characters, n-grams of words and of their letters that the
    labels choose (ffn), or the teacher's own pieces (BERT's word pieces, RoBERTa's byte-level pairs)."""
    embedding_dim: int = pydantic.Field(25, gt=0)
    """Width of an embedding vector."""
    vocab_size: int = pydantic.Field(5000, gt=0)
    """Byte pairs or n-grams in the vocabulary, or importance rows a hash; char always has 33 rows."""
    ngrams: Literal["all", "pairs", "words"] = "all"
    """N-grams to choose from: words, pairs of words and parts of words, the first two, or words alone (--embedding-type
    ngrams)."""
    hash_ratio: int = pydantic.Field(10, gt=0)
    """Importance rows for each shared vector of hash embeddings."""
    encoder_hidden_dim: int = pydantic.Field(150, gt=0)
    """Units of the encoder (conv), in each direction (bilstm, gru, rnn); width of a transformer's layers."""
    kernel_width: int = pydantic.Field(5, gt=0, lt=256)
    """Number of tokens in the window of a convolution (conv), odd."""
    layers: int = pydantic.Field(4, gt=0, lt=256)
    """Number of layers (transformer)."""
    iterations: int = pydantic.Field(6, gt=0, lt=256)
    """Number of times the single layer is applied (recursive)."""
    heads: int = pydantic.Field(12, gt=0, lt=256)
    """Attention heads (transformer, recursive); without --head-dim a divisor of the layers' width."""
    head_dim: int = pydantic.Field(0, ge=0)
    """Width of an attention head; 0: the layers' width divided by --heads (transformer, recursive)."""
    share: Literal[SHARES] = "none"
    """Part of a layer that all layers share, with the norm after it: attention or feed-forward, as in ALBERT
    (transformer). A recursive student shares both."""
    segments: bool = True
    """Add an embedding that says which text of a pair a token is in; DistilBERT has none (transformer, recursive)."""
    intermediate_dim: int = pydantic.Field(1200, gt=0)
    """Hidden units of a layer's feed-forward part (transformer, recursive)."""
    adapters: int = pydantic.Field(0, ge=0)
    """Width of bottleneck adapters, two in each layer or iteration; 0 means none (transformer, recursive)."""
    cls_hidden_dim: int = pydantic.Field(200, gt=0)
    """Units of the classifier's hidden layer."""
    pooling: Literal[("last", *POOLINGS)] = "last"
    """Encoder output: each direction's final state (last: bilstm, gru, rnn), or the maximum over time (max: conv too);
    of ffn the mean of the embeddings, their maximum (max), or both: their sum divided by the square root of their
    number, and their maximum."""
    pair_encoder: Literal["compare", "align", "compose"] = "compare"
    """How pairs are read: compare encodes each text by itself; with align (bilstm, gru, conv) each token attends to the
    other text, and knows whether that has the same token; with compose a second encoder reads the output of align."""
    symmetric: bool = False
    """Give the same answer for both orders of a pair's texts. For --pair-encoder align and compose it is on by default
    where the task says that they have no order (qqp, mrpc, sts-b)."""
    dropout: float = pydantic.Field(0.1, ge=0, lt=1)
    """Share of units dropped while training: embeddings, encoder output and classifier."""
    max_tokens: int = pydantic.Field(512, gt=0)
    """Maximum number of tokens of a text; longer texts are cut. Longer contexts of questions are read in windows."""
    bpe_source: Literal["auto", "bpemb", "train"] = "auto"
    """Byte pairs: auto uses BPEmb files in ~/.cache/bpemb, else trains on the task's text; bpemb downloads."""
    bpe_model: Path | None = None
    """Own sentencepiece model, together with --bpe-vectors."""
    bpe_vectors: Path | None = None
    """Own vectors in word2vec format (.bin or text), together with --bpe-model."""

    @property
    def attends(self) -> bool:
        """Whether the tokens of a pair attend to the other text."""
        return self.pair_encoder != "compare"

    @pydantic.model_validator(mode="after")
    def _check(self) -> "StudentSettings":
        if (self.bpe_model is None) != (self.bpe_vectors is None):
            raise ValueError("--bpe-model and --bpe-vectors go together")
        if self.kernel_width % 2 == 0:
            raise ValueError(f"--kernel-width: a window is centred at a token, so it is odd (got {self.kernel_width})")
        return self

    def _uses(self) -> Uses:
        embedding = f"with --embedding-type {self.embedding_type}"
        yield self.embedding_type == "hash", ["hash_ratio"], embedding
        yield self.embedding_type == "ngrams", ["ngrams"], embedding
        yield self.embedding_type in ("bpe", "hash", "ngrams"), ["vocab_size"], embedding
        yield self.embedding_type == "bpe", ["bpe_source", "bpe_model", "bpe_vectors"], embedding


class ArchSettings(Settings):
    """Distillation."""

    student_arch: StudentArch = "bilstm"
    """Student architecture. The thesis's old name emb-ffn means ffn."""


class StudentFlags(StudentSettings, ArchSettings):
    """Student: its architecture, its layers and its tokenizer."""

    hidden_dim: int | None = pydantic.Field(None, gt=0)
    """Width of a transformer's layers: another name of --encoder-hidden-dim."""
    embedding_rank: int | None = pydantic.Field(None, gt=0)
    """Width of the embedding, factorised where smaller than the layers' width: another name of --embedding-dim."""

    @pydantic.model_validator(mode="after")
    def _check_arch(self) -> "StudentFlags":
        if self.student_arch == "conv" and self.pooling == "last":
            raise ValueError("--pooling last: a convolution has no last state; use max")
        if self.pooling in ("mean", "both") and self.student_arch != "ffn":
            raise ValueError(f"--pooling {self.pooling} is for ffn (got {self.student_arch})")
        if self.embedding_type == "ngrams" and self.student_arch != "ffn":
            raise ValueError(f"--embedding-type ngrams is for ffn (got {self.student_arch})")
        if self.attends:
            how = f"--pair-encoder {self.pair_encoder}"
            if self.student_arch not in ALIGNING:
                raise ValueError(f"{how} is for {', '.join(ALIGNING)} (got {self.student_arch})")
            if self.pooling == "last":
                raise ValueError(f"--pooling last: {how} takes the maximum over tokens; use max")
        if self.student_arch in TRANSFORMERS:
            if self.symmetric:
                raise ValueError(f"--symmetric: a {self.student_arch} reads a pair as one text, in order")
            if not self.head_dim and self.encoder_hidden_dim % self.heads:
                raise ValueError(f"--heads {self.heads} does not divide the layers' width of {self.encoder_hidden_dim}")
        elif not self.segments:
            raise ValueError(f"--no-segments: a {self.student_arch} has no segment embeddings")
        elif self.head_dim:
            raise ValueError(f"--head-dim: a {self.student_arch} has no attention heads")
        if self.share != "none" and self.student_arch != "transformer":
            has = "one layer" if self.student_arch == "recursive" else "no layers that could share a part"
            raise ValueError(f"--share {self.share}: a {self.student_arch} has {has}")
        return self

    def _uses(self) -> Uses:
        arch = f"with --student-arch {self.student_arch}"
        of_transformers = ("heads", "head_dim", "segments", "intermediate_dim", "adapters")
        averages = self.student_arch == "ffn" and self.pooling == "last"
        yield self.student_arch != "ffn", ["encoder_hidden_dim", "hidden_dim"], arch
        yield self.student_arch == "conv", ["kernel_width"], arch
        yield self.student_arch == "transformer", ["layers", "share"], arch
        yield self.student_arch == "recursive", ["iterations"], arch
        yield self.student_arch in TRANSFORMERS, of_transformers, arch
        yield not averages, ["pooling"], f"as last {arch}: give mean, max or both"


def student_defaults(arch: str, pair: bool) -> dict[str, Any]:
    """Return the settings of configs/students/<arch>.yaml, for single sentences or pairs."""
    values = load_yaml(CONFIG_DIR / "students" / f"{arch}.yaml")
    for_pairs = values.pop("pair", {})
    return {**values, **for_pairs} if pair else values
