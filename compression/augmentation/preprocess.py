"""The stage of preprocess.py: splits, augmented rows, teacher logits. Preparing splits does not need PyTorch."""

from typing import Any

from common.config import flag, nearest
from common.data.prepare import prepare
from common.data.split import PROCESSED, count_rows, is_augmented
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.store.store import Store
from common.teachers.imported import import_logits
from common.teachers.logits import generate
from common.teachers.logits_file import write_logits
from common.training.models import find_model, is_linear, only_teacher
from compression.augmentation.label_shift import say_label_table
from compression.augmentation.settings import PreprocessSettings


def preprocess(settings: PreprocessSettings) -> dict[str, Any]:
    """Build the files selected by the settings, in the order of the stages. Returns file -> number of rows."""
    task, paths = load_task(settings.task), settings.paths
    if not is_augmented(task, settings.augmented):
        raise UserError(f"--augmented: the name {settings.augmented!r} is reserved for other rows")
    known = task.splits
    if not task.models_of:
        there = sorted(file.stem for file in paths.augmented(task.name, "any").parent.glob("[!.]*.parquet"))
        known = tuple(dict.fromkeys((PROCESSED, settings.augmented, *there, *task.splits)))
    logits_over = [settings.augmented if name == "augmented" else name for name in settings.generate_loss]
    for name in logits_over:
        if name not in known:
            raise UserError(f"unknown rows {name!r}{nearest(name, known)} (rows: {', '.join(known)})")
    if settings.augment and not task.kind.augments:
        raise UserError(f"--augment: {task.kind.name} ({task.name}) are not supported")
    rows: dict[str, Any] = {}
    if settings.glue_preprocess or not (settings.augment or logits_over):
        splits = prepare(paths, task, settings.data_dir, settings.seed, settings.force, settings.validation)
        rows |= {name: len(split) for name, split in splits.items()}
    if settings.augment:
        from compression.augmentation.step import augment_rows  # PyTorch loads here

        rows[settings.augmented] = augment_rows(settings, paths, task)
    if logits_over:
        teacher = settings.model_name or only_teacher(paths, task)
        if settings.logits_from:
            import_logits(paths, task, teacher, logits_over, settings.logits_from, settings.force)
        for name in logits_over:
            rows[f"{flag('generate_loss')} {name}"] = _generate(settings, paths, task, teacher, name)
        if settings.logits_to:
            write_logits(paths, task, teacher, logits_over, settings.logits_to)
    return rows


def _generate(settings: PreprocessSettings, paths: Store, task: Task, teacher: str, name: str) -> int:
    """Build the teacher's logits for some rows, or find imported ones. Returns the number of rows."""
    _, config = find_model(paths, task, teacher, settings.teacher_arch)
    members = config.members or [config.name]
    if config.kind != "teacher":
        raise UserError(f"{teacher} is a student; logits come from a teacher")
    if settings.folds and not any(is_linear(paths.model(task.models_task, member)) for member in members):
        raise UserError(f"--folds is for linear and frozen teachers; {teacher} is fine-tuned on all rows of train")
    target = generate(
        paths, task, teacher, name, settings.precision, settings.launch, settings.cpu, settings.force, settings.folds
    )
    if is_augmented(task, name) and task.kind.has_classes:
        say_label_table(task, paths.split(task.name, "train"), target, paths.augmented(task.name, name))
    return count_rows(target)
