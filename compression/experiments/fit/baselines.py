"""Baselines that a fit is compared with: the linear model of its teacher, and fastText if its program is installed."""

import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from common.data.split import Split, load_split
from common.progress import say
from common.stopping import at_once
from common.tables import scores_text
from common.teachers.linear import counts_parts
from common.training.metrics import score
from compression.experiments.fit.settings import Baseline
from compression.experiments.fit.stages import Stages
from compression.experiments.fit.teachers import LINEAR
from compression.runtime.words import split_words

_FASTTEXT = ["-wordNgrams", "2", "-bucket", "200000", "-epoch", "25", "-lr", "0.5", "-thread", "1"]
"""What its tutorial recommends for few rows."""


def score_baselines(stages: Stages, train: Split) -> tuple[Baseline, ...]:
    """Return the scores of the baselines on the test rows; a baseline that fails has its error as details."""
    test = load_split(stages.settings.paths, stages.task, "test")
    labelled = [split.labelled_rows() for split in (train, test)]
    baselines = []
    for name, method in {"tf-idf with a linear model": _linear, "fastText": _fasttext}.items():
        began = time.perf_counter()
        metrics, details = {}, "no time was left"
        try:
            if stages.clock.left > 0:
                with at_once():
                    metrics, details = method(stages, *labelled)
        except subprocess.TimeoutExpired as error:
            metrics, details = {}, f"it took longer than {error.timeout:.0f} s"
        except Exception as error:  # the student is finished, and a comparison may fail for any reason
            metrics, details = {}, f"{type(error).__name__}: {error}"[:200]
        took = round(time.perf_counter() - began, 1)
        if details:
            say(f"[{stages.clock.used:.0f} s] {name}: {scores_text(metrics) or 'absent'} ({details})")
            baselines.append(Baseline(name=name, metrics=metrics, details=details, seconds=took))
    return tuple(baselines)


def _linear(stages: Stages, train: Split, test: Split) -> tuple[dict[str, float], str]:
    """Return the metrics of the linear teacher, and what it is; both are empty if words are labelled."""
    if not stages.settings.paths.model(stages.task.name, LINEAR).exists():
        return {}, "" if stages.task.kind.by_word else "no time was left"
    rows = stages.run("baselines", "evaluate", model_name=LINEAR)
    counted = ["words", "pairs of words"]
    if counts_parts(train.texts()):
        counted.append("characters")
    return rows[0]["metrics"], ", ".join(counted)


def _fasttext(stages: Stages, train: Split, test: Split) -> tuple[dict[str, float], str]:
    """Return the metrics of fastText with bigrams, and its size; empty if it is not installed or not for the task.

    Raises what running it raises.
    """
    task, program = stages.task, shutil.which("fasttext")
    if program is None or not task.kind.has_classes:
        return {}, ""
    left = max(5.0, 0.5 * stages.clock.left)
    seed, several = stages.settings.seed, task.kind.independent
    labels = map(np.flatnonzero, train.labels) if several else train.labels[:, None]
    names = ["".join(f"__label__{label} " for label in row) for row in labels]
    lines = [f"{name}{text}\n" for name, text in zip(names, _joined(train), strict=True)]
    random.Random(seed).shuffle(lines)
    chosen = np.full((len(test), len(task.labels)), -0.5, np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.txt").write_text("".join(lines), encoding="utf-8")
        (folder / "texts.txt").write_text("".join(f"{text}\n" for text in _joined(test)), encoding="utf-8")
        command = [program, "supervised", "-input", "train.txt", "-output", "model", *_FASTTEXT]
        command += ["-seed", str(seed % 2**31), *(["-loss", "ova"] if several else [])]
        subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=left)
        command = [program, "predict", "model.bin", "texts.txt", *(["-1", "0.5"] if several else [])]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True, timeout=left)
        answers = done.stdout.splitlines()
        size = (folder / "model.bin").stat().st_size
    if len(answers) != len(test):
        raise ValueError("a text has no answer")
    for row, answer in enumerate(answers):
        chosen[row, [int(word.removeprefix("__label__")) for word in answer.split()]] = 0.5
    return score(task, test.labels, chosen), f"25 epochs, bigrams; {size:,} bytes"


def _joined(split: Split) -> list[str]:
    """Return the words of each text, the two texts of a pair joined, separated by spaces."""
    rows = zip(*split.sentences(), strict=True)
    return [" ".join(word for text in texts for word in split_words(text)) for texts in rows]
