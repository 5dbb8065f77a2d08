"""Linear teachers: logistic or ridge regression on features of texts, fitted in seconds, with out-of-fold logits.

The features are tf-idf (here) or the vectors of a frozen encoder (common.teachers.frozen). Nothing here reads or writes
files: common.teachers.linear_step does.

A linear model of many features fits its training rows almost perfectly, so its logits over them say little. The logits
of `cross_fitted` are of models of the other rows (Wolpert, Stacked generalization, 1992).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_matrix, hstack, issparse
from scipy.special import log_softmax

from common.data.split import Split
from common.data.tasks import Task
from common.devices import cpu_cores
from common.errors import UserError
from common.kinds.base import Kind
from common.progress import Advance, nothing
from common.seeds import derive
from common.stopping import check
from common.training.calibration import fit_temperature
from compression.runtime.words import split_words

_PASSES = 10
"""Passes of SAGA over the rows. On the sets of docs/results.md, more change the accuracy by less than 0.3 points."""
_MANY_CHARACTERS = 8_000_000
_ITERATIONS = 200
"""Iterations of L-BFGS at most."""
_ABSENT = -20.0
"""Logit of a class that is not among the rows of a fold."""


class Features(Protocol):
    """A function from rows to features that does not depend on labels."""

    strength: float
    """C of logistic regression, and 1 / alpha of ridge regression."""

    def fit(self, train: Split) -> Any:
        """Learn what to count from the texts of train, and return their features, as a call does."""

    def __call__(self, split: Split, advance: Advance = nothing) -> Any:
        """Return the features of each row, float32 [n, features], sparse or dense.

        `advance` is called with the number of rows done since its last call.
        """


class _Words:
    """Counts of words and pairs of words, sparse [texts, terms]."""

    def __init__(self, terms: Sequence[str] | None = None) -> None:
        from sklearn.feature_extraction.text import CountVectorizer

        self.vectorizer = CountVectorizer(
            tokenizer=split_words, token_pattern=None, lowercase=False, ngram_range=(1, 2), vocabulary=terms
        )

    def fit_transform(self, texts: Sequence[str]) -> csr_matrix:
        return self.vectorizer.fit_transform(texts)

    def transform(self, texts: Sequence[str]) -> csr_matrix:
        return self.vectorizer.transform(texts)

    @property
    def terms(self) -> list[str]:
        return self.vectorizer.get_feature_names_out().tolist()


class _Characters:
    """Counts of runs of 3 to 5 characters within words, as scikit-learn's char_wb, without those of a single text.

    Each distinct word is divided once, which is several times as fast as dividing every text.
    """

    def __init__(self, terms: Sequence[str] | None = None) -> None:
        self.terms = list(terms or [])

    def fit_transform(self, texts: Sequence[str]) -> csr_matrix:
        counts, terms = self._counts(texts, None)
        kept = np.flatnonzero(np.bincount(counts.indices, minlength=len(terms)) > 1)
        self.terms = [terms[column] for column in kept]
        return counts[:, kept]

    def transform(self, texts: Sequence[str]) -> csr_matrix:
        return self._counts(texts, self.terms)[0]

    def _counts(self, texts: Sequence[str], terms: list[str] | None) -> tuple[csr_matrix, Sequence[str]]:
        from sklearn.feature_extraction.text import CountVectorizer

        words = CountVectorizer(tokenizer=str.split, token_pattern=None)
        characters = CountVectorizer(analyzer="char_wb", ngram_range=(3, 5), vocabulary=terms)
        if terms == [] or not any(map(str.strip, texts)):  # scikit-learn refuses to count nothing
            return csr_matrix((len(texts), len(terms or []))), terms or []
        of_texts = words.fit_transform(texts)
        of_words = characters.fit_transform(words.get_feature_names_out())
        return (of_texts @ of_words).tocsr(), characters.get_feature_names_out()


def counts_parts(texts: Sequence[str]) -> bool:
    """Return whether runs of characters are counted too: only in at most 8 million characters of text.

    On 20 Newsgroups, with 15 million, they would add 0.2 points of accuracy and make the model four times as slow to
    fit.
    """
    return sum(map(len, texts)) <= _MANY_CHARACTERS


class TfIdf:
    """tf-idf of words and pairs of words and, unless there is very much text, of 3 to 5 characters within words."""

    strength = 10.0

    def __init__(self) -> None:
        self.counters: list[_Words | _Characters] = [_Words(), _Characters()]
        self.idf: list[np.ndarray] = []

    @classmethod
    def restored(cls, terms: Sequence[Sequence[str]], idf: Sequence[np.ndarray]) -> TfIdf:
        """Return features that were fitted before. terms: those of each counter; idf: float32 [terms] each."""
        features = cls()
        features.counters = [counter(some) for counter, some in zip((_Words, _Characters), terms, strict=False)]
        features.idf = list(idf)
        return features

    def fit(self, train: Split) -> csr_matrix:
        """Count the words of train; return its features. Raises UserError if there are no words."""
        texts = train.texts()
        if not counts_parts(texts):
            self.counters = self.counters[:1]
        try:
            counts = [counter.fit_transform(texts) for counter in self.counters]
        except ValueError:
            raise UserError("the texts have no words to learn from") from None
        frequencies = [np.bincount(part.indices, minlength=part.shape[1]) for part in counts]
        self.idf = [(np.log((1 + len(texts)) / (1 + part)) + 1).astype(np.float32) for part in frequencies]
        weighted = self._weighted(counts)
        ends = np.cumsum([0, *map(len, train.sentences())])
        return compared([weighted[start:end] for start, end in itertools.pairwise(ends)])

    def __call__(self, split: Split, advance: Advance = nothing) -> csr_matrix:
        """Return the features of each row, sparse float32 [n, features]; for pairs, those of `compared`."""
        columns = [
            self._weighted([counter.transform(column) for counter in self.counters]) for column in split.sentences()
        ]
        advance(len(split))
        return compared(columns)

    def _weighted(self, counts: Sequence[csr_matrix]) -> csr_matrix:
        """Return (1 + log count) * idf, each row of each counter with length 1."""
        from sklearn.preprocessing import normalize

        parts = []
        for part, idf in zip(counts, self.idf, strict=True):
            weighted = part.astype(np.float32)
            weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
            parts.append(normalize(weighted, copy=False) if len(idf) else weighted)
        return hstack(parts, format="csr")


def compared(columns: Sequence[Any]) -> Any:
    """Return the features of rows of one text, or of pairs with features u and v: u * v, its sum, |u - v|.

    columns: features of the first and, for pairs, the second text, [n, features] each, all sparse or all dense.
    """
    if len(columns) == 1:
        return columns[0]
    first, second = columns
    if issparse(first):
        product = first.multiply(second).tocsr()
        return hstack([product, csr_matrix(product.sum(1)), abs(first - second)], format="csr")
    product = first * second
    return np.concatenate([product, product.sum(1, keepdims=True), np.abs(first - second)], axis=1)


@dataclasses.dataclass(frozen=True)
class Head:
    """A linear layer. weights: float32 [features, outputs]; bias: float32 [outputs]."""

    weights: np.ndarray
    bias: np.ndarray

    def __call__(self, features: Any) -> np.ndarray:
        """Return logits, float32 [n, outputs]."""
        return np.asarray(features @ self.weights + self.bias, np.float32)


@dataclasses.dataclass(frozen=True)
class LinearTeacher:
    """Features and a head: a `Teacher` without hidden states."""

    kind: Kind
    features: Features
    head: Head

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return float32 [n, outputs]: log-probabilities of labels; with several labels a row, the logits of each; for
        numbers, the number scaled to [0, 1]."""
        return normalised(self.kind, self.head(self.features(split, advance)))

    def states(self, split: Split) -> Any:
        """Raise UserError: a linear model has no hidden states."""
        raise UserError("a linear teacher has no hidden states")


def cross_fitted(task: Task, train: Split, features: Features, folds: int = 4, seed: int = 0) -> np.ndarray:
    """Return calibrated out-of-fold logits of train, float32 [n, outputs], as `LinearTeacher.logits` has them.

    The logits of a row are those of a model fitted to the rows of the other folds. Each label is spread evenly over the
    folds. All logits are divided by the temperature that maximises their likelihood. Rows without a label are in no
    fold: they get the mean of all models.

    Raises UserError for a task of tags or answers, or if train has fewer labelled rows than folds.
    """
    check_kind(task)
    rows = np.flatnonzero(train.labelled)
    if len(rows) < folds:
        raise UserError(f"{task.name}: {len(rows)} labelled rows cannot be divided into {folds} folds")
    matrix, labels = features.fit(train), train.labels[rows]
    fold_of = assigned_folds(labels, folds, seed)

    def fit(fold: int) -> Head:
        check()
        others = rows[fold_of != fold]
        return fit_head(task, matrix[others], train.labels[others], features.strength, seed)

    with _few_passes(), ThreadPoolExecutor(cpu_cores()) as threads:
        heads = list(threads.map(fit, range(folds)))
    out_of_fold = np.empty((len(train), task.outputs), np.float32)
    unlabelled = np.flatnonzero(~train.labelled)
    out_of_fold[unlabelled] = np.mean([head(matrix[unlabelled]) for head in heads], axis=0)
    for fold, head in enumerate(heads):
        held_out = rows[fold_of == fold]
        out_of_fold[held_out] = head(matrix[held_out])
    out_of_fold /= np.float32(temperature_of(task, out_of_fold[rows], labels))
    return normalised(task.kind, out_of_fold)


def fitted(task: Task, train: Split, validation: Split, features: Features, seed: int = 0) -> LinearTeacher:
    """Return the teacher fitted to train's labelled rows, with the temperature fitted to validation's.

    Raises UserError for a task of tags or answers.
    """
    check_kind(task)
    learned, held_out = train.labelled_rows(), validation.labelled_rows()
    with _few_passes():
        head = fit_head(task, features.fit(learned), learned.labels, features.strength, seed)
    if len(held_out):
        temperature = np.float32(temperature_of(task, head(features(held_out)), held_out.labels))
        head = Head(head.weights / temperature, head.bias / temperature)
    return LinearTeacher(task.kind, features, head)


def check_kind(task: Task) -> None:
    """Raise UserError if a linear model of whole texts cannot learn a task."""
    if task.kind.by_word:
        raise UserError(f"{task.name} is of kind {task.kind.name}: linear and frozen teachers label whole texts")


def assigned_folds(labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each row, int64 [n]: drawn at random, with equal labels (and near numbers) spread evenly.

    labels: of all rows, [n] or [n, labels].
    """
    group = labels if labels.ndim == 1 else np.unique(labels, axis=0, return_inverse=True)[1].ravel()
    drawn = np.random.default_rng(derive("folds", seed)).permutation(len(labels))
    fold_of = np.empty(len(labels), np.int64)
    fold_of[np.lexsort((drawn, group))] = np.arange(len(labels)) % folds
    return fold_of


def fit_head(task: Task, features: Any, labels: np.ndarray, strength: float, seed: int) -> Head:
    """Return the head fitted to labelled rows: logistic regression, one for each label if a row has several, or ridge.

    features: float32 [n, features]; labels: as in Split; strength: C, or 1 / alpha of ridge regression.
    """
    if not task.kind.has_classes:
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=1 / strength, solver="sparse_cg").fit(features, task.kind.targets(task, labels))
        return Head(model.coef_.astype(np.float32)[:, None], np.float32([model.intercept_]))
    if not task.kind.independent:
        return _logistic(features, labels, task.outputs, strength, seed)
    heads = [_logistic(features, column.astype(np.int64), 2, strength, seed) for column in labels.T]
    weights = np.stack([head.weights[:, 1] - head.weights[:, 0] for head in heads], axis=1)
    return Head(weights, np.stack([head.bias[1] - head.bias[0] for head in heads]))


def _logistic(features: Any, labels: np.ndarray, outputs: int, strength: float, seed: int) -> Head:
    """Return logistic regression of classes, int64 [n].

    Sparse features are many: SAGA (Defazio et al., 2014) needs few passes over the rows, and fits 77 classes ten times
    as fast as L-BFGS. Dense features are few, and L-BFGS multiplies them faster.
    """
    from sklearn.linear_model import LogisticRegression

    weights = np.zeros((features.shape[1], outputs), np.float32)
    bias = np.full(outputs, _ABSENT, np.float32)
    present = np.unique(labels)
    if len(present) == 1:
        bias[present] = 0
        return Head(weights, bias)
    state = derive("saga", seed) % 2**32
    solver, iterations = ("saga", _PASSES) if issparse(features) else ("lbfgs", _ITERATIONS)
    model = LogisticRegression(C=strength, solver=solver, max_iter=iterations, random_state=state)
    model.fit(features, labels)
    coefficients, intercepts = model.coef_, model.intercept_
    if len(present) == 2:  # scikit-learn has those of the second class alone
        coefficients, intercepts = (np.concatenate([-values, values]) / 2 for values in (coefficients, intercepts))
    weights[:, present], bias[present] = coefficients.T, intercepts
    return Head(weights, bias)


@contextlib.contextmanager
def _few_passes() -> Iterator[None]:
    """Hide the warning that a solver stopped before it converged. Not for threads, which share one list of filters."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def temperature_of(task: Task, logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature that maximises the likelihood of held-out labels; 1 for numbers."""
    return fit_temperature(logits, labels, task.kind.independent) if task.kind.has_probabilities else 1.0


def normalised(kind: Kind, logits: np.ndarray) -> np.ndarray:
    """Return log-probabilities if a row has exactly one label, so that an ensemble averages these; else the logits."""
    return log_softmax(logits, axis=1) if kind.one_class else logits
