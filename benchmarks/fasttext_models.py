"""fastText models of one task: settings to try, training, quantization to sizes, scores, and a cache of the results."""

import copy
import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fasttext_side import FASTTEXT, in_fasttext, texts_of, write_training

from common.data.split import Split, load_split
from common.data.tasks import Task
from common.seeds import derive
from common.store.files import file_fingerprint, fingerprint, read_json, write_json
from common.store.workspace import Workspace
from common.training.metrics import score
from compression.distillation.dataset import DistillationSet
from compression.evaluation.models import data_fingerprint
from compression.evaluation.sizes import gzip_bytes

Draw = dict[str, Any]
"""Setting -> value, for all of the settings below."""
Cut = tuple[int | None, int]
"""A size in bytes, or None for the whole model, and the number of training passes after the cut."""
USUAL: dict[str, tuple[Any, ...]] = {
    "dim": (2, 10),
    "wordNgrams": (1, 2),
    "minn_maxn": ((0, 0), (2, 4), (3, 6)),
    "minCount": (5,),
    "bucket": (50_000,),
    "lr": (0.1, 0.25, 0.5),
    "passes": (5,),
    "dsub": (2,),
    "qnorm": (False,),
}
"""The usual settings by fastText's names, tried in all combinations; dsub and qnorm are for quantizing.

passes: epochs in terms of the rows of train, so that augmented rows do not add steps.
"""
WIDE: dict[str, tuple[Any, ...]] = {
    "dim": (2, 4, 10),
    "wordNgrams": (1, 2, 3),
    "minn_maxn": ((0, 0), (2, 4), (3, 6)),
    "minCount": (1, 5, 50),
    "bucket": (2_000, 10_000, 50_000, 200_000),
    "lr": (0.05, 0.1, 0.25, 0.5),
    "passes": (5, 20),
    "dsub": (2, 4),
    "qnorm": (False, True),
}
"""Of these combinations only a random sample is tried, which covers each axis better than a grid of the same size
(Bergstra and Bengio, 2012)."""
RETRAIN = (0, 5)
"""Numbers of training passes of a quantized model after features that do not fit are removed."""


def settings_tried(draws: int) -> list[Draw]:
    """Return all combinations of USUAL, and the first `draws` of a fixed shuffle of those of WIDE."""
    usual, wide = (
        [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())] for grid in (USUAL, WIDE)
    )
    order = np.random.default_rng(derive("fasttext", "grid")).permutation(len(wide))
    return usual + [wide[i] for i in order[:draws]]


def cuts(sizes: Sequence[int]) -> list[Cut]:
    """Return the cuts of each model: the whole model, and for every size one without and one with later training."""
    return [(None, 0), *itertools.product(sorted(sizes), RETRAIN)]


@dataclasses.dataclass(frozen=True)
class File:
    """Result of a setting and a cut; error: the reason for a failure.

    size, retrain: the cut; epochs: epochs on these rows before and after it; cutoff: number of features kept, 0 for
    all; metrics: split -> metrics; path: path of the file if it is kept.
    """

    draw: Draw
    size: int | None
    retrain: int
    seed: int
    epochs: tuple[int, int]
    bytes: int = 0
    cutoff: int = 0
    seconds: float = 0.0
    metrics: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    path: str | None = None
    identity: str = ""
    error: str | None = None

    @property
    def validation(self) -> float:
        """The task's first metric on validation."""
        return next(iter(self.metrics["validation"].values()))


def best_within(files: Sequence[File], size: int | None) -> File | None:
    """Return the file of at most `size` bytes with the best validation score, or None if none fits; ties: the smallest.

    size: None selects among models that are not quantized, a number among quantized ones.
    """
    fitting = [f for f in files if f.error is None and (f.size is None if size is None else f.size and f.bytes <= size)]
    return min(fitting, key=lambda file: (-file.validation, file.bytes), default=None)


class Bench:
    """Trains and scores models of a task.

    python: an interpreter with fastText; folder: for this run's text files; teacher: of augmented rows' labels.
    """

    def __init__(
        self, paths: Workspace, task: Task, python: str, threads: int, folder: Path, teacher: str | None = None
    ) -> None:
        self.teacher = teacher
        self.paths, self.task, self.python, self.threads, self.folder = paths, task, python, threads, folder
        self.kept = paths.root / "fasttext-models" / task.name
        self.train_rows = len(load_split(paths, task, "train"))
        self.splits: dict[str, Split] = {}
        for name in ("validation", *task.test_splits):
            split = load_split(paths, task, name)
            self.splits[name] = split.labelled_rows()
            text = "".join(f"{line}\n" for line in texts_of(self.splits[name]))
            (folder / f"{name}.txt").write_text(text, encoding="utf-8")

    def on_part(self, share: float) -> "Bench":
        """Return a copy for models that learn from a share of train's rows; epochs are counted in passes over it."""
        part = copy.copy(self)
        part.train_rows = round(share * self.train_rows)
        return part

    def files(
        self,
        rows: DistillationSet,
        draw: Draw,
        cuts: Sequence[Cut],
        seed: int,
        splits: Sequence[str],
        keep: bool = False,
    ) -> list[File]:
        """Return a file for each cut of a model trained on `rows`, scored on `splits`; trained only if not cached.

        keep: also keep the file itself, if there is a single cut.
        """
        job = self.job(rows, draw, cuts, seed, splits)
        contents = [file_fingerprint(Path(path)) for path in (job["train"], *job["texts"].values())]
        labels = [self.splits[name].fingerprint() for name in splits]
        settings = {**job, "train": None, "texts": splits, "metrics": self.task.all_metrics, "keep": keep}
        identity = fingerprint([settings, contents, labels, FASTTEXT])
        cache, path = self.kept / f"{identity}.json", self.kept / f"{identity}.{'ftz' if cuts[0][0] else 'bin'}"
        if not cache.exists() or (keep and not path.exists()):
            self.kept.mkdir(parents=True, exist_ok=True)
            if keep:
                job["cuts"][0]["keep"] = str(path)
            write_json(cache, [self._scored(one, splits) for one in in_fasttext(self.python, job)])
        epochs = job["settings"]["epoch"]
        return [
            File(
                draw=draw,
                seed=seed,
                path=str(path) if keep else None,
                identity=identity,
                size=size,
                retrain=passes,
                epochs=(epochs, cut["retrain"]),
                **result,
            )
            for (size, passes), cut, result in zip(cuts, job["cuts"], read_json(cache), strict=True)
        ]

    def job(
        self, rows: DistillationSet, draw: Draw, cuts: Sequence[Cut], seed: int, splits: Sequence[str]
    ) -> dict[str, Any]:
        """Return a job for fasttext_inside.py."""
        minn, maxn = draw["minn_maxn"]
        settings = {name: draw[name] for name in ("dim", "wordNgrams", "minCount", "bucket", "lr")}
        settings |= {"minn": minn, "maxn": maxn, "epoch": self._epochs(rows, draw["passes"])}
        train = self.folder / f"train-{rows.augmented}-{len(rows.split)}-{seed}.txt"
        if not train.exists():
            write_training(train, texts_of(rows.split), rows.split.labels, seed)
        return {
            "train": str(train),
            "settings": {**settings, "seed": seed, "thread": self.threads},
            "quantize": {"dsub": draw["dsub"], "qnorm": draw["qnorm"]},
            "cuts": [{"size": size, "retrain": self._epochs(rows, passes)} for size, passes in cuts],
            "texts": {name: str(self.folder / f"{name}.txt") for name in splits},
        }

    def _epochs(self, rows: DistillationSet, passes: int) -> int:
        # As many as make about as many steps as `passes` over train.
        return passes and max(1, round(passes * self.train_rows / len(rows.split)))

    def _scored(self, result: dict[str, Any], splits: Sequence[str]) -> dict[str, Any]:
        """Return the result of a cut with metrics in place of labels."""
        if "error" in result:
            return {"error": result["error"]}
        outputs = np.eye(len(self.task.labels), dtype=np.float32)
        metrics = {name: score(self.task, self.splits[name].labels, outputs[result["labels"][name]]) for name in splits}
        return {**{name: result[name] for name in ("bytes", "cutoff", "seconds")}, "metrics": metrics}


def peer_row(bench: Bench, rows: DistillationSet, name: str, file: File, split: str) -> dict[str, Any]:
    """Return a row of results.json. The file has everything a prediction needs, so it counts as a packed file.

    Parameters are left out, because they differ from seed to seed and would split a model's seeds into families.
    """
    path = Path(str(file.path))
    settings = {**file.draw, **{key: getattr(file, key) for key in ("size", "retrain", "epochs", "cutoff")}}
    unknown = ("embedding_type", "vocab_size", "parameters", "nonzero_parameters")
    return {
        "task": bench.task.name,
        "split": split,
        "model": f"{name}-s{file.seed}",
        "stage": "peer",
        "student_arch": "fasttext",
        **dict.fromkeys(unknown),
        "embedding_dim": file.draw["dim"],
        "alpha": 1.0,
        "augmented": rows.augmented,
        "seed": file.seed,
        "teacher": bench.teacher if rows.augmented else None,
        "select_on": "validation",
        "run": str(path),
        "config_hash": file.identity,
        "bytes_model": file.bytes,
        "bytes_gzip": gzip_bytes(path.read_bytes()),
        "bytes_packed": file.bytes,
        "parts": {},
        "settings": {**settings, "threads": bench.threads, "library": FASTTEXT[0]},
        "validation": file.metrics["validation"],
        "rows": len(bench.splits[split]),
        "metrics": file.metrics[split],
        "data": data_fingerprint(bench.paths, bench.task, split),
        "seconds": {"train": file.seconds},
    }
