"""What a student starts from: its tokenizer, and vectors or layers that are there before training."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np

from common.data.split import load_split
from common.data.tasks import Task
from common.errors import UserError
from common.store.artifact import Artifact, artifact_at
from common.training.models import find_model, members_of, read_config
from compression.augmentation.preprocess import only_teacher
from compression.distillation.dataset import DistillationSet
from compression.distillation.settings import DistillSettings
from compression.students.embeddings import load_tokenizer
from compression.students.general_start import find_general, start_from_general
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.students.teacher_layers import check_layers
from compression.tokenizers import Tokenizer
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.bpe_files import cached_files, find_files, read_vectors
from compression.tokenizers.teacher_vectors import find_teacher_vectors
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary


@dataclasses.dataclass(frozen=True)
class Start:
    """All that a student is before it has learned anything."""

    tokenizer: Tokenizer
    settings: StudentSettings
    """As they turn out: a vocabulary has the size it has."""
    vectors: np.ndarray | None
    """Pre-trained vectors of byte pairs, where there are any, [pieces, dim]."""
    inside: Path | None
    """The teacher whose layers are copied or aligned with; None where nothing is."""
    general: Path | None
    """The general student that it starts from."""

    def read_before(self) -> tuple[str, ...]:
        """Tasks whose rows the general student has read."""
        return read_config(self.general).trained_on if self.general else ()

    def give(self, student: Student, settings: DistillSettings) -> None:
        """Put what there is into a fresh student, in place."""
        if self.vectors is not None:
            student.embedding.start_from(self.vectors)
        if settings.init_from_teacher and self.inside is not None:
            from compression.students.teacher_start import layers_to_copy, start_from_teacher

            layers = layers_to_copy(settings.init_from_teacher, len(student.encoder.blocks), self.inside)
            start_from_teacher(student, self.settings, layers, self.inside)
        if self.general is not None:
            start_from_general(student, self.general)


def start_inputs(settings: DistillSettings, task: Task) -> dict[str, Artifact]:
    """Return the artifacts and files that a student is initialised with. Raises UserError for one that is missing.

    Byte pairs trained on the task's own text are not among them: its rows are inputs already.
    """
    inputs = {}
    if settings.start_from:
        inputs["general"] = artifact_at(_general(settings, task))
    elif settings.embedding_type == "bpe":
        own = settings.bpe_model, settings.bpe_vectors
        model, vectors = (
            own
            if all(own)
            else cached_files(settings.vocab_size, settings.embedding_dim, settings.bpe_source) or (None, None)
        )
        if model and vectors:
            inputs |= {"bpe_model": Artifact.of_file(model), "bpe_vectors": Artifact.of_file(vectors)}
    needs_vocabulary = settings.embedding_type == "wordpiece" and not settings.start_from
    if needs_vocabulary or settings.embedding_init == "teacher" or settings.init_from_teacher or settings.aligns:
        learns_from_teacher = settings.alpha < 1 or not settings.only_original_data
        teacher = (settings.teacher or only_teacher(settings.paths, task)) if learns_from_teacher else None
        inputs["teacher"] = artifact_at(_teacher_folder(settings, task, teacher))
    return inputs


def find_start(settings: DistillSettings, task: Task, rows: DistillationSet) -> Start:
    """What a student starts from; byte pairs are made from all that it learns from, `rows`.

    Raises UserError for a teacher that is not there, or does not fit.
    """
    general = _general(settings, task) if settings.start_from else None
    tokenizer, student, vectors = _tokenizer(settings, task, rows, general)
    inside = _looked_into(settings, task, rows.teacher)
    if general and inside and teacher_vocabulary(inside).pieces != tokenizer.pieces:
        raise UserError(f"{general.name} has other word pieces than {inside.name}: nothing can be aligned")
    return Start(tokenizer, student, vectors, inside, general)


def _general(settings: DistillSettings, task: Task) -> Path:
    return find_general(settings.paths, str(settings.start_from), settings.student_arch, settings.student(), task.name)


def _tokenizer(
    settings: DistillSettings, task: Task, rows: DistillationSet, general: Path | None
) -> tuple[Tokenizer, StudentSettings, np.ndarray | None]:
    """The tokenizer, the student's settings as they turn out, and pre-trained vectors where there are any.

    rows: what the student learns from; byte pairs are made from all of it.
    """
    student = settings.student()
    if general is not None:
        student = student.model_copy(update={"vocab_size": read_config(general).student["vocab_size"]})
        return load_tokenizer(student, general), student, None
    if student.embedding_type == "wordpiece":
        folder = _teacher_folder(settings, task, rows.teacher)
        # Of an ensemble the first member's: it has none of its own.
        tokenizer = teacher_vocabulary((members_of(folder) or [folder])[0]).tokenizer(student.max_tokens)
        return tokenizer, student.model_copy(update={"vocab_size": len(tokenizer.pieces)}), None
    if student.embedding_type != "bpe":
        return load_tokenizer(student, Path()), student, None
    own, sentences = (
        list(itertools.chain.from_iterable(split.sentences()))
        for split in (load_split(settings.paths, task, "train"), rows.split)
    )
    by_teacher = settings.embedding_init == "teacher"
    if student.bpe_model is not None and student.bpe_vectors is not None:
        model_file, vector_file = student.bpe_model, student.bpe_vectors
    else:
        wanted = student.vocab_size, student.embedding_dim, student.bpe_source
        model_file, vector_file = find_files(*wanted, sentences, settings.paths.bpe(task.name), own, not by_teacher)
    tokenizer = BpeTokenizer(model_file, student.max_tokens)
    if by_teacher:
        vectors = _by_teacher(settings, task, rows.teacher, tokenizer)
    else:  # a model of the user's own may have unused pieces
        vectors = read_vectors(vector_file, model_file, student.embedding_dim)[tokenizer.kept]
    # The saved settings must not point outside the student's folder; a vocabulary of the user's own sets its size.
    student = student.model_copy(update={"vocab_size": len(vectors), "bpe_model": None, "bpe_vectors": None})
    return tokenizer, student, vectors


def _teacher_folder(settings: DistillSettings, task: Task, teacher: str | None) -> Path:
    """Raises UserError where no teacher takes part, or is not there any more."""
    if teacher is None:
        raise UserError("no teacher takes part where labels alone are learned from, and its vocabulary is asked for")
    return find_model(settings.paths, task, teacher)[0]


def _looked_into(settings: DistillSettings, task: Task, teacher: str | None) -> Path | None:
    """The teacher whose layers are copied or aligned with, checked; None where nothing asks for them."""
    if not settings.init_from_teacher and not settings.aligns:
        return None
    folder = _teacher_folder(settings, task, teacher)
    if settings.init_from_teacher:
        from compression.students.teacher_start import check_start

        check_start(settings, settings.student_arch, folder)
    if settings.aligns:
        from compression.distillation.alignment import check_alignment

        told = check_layers("--align", settings, settings.student_arch, folder)
        check_alignment(settings, told, folder.name)
    return folder


def _by_teacher(settings: DistillSettings, task: Task, teacher: str | None, tokenizer: BpeTokenizer) -> np.ndarray:
    folder = _teacher_folder(settings, task, teacher)
    place = settings.paths.bpe(task.name)
    return find_teacher_vectors(tokenizer.pieces, folder, settings.embedding_dim, place, settings.cpu)
