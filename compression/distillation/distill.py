"""Distillation: a student learns a teacher's logits, the labels, or both."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pydantic
import torch

from common.data.split import Split
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.seeds import seed_everything
from common.store.artifact import Artifact, artifact_at
from common.store.step import Context, Step
from common.store.workspace import Workspace
from common.teachers.layers import layers_config
from common.training.distillation_losses import check_loss
from common.training.loop import trained_parameters
from common.training.models import members_of, read_config
from compression.distillation.alignment import alignment_flag, check_pieces, check_teacher, load_aligner
from compression.distillation.callbacks import Pruner
from compression.distillation.dataset import (
    distillation_set,
    find_teacher,
    held_out_inputs,
    held_out_rows,
    learning_inputs,
    own_rows,
    runnable_teacher,
)
from compression.distillation.settings import DistillSettings, Recipe
from compression.distillation.trainer import TrainingData, train_student
from compression.students.embeddings import load_tokenizer
from compression.students.init import (
    check_start,
    find_general,
    freeze_all_but_adapters,
    layers_to_copy,
    start_from_general,
    start_from_teacher,
)
from compression.students.saved import save_student
from compression.students.settings import StudentSettings
from compression.students.spec import TRANSFORMERS
from compression.students.student import Student
from compression.tokenizers import Tokenizer
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.bpe_files import cached_files, find_files, read_vectors
from compression.tokenizers.teacher_vectors import find_teacher_vectors
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary

CreatePruner = Callable[[Student, DistillSettings], Pruner]


class Distill(Step):
    """A student, trained from its initial weights."""

    version: ClassVar[int] = 3

    task: str
    seed: int
    student: StudentSettings
    recipe: Recipe
    settings: DistillSettings = pydantic.Field(exclude=True)
    definition: Task = pydantic.Field(exclude=True)
    create_pruner: CreatePruner | None = pydantic.Field(exclude=True)
    """Creates the callback of --prune-aware."""

    @classmethod
    def of(cls, settings: DistillSettings, create_pruner: CreatePruner | None = None) -> Distill:
        """Return the step that the settings describe. create_pruner: needed to run it with --prune-aware."""
        task = load_task(settings.task)
        # The user's own byte-pair files are inputs, identified by their content.
        student = settings.student().model_copy(update={"bpe_model": None, "bpe_vectors": None})
        about = {"settings": settings, "definition": task, "create_pruner": create_pruner}
        return cls(task=task.name, seed=settings.seed, student=student, recipe=settings.recipe(), **about)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the rows, the teacher's logits, and the sources of the student's initial weights."""
        settings, task = self.settings, self.definition
        inputs = learning_inputs(settings, task)
        inputs |= held_out_inputs(settings, task, find_teacher(settings, task))
        return inputs | _initial_inputs(settings, task)

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Train the student and save its best weights; a stopped run is resumed."""
        settings, task = self.settings, self.definition
        general, teacher = (inputs[role].path if role in inputs else None for role in ("general", "teacher"))
        rows = distillation_set(settings, task)
        held_out = held_out_rows(settings, task, rows.teacher)
        tokenizer, shape, vectors = _tokenizer_and_vectors(settings, task, rows.split, inputs)
        if teacher is not None:
            _check_layers(settings, teacher, general, tokenizer)
        facts: dict[str, Any] = {
            "kind": "student",
            "stage": "distilled",
            "task": task.name,
            "labels": task.labels,
            "pair": task.pair,
            "task_kind": task.kind.name,
            "f1": "f1" in task.all_metrics or task.unanswerable,
            "arch": settings.student_arch,
            "seed": settings.seed,
            "select_on": settings.select_on,
            "teacher": rows.teacher,
            "trained_on": tuple(sorted({task.name, *(read_config(general).trained_on if general else ())})),
            "alpha": settings.alpha,
            "augmented": rows.augmented,
            "student": shape.model_dump(mode="json"),
        }
        seed_everything(settings.seed)
        student = Student(settings.student_arch, shape, task.outputs, task.pair, task.kind.by_word)
        if vectors is not None:
            student.embedding.table.weight.value.data.copy_(torch.from_numpy(vectors.copy()))
        if settings.init_from_teacher and teacher is not None:
            depth = layers_config(teacher)["num_hidden_layers"]
            layers = layers_to_copy(settings.init_from_teacher, len(student.encoder.blocks), depth)
            start_from_teacher(student, shape, layers, teacher)
        if general is not None:
            start_from_general(student, general)
        base = general if settings.adapter_tuning else None
        if base is not None:
            freeze_all_but_adapters(student)
            facts |= {"base": settings.paths.relative(base), "base_key": inputs["general"].key}
            facts["trained_parameters"] = trained_parameters(student)
        pruner = self.create_pruner(student, settings) if settings.prune_aware and self.create_pruner else None
        aligner = load_aligner(settings, teacher) if settings.aligns and teacher is not None else None
        callbacks = [] if pruner is None else [pruner]
        data, run = TrainingData(rows, held_out), (context.work, context.name, context.key)
        history = train_student(settings, task, student, tokenizer, data, *run, callbacks, aligner)
        if pruner is not None:
            facts["compression"] = {"sparsity": pruner.finish()}
        save_student(out, student, tokenizer, history, base)
        return facts


def distill(settings: DistillSettings, create_pruner: CreatePruner | None = None) -> Path:
    """Build a student and return its model folder; a finished run is reused, a stopped one is resumed.

    create_pruner: needed for --prune-aware only.
    """
    task = load_task(settings.task)
    check_loss(task, settings.loss)
    attends = settings.attends or settings.student_arch in TRANSFORMERS
    task.kind.check_student(task, settings.student_arch, attends, settings.symmetric)
    if not task.pair and (settings.attends or settings.symmetric):
        flag = "--symmetric" if settings.symmetric else f"--pair-encoder {settings.pair_encoder}"
        raise UserError(f"{flag} is for pairs of texts, but {task.name} has single texts")
    name = settings.model_name or student_name(settings)
    alias = settings.paths.model(task.name, name)
    return settings.paths.make(Distill.of(settings, create_pruner), settings.context(name), alias=alias).path


def student_name(settings: DistillSettings) -> str:
    """Return a name built from the settings that sweeps vary, such as bilstm-bpe25-a0-aug-s3201976."""
    share = "" if settings.bootstrap_data_ratio == 1 else f"{settings.bootstrap_data_ratio:g}"
    data = "orig" if settings.only_original_data else f"aug{share}"
    data += f"-rows{settings.downsample_data:g}" if settings.downsample_data < 1 else ""
    aware = "-pa" if settings.prune_aware else ""
    embedding = f"{settings.embedding_type}{settings.embedding_dim}"
    pairs = "" if settings.pair_encoder == "compare" else f"-{settings.pair_encoder}"
    return f"{settings.student_arch}{pairs}-{embedding}-a{settings.alpha:g}-{data}{aware}-s{settings.seed}"


def _initial_inputs(settings: DistillSettings, task: Task) -> dict[str, Artifact]:
    """Return the artifacts and files that a student is initialised with. Raises UserError if one is missing.

    Byte pairs trained on the task's own text are not included: its rows are inputs already.
    """
    inputs = {}
    if settings.start_from:
        about = settings.start_from, settings.student_arch, settings.student(), task
        inputs["general"] = artifact_at(find_general(settings.paths, *about))
    elif settings.embedding_type == "bpe":
        own = settings.bpe_model, settings.bpe_vectors
        cached = cached_files(settings.vocab_size, settings.embedding_dim, settings.bpe_source)
        if files := own if all(own) else cached:
            inputs |= {"bpe_model": Artifact.of_file(files[0]), "bpe_vectors": Artifact.of_file(files[1])}
    if (other := settings.embedding_init) not in ("vectors", "teacher", "random"):
        inputs["embedding"] = runnable_teacher(settings, task, f"--embedding-init {other}", other)
    if flag := _teacher_flag(settings):
        inputs["teacher"] = runnable_teacher(settings, task, flag)
    return inputs


def _teacher_flag(settings: DistillSettings) -> str:
    """Return the first flag that needs the teacher model, not only its logits; empty if none does."""
    if settings.embedding_type == "wordpiece" and not settings.start_from:
        return "--embedding-type wordpiece"
    if settings.embedding_init == "teacher":
        return "--embedding-init teacher"
    return "--init-from-teacher" if settings.init_from_teacher else alignment_flag(settings)


def _tokenizer_and_vectors(
    settings: DistillSettings, task: Task, rows: Split, inputs: dict[str, Artifact]
) -> tuple[Tokenizer, StudentSettings, np.ndarray | None]:
    """Return the tokenizer, the student's settings with the vocabulary's real size, and any pre-trained vectors.

    rows: all training rows, from which byte pairs are built.
    """
    student = settings.student()
    if "general" in inputs:
        folder = inputs["general"].path
        student = student.model_copy(update={"vocab_size": read_config(folder).student["vocab_size"]})
        return load_tokenizer(student, folder), student, None
    if student.embedding_type == "wordpiece":
        folder = inputs["teacher"].path
        # An ensemble has the vocabulary of its first member.
        tokenizer = teacher_vocabulary((members_of(folder) or [folder])[0]).tokenizer(student.max_tokens)
        return tokenizer, student.model_copy(update={"vocab_size": tokenizer.vocab_size}), None
    if student.embedding_type != "bpe":
        return load_tokenizer(student, Path()), student, None
    init, folder = settings.embedding_init, settings.paths.bpe(task.name)
    if "bpe_model" in inputs:
        model_file, vector_file = inputs["bpe_model"].path, inputs["bpe_vectors"].path
    else:
        texts = (own_rows(settings, task).sentences(), rows.sentences())
        own, sentences = (list(itertools.chain.from_iterable(columns)) for columns in texts)
        wanted = student.vocab_size, student.embedding_dim, student.bpe_source
        model_file, vector_file = find_files(*wanted, sentences, folder, own, init == "vectors")
    tokenizer = BpeTokenizer(model_file, student.max_tokens)
    vectors = None
    if teacher := inputs.get("embedding") or (inputs["teacher"] if init == "teacher" else None):
        teacher = teacher.path
        vectors = find_teacher_vectors(tokenizer.pieces, teacher, student.embedding_dim, folder, settings.cpu)
    elif init == "vectors":  # the user's own model may have unused pieces
        vectors = read_vectors(vector_file, model_file, student.embedding_dim)[tokenizer.kept]
    # The saved settings must not point outside the student's folder; the user's own vocabulary sets vocab_size.
    student = student.model_copy(update={"vocab_size": tokenizer.vocab_size, "bpe_model": None, "bpe_vectors": None})
    return tokenizer, student, vectors


def _check_layers(settings: DistillSettings, teacher: Path, general: Path | None, tokenizer: Tokenizer) -> None:
    """Raise UserError if the settings ask to copy or align with layers of the teacher that do not fit."""
    if settings.init_from_teacher:
        check_start(settings, settings.student_arch, teacher)
    if settings.aligns:
        check_teacher(settings, teacher)
    if general:
        check_pieces(general.name, tokenizer, teacher)
