"""Baselines that a fit is compared with: tf-idf with a linear model, and fastText if its program is installed."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.data.split import Split
from common.data.tasks import Task
from common.seeds import derive
from common.training.metrics import score
from compression.experiments.fit.settings import Baseline
from compression.runtime.words import split_words

_STRENGTHS = (10.0, 1.0)
"""Values of C (1 / alpha for ridge regression); validation chooses between them if there is time for both."""
_TIMED_ROWS = 2_000
"""Rows that a linear model is fitted to first, to estimate how many rows there is time for."""
_FASTTEXT = ((5, 0.1), (25, 0.5))
"""Epochs and learning rates: fastText's defaults, and the values its tutorial recommends for few rows."""
_FASTTEXT_OPTIONS = ("-wordNgrams", "2", "-bucket", "200000", "-thread", "1")
_QUICK_ROWS = 20_000
"""Maximum number of training rows of `quick_score`."""


class _LinearOfLabels:
    """Logistic regression."""

    name = "logistic regression"

    def first_rows(self, labels: np.ndarray) -> np.ndarray:
        """Return rows that contain every class: the chosen rows begin with them."""
        return np.unique(labels, return_index=True)[1]

    def fit(self, task: Task, features: Any, labels: np.ndarray, strength: float) -> Callable[[Any], np.ndarray]:
        """Return a function from features to logits, float32 [n, outputs]. strength: C, or 1 / alpha."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # missing convergence costs the baseline little
            model = LogisticRegression(C=strength, max_iter=200).fit(features, labels)

        def logits(features: Any) -> np.ndarray:
            outputs = np.full((features.shape[0], len(task.labels)), -np.inf, np.float32)
            outputs[:, model.classes_] = model.predict_log_proba(features)
            return outputs

        return logits


class _LinearOfSeveral(_LinearOfLabels):
    """One logistic regression for each label."""

    name = "one-vs-rest logistic regression"

    def first_rows(self, labels: np.ndarray) -> np.ndarray:
        return np.unique(labels.argmax(0)[labels.any(0)])

    def fit(self, task: Task, features: Any, labels: np.ndarray, strength: float) -> Callable[[Any], np.ndarray]:
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier

        # For many labels, liblinear is as fast as the default solver is for one.
        one = LogisticRegression(C=strength, solver="liblinear")
        model = OneVsRestClassifier(one).fit(features, labels.astype(np.int64))
        return lambda features: _of_chosen(model.predict(features))


class _LinearOfNumbers(_LinearOfLabels):
    """Ridge regression."""

    name = "ridge regression"

    def first_rows(self, labels: np.ndarray) -> np.ndarray:
        return np.zeros(0, np.int64)

    def fit(self, task: Task, features: Any, labels: np.ndarray, strength: float) -> Callable[[Any], np.ndarray]:
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=1 / strength, solver="sparse_cg").fit(features, labels)
        return lambda features: task.kind.targets(task, model.predict(features))[:, None]


LINEAR = {"labels": _LinearOfLabels(), "multilabel": _LinearOfSeveral(), "numbers": _LinearOfNumbers()}
"""Name of a kind of task -> its linear model."""


class _Linear:
    """A linear model over tf-idf of unigrams and bigrams; for pairs, over the products and differences of the texts."""

    def __init__(self, task: Task, train: Split, most_rows: int) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        rows = np.random.default_rng(derive("tf-idf", 0)).permutation(len(train))
        self.of_kind = LINEAR[task.kind.name]
        first = self.of_kind.first_rows(train.labels)
        rows = np.concatenate([first, rows[~np.isin(rows, first)]])
        self.task, self.train = task, train.take(rows[:most_rows])
        self.vectorizer = TfidfVectorizer(
            tokenizer=split_words,
            token_pattern=None,
            lowercase=False,
            ngram_range=(1, 2),
            sublinear_tf=True,
            dtype=np.float32,
        )
        texts = [text for column in self.train.sentences() for text in column]
        if task.pair:
            self.vectorizer.fit(texts)
            self.features = self._features(self.train)
        else:
            self.features = self.vectorizer.fit_transform(texts)

    def scores(self, strength: float, splits: Sequence[Split]) -> list[dict[str, float]]:
        """Return the metrics on each split of a model fitted with this C, or 1 / alpha."""
        logits_of = self.of_kind.fit(self.task, self.features, self.train.labels, strength)
        return [score(self.task, split.labels, logits_of(self._features(split))) for split in splits]

    def _features(self, split: Split) -> Any:
        """Return features, sparse [n, features]; for pairs with vectors u and v: u * v, its sum (cosine), |u - v|."""
        from scipy.sparse import csr_matrix, hstack

        columns = [self.vectorizer.transform(column) for column in split.sentences()]
        if len(columns) == 1:
            return columns[0]
        product = columns[0].multiply(columns[1]).tocsr()
        return hstack([product, csr_matrix(product.sum(1)), abs(columns[0] - columns[1])], format="csr")


def quick_score(task: Task, train: Split, validation: Split) -> float:
    """Return the main metric on validation of a linear model of some rows, which a teacher should exceed."""
    return _Linear(task, train, _QUICK_ROWS).scores(_STRENGTHS[0], [validation])[0][task.all_metrics[0]]


def _rows_within(task: Task, train: Split, seconds: float) -> int:
    """Return how many rows the models of all strengths can be fitted to in this time, estimated from few rows."""
    if len(train) <= _TIMED_ROWS:
        return len(train)
    for rows in (100, _TIMED_ROWS):  # the first fit also loads parts of scikit-learn
        began = time.perf_counter()
        _Linear(task, train, rows).scores(_STRENGTHS[0], [])
    fits = seconds / (len(_STRENGTHS) * (time.perf_counter() - began))
    return max(_TIMED_ROWS, int(fits * _TIMED_ROWS))


def tf_idf(task: Task, train: Split, validation: Split, test: Split, seconds: float) -> Baseline:
    """Return the score of a linear model over tf-idf of unigrams and bigrams. seconds: approximate time limit."""
    began = time.perf_counter()
    linear = _Linear(task, train, _rows_within(task, train, seconds))
    results: dict[float, tuple[float, dict[str, float]]] = {}
    for strength in _STRENGTHS:
        fitted = time.perf_counter()
        chooses, metrics = linear.scores(strength, [validation, test])
        results.setdefault(chooses[task.all_metrics[0]], (strength, metrics))
        if time.perf_counter() - began + 1.5 * (time.perf_counter() - fitted) > seconds:
            break
    strength, metrics = results[max(results)]
    rows = f", {len(linear.train):,} rows" if len(linear.train) < len(train) else ""
    details = f"{linear.features.shape[1]:,} features, C = {strength:g}{rows}"
    took = round(time.perf_counter() - began, 1)
    return Baseline(name=f"tf-idf, {linear.of_kind.name}", metrics=metrics, details=details, seconds=took)


def fasttext(task: Task, train: Split, validation: Split, test: Split, seconds: float, seed: int) -> Baseline | None:
    """Return the score of fastText with bigrams and the better of two settings; None if it is not installed.

    seconds: time limit. Raises what running it raises.
    """
    program = shutil.which("fasttext")
    if program is None or not task.kind.has_classes:
        return None
    began, best = time.perf_counter(), None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [f"{names}{text}\n" for names, text in zip(_fasttext_labels(train), _joined(train), strict=True)]
        random.Random(seed).shuffle(lines)
        (folder / "train.txt").write_text("".join(lines), encoding="utf-8")
        usual = ["-input", "train.txt", "-output", "model", "-seed", str(seed % 2**31), *_FASTTEXT_OPTIONS]
        usual += ["-loss", "ova"] if task.kind.independent else []
        for epochs, rate in _FASTTEXT:
            left = seconds - (time.perf_counter() - began)
            try:
                command = [program, "supervised", *usual, "-epoch", str(epochs), "-lr", str(rate)]
                subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=max(1.0, left))
                chooses, metrics = (_fasttext_score(program, task, folder, split, left) for split in (validation, test))
            except (subprocess.SubprocessError, OSError, ValueError):
                if best is None:
                    raise
                break
            details = f"{epochs} epochs, {(folder / 'model.bin').stat().st_size:,} bytes"
            if best is None or chooses[task.all_metrics[0]] > best[0]:
                best = chooses[task.all_metrics[0]], metrics, details
    assert best is not None
    _, metrics, details = best
    return Baseline(name="fastText", metrics=metrics, details=details, seconds=round(time.perf_counter() - began, 1))


def _fasttext_score(program: str, task: Task, folder: Path, split: Split, seconds: float) -> dict[str, float]:
    """Return the metrics of the model in the folder. Raises ValueError if it does not answer every text."""
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in _joined(split)), encoding="utf-8")
    asked = [program, "predict", "model.bin", "texts.txt", *(["-1", "0.5"] if task.kind.independent else [])]
    answer = subprocess.run(asked, cwd=folder, capture_output=True, check=True, timeout=max(1.0, seconds), text=True)
    answers = [[int(word.removeprefix("__label__")) for word in line.split()] for line in answer.stdout.splitlines()]
    if len(answers) != len(split):
        raise ValueError("a text has no answer")
    chosen = np.zeros((len(split), len(task.labels)), np.int64)
    for row, classes in enumerate(answers):
        chosen[row, classes] = 1
    return score(task, split.labels, _of_chosen(chosen))


def _fasttext_labels(split: Split) -> list[str]:
    """Return the labels of each row in fastText's format, as the beginning of an input line."""
    rows = map(np.flatnonzero, split.labels) if split.kind.independent else split.labels[:, None]
    return ["".join(f"__label__{label} " for label in row) for row in rows]


def _joined(split: Split) -> list[str]:
    """Return the words of each text, the two texts of a pair joined, separated by spaces."""
    return [
        " ".join(word for text in texts for word in split_words(text)) for texts in zip(*split.sentences(), strict=True)
    ]


def _of_chosen(chosen: np.ndarray) -> np.ndarray:
    # Outputs of a model that chooses the labels with 1 and not those with 0.
    return chosen.astype(np.float32) - 0.5
