"""fastText for comparison: an environment that has it, a task's rows as its lines, and models trained on them.

Its Python package needs an older NumPy than the project's, so it runs in a separate virtual environment
(fasttext_inside.py).
"""

import json
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.data.split import Split
from common.data.text import split_words
from common.errors import UserError
from common.progress import say
from common.store.workspace import Workspace

FASTTEXT = ("fasttext-wheel==0.9.2", "numpy<2")
"""The last release of fastText's Python package, and the NumPy it works with."""
SECOND = "2_"
"""Prefix of the words of a pair's second sentence. No word of a first one has it: `split_words` splits there."""
PLAIN = {"dim": 25, "epoch": 15, "lr": 0.5, "thread": 1}
"""Settings of a model whose speed matters, not its score."""


def fasttext_python(given: str | None, paths: Workspace) -> str | None:
    """Return a Python that has fastText: the one given, or that of an environment in the workspace, created if needed.

    Returns None, and prints why, where that fails.
    """
    folder = paths.root / "fasttext"
    python = given or str(folder / "bin" / "python")
    if not given and not Path(python).exists():
        say(f"creating an environment for fastText in {folder}")
        venv.create(folder, with_pip=True)
    if not given and not _has_fasttext(python):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *FASTTEXT], check=False)
    if not _has_fasttext(python):
        say(f"left out: {python} has no fastText; name one that has by --fasttext-python")
        return None
    return python


def _has_fasttext(python: str) -> bool:
    return subprocess.run([python, "-c", "import fasttext"], check=False, stderr=subprocess.DEVNULL).returncode == 0


def texts_of(split: Split) -> list[str]:
    """Return rows as the students' hash tokenizer sees them: lower-case words and punctuation marks, a space between.

    A pair is one line, the second sentence's words marked by SECOND.
    """
    first, *others = ([split_words(text) for text in column] for column in split.sentences())
    second = [[SECOND + word for word in words] for words in others[0]] if others else [[]] * len(first)
    return [" ".join(words + more) for words, more in zip(first, second, strict=True)]


def write_training(path: Path, texts: Sequence[str], labels: np.ndarray, seed: int) -> Path:
    """Write the labelled rows, `__label__1 some words`, shuffled: fastText takes them in their order."""
    lines = [f"__label__{label} {text}\n" for text, label in zip(texts, labels, strict=True) if label >= 0]
    path.write_text("".join(lines[i] for i in np.random.default_rng(seed).permutation(len(lines))), encoding="utf-8")
    return path


def in_fasttext(python: str, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a job (see fasttext_inside.py) in fastText's environment. Returns the result of each cut.

    Ctrl-C does not reach it there: this process stops after the job, or kills it at the second Ctrl-C.
    """
    command = [python, str(Path(__file__).parent / "fasttext_inside.py")]
    done = subprocess.run(
        command, input=json.dumps(job), capture_output=True, text=True, check=False, start_new_session=True
    )
    if done.returncode:
        raise UserError(f"fastText failed: {(done.stderr.strip().splitlines() or ['without a message'])[-1]}")
    return json.loads(done.stdout)


def train_fasttext(python: str, split: Split, target: Path) -> Path:
    """Train a supervised fastText model of the labelled rows as they are. Returns its file in a folder."""
    source, model = write_training(target / "train.txt", split.sentence1, split.labels, 1), target / "fasttext.bin"
    cuts = [{"size": None, "keep": str(model)}]
    (file,) = in_fasttext(python, {"train": str(source), "settings": PLAIN, "texts": {}, "cuts": cuts})
    if "error" in file:
        raise UserError(f"fastText failed: {file['error']}")
    return model
