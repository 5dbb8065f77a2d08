"""The students of a fit: the kinds that are tried, their sizes before anything is trained, and their variations."""

import bisect
import math
from typing import Any

import numpy as np

from common.config import Settings
from common.data.tasks import Task
from common.errors import UserError
from compression.students.settings import StudentSettings
from compression.students.spec import StudentSpec

_WIDTHS = (
    (1_000, 4, 4, 4),
    (4_000, 8, 8, 8),
    (12_000, 12, 16, 24),
    (32_000, 32, 32, 64),
    (100_000, 48, 64, 96),
    (400_000, 64, 96, 128),
)
"""Bytes, and the widths of embedding, encoder and classifier that are tried first."""
_BITS = {"ffn": 2.2}
"""Bits per weight that are assumed, for other architectures 3; those of each matrix are chosen to fit at the end."""
_TOKEN_BYTES = {"bpe": 1.7, "ngrams": 1.1}
"""Approximate bytes of a token in a packed file, besides its weights."""
_HEADER = 260
_FILLED = 0.97
"""Share of the bytes that an estimate may fill."""
_LONG_FLAGS = {"word_dropout": 0.4, "weight_decay": 0.2}
"""Flags of bags of long texts, in which many tokens speak for a label. On 20 Newsgroups they add 2 points, with half
the width and twice the tokens."""
_NARROWEST = 4
_FEWEST_TOKENS = 100
_MOST_TOKENS = 60_000
_BAG = {"student_arch": "ffn", "pooling": "both", "word_dropout": 0.15, "weight_decay": 0.1, "max_tokens": 2048}
_PIECES = {"embedding_type": "bpe", "bpe_source": "train"}
_Kinds = dict[str, dict[str, Any]]
_BAGS: _Kinds = {"n-grams": {**_BAG, "embedding_type": "ngrams"}, "byte pairs": {**_BAG, **_PIECES}}
_SINGLE: _Kinds = {
    **_BAGS,
    "words": {**_BAG, "embedding_type": "ngrams", "ngrams": "words"},
    "BiLSTM": {**_PIECES, "student_arch": "bilstm", "pooling": "max", "word_dropout": 0.15},
}
_LONG_SINGLE: _Kinds = {
    "words": _SINGLE["words"],
    "words and pairs of words": {**_BAG, "embedding_type": "ngrams", "ngrams": "pairs"},
}
"""Kinds that are tried first on long texts: words are the fastest to read, and pairs tell two or three labels apart."""
_PAIRS: _Kinds = {
    "aligned convolution": {**_PIECES, "student_arch": "conv", "pair_encoder": "align"},
    "aligned BiLSTM": {**_PIECES, "student_arch": "bilstm", "pooling": "max", "pair_encoder": "align"},
    **_BAGS,
}
_TAGS: _Kinds = {
    "BiLSTM": {**_PIECES, "student_arch": "bilstm", "word_dropout": 0.1},
    "convolution": {**_PIECES, "student_arch": "conv", "word_dropout": 0.1},
}
_ANSWERS: _Kinds = {
    "aligned convolution": {**_PIECES, "student_arch": "conv", "pair_encoder": "align", "max_tokens": 400},
    "aligned BiLSTM": {**_PIECES, "student_arch": "bilstm", "pair_encoder": "compose", "max_tokens": 400},
}
_KINDS = {(False, False): _SINGLE, (False, True): _PAIRS, (True, False): _TAGS, (True, True): _ANSWERS}
"""Whether words are labelled, and whether rows are pairs -> kinds of students, the most promising first."""
VARIATIONS: tuple[tuple[str, dict[str, float]], ...] = (
    ("more epochs", {"epochs": 2.0}),
    ("wider", {"embedding_dim": 1.5}),
    ("narrower", {"embedding_dim": 0.67}),
    ("larger classifier", {"cls_hidden_dim": 1.5}),
    ("more word dropout", {"word_dropout": 2.0}),
    ("closer to the teacher", {"alpha": 0.4}),
    ("more dropout", {"dropout": 2.5}),
)
"""Changes that are tried on the best student: factors of its settings."""


class Candidate(Settings):
    """A student to try."""

    student: str
    """Its kind in words."""
    flags: dict[str, Any]
    """Its flags of compress.py."""
    bytes: int
    """Estimated bytes of the packed file."""

    @property
    def is_bag(self) -> bool:
        """Whether it reads a text as a bag of tokens."""
        return self.flags["student_arch"] == "ffn"


class Trained(Settings):
    """A student that was trained, and its result on validation."""

    model: str
    """Its name in the workspace."""
    candidate: Candidate
    change: str
    """Difference from the best student before it, in words; empty for the first of its kind."""
    epochs: int
    score: float | None = None
    """The task's metric, higher is better; None if training failed or was stopped before its first epoch ended."""
    loss: float = 0.0
    """Cross-entropy (for multilabel, the mean over labels), or mean squared error."""
    seconds: float = 0.0
    note: str = ""
    tune_epochs: int = 0
    """Epochs of training after quantization."""
    refit: bool = False
    """Whether it has learned from validation's rows; score and loss are those of the same student before that."""

    @property
    def in_words(self) -> str:
        """Return its kind, its difference from the student before it, and whether it learned from validation's rows."""
        parts = (self.candidate.student, self.change, "then trained on validation's rows too" * self.refit)
        return ", ".join(filter(None, parts))


def candidates(
    task: Task, max_bytes: int, dropout: float, long_texts: bool = False, alpha: float = 0.5
) -> list[Candidate]:
    """Return the students to try within a size, the most promising first.

    long_texts: whether texts have hundreds of words; alpha: weight of the labels in the loss. Raises UserError, with
    the smallest sufficient size, if no student fits.
    """
    dim, encoder, classifier = widths(max_bytes)
    fitted = []
    kinds = _KINDS[task.kind.by_word, task.pair]
    if long_texts and kinds is _SINGLE:
        kinds = {**_LONG_SINGLE, **_SINGLE}
    for student, kind in kinds.items():
        flags = {**kind, "embedding_dim": dim, "cls_hidden_dim": classifier, "dropout": dropout, "alpha": alpha}
        flags["epochs"] = 1.0  # in relation to the usual number
        if long_texts and kind["student_arch"] == "ffn":
            flags |= {**_LONG_FLAGS, "embedding_dim": max(_NARROWEST, dim // 2)}
        if kind["student_arch"] != "ffn":
            flags |= {"embedding_dim": max(4, dim // 2), "encoder_hidden_dim": encoder}
        if kind.get("pair_encoder") == "align":
            flags["symmetric"] = task.symmetric
        candidate = sized(task, student, flags, max_bytes)
        while candidate is None and flags["cls_hidden_dim"] > _NARROWEST:  # many labels take much of a small file
            flags |= {name: max(_NARROWEST, flags[name] // 2) for name in flags if name.endswith("_dim")}
            candidate = sized(task, student, flags, max_bytes)
        if candidate is not None:
            fitted.append(candidate)
    if not fitted:
        smallest = min(kinds.values(), key=lambda kind: kind["student_arch"] != "ffn")
        flags = {**smallest, **dict.fromkeys(("embedding_dim", "cls_hidden_dim", "encoder_hidden_dim"), _NARROWEST)}
        least = math.ceil(packed_bytes(task, {**flags, "vocab_size": _FEWEST_TOKENS}) / _FILLED)
        raise UserError(f"--max-bytes {max_bytes}: too small for any student; give {least:,} or more")
    return fitted


def varied(task: Task, student: Candidate, factors: dict[str, float], max_bytes: int) -> Candidate | None:
    """Return a student with some settings multiplied by factors; None if it has no such setting, or would not fit."""
    if not factors.keys() <= student.flags.keys():
        return None
    flags = dict(student.flags)
    for name, factor in factors.items():
        value = flags[name] * factor
        if name in ("dropout", "word_dropout"):
            flags[name] = round(min(0.5, value), 3)
        elif isinstance(flags[name], int):
            flags[name] = max(1, 4 * round(value / 4) if name.endswith("_dim") else round(value))
        else:
            flags[name] = float(f"{value:.4g}")
    return sized(task, student.student, flags, max_bytes)


def sized(task: Task, student: str, flags: dict[str, Any], max_bytes: int) -> Candidate | None:
    """Return a student with the largest vocabulary that fits, or None if none fits."""

    def size(tokens: int) -> float:
        return packed_bytes(task, {**flags, "vocab_size": tokens})

    if size(_FEWEST_TOKENS) > _FILLED * max_bytes:
        return None
    tokens = bisect.bisect(range(_MOST_TOKENS), _FILLED * max_bytes, lo=_FEWEST_TOKENS, key=lambda n: size(n + 1))
    return Candidate(student=student, flags={**flags, "vocab_size": tokens}, bytes=round(size(tokens)))


def packed_bytes(task: Task, flags: dict[str, Any]) -> float:
    """Return the estimated bytes of a student's packed file. flags: of compress.py, with --vocab-size."""
    shape = {name: value for name, value in flags.items() if name in StudentSettings.model_fields}
    spec = StudentSpec(flags["student_arch"], StudentSettings(**shape), task.outputs, task.pair, task.kind.by_word)
    shapes = spec.shapes()
    weights = sum(math.prod(shapes[name]) for name in spec.matrices()) * _BITS.get(spec.arch, 3) / 8
    vectors = sum(math.prod(shapes[name]) for name in spec.vectors()) * 2
    tokens = flags["vocab_size"] * _TOKEN_BYTES[flags["embedding_type"]]
    return weights + vectors + tokens + _HEADER + sum(len(label.encode()) + 1 for label in task.labels)


def widths(max_bytes: int) -> tuple[int, ...]:
    """Return widths of embedding, encoder and classifier for a size, interpolated between those of `_WIDTHS`."""
    sizes, *columns = np.log(_WIDTHS).T
    return tuple(max(4, 4 * round(math.exp(np.interp(math.log(max_bytes), sizes, of)) / 4)) for of in columns)
