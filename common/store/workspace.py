"""Paths of a workspace: the names that users give to artifacts, and the folders that are not artifacts."""

import os
from pathlib import Path

from common.errors import UserError

_NAME_BYTES = 150
"""Maximum length of a name: file systems take 255 bytes, and names of temporary files and derived models are longer."""


class Workspace:
    """Paths below one root folder. Nothing is created until something is written."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def relative(self, path: Path | str) -> str:
        """Return a path as files in the workspace record it: relative to the root if it is inside, otherwise absolute.

        `root / recorded` is the path again, also after the workspace was moved, renamed or copied.
        """
        absolute = Path(os.path.abspath(path))  # noqa: PTH100 - names in the workspace are links, and remain
        for root in (Path(os.path.abspath(self.root)), self.root.resolve()):  # noqa: PTH100
            if absolute.is_relative_to(root):
                return absolute.relative_to(root).as_posix()
        return str(absolute)

    def splits(self, task: str) -> Path:
        """Return the folder of a task's prepared splits, an alias."""
        return self.root / "data" / task / "splits"

    def split(self, task: str, split: str) -> Path:
        """Return the Parquet file of one split."""
        return self.splits(task) / f"{split}.parquet"

    def report(self, task: str) -> Path:
        """Return the report on the task's source files."""
        return self.splits(task) / "report.json"

    def augmented(self, task: str, name: str) -> Path:
        """Return the Parquet file of augmented rows, an alias. Raises UserError for a name with slashes."""
        return self.root / "data" / task / "augmented" / f"{one_word(name, 'augmented rows')}.parquet"

    def logits(self, task: str, teacher: str, rows: str) -> Path:
        """Return the Parquet file of a teacher's logits over some rows, an alias."""
        return self.root / "data" / task / "logits" / teacher / f"{rows}.parquet"

    def cache(self) -> Path:
        """Return the folder of token ids, byte-pair vocabularies and vectors, which can be deleted at any time."""
        return self.root / "cache"

    def downloads(self) -> Path:
        """Return the folder of verified downloads."""
        return self.root / "downloads"

    def model(self, task: str, name: str) -> Path:
        """Return the folder of a model, an alias. Raises UserError for a name with slashes."""
        return self.root / "models" / task / one_word(name, "a model")

    def packed(self, task: str, name: str) -> Path:
        """Return a model's packed file, an alias."""
        return self.root / "packed" / task / f"{name}.fwt"

    def exported(self, task: str, name: str) -> Path:
        """Return a model's ONNX file, an alias."""
        return self.root / "onnx" / task / f"{name}.onnx"

    def made_from_model(self, folder: Path) -> list[Path]:
        """Return the aliases of files that are built from the model with the alias `folder` alone."""
        task, name = folder.parent.name, folder.name
        return [self.packed(task, name), self.exported(task, name)] if folder.parent.parent.name == "models" else []

    def scores(self, task: str, model_task: str, name: str) -> Path:
        """Return the folder of a model's scores and predictions over a task's test splits, an alias."""
        return self.root / "scores" / model_task / name / task

    def experiment(self, name: str) -> Path:
        """Return the folder of an experiment's records and report. Raises UserError for a name with slashes."""
        return self.root / "experiments" / one_word(name, "an experiment")

    def run(self, identity: str) -> Path:
        """Return the folder of one run of a sweep: its record, its rows, its log."""
        return self.root / "runs" / identity


def workspace_of(artifact: Path) -> Workspace:
    """Return the workspace that an artifact's folder is in, by its name or in the store."""
    return Workspace(artifact.resolve().parent.parent)


def is_one_word(name: str) -> bool:
    """Return whether a name can be that of a file or folder, however long it is."""
    return name != "" and not name.startswith(".") and Path(name).name == name and name.isprintable()


def one_word(name: str, kind: str) -> str:
    """Return the name if it can be that of a file or folder. Raises UserError otherwise. kind: for the message."""
    if not is_one_word(name):
        raise UserError(f"{name!r} is not a name for {kind}: a name is one word without slashes")
    if len(os.fsencode(name)) > _NAME_BYTES:
        raise UserError(f"{name[:20]}... is not a name for {kind}: it is longer than {_NAME_BYTES} bytes")
    return name


def default_root() -> Path:
    """Return FEATHERWEIGHT_HOME, or ./workspace if it is not set."""
    return Path(os.environ.get("FEATHERWEIGHT_HOME", "workspace"))
