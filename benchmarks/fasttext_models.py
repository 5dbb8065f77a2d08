"""fastText models of one task: trained, cut to sizes, scored, and found again by what they are made of."""

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fasttext_side import FASTTEXT, in_fasttext, texts_of, write_training

from common.data.split import Split, load_split
from common.data.tasks import Task
from common.store.files import file_fingerprint, fingerprint, read_json, write_json
from common.store.workspace import Workspace
from common.training.metrics import score
from compression.distillation.dataset import DistillationSet
from compression.evaluation.models import data_fingerprint
from compression.evaluation.sizes import gzip_bytes

Draw = dict[str, Any]
"""A value for each setting of fasttext_grid.py."""
Cut = tuple[int | None, int]
"""A size in bytes, or None for the model as it is; and the passes that it is trained on for after the cut."""


@dataclasses.dataclass(frozen=True)
class File:
    """What came of a setting and a cut, or in `error` why nothing did.

    size, retrain: the cut; epochs: of these rows, before and after it; cutoff: features kept, 0 where all are;
    metrics: split -> metrics; path: where the file is kept, if it is.
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
        """The task's first metric over validation."""
        return next(iter(self.metrics["validation"].values()))


class Bench:
    """What all models of a task share. python: one that has fastText; folder: for lines of text, of this run alone."""

    def __init__(self, paths: Workspace, task: Task, python: str, threads: int, folder: Path) -> None:
        self.paths, self.task, self.python, self.threads, self.folder = paths, task, python, threads, folder
        self.kept = paths.root / "fasttext-models" / task.name
        self.train_rows = len(load_split(paths, task, "train"))
        self.splits = {name: self._labelled(name) for name in ("validation", *task.test_splits)}
        for name, split in self.splits.items():
            text = "".join(f"{line}\n" for line in texts_of(split))
            (folder / f"{name}.txt").write_text(text, encoding="utf-8")

    def on_part(self, share: float) -> "Bench":
        """The same for models that learn from a share of train's rows: their epochs are counted in passes over it."""
        part = copy.copy(self)
        part.train_rows = round(share * self.train_rows)
        return part

    def _labelled(self, name: str) -> Split:
        split = load_split(self.paths, self.task, name)
        return split.take(np.flatnonzero(split.labelled))

    def files(
        self,
        rows: DistillationSet,
        draw: Draw,
        cuts: Sequence[Cut],
        seed: int,
        splits: Sequence[str],
        keep: bool = False,
    ) -> list[File]:
        """One file for each cut of a model of `rows`, scored over `splits`; made only where it is not there yet.

        keep: keep the file itself too, of a single cut.
        """
        job = self._job(rows, draw, cuts, seed, splits)
        contents = [file_fingerprint(Path(path)) for path in (job["train"], *job["texts"].values())]
        labels = [self.splits[name].fingerprint() for name in splits]
        told = {**job, "train": None, "texts": splits, "metrics": self.task.all_metrics, "keep": keep}
        identity = fingerprint([told, contents, labels, FASTTEXT])
        place, path = self.kept / f"{identity}.json", self.kept / f"{identity}.{'ftz' if cuts[0][0] else 'bin'}"
        if not place.exists() or (keep and not path.exists()):
            self.kept.mkdir(parents=True, exist_ok=True)
            if keep:
                job["cuts"][0]["keep"] = str(path)
            write_json(place, [self._scored(one, splits) for one in in_fasttext(self.python, job)])
        about = {"draw": draw, "seed": seed, "path": str(path) if keep else None, "identity": identity}
        made = zip(cuts, job["cuts"], read_json(place), strict=True)
        epochs = job["settings"]["epoch"]
        return [
            File(**about, size=size, retrain=passes, epochs=(epochs, cut["retrain"]), **came)
            for (size, passes), cut, came in made
        ]

    def _job(
        self, rows: DistillationSet, draw: Draw, cuts: Sequence[Cut], seed: int, splits: Sequence[str]
    ) -> dict[str, Any]:
        """The job of fasttext_inside.py."""
        names = ("dim", "wordNgrams", "minCount", "bucket", "lr")
        minn, maxn = draw["minn_maxn"]
        own = {"minn": minn, "maxn": maxn, "epoch": self._epochs(rows, draw["passes"])}
        return {
            "train": str(self._training_file(rows, seed)),
            "settings": {**{name: draw[name] for name in names}, **own, "seed": seed, "thread": self.threads},
            "quantize": {"dsub": draw["dsub"], "qnorm": draw["qnorm"]},
            "cuts": [{"size": size, "retrain": self._epochs(rows, passes)} for size, passes in cuts],
            "texts": {name: str(self.folder / f"{name}.txt") for name in splits},
        }

    def _epochs(self, rows: DistillationSet, passes: int) -> int:
        """Epochs of these rows that have about as many steps as so many passes over train."""
        return passes and max(1, round(passes * self.train_rows / len(rows.split)))

    def _training_file(self, rows: DistillationSet, seed: int) -> Path:
        path = self.folder / f"train-{rows.augmented}-{len(rows.split)}-{seed}.txt"
        return path if path.exists() else write_training(path, texts_of(rows.split), rows.split.labels, seed)

    def _scored(self, came: dict[str, Any], splits: Sequence[str]) -> dict[str, Any]:
        """What fasttext_inside.py says of a cut, with metrics in place of labels."""
        if "error" in came:
            return {"error": came["error"]}
        outputs = np.eye(len(self.task.labels), dtype=np.float32)
        metrics = {name: score(self.task, self.splits[name].labels, outputs[came["labels"][name]]) for name in splits}
        return {**{name: came[name] for name in ("bytes", "cutoff", "seconds")}, "metrics": metrics}


def peer_row(bench: Bench, rows: DistillationSet, name: str, file: File, split: str) -> dict[str, Any]:
    """A row of results.json. The file is all that a prediction needs, so that its sizes are those of the packed file.

    Parameters are not told: they differ from seed to seed, and with them models would be no family.
    """
    path = Path(str(file.path))
    settings = {**file.draw, **{key: getattr(file, key) for key in ("size", "retrain", "epochs", "cutoff")}}
    return {
        "task": bench.task.name,
        "split": split,
        "model": f"{name}-s{file.seed}",
        "stage": "peer",
        "student_arch": "fasttext",
        "embedding_type": None,
        "embedding_dim": file.draw["dim"],
        "vocab_size": None,
        "alpha": 1.0,
        "augmented": rows.augmented,
        "seed": file.seed,
        "teacher": rows.teacher,
        "select_on": "validation",
        "run": str(path),
        "config_hash": file.identity,
        "parameters": None,
        "nonzero_parameters": None,
        "bytes_model": file.bytes,
        "bytes_gzip": gzip_bytes(path),
        "bytes_packed": file.bytes,
        "parts": {},
        "settings": {**settings, "threads": bench.threads, "library": FASTTEXT[0]},
        "validation": file.metrics["validation"],
        "validation_data": data_fingerprint(bench.paths, bench.task, "validation"),
        "rows": len(bench.splits[split]),
        "metrics": file.metrics[split],
        "data": data_fingerprint(bench.paths, bench.task, split),
        "seconds": {"train": file.seconds},
    }
