"""Distillation: a student learns a teacher's logits, the labels, or both."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.data.data import Split
from common.data.tasks import Task, load_task
from common.devices import pick_device
from common.errors import UserError
from common.progress import say
from common.seeds import seed_everything
from common.store.locks import only_one
from common.store.workspace import file_fingerprint, fingerprint
from common.training.models import WEIGHTS_FILE, ModelConfig, clear_training, is_finished
from common.training.training import trained_parameters
from compression.distillation.dataset import DistillationSet, distillation_set, held_out_rows
from compression.distillation.start import Start, find_start
from compression.distillation.trainer import Lesson, train_student
from compression.settings import (
    ACTION_SETTINGS,
    ALIGN_SETTINGS,
    LATER_SETTINGS,
    PRETRAIN_SETTINGS,
    TRANSFORMER_SETTINGS,
    CompressSettings,
)
from compression.shrinking.prune import pruning_companion
from compression.shrinking.pruning.keeping import Together
from compression.students.general_start import freeze_all_but_adapters
from compression.students.saved import save_student
from compression.students.spec import TRANSFORMERS
from compression.students.student import Student

if TYPE_CHECKING:
    from compression.distillation.alignment import Aligner

NOT_IDENTITY = {
    "workspace",
    "force",
    "loadbar",
    "cpu",
    "model_name",
    "seed_name",
    "compression_actions",
    "load_trained_model",
    "hidden_dim",
    "embedding_rank",
}
"""Settings that do not change what is learned."""
INPUTS_COUNT_INSTEAD = {"teacher", "bpe_model", "bpe_vectors", "start_from"}
"""Names whose content is in the fingerprint: the same logits and vectors under other names give the same student."""


def distill(settings: CompressSettings) -> Path:
    """Train and save a student. Returns its model folder; a finished one is reused, a stopped one goes on."""
    task = load_task(settings.task)
    if task.regression and settings.loss != "mse":
        raise UserError(f"--loss {settings.loss} compares classes; {task.name} is a regression: take mse")
    if task.tokens and settings.student_arch == "ffn":
        raise UserError(f"{task.name} has a label for every word, and an FFN one state a text: take another student")
    rows = distillation_set(settings, task)
    held_out = held_out_rows(settings, task, rows.teacher)
    start = find_start(settings, task, rows)
    name = settings.model_name or student_name(settings)
    config = ModelConfig(
        name=name,
        kind="student",
        stage="distilled",
        task=task.name,
        labels=task.labels,
        pair=task.pair,
        tokens=task.tokens,
        arch=settings.student_arch,
        seed=settings.seed,
        select_on=settings.select_on,
        teacher=rows.teacher,
        trained_on=tuple(sorted({task.name, *start.read_before()})),
        alpha=settings.alpha,
        augmented=rows.augmented,
        settings=own_settings(settings),
        distillation=own_settings(settings),
        student=start.settings.model_dump(mode="json"),
        fingerprint=_identity(settings, rows, held_out, start),
    )
    folder = settings.paths.model(task.name, name)
    with only_one(folder, f"student {name}"):
        if is_finished(folder, config.fingerprint, settings.force):
            say(f"student {name} is up to date")
        else:
            _train(settings, task, config, Lesson(rows, held_out), start, folder)
    return folder


def student_name(settings: CompressSettings) -> str:
    """A name that tells the settings sweeps vary: bilstm-bpe25-a0-aug-s3201976."""
    data = "orig" if settings.only_original_data else f"aug{_share(settings.bootstrap_data_ratio)}"
    data += f"-rows{_share(settings.downsample_data)}" if settings.downsample_data < 1 else ""
    aware = "-pa" if settings.prune_aware else ""
    embedding = f"{settings.embedding_type}{settings.embedding_dim}"
    return f"{settings.student_arch}-{embedding}-a{settings.alpha:g}-{data}{aware}-s{settings.seed}"


def _share(share: float) -> str:
    return "" if share == 1 else f"{share:g}"


def _identity(settings: CompressSettings, rows: DistillationSet, held_out: Split, start: Start) -> str:
    own = {name: value for name, value in own_settings(settings).items() if name not in INPUTS_COUNT_INSTEAD}
    logits = [] if rows.logits is None else [hashlib.sha256(rows.logits.tobytes()).hexdigest()]
    return fingerprint([own, rows.split.fingerprint(), held_out.fingerprint(), [*logits, *start.hashes()]])


def own_settings(settings: CompressSettings) -> dict[str, Any]:
    """The settings that decide what is learned: not those of later actions, nor where and how loudly it runs."""
    later = LATER_SETTINGS - ACTION_SETTINGS["prune"] if settings.prune_aware else LATER_SETTINGS
    return settings.model_dump(mode="json", exclude=NOT_IDENTITY | unused(settings) | later)


def unused(settings: CompressSettings) -> set[str]:
    """Settings without a meaning here. They are told nowhere: a student made before they were is found again."""
    names = PRETRAIN_SETTINGS if settings.aligns else PRETRAIN_SETTINGS | ALIGN_SETTINGS
    if settings.student_arch not in TRANSFORMERS:
        return names | TRANSFORMER_SETTINGS
    return names if settings.start_from else names | {"start_from", "adapter_tuning"}


def _train(
    settings: CompressSettings, task: Task, config: ModelConfig, lesson: Lesson, start: Start, folder: Path
) -> None:
    seed_everything(settings.seed)
    student = Student(config.arch, start.settings, task.outputs, task.pair, task.tokens)
    start.give(student, settings)
    if settings.adapter_tuning and start.general is not None:
        freeze_all_but_adapters(student)
        told = {"base": settings.start_from, "base_weights": file_fingerprint(start.general / WEIGHTS_FILE)}
        config = config.model_copy(update={**told, "trained_parameters": trained_parameters(student)})
    pruner = pruning_companion(student, settings) if settings.prune_aware else None
    aligner = _aligner(settings, start.inside) if settings.aligns and start.inside else None
    companion = Together([each for each in (pruner, aligner) if each is not None])
    history = train_student(
        settings, task, student, start.tokenizer, lesson, folder, config.fingerprint, companion, aligner
    )
    if pruner is not None:
        config = config.model_copy(update={"compression": {"sparsity": pruner.finish()}})
    save_student(folder, config, student, start.tokenizer, history)
    clear_training(folder)


def _aligner(settings: CompressSettings, teacher: Path) -> Aligner:
    from compression.distillation.alignment import (  # Hugging Face's library, which others do not need
        Aligner,
        InsideTeacher,
    )

    device = pick_device(settings.cpu)
    return Aligner(settings, InsideTeacher.load(teacher, device)).to(device)
