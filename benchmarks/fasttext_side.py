"""fastText for comparison: an environment that has it, and a model trained on a task's rows.

Its Python package needs an older NumPy than the project's, so it gets a virtual environment of its own, made once.
"""

import subprocess
import venv
from pathlib import Path

import numpy as np

from common.data import Split
from common.progress import say
from common.workspace import Workspace

FASTTEXT = ("fasttext-wheel==0.9.2", "numpy<2")
"""The last release of fastText's Python package, and the NumPy it works with."""
TRAIN_FASTTEXT = """
import sys, fasttext
source, target = sys.argv[1:]
model = fasttext.train_supervised(source, dim=25, epoch=15, lr=0.5, thread=1, verbose=0)
model.save_model(target)
"""


def fasttext_python(given: str | None, paths: Workspace) -> str | None:
    """A Python that has fastText: the one given, or that of an environment in the workspace, made if need be.

    Returns None, and says why, where it cannot be made.
    """
    folder = paths.root / "fasttext"
    python = given or str(folder / "bin" / "python")
    if not given and not Path(python).exists():
        say(f"making an environment for fastText in {folder}")
        venv.create(folder, with_pip=True)
    if not given and not _has_fasttext(python):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *FASTTEXT], check=False)
    if not _has_fasttext(python):
        say(f"left out: {python} has no fastText; name one that has by --fasttext-python")
        return None
    return python


def _has_fasttext(python: str) -> bool:
    return subprocess.run([python, "-c", "import fasttext"], check=False, stderr=subprocess.DEVNULL).returncode == 0


def train_fasttext(python: str, split: Split, target: Path) -> Path:
    """A supervised fastText model of the labelled rows, shuffled: it takes them in their order."""
    rows = zip(split.sentence1, split.labels, strict=True)
    lines = [f"__label__{label} {text}\n" for text, label in rows if label >= 0]
    source, model = target / "train.txt", target / "fasttext.bin"
    source.write_text("".join(lines[i] for i in np.random.default_rng(1).permutation(len(lines))), encoding="utf-8")
    subprocess.run([python, "-c", TRAIN_FASTTEXT, source, model], check=True)
    return model
