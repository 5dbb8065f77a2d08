"""Fine-tuning a RoBERTa teacher with fairseq's own training loop, by the recipe of its GLUE example."""

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from common.data.split import Split
from common.data.tasks import Task
from common.errors import UserError
from common.progress import bar
from common.store.step import Context
from common.teachers.fairseq.checkpoint import allowed_types, load_checkpoint, read_folder, read_model
from common.teachers.fairseq.checkpoint import write_folder as write_model
from common.teachers.fairseq.data import binarize
from common.teachers.fairseq.library import load_fairseq, quiet
from common.teachers.fairseq.recipe import total_updates, training_flags
from common.teachers.fairseq.sources import SUBFOLDER, byte_pairs
from common.teachers.fairseq.sources import resolve as resolve_source
from common.teachers.fairseq.teacher import encode
from common.teachers.fairseq.tokens import RobertaTokens
from common.teachers.settings import FinetuneSettings
from common.training.loop import write_history
from common.training.targets import targets

LAST, BEST = "checkpoint_last.pt", "checkpoint_best.pt"


def resolve(arch: str, downloads: Path) -> tuple[str, str]:
    """Return (folder of the weights, short name) of an --arch; an official archive is downloaded if needed."""
    load_fairseq(f"--arch {arch}")  # before a large download, not after it
    return resolve_source(arch, downloads)


def train(
    settings: FinetuneSettings, source: str, task: Task, splits: dict[str, Split], out: Path, context: Context
) -> dict[str, Any]:
    """Fine-tune the RoBERTa in folder `source` and save the best checkpoint in `out`; a stopped run continues.

    splits: "train" and the one that chooses the checkpoint. Raises UserError for weights that are not RoBERTa's.
    """
    work = context.work
    architecture, _ = read_folder(Path(source))
    tokens = RobertaTokens(Path(source), byte_pairs(Path(source), settings.paths.downloads()))
    max_tokens = min(settings.max_tokens, architecture.max_positions)
    train_rows, valid_rows = splits["train"], splits[task.selection_split(settings.select_on)]
    for name, split in (("train", train_rows), ("valid", valid_rows)):
        binarize(work / "data", name, encode(tokens, split, max_tokens), targets(task, split.labels), tokens, task)
    flags = training_flags(settings, task, architecture, len(train_rows), len(valid_rows))
    files = ["--start", source, "--model-name", context.name, "--save-dir", str(work)]
    if not _is_trained(work, settings, total_updates(settings, len(train_rows))):
        _run([str(work / "data"), *flags, *files], f"fine-tuning {context.name}")
    _, tensors = read_model(work / BEST)
    history = load_checkpoint(work / LAST)["extra_state"]["FeatherweightTask"]["history"]
    (out / SUBFOLDER).mkdir()
    write_model(out / SUBFOLDER, architecture, tensors)
    tokens.save(out / SUBFOLDER)
    write_history(out / "history.jsonl", history)
    return {}


def _is_trained(work: Path, settings: FinetuneSettings, updates: int) -> bool:
    """Return whether a stopped attempt had finished but not saved; fairseq would train it further."""
    if not (work / LAST).exists():
        return False
    state = load_checkpoint(work / LAST)
    stopping = state["extra_state"]["FeatherweightTask"]["stopping"]
    return state["optimizer_history"][-1]["num_updates"] >= updates or stopping.get("num_runs", 0) >= settings.patience


def _run(flags: list[str], label: str) -> None:
    """Run fairseq's training with our progress bar, safe reading of checkpoints and atomic copies."""
    import fairseq_cli.train
    from fairseq import checkpoint_utils, options
    from fairseq.file_io import PathManager
    from fairseq.logging import progress_bar

    import common.teachers.fairseq.task  # noqa: F401 - registers the task

    for function in (checkpoint_utils.save_checkpoint, fairseq_cli.train.should_stop_early):
        vars(function).clear()  # fairseq keeps its best score here, also of an earlier run
    with (
        quiet(),
        allowed_types(),
        mock.patch.object(progress_bar, "progress_bar", _bar_class(label)),
        mock.patch.object(PathManager, "copy", _link),
    ):
        arguments = options.parse_args_and_arch(options.get_training_parser(), flags)
        try:
            fairseq_cli.train.main(arguments)
        except FloatingPointError as error:
            raise UserError(f"{label}: the loss is no longer a number; lower --lr") from error


def _link(source: str, target: str, overwrite: bool = False) -> bool:
    """Copy atomically, by a hard link; fairseq never writes into a checkpoint, it replaces it."""
    partial = Path(f"{target}.{uuid.uuid4().hex[:8]}")
    try:
        os.link(source, partial)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, partial)
    partial.replace(target)
    return True


def _bar_class(label: str) -> Any:
    from fairseq.logging.progress_bar import BaseProgressBar

    class Bar(BaseProgressBar):
        """Our progress bar in place of fairseq's: one an epoch, none for its validations."""

        def __iter__(self) -> Iterator[Any]:
            if "valid" in self.prefix:
                yield from self.iterable
            else:
                yield from bar(self.iterable, f"{label} {self.epoch}", total=len(self.iterable), initial=self.n)

        def log(self, *_: Any, **__: Any) -> None:
            """Print nothing: the bar is enough."""

        print = log

    def make(iterator: Any, *, epoch: int | None = None, prefix: str | None = None, **_: Any) -> Bar:
        return Bar(iterator, epoch, prefix)

    return make
