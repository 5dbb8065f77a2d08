"""The base class of the steps that make a student smaller, and the context in which they change it."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pydantic
import torch

from common.config import Settings, build, later
from common.data.split import Split, find_rows, find_splits
from common.data.tasks import Task, load_task
from common.seeds import seed_everything
from common.store.artifact import Artifact, artifact_at
from common.store.files import fingerprint
from common.store.step import Context, Step
from common.store.workspace import Workspace
from common.training.metrics import main_score
from common.training.models import ModelConfig, read_config
from compression.distillation.alignment import Aligner, alignment_flag, check_pieces, check_teacher, load_aligner
from compression.distillation.callbacks import Callback
from compression.distillation.dataset import (
    DistillationSet,
    augmented_names,
    distillation_set,
    distillation_text,
    held_out_inputs,
    held_out_rows,
    learning_inputs,
    runnable_teacher,
)
from compression.distillation.settings import AlignSettings, LossSettings, RowsSettings, TrainSettings
from compression.distillation.trainer import TrainingData, train_student
from compression.packing import pack
from compression.shrinking.settings import CompressSettings, TuneSettings
from compression.students.init import check_arch
from compression.students.saved import load_student, save_student
from compression.students.scoring import encode_split, student_logits
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers import Tokenizer

CPU = torch.device("cpu")


@dataclasses.dataclass
class CompressionContext:
    """A loaded student, and the data needed to train, score and pack it."""

    settings: CompressSettings
    task: Task
    parent_folder: Path
    parent: ModelConfig
    student: Student
    """Changed in place, or replaced."""
    tokenizer: Tokenizer
    name: str
    """Name of the student being built."""
    work: Path
    """Folder for the state of an unfinished training."""
    key: str
    """Identity of that training."""
    teacher: Path | None = None
    """Folder of the teacher to align with while tuning; None if nothing is aligned."""
    widths: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The student's settings that changed: the widths of matrices that shrank."""
    history: list[dict[str, Any]] | None = None
    """Epochs of tuning; None without tuning."""

    def tune(self, *callbacks: Callback) -> None:
        """Train the student for --tune-epochs and keep its best weights. Does nothing for 0 epochs.

        It learns from the distillation set of the settings, with the logits of the teacher or of the student before it
        was changed, and from the teacher's hidden states and attention if these are aligned. Raises UserError if the
        teacher's logits are missing, or if the student as it is now cannot be aligned with the teacher.
        """
        settings, epochs = self.settings, self.settings.tune_epochs
        if epochs == 0:
            return
        recipe = {"epochs": epochs, "patience": epochs, "lr": settings.tune_lr, "align_first": 0}
        recipe |= {"optimizer": "adamw", "schedule": "linear", "weight_decay": 0.0, "average_epochs": 1}
        if settings.guide == "student":
            recipe["alpha"] = 0.0
            text, _ = distillation_text(settings, self.task)
            parent, tokenizer, _ = load_student(self.parent_folder, CPU)
            logits = student_logits(parent, encode_split(tokenizer, text), CPU, f"{self.parent.name} guides")
            rows = DistillationSet(text, logits, None, not settings.only_original_data)
        else:
            rows = distillation_set(settings, self.task)
        settings, data = settings.model_copy(update=recipe), TrainingData(rows, self.held_out)
        hooks = callbacks, self._aligner(settings, self.teacher) if self.teacher else None
        state = self.work, self.name, self.key
        self.history = train_student(settings, self.task, self.student, self.tokenizer, data, *state, *hooks)

    def _aligner(self, settings: CompressSettings, teacher: Path) -> Aligner:
        """Return the alignment losses of the current student, whose layers and heads may be fewer than its parent's."""
        shape = {**self.student_settings(), "student_arch": self.parent.arch}
        settings = settings.model_copy(update=shape)
        check_teacher(settings, teacher)
        check_pieces(self.parent.name, self.tokenizer, teacher)
        # Projections between different widths must not depend on the trainings before, which may have been resumed.
        seed_everything(settings.seed)
        return load_aligner(settings, teacher)

    @functools.cached_property
    def held_out(self) -> Split:
        """The held-out rows: validation's labelled ones, or if none is, all with the teacher's labels."""
        return held_out_rows(self.settings, self.task, self.parent.teacher)

    def logits(self, rows: Split) -> np.ndarray:
        """Return the current student's logits, float32 [n, outputs]."""
        return student_logits(self.student, encode_split(self.tokenizer, rows), CPU, "scoring")

    def score(self) -> float:
        """Return the current student's score by the task's main metric over the held-out rows."""
        return main_score(self.task, self.held_out.labels, self.logits(self.held_out), self.held_out.sentence2)

    def student_settings(self) -> dict[str, Any]:
        """Return the current student's own settings."""
        return {**self.parent.student, **self.widths}

    def packed_size(self) -> int:
        """Return the size of the current student's packed file, in bytes."""
        config = self.parent.model_copy(update={"name": self.name, "student": self.student_settings()})
        return len(pack(self.student, self.tokenizer, config))


class Shrink(Step):
    """Base class of the steps that make a student smaller. A field with a step's name holds its own settings."""

    stage: ClassVar[str]
    """Stage of the models it builds."""
    named: ClassVar[tuple[str, ...]] = ()
    """Settings that `label` shows."""

    seed: int
    tune: TuneSettings | None
    """How it is trained afterwards. None without --tune-epochs, as are the next four."""
    objective: LossSettings | None
    rows: RowsSettings | None
    """Also given if the step reads training rows of which only a share is drawn."""
    train: TrainSettings | None
    align: AlignSettings | None = later(None)
    """How it is aligned with the teacher; None if it is not."""
    settings: CompressSettings = pydantic.Field(exclude=True)
    task: Task = pydantic.Field(exclude=True)
    parent: Path = pydantic.Field(exclude=True)
    """Folder of the student to make smaller."""

    @classmethod
    def of(cls, settings: CompressSettings, parent: Path, name: str = "") -> Shrink:
        """Return the step that the settings describe. name: of the student that it builds."""
        groups = {"tune": TuneSettings, "objective": LossSettings, "rows": RowsSettings, "train": TrainSettings}
        tuning = {field: settings.part(group) if settings.tune_epochs else None for field, group in groups.items()}
        tuning["align"] = settings.part(AlignSettings) if settings.aligns_tuning else None
        own = {cls.kind(): settings.part(cls.group()), **cls.more(settings, name)}
        about = {"seed": settings.seed, "settings": settings, "task": load_task(settings.task), "parent": parent}
        step = cls(**about, **tuning, **own)
        if settings.draws_a_share and step.reads() & {"text", "train"}:
            return step.model_copy(update={"rows": settings.part(RowsSettings)})
        return step

    @classmethod
    def group(cls) -> type[Settings]:
        """Return the class of the step's own settings."""
        return cls.model_fields[cls.kind()].annotation

    @classmethod
    def more(cls, settings: CompressSettings, name: str) -> dict[str, Any]:
        """Return the values of a subclass's further fields. name: of the student that is built."""
        return {}

    @classmethod
    def label(cls, settings: CompressSettings) -> str:
        """Return the readable part of `suffix`."""
        raise NotImplementedError

    @classmethod
    def suffix(cls, settings: CompressSettings) -> str:
        """Return the suffix of a student's name; four digits of a hash stand for settings that `label` omits."""
        groups = [cls.group(), *([TuneSettings] if settings.tune_epochs else [])]
        groups += [AlignSettings] if settings.aligns_tuning else []
        changed = [settings.part(group).model_dump(mode="json", exclude_defaults=True) for group in groups]
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
        settings, parent, reads = self.settings, read_config(self.parent), self.reads()
        inputs = {"parent": artifact_at(self.parent)}
        if self.tune or reads:
            inputs["splits"] = find_splits(paths, self.task)
        if self.tune:
            inputs |= learning_inputs(settings, self.task, guided=settings.guide == "teacher")
            if self.align:
                flag = alignment_flag(self.align)
                check_arch(flag, build(StudentSettings, parent.student), parent.arch)
                inputs["teacher"] = runnable_teacher(settings, self.task, flag)
        elif "text" in reads and parent.augmented:
            inputs |= {f"rows {name}": find_rows(paths, self.task, name) for name in augmented_names(settings)}
        if self.tune or "held out" in reads:
            inputs |= held_out_inputs(settings, self.task, parent.teacher)
        return inputs

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Load the student, change it, and save the result with all of its weights."""
        seed_everything(self.seed)
        student, tokenizer, parent = load_student(self.parent, CPU)
        training = context.name, context.work, context.key, inputs["teacher"].path if self.align else None
        changed = CompressionContext(self.settings, self.task, self.parent, parent, student, tokenizer, *training)
        compression = parent.compression | self.apply(changed)
        save_student(out, changed.student, changed.tokenizer, changed.history)
        facts = parent.facts()
        for name in ("base", "base_key", "trained_parameters"):
            facts.pop(name)
        return facts | {"stage": self.stage, "student": changed.student_settings(), "compression": compression}
