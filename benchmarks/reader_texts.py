"""Hold the answers of C, WebAssembly and a Cortex-M4 against NumPy's, for random texts of all scripts.

    make -C runtimes/c
    python benchmarks/reader_texts.py --texts 100000
    python benchmarks/reader_texts.py --students  # untrained ones, with all other tokenizers and encoders
    python benchmarks/reader_texts.py --cortex-m --texts 1000 sst-2-12k

Logits may differ by 0.001, or in untrained students by a hundred thousandth of the largest one. Another label is a
near tie if the logits of both labels are within twice that, and a finding otherwise (exit code 1). WebAssembly gives
probabilities, which are compared in place of logits.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy loads: threads wait for each other on a busy machine

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from random_texts import random_text
from web_module import WebModel

from common.progress import Advance, counter
from compression.runtime import Model, load, tidy, zoo_file
from compression.runtime.kinds import to_probabilities
from compression.runtime.native import load_native
from compression.runtime.shapes import TRANSFORMERS

MICROCONTROLLER = Path(__file__).parent.parent / "runtimes" / "cortex-m"
ZOO = ("sst-2-12k", "sst-2-32k", "sst-2-100k", "sst-2-400k", "bc2gm", "ncbi-disease", "bc5cdr-chem", "qqp-12k",
       "mnli-32k", "sts-b-400k")  # fmt: skip
STUDENTS = {"ffn": ("bpe", "hash", "ngrams", "wordpiece"), "rnn": ("char",), "gru": ("hash",), "conv": ("wordpiece",),
            "bilstm": ("char",), "transformer": ("wordpiece",), "recursive": ("bpe",)}  # fmt: skip
BATCH, NEAR = 500, 1e-3
LINE = 511
"""Bytes of a line that the program for a Cortex-M4 reads."""

Answers = tuple[list[np.ndarray], list[np.ndarray]]
"""For each text: numbers of labels, one or one for each word; and logits or probabilities, a row for each label."""


def of_model(model: Model, texts: list) -> Answers:
    """Return the answers of NumPy or C, with logits."""
    logits = model.logits(texts)
    by_text = [rows[~np.isnan(rows[:, 0])] for rows in (logits if logits.ndim == 3 else logits[:, None])]
    return [rows.argmax(1) for rows in by_text], by_text


def of_web(model: WebModel, texts: list) -> Answers:
    """Return the answers of WebAssembly, with probabilities, or if words have labels, with logits."""
    if model.by_word:
        answers = [model.tags(text) for text in texts]
        chosen = [np.array([model.labels.index(label) for label in labels]) for _, labels, _ in answers]
        return chosen, [logits for *_, logits in answers]
    rows = [model.probabilities(*(text if model.pair else (text,)))[None] for text in texts]
    return [row.argmax(1) for row in rows], rows


def of_cortex_m(model: Model, texts: list) -> Answers:
    """Return the answers of the program for a Cortex-M4 in QEMU, with the labels' probabilities."""
    lines = "".join(f"{text}\n" for text in texts).encode()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.fwt").write_bytes(model.packed)
        make = ["make", "-s", "-C", MICROCONTROLLER, "run", f"OUT={folder}/program.elf"]
        done = subprocess.run([*make, f"MODEL={folder}/model.fwt"], input=lines, capture_output=True, check=True)
    lines = [line.split("\t") for line in done.stdout.decode().splitlines()[1 : 1 + len(texts)]]
    chosen = [np.array([model.labels.index(label)]) for label, _ in lines]
    rows = [np.full((1, model.outputs), np.nan, np.float32) for _ in lines]
    for row, label, (_, probability) in zip(rows, chosen, lines, strict=True):
        row[0, label] = float(probability)
    return chosen, rows


class Comparison:
    """What a reader answered otherwise than NumPy."""

    def __init__(self, model: Model, answer: Callable[[list], Answers], logits: bool) -> None:
        """logits: whether the reader gives logits."""
        self._model, self._answer, self._logits = model, answer, logits
        self.other = self.ties = 0
        self.largest = 0.0
        self.findings: list = []

    def add(self, texts: list, expected: Answers) -> None:
        """Compare the answers to texts."""
        for text, label, logits, theirs, values in zip(texts, *expected, *self._answer(texts), strict=True):
            if values.shape != logits.shape:
                self.findings.append((text, "another number of words"))
                continue
            near = NEAR * max(1.0, float(np.abs(logits).max()) / 100)
            difference = float(np.nanmax(np.abs(values - (logits if self._logits else self._as_given(logits)))))
            self.largest = max(self.largest, difference)
            gaps = (logits.max(1) - np.take_along_axis(logits, theirs[:, None], 1)[:, 0])[theirs != label]
            self.ties += int((gaps <= 2 * near).sum())
            self.other += int((gaps > 2 * near).sum())
            if difference > near or (gaps > 2 * near).any():
                self.findings.append((text, f"differs by {difference:.6f}"))

    def _as_given(self, logits: np.ndarray) -> np.ndarray:
        if self._model.kind in ("tags", "numbers"):
            return logits
        return to_probabilities(logits, self._model.temperature)


def students(folder: Path) -> list[Path]:
    """Write untrained students, with all tokenizers and encoders that C reads. Returns their files."""
    import packed_students as made  # it imports PyTorch

    return [
        made.write_packed(made.write_student(folder / f"{arch}-{embedding}", arch, embedding))
        for arch, embeddings in STUDENTS.items()
        for embedding in embeddings
    ]


def compare(file: Path, numbers: range, cortex_m: bool, done: Advance) -> dict[str, Comparison]:
    """Compare the readers of a file for the texts with these numbers. done: called with how many a batch has."""
    model = load(file)
    if cortex_m:
        readers = {"Cortex-M4": Comparison(model, lambda texts: of_cortex_m(model, texts), logits=False)}
    else:
        native = load_native(file)
        readers = {"C": Comparison(model, lambda texts: of_model(native, texts), logits=True)}
        if model.arch not in TRANSFORMERS:  # the module leaves them out
            web = WebModel(file.read_bytes())
            readers["WebAssembly"] = Comparison(model, lambda texts: of_web(web, texts), logits=False)
    for start in range(0, len(numbers), BATCH):
        texts = list(map(random_text, numbers[start : start + BATCH]))
        if cortex_m:
            texts = [text.replace("\n", " ").encode()[:LINE].decode(errors="ignore") for text in texts]
        batch, tidied = texts, list(map(tidy, texts))
        if model.pair:  # half of them of the same words
            batch = [
                (text, after if place % 2 else " ".join(text.split(" ")[::-1]))
                for place, (text, after) in enumerate(zip(texts, texts[1:] + texts[:1], strict=True))
            ]
            tidied = model.tidied(batch)
        expected = of_model(model, tidied)
        for reader in readers.values():
            reader.add(batch, expected)
        done(len(batch))
    return readers


def main() -> None:
    """Compare the readers of all files, and print a table and the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=ZOO, help="packed files, or zoo names (default: ten)")
    parser.add_argument("--texts", type=int, default=10_000, help="texts for each model (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which texts (default: %(default)s)")
    parser.add_argument("--students", action="store_true", help="untrained students in place of models")
    parser.add_argument("--cortex-m", action="store_true", help="the program for a Cortex-M4 in place of other readers")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = students(Path(folder)) if args.students else [Path(zoo_file(name)) for name in args.models]
        count, findings = args.texts, []
        print("| model | reader | texts | other labels | near ties | largest difference |")
        print("|---|---|---:|---:|---:|---:|")
        with counter("comparing", total=len(files) * count, unit="texts") as done:
            for place, file in enumerate(files):
                first = (args.seed * len(files) + place) * count
                for name, reader in compare(file, range(first, first + count), args.cortex_m, done).items():
                    counts = f"{count:,} | {reader.other} | {reader.ties} | {reader.largest:.6f}"
                    print(f"| {file.stem} | {name} | {counts} |", flush=True)
                    findings += [f"{file.stem} in {name}: {what}: {text!a:.300}" for text, what in reader.findings]
    print(*(findings[:20] or ["no findings"]), sep="\n")
    raise SystemExit(bool(findings))


if __name__ == "__main__":
    main()
