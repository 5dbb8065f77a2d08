"""Distillation: a student learns a teacher's logits, the labels, or both."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pydantic
import torch

from common.data.split import Split, find_splits
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.seeds import seed_everything
from common.store.artifact import Artifact, artifact_at
from common.store.step import Context, Inputs, Step
from common.store.workspace import Workspace
from common.teachers.guided import held_out_inputs, learning_inputs
from common.teachers.layers import layers_config
from common.teachers.step import answers_of
from common.training.distillation_losses import check_loss
from common.training.loop import trained_parameters
from common.training.models import GENERAL, find_model, members_of, model_folder, read_config
from compression.distillation.alignment import alignment_flag, check_alignment, check_pieces, load_aligner
from compression.distillation.dataset import (
    distillation_set,
    distillation_text,
    find_teacher,
    held_out_rows,
    runnable_teacher,
)
from compression.distillation.pruning import pruning_callback
from compression.distillation.settings import (
    AlignSettings,
    DistillSettings,
    InitSettings,
    LossSettings,
    PruneSettings,
    RowsSettings,
    TrainSettings,
)
from compression.distillation.token_cache import cached_tokens
from compression.distillation.trainer import train_student
from compression.runtime import TRANSFORMERS
from compression.students.embeddings import load_tokenizer
from compression.students.init import (
    check_layers,
    check_start,
    find_general,
    freeze_all_but_adapters,
    layers_to_copy,
    start_from_general,
    start_from_teacher,
)
from compression.students.saved import load_student, save_student
from compression.students.scoring import encode_split, student_logits
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.students.threshold import fit_packed
from compression.tokenizers import Tokenizer
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.bpe_files import cached_files, find_files, read_vectors
from compression.tokenizers.ngrams import choose_ngrams
from compression.tokenizers.teacher_vectors import find_teacher_vectors, logit_vectors
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary


class Distill(Step):
    """A student, trained from its initial weights."""

    version: ClassVar[int] = 8

    task: str
    seed: int
    student: StudentSettings
    objective: LossSettings
    rows: RowsSettings
    train: TrainSettings
    init: InitSettings
    align: AlignSettings | None
    """How it is aligned with the teacher; None if it is not."""
    prune: PruneSettings | None
    """How it is pruned while it is trained; None without --prune-aware."""
    definition: Task = pydantic.Field(exclude=True)
    teacher: str | None = pydantic.Field(exclude=True)
    """Name of the teacher to learn from; None if only labels are learned from."""
    general: str | None = pydantic.Field(exclude=True)
    """Folder of the student to start from, from the workspace."""
    own_pieces: tuple[Path, Path] | None = pydantic.Field(exclude=True)
    """The user's own byte pairs: --bpe-model and --bpe-vectors."""

    @classmethod
    def of(cls, settings: DistillSettings) -> Distill:
        """Return the step that the settings describe."""
        task = load_task(settings.task)
        # The user's own byte-pair files are inputs, identified by their content.
        student = settings.part(StudentSettings).model_copy(update={"bpe_model": None, "bpe_vectors": None})
        general = model_folder(settings.paths, GENERAL, settings.start_from) if settings.start_from else None
        return cls(
            task=task.name,
            seed=settings.seed,
            student=student,
            objective=settings.part(LossSettings).effective(),
            rows=settings.part(RowsSettings),
            train=settings.part(TrainSettings),
            init=settings.part(InitSettings),
            align=settings.part(AlignSettings) if settings.aligns else None,
            prune=settings.part(PruneSettings).of_weights() if settings.prune_aware else None,
            definition=task,
            teacher=find_teacher(settings, task),
            general=settings.paths.relative(general) if general else None,
            own_pieces=(settings.bpe_model, settings.bpe_vectors) if settings.bpe_model else None,
        )

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the rows, the teacher's logits, and the sources of the student's initial weights.

        Raises UserError if one is missing, or if the student's layers do not fit those that it is to learn from.
        """
        task, selection = self.definition, self.definition.selection_split(self.train.select_on)
        inputs = learning_inputs(paths, task, self.rows.augmented_sets, self.teacher, bool(self.train.refit))
        inputs |= held_out_inputs(paths, task, selection, self.teacher)
        if self.train.refit:
            folder, config = find_model(paths, task, self.train.refit)
            if config.kind != "student" or config.learned_validation:
                raise UserError(f"--refit {config.name}: not a student that was trained without validation's rows")
            inputs["refit"] = artifact_at(folder)
        return inputs | self._initial_inputs(paths)

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Train the student and save its best weights; a stopped run is resumed."""
        init, task, arch = self.init, self.definition, self.objective.student_arch
        general, teacher = inputs.get("general"), inputs.get("teacher")
        rows = distillation_set(inputs, task, self.rows, self.seed, bool(self.train.refit))
        held_out = held_out_rows(inputs, task, task.selection_split(self.train.select_on))
        calibration = _calibration(inputs["refit"], held_out) if self.train.refit else None
        tokenizer, shape, vectors = self._tokenizer_and_vectors(rows.split, inputs, context)
        if init.embedding_init == "logits" and rows.logits is not None:
            texts = cached_tokens(context.cache / "tokens", tokenizer, rows.split).text
            vectors = logit_vectors(texts, rows.logits, shape.vocab_size, shape.embedding_dim, self.seed)
        if general is not None and teacher is not None:
            check_pieces(context.names["general"], tokenizer, teacher, context.names["teacher"])
        facts: dict[str, Any] = {
            "kind": "student",
            "stage": "distilled",
            **answers_of(task),
            "f1": "f1" in task.all_metrics or task.unanswerable,
            "arch": arch,
            "seed": self.seed,
            "select_on": "none" if self.train.refit else self.train.select_on,
            "calibration": calibration,
            "teacher": self.teacher,
            "trained_on": tuple(sorted({task.name, *(read_config(general).trained_on if general else ())})),
            "alpha": self.objective.alpha,
            "augmented": rows.augmented,
            "student": shape.model_dump(mode="json"),
        }
        seed_everything(self.seed)
        student = Student(arch, shape, task.outputs, task.pair, task.kind.by_word)
        if vectors is not None:
            student.embedding.table.weight.value.data.copy_(torch.from_numpy(vectors.copy()))
        if init.init_from_teacher and teacher is not None:
            depth = layers_config(teacher)["num_hidden_layers"]
            layers = layers_to_copy(init.init_from_teacher, len(student.encoder.blocks), depth)
            start_from_teacher(student, shape, layers, teacher)
        if general is not None:
            start_from_general(student, general)
        base = general if init.adapter_tuning else None
        if base is not None:
            freeze_all_but_adapters(student)
            facts |= {"base": self.general, "base_key": read_config(base).key}
            facts["trained_parameters"] = trained_parameters(student)
        pruner = None if self.prune is None else pruning_callback(student, self.prune)
        aligner = None
        if self.align is not None and teacher is not None:
            aligner = load_aligner(self.align, arch, shape, teacher, self.train.epochs, context.cpu)
        history = train_student(
            settings=self.train,
            objective=self.objective,
            seed=self.seed,
            task=task,
            student=student,
            tokenizer=tokenizer,
            rows=rows,
            held_out=None if self.train.refit else held_out,
            context=context,
            callbacks=[] if pruner is None else [pruner],
            aligner=aligner,
        )
        if pruner is not None:
            facts["compression"] = {"sparsity": pruner.finish()}
        save_student(out, student, tokenizer, history, base)
        return facts

    def _initial_inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the artifacts and files that a student is initialised with. Raises UserError if one does not fit.

        Byte pairs trained on the task's own text are not included: its rows are inputs already.
        """
        inputs, init, student, task = {}, self.init, self.student, self.definition
        arch, align = self.objective.student_arch, self.align
        if init.start_from:
            inputs["general"] = artifact_at(find_general(paths, init.start_from, arch, student, task))
        elif student.embedding_type == "bpe":
            pieces = self.own_pieces or cached_files(student.vocab_size, student.embedding_dim, student.bpe_source)
            if pieces:
                inputs |= {"bpe_model": Artifact.of_file(pieces[0]), "bpe_vectors": Artifact.of_file(pieces[1])}
        if init.embedding_init not in ("vectors", "teacher", "logits", "random"):
            flag = f"--embedding-init {init.embedding_init}"
            inputs["embedding"] = artifact_at(runnable_teacher(paths, task, flag, init.embedding_init))
        flag = self._teacher_flag()
        if flag:
            folder = runnable_teacher(paths, task, flag, self.teacher)
            inputs["teacher"] = artifact_at(folder)
            if init.init_from_teacher:
                check_start(student, arch, folder)
            if align is not None:
                check_alignment(align, arch, student, check_layers(flag, student, arch, folder), folder.name)
        return inputs

    def _teacher_flag(self) -> str:
        """Return the first flag that needs the teacher model, not only its logits; empty if none does."""
        init, align = self.init, self.align
        if self.student.embedding_type == "wordpiece" and not init.start_from:
            return "--embedding-type wordpiece"
        if init.embedding_init == "teacher":
            return "--embedding-init teacher"
        if init.init_from_teacher:
            return "--init-from-teacher"
        return "" if align is None else alignment_flag(align)

    def _tokenizer_and_vectors(
        self, rows: Split, inputs: Inputs, context: Context
    ) -> tuple[Tokenizer, StudentSettings, np.ndarray | None]:
        """Return the tokenizer, the student's settings with the vocabulary's real size, and any pre-trained vectors.

        rows: all training rows, from which byte pairs are built; n-grams are chosen by the task's own.
        """
        student, init, vectors = self.student, self.init.embedding_init, None
        if "general" in inputs:
            folder = inputs["general"]
            student = student.model_copy(update={"vocab_size": read_config(folder).student["vocab_size"]})
            return load_tokenizer(student, folder), student, None
        if student.embedding_type in ("char", "hash"):
            return load_tokenizer(student, Path()), student, None
        cache = context.cache / student.embedding_type
        if student.embedding_type == "wordpiece":
            folder = inputs["teacher"]
            # An ensemble has the vocabulary of its first member.
            tokenizer = teacher_vocabulary((members_of(folder) or [folder])[0]).tokenizer(student.max_tokens)
        elif student.embedding_type == "ngrams":
            train, _ = distillation_text(inputs, self.rows, self.seed, bool(self.train.refit), augmented=False)
            # The teacher labels the training rows of a task without labels.
            labelled = train if train.labelled.any() else rows
            tokenizer = choose_ngrams(labelled, student.vocab_size, student.max_tokens, student.ngrams)
        else:
            if "bpe_model" in inputs:
                model_file, vector_file = inputs["bpe_model"], inputs["bpe_vectors"]
            else:
                train, _ = distillation_text(inputs, self.rows, self.seed, bool(self.train.refit), augmented=False)
                model_file, vector_file = find_files(
                    student.vocab_size,
                    student.embedding_dim,
                    student.bpe_source,
                    sentences=rows.texts(),
                    folder=cache,
                    for_vectors=train.texts(),
                    with_vectors=init == "vectors",
                )
            tokenizer = BpeTokenizer(model_file, student.max_tokens)
            if init == "vectors":  # the user's own model may have pieces that the tokenizer leaves out
                vectors = read_vectors(vector_file, model_file, student.embedding_dim)[tokenizer.kept]
        source = inputs["teacher"] if init == "teacher" else inputs.get("embedding")
        if source is not None:
            texts = tokenizer.texts if student.embedding_type == "ngrams" else tokenizer.pieces
            vectors = find_teacher_vectors(texts, source, student.embedding_dim, cache, context.cpu)
        # The user's own vocabulary sets vocab_size.
        return tokenizer, student.model_copy(update={"vocab_size": tokenizer.vocab_size}), vectors


def _calibration(folder: Path, rows: Split) -> dict[str, float]:
    """Return the temperature and the threshold of a student's probabilities. rows: that it has not learned from."""
    device = torch.device("cpu")
    student, tokenizer, config = load_student(folder, device)
    logits = student_logits(student, encode_split(tokenizer, rows), device, "calibration")
    return fit_packed(config, logits, rows.labels, rows.sentence2 or [])


def distill(settings: DistillSettings) -> Path:
    """Build a student and return its model folder; a finished run is reused, a stopped one is resumed."""
    task = load_task(settings.task)
    check_loss(task, settings.loss)
    attends = settings.attends or settings.student_arch in TRANSFORMERS
    task.kind.check_student(task, settings.student_arch, attends, settings.symmetric)
    if not task.pair and (settings.attends or settings.symmetric):
        flag = "--symmetric" if settings.symmetric else f"--pair-encoder {settings.pair_encoder}"
        raise UserError(f"{flag} is for pairs of texts, but {task.name} has single texts")
    if settings.embedding_init == "logits" and (task.pair or task.kind.by_word):
        raise UserError(f"--embedding-init logits is for labels of single texts, but {task.name} has others")
    find_splits(settings.paths, task)  # without these, the first command to run is not that of a teacher
    name = settings.model_name or student_name(settings)
    alias = settings.paths.model(task.name, name)
    return settings.paths.make(Distill.of(settings), settings.context(name), alias=alias).path


def student_name(settings: DistillSettings) -> str:
    """Return a name built from the settings that sweeps vary, such as bilstm-bpe25-a0-aug-s3201976."""
    share = "" if settings.bootstrap_data_ratio == 1 else f"{settings.bootstrap_data_ratio:g}"
    data = "orig" if settings.only_original_data else f"aug{share}"
    data += f"-rows{settings.downsample_data:g}" if settings.downsample_data < 1 else ""
    aware = "-pa" if settings.prune_aware else ""
    embedding = f"{settings.embedding_type}{settings.embedding_dim}"
    pairs = "" if settings.pair_encoder == "compare" else f"-{settings.pair_encoder}"
    return f"{settings.student_arch}{pairs}-{embedding}-a{settings.alpha:g}-{data}{aware}-s{settings.seed}"
