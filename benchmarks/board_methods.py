"""The methods that board.py compares: `experiment.py fit` and its peers, each from rows to answers."""

import csv
import dataclasses
import os
import pickle
import resource
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from fasttext_side import write_training
from shared import run_command

from common.errors import UserError
from common.progress import say
from common.seeds import DEFAULT_SEED
from common.teachers.frozen import FrozenEncoder
from common.teachers.packages import minilm
from compression.runtime import load
from compression.runtime.words import split_words

ROOT = Path(__file__).parent.parent
STRENGTHS = (1, 3, 10, 30)
"""Values of C that logistic regression is tried with."""
FASTTEXT_MEMORY = 16 << 30
"""Bytes that fastText may hold: its autotune tries tables of up to 10 million vectors."""
ENCODER_TOKENS = 256
"""Tokens of a text that MiniLM reads, as in its sentence_bert_config.json."""


@dataclasses.dataclass
class Rows:
    """Texts with their labels."""

    texts: list[str]
    labels: list[str]

    def take(self, indices: Sequence[int]) -> "Rows":
        """Return some of the rows."""
        return Rows([self.texts[index] for index in indices], [self.labels[index] for index in indices])


@dataclasses.dataclass
class Job:
    """A set to measure a method on, and the limits that the method gets."""

    train: Path
    test: Path
    budgets: Sequence[int | None]
    """Limits of bytes; [None] for a method that takes none."""
    minutes: float | None
    folder: Path
    """An empty folder for files that are not needed afterwards."""

    def rows(self) -> tuple[Rows, Rows]:
        """Return the rows of train and of test."""
        return read_rows(self.train), read_rows(self.test)


@dataclasses.dataclass
class Outcome:
    """What a method answers on test, and what it cost."""

    answers: Sequence[str]
    bytes: int
    seconds: float
    details: str = ""
    budget: int | None = None


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to train a classifier. run: raises UserError if it cannot be run here, or fails."""

    name: str
    run: Callable[[Job], list[Outcome]]
    budgets: bool = False
    minutes: bool = False


def read_rows(path: Path) -> Rows:
    """Return the rows of a CSV file with the columns text and label."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    try:
        return Rows([row["text"] for row in rows], [row["label"] for row in rows])
    except KeyError as error:
        raise UserError(f"{path}: no column {error}") from None


def parts(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of nine tenths of the rows, to learn from, and of a tenth, to choose settings on."""
    order = np.random.default_rng(DEFAULT_SEED).permutation(count)
    return order[count // 10 :], order[: count // 10]


def fit(job: Job) -> list[Outcome]:
    """Run `experiment.py fit` once for all sizes, and answer test with each packed file by NumPy."""
    command = [sys.executable, ROOT / "experiment.py", "fit", job.train, "--test", job.test]
    command += ["--text", "text", "--label", "label", "--max-bytes", *job.budgets, "--minutes", job.minutes]
    command += ["--output", job.folder / "{size}.fwt", "--workspace", job.folder / "workspace", "--no-loadbar"]
    began = time.perf_counter()
    run_command("fit", command)
    seconds = time.perf_counter() - began
    texts = read_rows(job.test).texts
    outcomes = []
    for budget in job.budgets:
        file = job.folder / f"{budget}.fwt"
        if file.exists():
            outcomes.append(Outcome(load(file).predict(texts), file.stat().st_size, seconds, budget=budget))
        else:
            say(f"{job.train.name}: nothing fits into {budget:,} bytes")
    return outcomes


def logistic_regression(features: Any, labels: Sequence[str]) -> tuple[Any, str]:
    """Return logistic regression of all rows, with the C that has the best accuracy on a tenth, and this C."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    gold = np.array(labels)
    learned, held_out = parts(len(gold))
    scores = {}
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # 100 steps are enough
        for strength in STRENGTHS:
            # The tolerance is exact enough to choose; from the weights of another C, the solver would stop at once.
            model = LogisticRegression(C=strength, tol=1e-3).fit(features[learned], gold[learned])
            scores[strength] = model.score(features[held_out], gold[held_out])
        best = max(scores, key=scores.__getitem__)
        return LogisticRegression(C=best).fit(features, gold), f"C = {best}"


def tf_idf(job: Job, characters: bool = False) -> list[Outcome]:
    """Fit logistic regression to tf-idf of words and pairs of words, and if requested of 3 to 5 characters."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    train, test = job.rows()
    began = time.perf_counter()
    usual = {"sublinear_tf": True, "dtype": np.float32}
    vectorizers = [TfidfVectorizer(ngram_range=(1, 2), **usual)]
    if characters:
        vectorizers.append(TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), min_df=2, **usual))
    vectorizer = make_union(*vectorizers)
    features = vectorizer.fit_transform(train.texts).tocsr()
    model, details = logistic_regression(features, train.labels)
    seconds = time.perf_counter() - began
    answers = model.predict(vectorizer.transform(test.texts))
    return [Outcome(answers, len(pickle.dumps((vectorizer, model))), seconds, details)]


def frozen_minilm(job: Job) -> list[Outcome]:
    """Fit logistic regression to the means of MiniLM's token vectors, of length 1."""
    import torch

    train, test = job.rows()
    began = time.perf_counter()
    encoder = FrozenEncoder(minilm(), torch.device("cpu"), torch.float32, ENCODER_TOKENS)
    model, details = logistic_regression(encoder.vectors(train.texts).astype(np.float32), train.labels)
    seconds = time.perf_counter() - began
    size = (minilm() / "model.safetensors").stat().st_size + len(pickle.dumps(model))
    return [Outcome(model.predict(encoder.vectors(test.texts).astype(np.float32)), size, seconds, details)]


def fasttext(job: Job) -> list[Outcome]:
    """Train fastText with 25 epochs, a learning rate of 0.5 and bigrams."""
    train, test = job.rows()
    return [run_fasttext(job, train, test, ["-epoch", 25, "-lr", 0.5, "-wordNgrams", 2, "-bucket", 200_000])]


def fasttext_autotune(job: Job) -> list[Outcome]:
    """Let fastText choose its own settings in the job's minutes, once for each size."""
    train, test = job.rows()
    learned, held_out = map(train.take, parts(len(train.texts)))
    names = label_numbers(train.labels)
    write_fasttext(job.folder / "validation.txt", held_out, names)
    outcomes = []
    for budget in job.budgets:
        words: list[object] = ["-autotune-validation", "validation.txt", "-autotune-duration", round(60 * job.minutes)]
        if budget:
            words += ["-autotune-modelsize", budget]
        # It looks at the clock between its trainings, and quantizes for a while after the last.
        outcome = run_fasttext(job, learned, test, words, names, seconds=120 * job.minutes + 300)
        outcomes.append(dataclasses.replace(outcome, budget=budget))
    return outcomes


def label_numbers(labels: Iterable[str]) -> dict[str, int]:
    """Return a number for each label, because fastText's labels have no spaces."""
    return {label: number for number, label in enumerate(sorted(set(labels)))}


def write_fasttext(path: Path, rows: Rows, names: dict[str, int]) -> None:
    """Write rows in fastText's format, their words separated by spaces, in a random order."""
    texts = [" ".join(split_words(text)) for text in rows.texts]
    write_training(path, texts, np.array([names[label] for label in rows.labels]), DEFAULT_SEED)


def run_fasttext(
    job: Job,
    train: Rows,
    test: Rows,
    words: Sequence[object],
    names: dict[str, int] | None = None,
    seconds: float | None = None,
) -> Outcome:
    """Train fastText with these flags and answer test. seconds: a limit of time."""
    program = shutil.which("fasttext")
    if program is None:
        raise UserError("the command fasttext is not installed")
    names = names or label_numbers(train.labels)
    write_fasttext(job.folder / "train.txt", train, names)
    lines = "".join(" ".join(split_words(text)) + "\n" for text in test.texts)
    (job.folder / "test.txt").write_text(lines, encoding="utf-8")

    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (FASTTEXT_MEMORY, FASTTEXT_MEMORY))

    command = [program, "supervised", "-input", "train.txt", "-output", "model", "-thread", os.cpu_count(), *words]
    began = time.perf_counter()
    run_command("fastText", command, timeout=seconds, cwd=job.folder, preexec_fn=limit_memory)
    took = time.perf_counter() - began
    quantized = job.folder / "model.ftz"
    file = quantized if quantized.exists() else job.folder / "model.bin"
    printed = run_command("fastText", [program, "predict", file.name, "test.txt"], cwd=job.folder).splitlines()
    if len(printed) != len(test.texts):
        raise UserError("fastText does not answer every text")
    known = list(names)
    answers = [known[int(line.removeprefix("__label__"))] for line in printed]
    return Outcome(answers, file.stat().st_size, took)


def model2vec(job: Job) -> list[Outcome]:
    """Distil MiniLM into vectors of word pieces, and fine-tune them with a classifier."""
    try:
        from model2vec.distill import distill
        from model2vec.train import StaticModelForClassification
    except ImportError as error:
        raise UserError(f"pip install 'model2vec[distill,train]' first ({error})") from None
    train, test = job.rows()
    began = time.perf_counter()
    model = StaticModelForClassification.from_static_model(model=distill(str(minilm())))
    model.fit(train.texts, train.labels)
    seconds = time.perf_counter() - began
    saved = job.folder / "model"
    model.to_pipeline().save_pretrained(str(saved))
    size = sum(path.stat().st_size for path in saved.glob("*.safetensors"))
    return [Outcome(model.predict(test.texts), size, seconds)]


FIT = Method("fit", fit, budgets=True, minutes=True)
PEERS = {
    method.name: method
    for method in (
        Method("tf-idf-words", tf_idf),
        Method("tf-idf-characters", partial(tf_idf, characters=True)),
        Method("frozen-minilm", frozen_minilm),
        Method("fasttext", fasttext),
        Method("fasttext-autotune", fasttext_autotune, minutes=True),
        Method("fasttext-autotune-size", fasttext_autotune, budgets=True, minutes=True),
        Method("model2vec", model2vec),
    )
}
