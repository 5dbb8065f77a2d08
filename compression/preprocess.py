"""The work of preprocess.py: splits, augmented rows, teacher logits."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pydantic

from common.cli import StageSettings
from common.config import flag
from common.data import Split, load_split, read_metadata, read_split, write_split
from common.errors import UserError
from common.prepare import prepare
from common.progress import say
from common.seeds import derive
from common.tasks import Task, load_task
from common.workspace import Workspace, file_fingerprint, fingerprint


class PreprocessSettings(StageSettings):
    """Settings of preprocess.py (the thesis's table C.2 and what goes beyond it)."""

    glue_preprocess: bool = False
    """Prepare the task's splits; also what happens when no other action is asked for."""
    data_dir: Path | None = None
    """Folder with an unpacked copy of GLUE, or with its zips; unset downloads from the official address."""
    augment: Literal["tinybert"] | None = None
    """Write augmented training rows by this method."""
    generate_loss: tuple[Literal["processed", "tinybert"], ...] = ()
    """Write the teacher's logits over these rows: processed (train), tinybert (augmented)."""
    model_name: str | None = None
    """Teacher for --generate-loss; unset means the task's only one."""
    teacher_arch: str | None = None
    """Check that the teacher has this architecture."""
    variants: int = pydantic.Field(20, gt=0)
    """N of TinyBERT's Algorithm 1: variants drawn of each row; repeated ones are dropped."""
    replace_probability: float = pydantic.Field(0.4, gt=0, le=1)
    """p: chance that a word is replaced."""
    candidates: int = pydantic.Field(15, gt=0)
    """K: likely replacements of a word."""
    glove: Path | None = None
    """GloVe vectors as text; unset means the packaged 6B 50d vectors."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Arithmetic of the teacher: auto is bf16 where the hardware has it."""


def preprocess(settings: PreprocessSettings) -> dict[str, Any]:
    """Do what the settings ask, in the order of the stages. Returns rows by file written or found."""
    task, paths = load_task(settings.task), settings.paths
    rows: dict[str, Any] = {}
    if settings.glue_preprocess or not (settings.augment or settings.generate_loss):
        splits = prepare(paths, task, settings.data_dir, settings.seed, settings.force)
        rows |= {name: len(split) for name, split in splits.items()}
    if settings.augment:
        rows[settings.augment] = len(_augmented(settings, paths, task))
    for name in settings.generate_loss:
        rows[f"{flag('generate_loss')} {name}"] = _generate(settings, paths, task, name)
    return rows


def _augmented(settings: PreprocessSettings, paths: Workspace, task: Task) -> Split:
    """Write the augmented rows of train, unless they are there."""
    from compression.augment import augment, candidate_words, drop_held_out, load_glove

    train = load_split(paths, task, "train")
    target = paths.augmented(task.name, "tinybert")
    settings_used = {"variants", "replace_probability", "candidates", "seed"}
    vectors = file_fingerprint(settings.glove) if settings.glove else "packaged"
    made_from = fingerprint(
        [train.fingerprint(), settings.model_dump(mode="json", include=settings_used), task.augment_fraction, vectors]
    )
    if not settings.force and read_metadata(target).get("made_from") == made_from:
        say("augmented rows are up to date")
        return read_split(target, "")
    say("no masked language model in this version: every word is replaced by GloVe neighbours")
    nearest = load_glove(settings.glove).neighbours(candidate_words(train), settings.candidates)
    augmented = augment(
        train,
        masked_lm=lambda word: nearest.get(word, []),
        neighbours=lambda word: nearest.get(word, []),
        single_piece=lambda word: False,
        n=settings.variants,
        p=settings.replace_probability,
        seed=settings.seed,
    )
    augmented = drop_held_out(augmented, [load_split(paths, task, name) for name in ("validation", *task.test_splits)])
    if task.augment_fraction < 1:
        rng = np.random.default_rng(derive("augment fraction", settings.seed))
        keep = rng.permutation(len(augmented))[: round(len(augmented) * task.augment_fraction)]
        augmented = augmented.take(np.sort(keep))
    write_split(target, augmented, {"made_from": made_from, "fingerprint": augmented.fingerprint()})
    say(f"{len(augmented):,} augmented rows from {len(train):,}")
    return augmented


def distillation_split(paths: Workspace, task: Task, name: str) -> Split:
    """The rows behind a --generate-loss name: train, or augmented ones."""
    if name in ("processed", "train"):
        return load_split(paths, task, "train")
    return read_split(
        paths.augmented(task.name, name), f"run: python preprocess.py --task {task.name} --augment {name}"
    )


def _generate(settings: PreprocessSettings, paths: Workspace, task: Task, name: str) -> int:
    from common.devices import pick_device, pick_dtype
    from common.models import find_model
    from common.seeds import seed_everything
    from common.teachers import load_teacher
    from common.teachers.logits import generate

    teacher_name = settings.model_name or only_teacher(paths, task)
    folder, config = find_model(paths, task, teacher_name, settings.teacher_arch)
    if config.kind != "teacher":
        raise UserError(f"{teacher_name} is a student; logits come from a teacher")
    split = distillation_split(paths, task, name)
    device = pick_device(settings.cpu)
    seed_everything(settings.seed)
    teacher = load_teacher(folder, device, pick_dtype(settings.precision, device))
    generate(paths, task, config.name, "train" if name == "processed" else name, split, teacher, settings.force)
    return len(split)


def only_teacher(paths: Workspace, task: Task) -> str:
    """Name of the task's one teacher. Raises UserError when there is none, or several to choose from."""
    from common.models import read_config, saved_models

    configs = [read_config(folder) for folder in saved_models(paths.root / "models" / task.name)]
    teachers = [config.name for config in configs if config.kind == "teacher"]
    if not teachers:
        raise UserError(f"no teacher for {task.name} yet; run: python finetune.py --task {task.name}")
    if len(teachers) > 1:
        raise UserError(
            f"several teachers for {task.name} ({', '.join(teachers)}); name one with --model-name or --teacher"
        )
    return teachers[0]
