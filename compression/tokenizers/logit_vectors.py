"""Initial vectors of tokens from a teacher's logits over the texts that contain them, by ridge regression."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from common.kinds.ragged import EncodedText

_SPREAD = 0.5
"""Standard deviation of the vectors."""
_SMALL = 0.1
"""Standard deviation of columns that logits say nothing about, in a table wider than the number of outputs."""
_PENALTY = 1.0


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
    vectors = np.random.default_rng(seed).normal(0, _SMALL, (rows, dim)).astype(np.float32)
    learned = ridge.coef_.reshape(components, rows).T
    vectors[:, :components] = learned * (_SPREAD / max(learned.std(), 1e-9))
    return vectors
