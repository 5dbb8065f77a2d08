"""Distillation: a student learns a teacher's logits, the labels, or both."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from common.data import Split, load_split
from common.errors import UserError
from common.locks import only_one
from common.models import ModelConfig, clear_training, find_model, is_finished, members_of
from common.progress import say
from common.seeds import seed_everything
from common.tasks import Task, load_task
from common.teachers.logits import teacher_fingerprint
from common.workspace import fingerprint
from compression.distillation_set import DistillationSet, distillation_set, held_out_rows
from compression.embeddings import Tokenizer, load_tokenizer
from compression.embeddings.bpe import BpeTokenizer
from compression.embeddings.bpe_files import find_files, read_vectors
from compression.embeddings.teacher_vectors import find_teacher_vectors
from compression.embeddings.wordpiece import WordPieceTokenizer, teacher_pieces
from compression.prune import pruning_companion
from compression.settings import ACTION_SETTINGS, LATER_SETTINGS, CompressSettings
from compression.student_store import save_student
from compression.student_training import Lesson, train_student
from compression.students.settings import StudentSettings
from compression.students.student import Student

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
INPUTS_COUNT_INSTEAD = {"teacher", "bpe_model", "bpe_vectors"}
"""Names whose content is in the fingerprint: the same logits and vectors under other names give the same student."""


def distill(settings: CompressSettings) -> Path:
    """Train and save a student. Returns its model folder; a finished one is reused, a stopped one goes on."""
    task = load_task(settings.task)
    if task.regression and settings.loss != "mse":
        raise UserError(f"--loss {settings.loss} compares classes; {task.name} is a regression: take mse")
    rows = distillation_set(settings, task)
    held_out = held_out_rows(settings, task, rows.teacher)
    tokenizer, student_settings, vectors = _tokenizer(settings, task, rows)
    name = settings.model_name or student_name(settings)
    starts_from = _starts_from(settings, task, rows.teacher)
    config = ModelConfig(
        name=name,
        kind="student",
        stage="distilled",
        task=task.name,
        labels=task.labels,
        pair=task.pair,
        arch=settings.student_arch,
        seed=settings.seed,
        select_on=settings.select_on,
        teacher=rows.teacher,
        trained_on=(task.name,),
        alpha=settings.alpha,
        augmented=rows.augmented,
        settings=own_settings(settings),
        distillation=own_settings(settings),
        student=student_settings.model_dump(mode="json"),
        fingerprint=_identity(settings, rows, held_out, tokenizer, vectors, starts_from),
    )
    folder = settings.paths.model(task.name, name)
    with only_one(folder, f"student {name}"):
        if is_finished(folder, config.fingerprint, settings.force):
            say(f"student {name} is up to date")
        else:
            _train(settings, task, config, Lesson(rows, held_out), tokenizer, vectors, starts_from, folder)
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


def _tokenizer(
    settings: CompressSettings, task: Task, rows: DistillationSet
) -> tuple[Tokenizer, StudentSettings, np.ndarray | None]:
    """The tokenizer, the student's settings as they turn out, and pre-trained vectors where there are any.

    rows: what the student learns from; byte pairs are made from all of it.
    """
    student = settings.student()
    if student.embedding_type == "wordpiece":
        folder = _teacher_folder(settings, task, rows.teacher)
        # Of an ensemble the first member's: it has none of its own.
        tokenizer = teacher_pieces((members_of(folder) or [folder])[0], student.max_tokens)
        return tokenizer, student.model_copy(update={"vocab_size": len(tokenizer.pieces)}), None
    if student.embedding_type != "bpe":
        return load_tokenizer(student, Path()), student, None
    own, sentences = (
        list(itertools.chain.from_iterable(split.sentences()))
        for split in (load_split(settings.paths, task, "train"), rows.split)
    )
    by_teacher = settings.embedding_init == "teacher"
    model_file, vector_file = find_files(student, sentences, settings.paths.bpe(task.name), own, not by_teacher)
    tokenizer = BpeTokenizer(model_file, student.max_tokens)
    if by_teacher:
        vectors = _by_teacher(settings, task, rows.teacher, tokenizer)
    else:  # a model of the user's own may have unused pieces
        vectors = read_vectors(vector_file, model_file, student.embedding_dim)[tokenizer.kept]
    # The saved settings must not point outside the student's folder; a vocabulary of the user's own sets its size.
    student = student.model_copy(update={"vocab_size": len(vectors), "bpe_model": None, "bpe_vectors": None})
    return tokenizer, student, vectors


def _teacher_folder(settings: CompressSettings, task: Task, teacher: str | None) -> Path:
    """Raises UserError where no teacher takes part, or is not there any more."""
    if teacher is None:
        raise UserError("no teacher takes part where labels alone are learned from, and its vocabulary is asked for")
    return find_model(settings.paths, task, teacher)[0]


def _starts_from(settings: CompressSettings, task: Task, teacher: str | None) -> Path | None:
    """The teacher whose layers the student starts from, checked; None where it starts from none."""
    if not settings.init_from_teacher:
        return None
    from compression.students.teacher_start import check_start

    folder = _teacher_folder(settings, task, teacher)
    check_start(settings, settings.student_arch, folder)
    return folder


def _by_teacher(settings: CompressSettings, task: Task, teacher: str | None, tokenizer: BpeTokenizer) -> np.ndarray:
    folder = _teacher_folder(settings, task, teacher)
    place = settings.paths.bpe(task.name)
    return find_teacher_vectors(tokenizer.pieces, folder, settings.embedding_dim, place, settings.cpu)


def _identity(
    settings: CompressSettings,
    rows: DistillationSet,
    held_out: Split,
    tokenizer: Tokenizer,
    vectors: np.ndarray | None,
    starts_from: Path | None,
) -> str:
    own = {name: value for name, value in own_settings(settings).items() if name not in INPUTS_COUNT_INSTEAD}
    inputs = [array.tobytes() for array in (rows.logits, vectors) if array is not None]
    if isinstance(tokenizer, BpeTokenizer):
        inputs.append(tokenizer.model_bytes)
    if isinstance(tokenizer, WordPieceTokenizer):
        inputs.append(tokenizer.identity.encode())
    if starts_from is not None:
        inputs.append(teacher_fingerprint(starts_from).encode())
    hashes = [hashlib.sha256(content).hexdigest() for content in inputs]
    return fingerprint([own, rows.split.fingerprint(), held_out.fingerprint(), hashes])


def own_settings(settings: CompressSettings) -> dict[str, Any]:
    """The settings that decide what is learned: not those of later actions, nor where and how loudly it runs."""
    later = LATER_SETTINGS - ACTION_SETTINGS["prune"] if settings.prune_aware else LATER_SETTINGS
    return settings.model_dump(mode="json", exclude=NOT_IDENTITY | later)


def _start_from(student: Student, settings: CompressSettings, teacher: Path) -> None:
    from compression.students.teacher_start import chosen_layers, start_from_teacher

    layers = chosen_layers(settings.init_from_teacher, len(student.encoder.blocks), teacher)
    start_from_teacher(student, settings, layers, teacher)


def _train(
    settings: CompressSettings,
    task: Task,
    config: ModelConfig,
    lesson: Lesson,
    tokenizer: Tokenizer,
    vectors: np.ndarray | None,
    starts_from: Path | None,
    folder: Path,
) -> None:
    seed_everything(settings.seed)
    student = Student(config.arch, StudentSettings(**config.student), task.outputs, task.pair)
    if vectors is not None:
        student.embedding.start_from(vectors)
    if starts_from is not None:
        _start_from(student, settings, starts_from)
    pruner = pruning_companion(student, settings) if settings.prune_aware else None
    history = train_student(settings, task, student, tokenizer, lesson, folder, config.fingerprint, pruner)
    if pruner is not None:
        config = config.model_copy(update={"compression": {"sparsity": pruner.finish()}})
    save_student(folder, config, student, tokenizer, history)
    clear_training(folder)
