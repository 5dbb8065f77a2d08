"""Steps that write augmented rows."""

import functools
from pathlib import Path
from typing import Any, ClassVar

import pydantic
import torch

from common.data.prepare import prepare
from common.data.split import count_rows, find_splits
from common.data.task_use import check_no_overlap, check_trains
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.launch.shards import map_parts
from common.progress import say
from common.store.artifact import Artifact
from common.store.step import Context, Inputs, Step
from common.store.store import Store
from common.store.workspace import Workspace
from common.teachers.guided import split_file
from common.teachers.load import load_masked_lm, masked_lm_fingerprint
from common.training.models import encoder_path, find_model, only_teacher
from compression.augmentation.augment import Variation, open_variants
from compression.augmentation.fresh import held_out_files
from compression.augmentation.glove import glove_fingerprint
from compression.augmentation.methods import METHODS
from compression.augmentation.new_rows import AUGMENTED_FILE, EditedRows, NewPairs, RowsOfFile, TextsOfTasks
from compression.augmentation.pairs import Source
from compression.augmentation.settings import PreprocessSettings


class Augment(Variation, Step):
    """Variants of train rows by TinyBERT's Algorithm 1, none with a held-out text. File: rows.parquet."""

    version: ClassVar[int] = 3

    task: Task = pydantic.Field(exclude=True)
    glove: Path | None = pydantic.Field(exclude=True)
    masked_lm: str | None = pydantic.Field(exclude=True)
    launcher: Any = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the splits, the GloVe vectors, and the masked language model if there is one."""
        vectors = Artifact(glove_fingerprint(self.glove), self.glove or Path())
        inputs = {"splits": find_splits(paths, self.task), "glove": vectors}
        if self.masked_lm:
            files = masked_lm_fingerprint(self.masked_lm, paths.downloads())
            inputs["masked_lm"] = Artifact(files, Path(self.masked_lm), self.masked_lm)
        return inputs

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write the variants of every row of train."""
        how, held_out = self.part(Variation), held_out_files(inputs["splits"], self.task)
        work = functools.partial(
            open_variants, how, self.masked_lm, self.glove, held_out, context.cpu, context.downloads
        )
        if not self.masked_lm:
            say("no masked language model: every word is replaced by GloVe neighbours")
        source, target = split_file(inputs, "train"), out / AUGMENTED_FILE
        map_parts(source, target, work, self.launcher, context.name, context.work)
        say(f"{count_rows(target):,} augmented rows from {count_rows(source):,}")
        return {"task": self.task.name}


def augment_rows(settings: PreprocessSettings, paths: Store, task: Task) -> int:
    """Build augmented rows. Returns their number. Raises UserError if the method does not apply to the task."""
    check_trains(task)
    target = paths.augmented(task.name, settings.augmented)
    context = settings.context(f"augmenting {task.name}")
    method = METHODS[settings.augment]
    if method.pairs and not task.pair:
        raise UserError(f"--augment {settings.augment} builds pairs, but a row of {task.name} is a single text")
    if task.kind.by_word and not method.by_word:
        raise UserError(f"--augment {settings.augment} does not support tasks of kind {task.kind.name}")
    step = _new_pairs(settings, task, method.function) if method.pairs else method.function(settings, paths, task)
    paths.make(step, context, alias=target, file=AUGMENTED_FILE, replace=True)
    return count_rows(target)


def _new_pairs(settings: PreprocessSettings, task: Task, source: type[Source]) -> NewPairs:
    if source.keeps_labels and task.equivalence is None:
        raise UserError(f"--augment {settings.augment}: the YAML file of {task.name} names no equivalence label")
    return NewPairs(
        method=settings.augment,
        partners=settings.partners,
        equivalence=task.equivalence if source.keeps_labels else None,
        seed=settings.seed if source.draws else None,
        launcher=settings.launch,
        task=task,
    )


def edits(settings: PreprocessSettings, paths: Store, task: Task) -> EditedRows:
    """Return the step of method edits."""
    return EditedRows(variants=settings.variants, least_words=settings.least_words, seed=settings.seed, task=task)


def texts_of_tasks(settings: PreprocessSettings, paths: Store, task: Task) -> TextsOfTasks:
    """Return the step of method tasks, after preparing splits that do not exist yet."""
    named = {other.name: other for other in map(load_task, settings.augment_tasks)}
    others = tuple(other for name, other in named.items() if name != task.name)
    if not others:
        raise UserError(f"--augment-tasks: name other tasks than {task.name}")
    for other in others:
        _check_other(task, other, paths)
        if not paths.splits(other.name).exists():
            prepare(paths, other, settings.data_dir, settings.seed)
    return TextsOfTasks(tasks=tuple(other.name for other in others), others=others, task=task)


def rows_of_file(settings: PreprocessSettings, paths: Store, task: Task) -> RowsOfFile:
    """Return the step of method file."""
    return RowsOfFile(file=settings.augment_file, task=task)


def variants(settings: PreprocessSettings, paths: Store, task: Task) -> Augment:
    """Return the step of method tinybert."""
    if settings.sides == "one" and not task.pair:
        raise UserError(f"--sides one is for pairs, but a row of {task.name} is a single text")
    return Augment(
        fraction=task.augment_fraction,
        masked_lm=_masked_lm(settings, paths, task),
        launcher=settings.launch,
        task=task,
        **settings.model_dump(include=Variation.model_fields.keys() | {"glove"}),
    )


def _check_other(task: Task, other: Task, paths: Store) -> None:
    """Raise UserError if a task's texts cannot be rows of another task."""
    if task.pair and not other.pair:
        raise UserError(f"--augment-tasks: {task.name} reads pairs, but a row of {other.name} is a single text")
    if task.kind.by_word and not other.kind.by_word:
        raise UserError(
            f"--augment-tasks: the texts of {task.name} are divided into words, but those of {other.name} are not"
        )
    check_trains(other)
    try:
        check_no_overlap([other.name], task, paths)
    except UserError:
        raise UserError(f"--augment-tasks: {other.name} has sentences of {task.name}'s validation and test") from None


def _masked_lm(settings: PreprocessSettings, paths: Store, task: Task) -> str | None:
    """Return --masked-lm, or if unset, the encoder of the given teacher if it can predict masked words."""
    if settings.masked_lm or not (settings.model_name or settings.teacher_arch):
        return settings.masked_lm
    teacher = settings.model_name or only_teacher(paths, task)
    recorded = find_model(paths, task, teacher, settings.teacher_arch)[1].encoder
    if recorded is None:  # the teacher is an ensemble, or was not fine-tuned here
        return None
    encoder = encoder_path(paths, recorded)
    if recorded.startswith(("/", "./")) and not Path(encoder).exists():
        raise UserError(f"--augment needs the encoder of {teacher}, but {encoder} no longer exists; give --masked-lm")
    try:
        load_masked_lm(encoder, torch.device("cpu"), paths.downloads())
    except UserError as error:
        say(f"{teacher} cannot propose words: {error}")
        return None
    return encoder
