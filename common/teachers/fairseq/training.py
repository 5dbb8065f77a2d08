"""Fine-tuning a RoBERTa teacher with fairseq's own training loop, by the recipe of its GLUE example.

https://github.com/facebookresearch/fairseq/blob/main/examples/roberta/README.glue.md
"""

import math
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from common.config import flag
from common.data.split import Split
from common.data.tasks import Task
from common.devices import pick_device, pick_dtype
from common.errors import UserError
from common.kinds.ragged import EncodedText
from common.progress import bar
from common.store.step import Context
from common.teachers.fairseq.checkpoint import CHECKPOINT_FILE, Architecture, allowed_types, load_checkpoint, read_model
from common.teachers.fairseq.convert import SPECIAL, UNKNOWN, converted, tokenizer_of
from common.teachers.fairseq.library import load_fairseq, quiet
from common.teachers.fairseq.sources import DICTIONARY_FILE
from common.teachers.fairseq.sources import resolve as resolve_source
from common.teachers.huggingface.pretrained import save
from common.teachers.huggingface.teacher import encoded_rows, head_settings
from common.teachers.settings import TeacherTraining
from common.training.models import write_history

SAVE_UPDATES = 500
"""Fewest updates between two checkpoints; a kill loses the updates since the last one."""

LAST, BEST = "checkpoint_last.pt", "checkpoint_best.pt"


def resolve(arch: str, downloads: Path) -> tuple[str, str]:
    """Return (folder of the weights, short name) of an --arch; an official archive is downloaded if needed."""
    load_fairseq(f"--arch {arch}")  # before a large download, not after it
    return resolve_source(arch, downloads)


def train(
    settings: TeacherTraining,
    seed: int,
    task: Task,
    source: str,
    splits: tuple[Split, Split],
    out: Path,
    context: Context,
) -> dict[str, Any]:
    """Fine-tune the RoBERTa in folder `source` and save the best checkpoint in `out`; a stopped run continues.

    It is saved as a model of transformers, as other teachers are.

    splits: rows to learn from, and rows that choose the checkpoint.
    Raises UserError for weights that are not a RoBERTa's.
    """
    work, start = context.work, Path(source) / CHECKPOINT_FILE
    architecture, _ = read_model(start)
    tokenizer = tokenizer_of(Path(source), context.downloads, architecture.max_positions)
    max_tokens = min(settings.max_tokens, architecture.max_positions)
    for name, split in zip(("train", "valid"), splits, strict=True):
        rows = encoded_rows(tokenizer, split, max_tokens)
        binarize(work / "data", name, rows, task.kind.targets(task, split.labels), tokenizer.mask_token_id + 1, task)
    shutil.copyfile(Path(source) / DICTIONARY_FILE, work / "data" / "input0" / "dict.txt")
    if not _is_trained(work, settings, total_updates(settings, len(splits[0]))):
        flags = training_flags(settings, seed, task, architecture, *map(len, splits), cpu=context.cpu)
        files = ["--start", str(start), "--model-name", context.name, "--save-dir", str(work)]
        _run([str(work / "data"), *flags, *files], task, settings.patience, f"fine-tuning {context.name}")
    _, tensors = read_model(work / BEST)
    history = load_checkpoint(work / LAST)["extra_state"]["FeatherweightTask"]["history"]
    model = converted(architecture, tensors, tokenizer, start, **head_settings(task.kind, task.labels))
    save(model, tokenizer, out)
    best = max(record["score"] for record in history)
    write_history(out, [{**record, "kept": record["score"] == best} for record in history])
    return {}


def training_flags(
    settings: TeacherTraining,
    seed: int,
    task: Task,
    architecture: Architecture,
    train_rows: int,
    valid_rows: int,
    cpu: bool,
) -> list[str]:
    """Return all flags that do not name files."""
    updates = total_updates(settings, train_rows)
    attention_dropout = 0.1 if settings.attention_dropout is None else settings.attention_dropout
    flags = f"""
        --task featherweight_sentence_prediction --criterion sentence_prediction --num-classes {task.outputs}
        --seed {seed} --num-workers 0
        --batch-size {settings.batch_size} --required-batch-size-multiple 1
        --optimizer adam --adam-betas (0.9,0.98) --adam-eps 1e-6 --clip-norm 0.0
        --lr {settings.lr} --weight-decay {settings.weight_decay} --lr-scheduler polynomial_decay
        --total-num-update {updates} --warmup-updates {round(updates * settings.warmup)}
        --max-update {updates} --max-epoch {settings.max_epochs}
        --save-interval-updates {save_interval(valid_rows, settings.batch_size)} --keep-interval-updates 1
        --best-checkpoint-metric score --maximize-best-checkpoint-metric
        --no-epoch-checkpoints --distributed-world-size 1
        --arch roberta --dropout 0.1 --attention-dropout {attention_dropout}
    """.split()
    if not task.kind.has_classes:
        flags += ["--regression-target"]
    if settings.freeze_embeddings:
        flags += ["--freeze-embeddings"]
    for name, value in architecture.model_dump().items():
        flags += [flag(name), str(value)]
    return flags + _device_flags(settings, cpu)


def total_updates(settings: TeacherTraining, train_rows: int) -> int:
    """Return the number of updates, over which the learning rate falls to zero.

    It is the recipe's number for the full task, or that of max_epochs if it is lower; warm-up is a share of it.
    """
    possible = math.ceil(train_rows / settings.batch_size) * settings.max_epochs
    return min(settings.max_updates or possible, possible)


def save_interval(valid_rows: int, batch_size: int) -> int:
    """Return the number of updates between two checkpoints.

    fairseq validates at every checkpoint. As a forward pass is a third of an update's work, this interval lets
    validation take a tenth of the time.
    """
    return max(SAVE_UPDATES, math.ceil(10 * valid_rows / batch_size / 3))


def _device_flags(settings: TeacherTraining, cpu: bool) -> list[str]:
    """Return flags for one device. On a CPU fairseq computes in 32 bits only."""
    device = pick_device(cpu)
    dtype = pick_dtype(settings.arithmetic, device)
    if device.type == "cpu":
        return ["--cpu"]
    if dtype == torch.float16:
        return ["--fp16", "--fp16-init-scale", "4", "--threshold-loss-scale", "1", "--fp16-scale-window", "128"]
    return ["--bf16"] if dtype == torch.bfloat16 else []


def binarize(folder: Path, name: str, rows: EncodedText, labels: np.ndarray, symbols: int, task: Task) -> None:
    """Write a split in fairseq's binary format. name: "train" or "valid"; symbols: those of fairseq's dictionary.

    labels: class indices, or for regression scores scaled to [0, 1]. input0 holds rows as the model reads them, with
    special tokens, so that training and scoring cannot differ. The label dictionary keeps the order of the classes.
    """
    for part in ("input0", "label"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    ids = rows.ids[:, 0]
    _write_rows(folder / "input0" / name, np.split(np.where(ids < symbols, ids, UNKNOWN), rows.offsets[1:-1]), symbols)
    if not task.kind.has_classes:
        (folder / "label" / f"{name}.label").write_text("".join(f"{score}\n" for score in labels.tolist()))
        return
    (folder / "label" / "dict.txt").write_text("".join(f"{i} 1\n" for i in range(task.outputs)))
    _write_rows(folder / "label" / name, labels[:, None] + len(SPECIAL), task.outputs)


def _write_rows(path: Path, rows: Iterable[np.ndarray], symbols: int) -> None:
    from fairseq.data import indexed_dataset

    builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", vocab_size=symbols)
    for row in rows:
        builder.add_item(torch.from_numpy(row.astype(np.int64)))
    builder.finalize(f"{path}.idx")


def _is_trained(work: Path, settings: TeacherTraining, updates: int) -> bool:
    """Return whether a stopped attempt had finished but not saved; fairseq would train it further."""
    if not (work / LAST).exists():
        return False
    state = load_checkpoint(work / LAST)
    extra = state["extra_state"]
    ended = extra["FeatherweightTask"]["history"][: extra["train_iterator"]["epoch"] - 1]
    return state["optimizer_history"][-1]["num_updates"] >= updates or _stagnates(ended, settings.patience)


def _stagnates(history: list[dict[str, Any]], patience: int) -> bool:
    """Return whether the last `patience` epochs are no better than an earlier one. history: of epochs that ended."""
    scores = [record["score"] for record in history]
    return len(scores) > patience and max(scores[-patience:]) <= max(scores[:-patience])


def _run(flags: list[str], task: Task, patience: int, label: str) -> None:
    """Run fairseq's training with our early stopping and progress bar, safe reading of checkpoints and atomic copies.

    task: what is scored at each validation.
    """
    import fairseq_cli.train
    from fairseq import checkpoint_utils, options
    from fairseq.file_io import PathManager
    from fairseq.logging import progress_bar

    from common.teachers.fairseq.task import FeatherweightTask  # registers the task

    vars(checkpoint_utils.save_checkpoint).clear()  # fairseq keeps its best score here, even from an earlier run
    with (
        quiet(),
        allowed_types(),
        mock.patch.object(FeatherweightTask, "scored", task, create=True),
        mock.patch.object(fairseq_cli.train, "validate_and_save", _patient(patience)),
        mock.patch.object(progress_bar, "progress_bar", _bar_class(label)),
        mock.patch.object(PathManager, "copy", _link),
    ):
        arguments = options.parse_args_and_arch(options.get_training_parser(), flags)
        try:
            fairseq_cli.train.main(arguments)
        except FloatingPointError as error:
            raise UserError(f"{label}: the loss is not a finite number; lower --lr") from error


def _patient(patience: int) -> Callable[..., tuple[list[float | None], bool]]:
    """Return fairseq's validation, which also stops after `patience` epochs without a better score.

    fairseq's own --patience counts validations, of which a long epoch has many.
    """
    from fairseq_cli.train import validate_and_save

    def replacement(
        cfg: Any, trainer: Any, task: Any, epochs: Any, subsets: list[str], end_of_epoch: bool
    ) -> tuple[list[float | None], bool]:
        losses, stop = validate_and_save(cfg, trainer, task, epochs, subsets, end_of_epoch)
        return losses, stop or (end_of_epoch and _stagnates(task.history, patience))

    return replacement


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
    """Return our progress bar in place of fairseq's: one per epoch, none for validation."""
    from fairseq.logging.progress_bar import BaseProgressBar

    class Bar(BaseProgressBar):
        def __init__(self, iterator: Any, *, epoch: int | None = None, prefix: str | None = None, **_: Any) -> None:
            super().__init__(iterator, epoch, prefix)

        def __iter__(self) -> Iterator[Any]:
            if "valid" in self.prefix:
                return iter(self.iterable)
            return iter(bar(self.iterable, f"{label} {self.epoch}", total=len(self.iterable), initial=self.n))

        def log(self, *_: Any, **__: Any) -> None:
            pass  # the bar is enough

        print = log

    return Bar
