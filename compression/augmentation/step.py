"""The step that writes augmented rows."""

from pathlib import Path
from typing import Any, ClassVar

import pydantic
import torch

from common.data.split import count_rows, find_splits
from common.data.tasks import Task, check_trains
from common.errors import UserError
from common.launch.shards import map_parts
from common.progress import say
from common.store.artifact import Artifact
from common.store.step import Context, Step
from common.store.store import Store
from common.store.workspace import Workspace
from common.teachers.load import load_masked_lm, masked_lm_fingerprint
from common.training.models import find_model, only_teacher
from compression.augmentation.augment import AugmentTask
from compression.augmentation.glove import glove_fingerprint
from compression.augmentation.settings import PreprocessSettings

AUGMENTED_FILE = "rows.parquet"


class Augment(Step):
    """Variants of train rows by TinyBERT's Algorithm 1. File: rows.parquet."""

    version: ClassVar[int] = 2

    variants: int
    replace_probability: float
    candidates: int
    fraction: float
    """Share of variants to keep (the thesis keeps a quarter for QQP and MNLI)."""
    seed: int
    settings: PreprocessSettings = pydantic.Field(exclude=True)
    task: Task = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the splits, the GloVe vectors, and the masked language model where there is one."""
        glove, masked_lm = self.settings.glove, self.settings.masked_lm
        inputs = {"splits": find_splits(paths, self.task), "glove": Artifact(glove_fingerprint(glove), Path())}
        if masked_lm:
            inputs["masked_lm"] = Artifact(masked_lm_fingerprint(masked_lm, paths.downloads()), Path())
        return inputs

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Write the variants of every row of train."""
        paths, task, settings = context.paths, self.task, self.settings
        work = AugmentTask(
            masked_lm=settings.masked_lm,
            glove=settings.glove,
            held_out=tuple(paths.split(task.name, name) for name in ("validation", *task.test_splits)),
            cpu=context.cpu,
            downloads=paths.downloads(),
            **self.model_dump(),
        )
        if not settings.masked_lm:
            say("no masked language model: every word is replaced by GloVe neighbours")
        source, target = paths.split(task.name, "train"), out / AUGMENTED_FILE
        map_parts(source, target, work, settings.launch, context.name, context.work)
        say(f"{count_rows(target):,} augmented rows from {count_rows(source):,}")
        return {"task": task.name}


def augment_rows(settings: PreprocessSettings, paths: Store, task: Task) -> int:
    """Build the augmented rows of train. Returns their number."""
    check_trains(task)
    settings = settings.model_copy(update={"masked_lm": _masked_lm(settings, paths, task)})
    target = paths.augmented(task.name, settings.augmented)
    step = Augment(
        variants=settings.variants,
        replace_probability=settings.replace_probability,
        candidates=settings.candidates,
        fraction=task.augment_fraction,
        seed=settings.seed,
        settings=settings,
        task=task,
    )
    paths.make(step, settings.context(f"augmenting {task.name}"), alias=target, file=AUGMENTED_FILE, replace=True)
    return count_rows(target)


def _masked_lm(settings: PreprocessSettings, paths: Store, task: Task) -> str | None:
    """Return --masked-lm, or where it is unset the encoder of the given teacher if it can predict masked words."""
    if settings.masked_lm or not (settings.model_name or settings.teacher_arch):
        return settings.masked_lm
    teacher = settings.model_name or only_teacher(paths, task)
    encoder = find_model(paths, task, teacher, settings.teacher_arch)[1].encoder
    if encoder is None:  # of an ensemble, or a teacher that was not fine-tuned here
        return None
    if Path(encoder).is_absolute() and not Path(encoder).exists():
        raise UserError(f"--augment needs the encoder of {teacher}, or --masked-lm: {encoder} is not there any more")
    try:
        load_masked_lm(encoder, torch.device("cpu"), paths.downloads())
    except UserError as error:
        say(f"{teacher} proposes no words: {error}")
        return None
    return encoder
