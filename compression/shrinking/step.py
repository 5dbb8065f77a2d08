"""The base class of the steps that make a student smaller, and the context in which they change it."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pydantic
import torch

from common.config import Settings, build
from common.data.split import Split
from common.data.tasks import Task, load_task
from common.seeds import seed_everything
from common.store.artifact import Artifact, artifact_at
from common.store.files import fingerprint
from common.store.step import Context, Inputs, Step
from common.store.workspace import Workspace
from common.teachers.guided import held_out_inputs, learning_inputs
from common.teachers.layers import layers_config
from common.training.loop import Callback
from common.training.metrics import main_score
from common.training.models import ModelConfig, read_config
from compression.distillation.alignment import Aligner, alignment_flag, check_alignment, check_pieces, load_aligner
from compression.distillation.dataset import (
    DistillationSet,
    distillation_set,
    distillation_text,
    find_teacher,
    held_out_rows,
    runnable_teacher,
)
from compression.distillation.settings import AlignSettings, LossSettings, RowsSettings, TrainSettings
from compression.distillation.trainer import train_student
from compression.packing import pack
from compression.shrinking.settings import OF_TUNING, CompressSettings, TuneSettings
from compression.students.init import check_layers
from compression.students.saved import load_student, save_student
from compression.students.scoring import encode_split, student_logits
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers import Tokenizer

CPU = torch.device("cpu")


@dataclasses.dataclass
class CompressionContext:
    """A loaded student, and the data needed to train, score and pack it."""

    step: Shrink
    inputs: Inputs
    """Those of the step."""
    running: Context
    """How the step runs; its `work` and `key` are those of the student's training."""
    parent: ModelConfig
    student: Student
    """Changed in place, or replaced."""
    tokenizer: Tokenizer
    widths: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The student's settings that changed: the widths of matrices that shrank."""
    history: list[dict[str, Any]] | None = None
    """Epochs of tuning; None without tuning."""

    @property
    def name(self) -> str:
        """Name of the student being built."""
        return self.running.name

    def tune(self, *callbacks: Callback, running: Context | None = None) -> None:
        """Train the student for --tune-epochs and keep its best weights. Does nothing if the step has no tuning.

        It learns from the step's distillation set, with the logits of the teacher or of the student before it was
        changed, and from the teacher's hidden states and attention if these are aligned. running: for one of several
        trainings of a step, with its own `work` and `key`. Raises UserError if the student as it is now cannot be
        aligned with the teacher.
        """
        step, tuning = self.step, self.step.tuning
        if tuning is None:
            return
        if tuning.guide == "student":
            text = self.text()
            parent, tokenizer, _ = load_student(self.inputs["parent"], CPU)
            logits = student_logits(parent, encode_split(tokenizer, text), CPU, f"{self.parent.name} guides")
            rows = DistillationSet(text, logits, bool(step.rows.augmented_sets))
        else:
            rows = distillation_set(self.inputs, step.task, step.rows, step.seed, self.parent.learned_validation)
        self.history = train_student(
            settings=tuning.train,
            objective=tuning.objective,
            seed=step.seed,
            task=step.task,
            student=self.student,
            tokenizer=self.tokenizer,
            rows=rows,
            held_out=None if self.parent.learned_validation else self.held_out,
            context=running or self.running,
            callbacks=callbacks,
            aligner=self._aligner(tuning.align, tuning.train.epochs) if tuning.align else None,
        )

    def _aligner(self, align: AlignSettings, epochs: int) -> Aligner:
        """Return the alignment losses of the current student, whose layers and heads may be fewer than its parent's."""
        shape, arch, teacher = build(StudentSettings, self.student_settings()), self.parent.arch, self.inputs["teacher"]
        name = self.running.names["teacher"]
        check_alignment(align, arch, shape, layers_config(teacher), name)
        check_pieces(self.parent.name, self.tokenizer, teacher, name)
        # Projections between different widths must not depend on the trainings before, which may have been resumed.
        seed_everything(self.step.seed)
        return load_aligner(align, arch, shape, teacher, epochs, self.running.cpu)

    def text(self, augmented: bool = True) -> Split:
        """Return the rows to learn from, with augmented ones or without."""
        rows, seed = self.step.rows, self.step.seed
        return distillation_text(self.inputs, rows, seed, self.parent.learned_validation, augmented)[0]

    @functools.cached_property
    def held_out(self) -> Split:
        """The held-out rows: validation's labelled ones, or if none is, all with the teacher's labels."""
        return held_out_rows(self.inputs, self.step.task, self.step.task.selection_split(self.step.select_on))

    def logits(self, rows: Split) -> np.ndarray:
        """Return the current student's logits, float32 [n, outputs]."""
        return student_logits(self.student, encode_split(self.tokenizer, rows), CPU, "scoring")

    def score(self) -> float:
        """Return the current student's score by the task's main metric over the held-out rows."""
        return main_score(self.step.task, self.held_out.labels, self.logits(self.held_out), self.held_out.sentence2)

    def student_settings(self) -> dict[str, Any]:
        """Return the settings of the student as it is now."""
        return {**self.parent.student, **self.widths}

    def packed_size(self) -> int:
        """Return the size of the current student's packed file, in bytes."""
        config = self.parent.model_copy(update={"name": "", "student": self.student_settings()})
        return len(pack(self.student, self.tokenizer, config))


class Tuning(Settings):
    """How a student is trained while or after it is made smaller."""

    objective: LossSettings
    train: TrainSettings
    align: AlignSettings | None
    """How it is aligned with the teacher; None if it is not."""
    guide: Literal["teacher", "student"]

    @classmethod
    def of(cls, settings: CompressSettings) -> Tuning | None:
        """Return what the settings describe; None without --tune-epochs."""
        if not settings.tune_epochs:
            return None
        objective = settings.part(LossSettings).effective()
        return cls(
            objective=objective.model_copy(update={"alpha": 0.0}) if settings.guide == "student" else objective,
            train=TrainSettings(
                epochs=settings.tune_epochs,
                patience=settings.tune_epochs,
                lr=settings.tune_lr,
                **settings.model_dump(include=OF_TUNING),
            ),
            align=settings.part(AlignSettings).throughout() if settings.aligns_tuning else None,
            guide=settings.guide,
        )


class Shrink(Step):
    """Base class of the steps that make a student smaller. A field with a step's name holds its own settings."""

    stage: ClassVar[str]
    """Stage of the models it builds."""
    named: ClassVar[tuple[str, ...]] = ()
    """Settings that `label` shows."""

    seed: int = 0
    """0 if nothing is drawn: without tuning, and if all rows are read."""
    rows: RowsSettings = RowsSettings()
    """The defaults if nothing is drawn."""
    select_on: Literal["validation", "test"] = "validation"
    """Split whose rows select the epoch, or the bits."""
    tuning: Tuning | None
    task: Task = pydantic.Field(exclude=True)
    parent: Path = pydantic.Field(exclude=True)
    """Folder of the student to make smaller."""
    teacher: str | None = pydantic.Field(exclude=True)
    """Name of the teacher to learn from while tuning; None if there is none."""
    augmented: tuple[str, ...] = pydantic.Field(exclude=True)
    """Names of the augmented rows that the student learned from."""

    @classmethod
    def of(cls, settings: CompressSettings, parent: Path) -> Shrink:
        """Return the step that the settings describe."""
        task, tuning = load_task(settings.task), Tuning.of(settings)
        step = cls(
            tuning=tuning,
            task=task,
            parent=parent,
            teacher=find_teacher(settings, task) if tuning and tuning.guide == "teacher" else None,
            augmented=settings.augmented_sets,
            **{cls.kind(): settings.part(cls.group())},
        )
        changes: dict[str, Any] = {}
        draws = min(settings.downsample_data, settings.bootstrap_data_ratio) < 1
        if tuning or (draws and step.reads() & {"text", "train"}):
            changes |= {"rows": settings.part(RowsSettings), "seed": settings.seed}
        if tuning or "held out" in step.reads():
            changes["select_on"] = settings.select_on
        return step.model_copy(update=changes)

    @classmethod
    def group(cls) -> type[Settings]:
        """Return the class of the step's own settings."""
        return cls.model_fields[cls.kind()].annotation

    @classmethod
    def label(cls, settings: CompressSettings) -> str:
        """Return the readable part of `suffix`."""
        raise NotImplementedError

    @classmethod
    def suffix(cls, settings: CompressSettings) -> str:
        """Return the suffix of a student's name; four digits of a hash stand for settings that `label` omits."""
        groups: list[Settings] = [settings.part(cls.group())]
        if settings.tune_epochs:
            groups.append(settings.part(TuneSettings))
        if settings.aligns_tuning:
            groups.append(settings.part(AlignSettings).throughout())
        changed = [group.model_dump(mode="json", exclude_defaults=True) for group in groups]
        others = {key: value for values in changed for key, value in values.items() if key not in cls.named}
        return cls.label(settings) + (f"-{fingerprint(others)[:4]}" if others else "")

    def reads(self) -> set[str]:
        """Return the kinds of rows that the step reads, in addition to those of tuning.

        text: all training text, to count tokens; train: train rows, to measure the student on; held out: the rows that
        select the epoch.
        """
        raise NotImplementedError

    def apply(self, context: CompressionContext) -> dict[str, Any]:
        """Make a student smaller in place, and tune it. Returns the results to record in its config."""
        raise NotImplementedError

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the student to make smaller, the rows and logits that are read, and the teacher to align with.

        Raises UserError if something is missing, or if the student has no layers to align.
        """
        parent, reads, tuning = read_config(self.parent), self.reads(), self.tuning
        inputs = {"parent": artifact_at(self.parent)}
        if tuning:
            inputs |= learning_inputs(paths, self.task, self.augmented, self.teacher, parent.learned_validation)
            if tuning.align:
                flag, shape = alignment_flag(tuning.align), build(StudentSettings, parent.student)
                folder = runnable_teacher(paths, self.task, flag, self.teacher)
                inputs["teacher"] = artifact_at(folder)
                check_layers(flag, shape, parent.arch, folder)
        elif reads:
            augmented = self.augmented if "text" in reads and parent.augmented else ()
            inputs |= learning_inputs(paths, self.task, augmented)
        if tuning or "held out" in reads:
            inputs |= held_out_inputs(paths, self.task, self.task.selection_split(self.select_on), parent.teacher)
        return inputs

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Load the student, change it, and save the result with all of its weights."""
        seed_everything(self.seed)
        student, tokenizer, parent = load_student(inputs["parent"], CPU)
        parent = parent.model_copy(update={"name": context.names["parent"]})
        changed = CompressionContext(self, inputs, context, parent, student, tokenizer)
        compression = parent.compression | self.apply(changed)
        save_student(out, changed.student, changed.tokenizer, changed.history)
        facts = parent.facts()
        for name in ("base", "base_key", "trained_parameters"):
            facts.pop(name)
        return facts | {"stage": self.stage, "student": changed.student_settings(), "compression": compression}
