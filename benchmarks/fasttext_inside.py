"""fastText in a separate environment: a job as JSON on stdin, its results as JSON on stdout.

A job trains one model on the lines of `train` with `settings` (arguments of train_supervised), and writes a file of it
for each of `cuts`: {"size": null} is the whole model (a .bin); {"size": N, "retrain": E} is the model quantized with
`quantize` (dsub, qnorm), a .ftz of at most N bytes with as many features as fit, trained for E epochs after the other
features are removed. `texts` are files of lines to predict labels for. A cut's file is kept at its `keep`.

fasttext_side.py starts this script. It imports nothing from the project, because fastText's Python has other packages.
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
"""Number of float32 centroids of a product quantizer, which cannot be trained on fewer features."""


class NoCut(ValueError):
    """The model cannot be quantized to the requested size, or another cut gives the same file."""


def feature_bytes(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return features in the order in which a cut keeps them, and the bytes of each without its codes.

    As in FastText::selectEmbeddings and Dictionary::save, the end-of-sentence token comes first, then the vectors by
    descending norm. A word takes its letters, a zero byte, a count (8) and a type (1); a hashed n-gram takes its old
    and new index (2 x 4).
    """
    words = model.get_words()
    norms = np.linalg.norm(model.get_input_matrix(), axis=1)
    norms[words.index("</s>")] = np.inf
    sizes = np.full(len(norms), 8)
    sizes[: len(words)] = [len(word.encode()) + 10 for word in words]
    return np.argsort(-norms, kind="stable"), sizes


def cutoff(model: Any, size: int, dsub: int, qnorm: bool) -> int:
    """Return the maximum number of features for a quantized file of at most `size` bytes; 0 if all fit.

    Raises NoCut if this is fewer than a quantizer needs.
    """
    order, sizes = feature_bytes(model)
    dim, labels = model.get_dimension(), model.get_labels()
    codes = -(-dim // dsub) + qnorm
    # Version, settings, sizes of dictionary and matrices; labels; centroids of vectors and norms; float32 outputs.
    fixed = 147 + sum(len(label.encode()) + 10 for label in labels)
    fixed += 4 * CENTROIDS * dim + (16 + 4 * CENTROIDS) * qnorm + 4 * dim * len(labels)
    if fixed + codes * len(sizes) + sizes[: len(model.get_words())].sum() <= size and len(sizes) >= CENTROIDS:
        return 0
    fitting = int(np.searchsorted(fixed + np.cumsum(sizes[order] + codes), size, side="right"))
    if fitting < CENTROIDS:
        raise NoCut(f"{fitting} features fit {size:,} bytes, and a quantizer needs {CENTROIDS}")
    return fitting


def quantized(whole: Path, target: Path, cut: dict[str, Any], job: dict[str, Any]) -> tuple[Any, int]:
    """Quantize the saved model into `target`. Returns the quantized model and its cutoff."""
    size, settings = cut["size"], job["settings"]
    count = cutoff(fasttext.load_model(str(whole)), size, **job["quantize"])
    if cut["retrain"] and not count:
        raise NoCut("all features fit, so nothing is cut and trained again")
    while True:
        model = fasttext.load_model(str(whole))
        model.quantize(
            job["train"],
            cutoff=count,
            retrain=bool(cut["retrain"]),
            epoch=cut["retrain"],
            lr=settings["lr"],
            thread=settings["thread"],
            verbose=1,
            **job["quantize"],
        )
        model.save_model(str(target))
        if target.stat().st_size <= size:
            return model, count
        # If norms differ from fastText's in the last digits, the last feature kept may be a word instead of an n-gram.
        count -= 1


def result(cut: dict[str, Any], whole: Path, target: Path, job: dict[str, Any], trained: float) -> dict[str, Any]:
    """Return a cut's bytes, cutoff, seconds including training, and predicted labels; or `error` with the reason."""
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
    """Return the predicted label of each line."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [int(labels[0].removeprefix("__label__")) for labels in model.predict(lines)[0]]


def main() -> None:
    """Run the job on stdin."""
    fasttext.FastText.eprint = lambda *words: None  # it prints a warning at every load
    job = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as name:
        whole, other = Path(name) / "whole.bin", Path(name) / "cut"
        started = time.perf_counter()
        try:
            fasttext.train_supervised(job["train"], verbose=0, **job["settings"]).save_model(str(whole))
        except RuntimeError as error:  # the learning rate is so high that weights become NaN
            print(json.dumps([{**cut, "error": str(error)} for cut in job["cuts"]]))
            return
        trained = time.perf_counter() - started
        files = [{**cut, **result(cut, whole, Path(cut.get("keep") or other), job, trained)} for cut in job["cuts"]]
    print(json.dumps(files))


if __name__ == "__main__":
    main()
