"""Classification with fastText's Python package; see ways.py."""

import fasttext as library
from ways import Classify, run


def fasttext(model: str) -> Classify:
    """Return a function from sentences to the labels predicted by the model in a .bin file."""
    library.FastText.eprint = lambda *words: None  # it prints a warning at every load
    loaded = library.load_model(model)
    return lambda texts: [labels[0].removeprefix("__label__") for labels in loaded.predict(texts)[0]]


if __name__ == "__main__":
    run(fasttext)
