"""Initial vectors of tokens from a teacher: its hidden states of pieces, each read alone, or its logits over texts.

The state that the teacher's classifier reads (the last layer's at the first token; of a tagger, at a word's first
piece) depends on what a piece means for the task, also for pieces that are rare in the training text. The student's
embedding starts from its principal components, as many as the embedding is wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array

from common.data.split import Split
from common.devices import pick_device
from common.errors import UserError
from common.kinds.ragged import EncodedText
from common.progress import counter
from common.store.artifact import artifact_at
from common.store.files import fingerprint, whole_file
from common.store.locks import only_one
from common.teachers.load import load_teacher
from common.training.models import members_of, read_config
from compression.runtime.tokenizers.normalisation import SPACE

_BATCH = 256
_SPREAD = 0.3
"""Standard deviation of all values; that of random embeddings works as well."""
_SPREAD_OF_LOGITS = 0.5
"""Standard deviation of vectors from logits."""
_SPREAD_OF_OTHERS = 0.1
"""Standard deviation of columns that logits say nothing about, in a table wider than the number of outputs."""
_PENALTY = 1.0


def find_teacher_vectors(pieces: Sequence[str], teacher: Path, dim: int, folder: Path, cpu: bool) -> np.ndarray:
    """Return vectors of the pieces, float32 [pieces, dim], computed once and kept in `folder`.

    teacher: its model folder; the states of an ensemble's members are concatenated. Raises UserError if it is missing,
    or if there are more dimensions than pieces or than the states have.
    """
    of_tagger = ["first piece"] if read_config(teacher).task_kind.by_word else []
    file = folder / f"{fingerprint([list(pieces), artifact_at(teacher).key, dim, *of_tagger])}.teacher.npy"
    with only_one(file, f"vectors of {teacher.name}", wait=True):
        if not file.exists():
            states = [_states(pieces, member, cpu) for member in members_of(teacher) or [teacher]]
            vectors = principal_components(np.concatenate(states, 1), dim)
            with whole_file(file) as partial, partial.open("wb") as stream:
                np.save(stream, vectors, allow_pickle=False)
    return np.load(file, allow_pickle=False)


def principal_components(states: np.ndarray, dim: int) -> np.ndarray:
    """Return the first components of rows, float32 [n, dim], with one common scale. states: float [n, width]."""
    if dim > min(states.shape):
        raise UserError(f"--embedding-init teacher: {min(states.shape)} dimensions at most (--embedding-dim is {dim})")
    left, values, _ = np.linalg.svd(states - states.mean(0), full_matrices=False)
    components = left[:, :dim] * values[:dim]
    return (components * (_SPREAD / components.std())).astype(np.float32)


def _states(pieces: Sequence[str], teacher: Path, cpu: bool) -> np.ndarray:
    """Return the states that the classifier reads, float32 [pieces, width]."""
    texts = [piece.replace(SPACE, " ").strip() for piece in pieces]
    split = Split.of_texts([[text] for text in texts])
    token = int(read_config(teacher).task_kind.by_word)
    model = load_teacher(teacher, pick_device(cpu), torch.float32)
    states = []
    with counter(f"{teacher.name} over byte pairs", len(texts)) as advance:
        for start in range(0, len(texts), _BATCH):
            rows = np.arange(start, min(start + _BATCH, len(texts)))
            states.append(model.states(split.take(rows)).hidden[-1][:, token].cpu().numpy())
            advance(len(rows))
    return np.concatenate(states)


def logit_vectors(texts: EncodedText, logits: np.ndarray, rows: int, dim: int, seed: int) -> np.ndarray:
    """Return vectors of tokens, float32 [rows, dim], whose sum over a text approximates its logits.

    The vectors minimise the squared distance between a text's sum, divided by the root of its number of tokens (as
    `--pooling both` reads it), and the principal components of its logits, plus the vectors' squared length. An
    embedding with these vectors starts as the low-rank approximation of a linear model of the teacher.

    texts: n encoded texts of width 1; logits: float32 [n, outputs]; rows: of the embedding's table; seed: of the random
    values in the columns that are left if dim is greater than the number of components.
    """
    from sklearn.linear_model import Ridge

    if logits.shape[1] > 1:  # a constant added to all logits of a row changes no probability
        logits = logits - logits.mean(1, keepdims=True)
    logits = (logits - logits.mean(0)).astype(np.float64)
    components = min(dim, max(1, logits.shape[1] - 1))
    _, directions = np.linalg.eigh(logits.T @ logits)  # in ascending order of the variance
    targets = logits @ directions[:, ::-1][:, :components]
    lengths = texts.lengths
    text_of = np.repeat(np.arange(len(texts)), lengths)
    counts = csr_array((1 / np.sqrt(lengths)[text_of], (text_of, texts.ids[:, 0])), (len(texts), rows))
    ridge = Ridge(alpha=_PENALTY, fit_intercept=False, solver="sparse_cg", tol=1e-2).fit(counts, targets)
    vectors = np.random.default_rng(seed).normal(0, _SPREAD_OF_OTHERS, (rows, dim)).astype(np.float32)
    learned = ridge.coef_.reshape(components, rows).T
    vectors[:, :components] = learned * (_SPREAD_OF_LOGITS / max(learned.std(), 1e-9))
    return vectors
