"""Classification with a packed file and the NumPy runtime; see ways.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from ways import Classify, run

from compression.runtime import load


def packed(model: str) -> Classify:
    """Return a function from sentences to the labels predicted by a packed file."""
    loaded = load(model)
    return lambda texts: [loaded.labels[i] for i in loaded.logits(texts).argmax(1)]


if __name__ == "__main__":
    run(packed)
