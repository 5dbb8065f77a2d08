"""Mutated packed files in the NumPy runtime: each must raise a PackedError or load as a model that answers.

    python benchmarks/mutations.py --files 1000000
    python benchmarks/mutations.py --seconds 120 --seed 3

Small students of every architecture, tokenizer and form of weights are packed, and copies of them are damaged: fields
of the header get other values, products are nested, bytes are flipped, cut, inserted and exchanged. Most copies get the
right length and checksum, so that later checks are reached. A file that raises any other exception, or takes more than
10 seconds or 500 MB, is a finding: its bytes are saved in a folder, and its number and the seed reproduce it.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import itertools
import json
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # more threads would only wait and hold memory

import numpy as np
from damage import SIZES, Honest, assemble, mutated, take_apart
from ways import peak_memory

from compression.runtime import PackedError
from compression.runtime.model import load_bytes

MEMORY = 500 << 20
"""Maximum bytes that a process may hold, including Python and NumPy."""
SECONDS = 10.0
"""Maximum CPU time for one file."""
TEXTS = ("A film, 2!", "caf\u00e9 \ud55c\uad6d wonderful " * 6, "")
FINDINGS = 20
"""Number of findings after which a worker ends."""
_BLOCK = 1000
"""Number of files between two checks of the time."""


@dataclasses.dataclass(frozen=True)
class Mutations:
    """Result of a run. outcomes: start of an error's message, or "a model" -> number of files; findings: lines."""

    files: int
    seconds: float
    peak_bytes: int
    outcomes: dict[str, int]
    findings: tuple[str, ...]


def mutate_packed(
    files: int = 1_000_000,
    seconds: float | None = None,
    seed: int = 0,
    workers: int = 0,
    folder: Path = Path("findings"),
) -> Mutations:
    """Load mutated files, and run predictions with those that load as a model.

    files: maximum number; seconds: stop after this time; workers: processes, 0 for one per core. Findings are written
    to `folder`, created if needed, as NUMBER.fwt. A file depends only on the seed and its number.
    """
    workers = workers or len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")  # a forked worker would hold this process's PyTorch in memory
    with tempfile.TemporaryDirectory() as name:
        students = Path(name) / "students.pickle"
        maker = context.Process(target=write_students, args=(students,))
        maker.start()
        maker.join()
        if maker.exitcode:
            raise RuntimeError("no student could be packed, see above")
        started = time.monotonic()
        deadline = None if seconds is None else started + seconds
        reports = [Path(name) / f"{worker}.json" for worker in range(workers)]
        keep = functools.partial(_keep, folder, students, seed)
        running = []
        for worker, report in enumerate(reports):
            work = functools.partial(run_worker, students, seed, deadline=deadline, folder=folder, report=report)
            running.append(_Watched(context, range(worker, files, workers), work, keep))
        for process in running:
            process.join()
        results = [json.loads(report.read_text()) for report in reports if report.exists()]
    outcomes: collections.Counter[str] = collections.Counter()
    for one in results:
        outcomes.update(one["outcomes"])
    findings = [line for one in results for line in one["findings"]]
    findings += [line for process in running for line in process.findings]
    peak = max((one["peak"] for one in results), default=0)
    return Mutations(sum(outcomes.values()), time.monotonic() - started, peak, dict(outcomes), tuple(findings))


class _Watched:
    """A worker process that is restarted with the next file if it crashes or exceeds the time limit."""

    def __init__(self, context: Any, numbers: range, work: Callable, keep: Callable[[int, str], str]) -> None:
        """work: `run_worker`, which lacks the numbers and `at`; keep: `_keep`, which lacks number and problem."""
        self._context, self._numbers, self._work, self._keep = context, numbers, work, keep
        self.findings: list[str] = []
        self._start(numbers)

    def _start(self, numbers: range) -> None:
        self._at = self._context.RawValue("q", -1)
        self._process = self._context.Process(target=self._work, kwargs={"numbers": numbers, "at": self._at})
        self._process.start()

    def join(self) -> None:
        """Wait for the worker and its replacements."""
        while True:
            before = self._at.value
            self._process.join(4 * SECONDS)
            timed_out = self._process.is_alive() and before >= 0 and self._at.value == before
            if timed_out:
                self._process.kill()
                self._process.join()
            if self._process.is_alive():
                continue
            if not self._process.exitcode:
                return
            number = self._at.value
            how = "it does not end" if timed_out else f"the process ends with {self._process.exitcode}"
            self.findings.append(self._keep(number, how))
            if number < 0 or len(self.findings) >= FINDINGS:
                return
            self._start(self._numbers[self._numbers.index(number) + 1 :])


def _keep(folder: Path, students: Path, seed: int, number: int, what: str) -> str:
    """Write a file to the folder of findings. Returns a line about it."""
    if number < 0:
        return f"a worker does not start: {what}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number}.fwt"
    path.write_bytes(file_of(pickle.loads(students.read_bytes()), seed, number))
    return f"{path}: {what}"


def write_students(path: Path) -> None:
    """Pack small students of every kind, and pickle them in decomposed form."""
    import packed_students as made

    from compression.packing import ans, pack_student

    ans._USUAL_STEPS = 16  # many lanes, so that small files are decoded in a few NumPy steps
    forms = itertools.cycle(made.FORMS)
    kinds = [(arch, embedding, {}) for arch, embedding in itertools.product(made.ARCHS, made.EMBEDDINGS)]
    kinds += [(arch, "hash", {"pair": True}) for arch in made.ARCHS]
    kinds += [(arch, "char", {"kind": "tags"}) for arch in made.ARCHS if arch != "ffn"]
    kinds += [(arch, "char", {"pair": True, **layout}) for arch, layout in made.tiny.LAYOUTS]
    kinds += [("ffn", "hash", {}) for _ in made.FORMS] + [("ffn", "char", {"labels": []})]
    kinds += [("ffn", "ngrams", {}), ("ffn", "ngrams", {"pair": True, "pooling": "both"})]
    kinds += [(arch, "hash", {"kind": "multilabel"}) for arch in ("ffn", "bilstm")]
    sizes = {**SIZES, "max_tokens": 24, "model": made.pieces(vocab_size=72)}
    small = {"encoder_hidden_dim": 4, "heads": 2, "layers": 2, "iterations": 2, "intermediate_dim": 3, "adapters": 2}
    students = []
    with tempfile.TemporaryDirectory() as name:
        for number, (arch, embedding, more) in enumerate(kinds):
            student = made.write_student(
                Path(name) / str(number),
                arch,
                embedding,
                next(forms),
                **{**sizes, "vocab_size": 72 if embedding == "bpe" else 20, "transformer": small, **more},
            )
            students.append(Honest.of(*take_apart(pack_student(student))))
    path.write_bytes(pickle.dumps(students))


def file_of(students: Sequence[Honest], seed: int, number: int) -> bytes:
    """Return the mutated file with a number."""
    return mutated(np.random.default_rng([seed, number]), students)


def run_worker(
    students: Path, seed: int, numbers: range, deadline: float | None, folder: Path, report: Path, at: Any
) -> None:
    """Load the files with these numbers, and write the results. at: set to the number that is being loaded."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _too_long)
    honest = pickle.loads(students.read_bytes())
    before = json.loads(report.read_text()) if report.exists() else {"outcomes": {}, "findings": []}
    outcomes, findings = collections.Counter(before["outcomes"]), before["findings"]
    for one in honest:
        assert outcome(assemble(one.header, one.rest)) == "a model"
    for count, number in enumerate(numbers):
        if count % _BLOCK == 0:
            _write_report(report, outcomes, findings)
            if (deadline is not None and time.monotonic() > deadline) or len(findings) >= FINDINGS:
                return
        at.value = number
        try:
            outcomes[outcome(file_of(honest, seed, number))] += 1
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            text = str(error).splitlines()
            what = f"{type(error).__name__}: {text[0] if text else ''}"
            findings.append(_keep(folder, students, seed, number, what))
            outcomes["a finding"] += 1
            _write_report(report, outcomes, findings)  # a later file may end the process
    _write_report(report, outcomes, findings)


def _write_report(report: Path, outcomes: dict[str, int], findings: list[str]) -> None:
    report.write_text(json.dumps({"outcomes": outcomes, "findings": findings, "peak": peak_memory()}))


class TooLongError(Exception):
    """A file took longer than SECONDS."""


def _too_long(*_: object) -> None:
    raise TooLongError(f"longer than {SECONDS:g} s")


def outcome(data: bytes) -> str:
    """Return the start of a file's error message, or "a model". Raises exceptions that a file must not cause."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # CPU time of this process, because others may keep it waiting
    try:
        with np.errstate(all="raise", under="ignore"):
            model = load_bytes(data)
            for texts in ([TEXTS[0]], TEXTS):
                logits = model.logits([(text, text) for text in texts] if model.pair else texts)
                words = logits[~np.isnan(logits)]
                if len(logits) != len(texts) or logits.shape[-1] != model.outputs or not np.isfinite(words).all():
                    raise AssertionError("answers that are not finite, or too few")
    except PackedError as error:
        message = str(error)
        if "\n" in message or not message:
            raise AssertionError("an error of several lines") from None
        return message[:24]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "a model"


def lines_of(result: Mutations) -> Iterator[str]:
    """Yield the lines of the result as text."""
    rate = result.files / max(result.seconds, 1e-9)
    models = result.outcomes.get("a model", 0)
    yield (
        f"{result.files:,} files in {result.seconds:,.0f} s ({rate:,.0f} a second), "
        f"most memory {result.peak_bytes / 1e6:,.0f} MB: {models:,} are models, "
        f"{len(result.outcomes) - (models > 0)} kinds of refusal, {len(result.findings)} findings"
    )
    yield from result.findings


def main() -> None:
    """Parse flags, run, and print. Exits with code 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000, help="number of files (default: 1,000,000)")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0, help="seed of all mutations (default: 0)")
    parser.add_argument("--workers", type=int, default=0, help="processes (default: one per core)")
    parser.add_argument("--folder", type=Path, default=Path("findings"), help="folder for findings")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    result = mutate_packed(args.files, args.seconds, args.seed, args.workers, args.folder)
    print(json.dumps(dataclasses.asdict(result), indent=2) if args.json else "\n".join(lines_of(result)))
    sys.exit(bool(result.findings))


if __name__ == "__main__":
    main()
