"""fastText in a separate environment: a job as JSON on stdin, its results as JSON on stdout.

A job trains one model of the lines in `train` with `settings` (train_supervised's own arguments), and writes a file of
it for each of `cuts`: {"size": null} is the whole model (a .bin), {"size": N, "retrain": E} one quantized by
`quantize` (dsub, qnorm), a .ftz of at most N bytes with as many features as fit, and trained for E epochs after the
other features are removed. `texts` are files of lines to predict labels of. A cut's file is kept at its `keep`.

fasttext_side.py starts it. It imports nothing of the project: fastText's Python has other packages.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fasttext
import numpy as np

CENTROIDS = 256
"""Centroids of a product quantizer, each of float32; it cannot be trained on fewer features."""


class NoCut(ValueError):
    """No quantized file of this model is as small as requested, or another cut gives the same one."""


def feature_bytes(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return features in the order in which a cut keeps them, and the bytes of each without its codes.

    As in FastText::selectEmbeddings and Dictionary::save: the end of a sentence, then the longest vectors; a word has
    its letters, a zero, a count (8) and a type (1), a hashed n-gram its old and new number (2 x 4).
    """
    words = model.get_words()
    norms = np.linalg.norm(model.get_input_matrix(), axis=1)
    norms[words.index("</s>")] = np.inf
    sizes = np.full(len(norms), 8)
    sizes[: len(words)] = [len(word.encode()) + 10 for word in words]
    return np.argsort(-norms, kind="stable"), sizes


def cutoff(model: Any, size: int, dsub: int, qnorm: bool) -> int:
    """Return the most features with which the quantized file has at most `size` bytes; 0 where all fit.

    Raises NoCut where these are fewer than a quantizer needs.
    """
    order, sizes = feature_bytes(model)
    dim, labels = model.get_dimension(), model.get_labels()
    codes = -(-dim // dsub) + qnorm
    # Version, settings, sizes of dictionary and matrices; labels; centroids of vectors and of norms; float32 outputs.
    fixed = 147 + sum(len(label.encode()) + 10 for label in labels)
    fixed += 4 * CENTROIDS * dim + (16 + 4 * CENTROIDS) * qnorm + 4 * dim * len(labels)
    if fixed + codes * len(sizes) + sizes[: len(model.get_words())].sum() <= size and len(sizes) >= CENTROIDS:
        return 0
    fitting = int(np.searchsorted(fixed + np.cumsum(sizes[order] + codes), size, side="right"))
    if fitting < CENTROIDS:
        raise NoCut(f"{fitting} features fit {size:,} bytes, and a quantizer needs {CENTROIDS}")
    return fitting


def quantized(whole: Path, target: Path, cut: dict[str, Any], job: dict[str, Any]) -> tuple[Any, int]:
    """Return the saved model quantized into `target`, and its cutoff."""
    size, settings = cut["size"], job["settings"]
    count = cutoff(fasttext.load_model(str(whole)), size, **job["quantize"])
    if cut["retrain"] and not count:
        raise NoCut("all features fit, so nothing is cut and trained again")
    training = {"epoch": cut["retrain"], "lr": settings["lr"], "thread": settings["thread"], "verbose": 1}
    while True:
        model = fasttext.load_model(str(whole))
        model.quantize(job["train"], cutoff=count, retrain=bool(cut["retrain"]), **training, **job["quantize"])
        model.save_model(str(target))
        if target.stat().st_size <= size:
            return model, count
        # Norms whose last digits are not fastText's can swap the last features, a word for an n-gram.
        count -= 1


def result(cut: dict[str, Any], whole: Path, target: Path, job: dict[str, Any], trained: float) -> dict[str, Any]:
    """Return a cut's bytes, cutoff, seconds with training, and labels of the texts; or `error`, and why."""
    started = time.perf_counter()
    try:
        if cut["size"] is None:
            model, count = fasttext.load_model(str(whole)), 0
            model.save_model(str(target))
        else:
            model, count = quantized(whole, target, cut, job)
    except (ValueError, RuntimeError) as error:  # too few features for the quantizer; NaN in training
        return {"error": str(error)}
    seconds = round(trained + time.perf_counter() - started, 3)
    labels = {name: predicted(model, Path(path)) for name, path in job["texts"].items()}
    return {"bytes": target.stat().st_size, "cutoff": count, "seconds": seconds, "labels": labels}


def predicted(model: Any, path: Path) -> list[int]:
    """Return the label of each line."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [int(labels[0].removeprefix("__label__")) for labels in model.predict(lines)[0]]


def main() -> None:
    """Run a job."""
    fasttext.FastText.eprint = lambda *words: None  # a warning at every load
    job = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as name:
        whole, other = Path(name) / "whole.bin", Path(name) / "cut"
        started = time.perf_counter()
        try:
            fasttext.train_supervised(job["train"], verbose=0, **job["settings"]).save_model(str(whole))
        except RuntimeError as error:  # a learning rate at which weights become NaN
            print(json.dumps([{**cut, "error": str(error)} for cut in job["cuts"]]))
            return
        trained = time.perf_counter() - started
        files = [{**cut, **result(cut, whole, Path(cut.get("keep") or other), job, trained)} for cut in job["cuts"]]
    print(json.dumps(files))


if __name__ == "__main__":
    main()
