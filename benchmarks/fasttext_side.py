"""fastText for comparison: an environment with fastText, a task's rows in its format, and models trained on them.

fastText's Python package needs an older NumPy than the project, so it runs in a separate virtual environment
(fasttext_inside.py).
"""

import json
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from shared import run_command

from common.data.split import Split
from common.data.text import split_words
from common.errors import UserError
from common.progress import say
from common.store.workspace import Workspace

FASTTEXT = ("fasttext-wheel==0.9.2", "numpy<2")
"""The last release of fastText's Python package, and a NumPy that it works with."""
SECOND = "2_"
"""Prefix of the words of a pair's second sentence. No other word has it, because `split_words` splits at it."""
PLAIN = {"dim": 25, "epoch": 15, "lr": 0.5, "thread": 1}
"""Settings of a model that is used to measure speed, not scores."""


def fasttext_python(named: str | None, paths: Workspace) -> str | None:
    """Return a Python with fastText: the given one, or that of an environment in the workspace, created if needed.

    If this fails, prints the reason and returns None.
    """
    folder = paths.root / "fasttext"
    python = named or str(folder / "bin" / "python")
    if not named and not Path(python).exists():
        say(f"creating an environment for fastText in {folder}")
        venv.create(folder, with_pip=True)
    if not named and not _has_fasttext(python):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *FASTTEXT], check=False)
    if not _has_fasttext(python):
        say(f"left out: {python} has no fastText; name one that has by --fasttext-python")
        return None
    return python


def _has_fasttext(python: str) -> bool:
    return subprocess.run([python, "-c", "import fasttext"], check=False, stderr=subprocess.DEVNULL).returncode == 0


def texts_of(split: Split) -> list[str]:
    """Return rows as the students' hash tokenizer splits them: lower-case words and punctuation, separated by spaces.

    A pair is one line, in which the second sentence's words have the prefix SECOND.
    """
    first, *others = ([split_words(text) for text in column] for column in split.sentences())
    second = [[SECOND + word for word in words] for words in others[0]] if others else [[]] * len(first)
    return [" ".join(words + more) for words, more in zip(first, second, strict=True)]


def write_training(path: Path, texts: Sequence[str], labels: np.ndarray, seed: int) -> Path:
    """Write the labelled rows as `__label__1 some words`, shuffled, because fastText reads them in order."""
    lines = [f"__label__{label} {text}\n" for text, label in zip(texts, labels, strict=True) if label >= 0]
    path.write_text("".join(lines[i] for i in np.random.default_rng(seed).permutation(len(lines))), encoding="utf-8")
    return path


def in_fasttext(python: str, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a job (see fasttext_inside.py) in fastText's environment. Returns the result of each cut.

    Ctrl-C does not reach the job: this process stops after the job, or kills it at the second Ctrl-C.
    """
    command = [python, Path(__file__).parent / "fasttext_inside.py"]
    return json.loads(run_command("fastText", command, input=json.dumps(job), start_new_session=True))


def train_fasttext(python: str, split: Split, target: Path) -> Path:
    """Train a supervised fastText model on the unmodified labelled rows. Returns the model's file."""
    source, model = write_training(target / "train.txt", split.sentence1, split.labels, 1), target / "fasttext.bin"
    cuts = [{"size": None, "keep": str(model)}]
    (file,) = in_fasttext(python, {"train": str(source), "settings": PLAIN, "texts": {}, "cuts": cuts})
    if "error" in file:
        raise UserError(f"fastText failed: {file['error']}")
    return model
