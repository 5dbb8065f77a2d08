"""Distillation: a student learns a teacher's logits, the labels, or both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

from common.data.tasks import Task, load_task
from common.devices import pick_device
from common.errors import UserError
from common.seeds import seed_everything
from common.store.artifact import Artifact
from common.store.step import Context, Step
from common.store.workspace import Workspace
from common.training.loop import trained_parameters
from compression.distillation.callbacks import Pruner
from compression.distillation.dataset import distillation_set, held_out_rows, learning_inputs
from compression.distillation.settings import DistillSettings, Recipe
from compression.distillation.start import find_start, start_inputs
from compression.distillation.trainer import TrainingData, train_student
from compression.students.general_start import freeze_all_but_adapters
from compression.students.saved import save_student
from compression.students.settings import StudentSettings
from compression.students.student import Student

if TYPE_CHECKING:
    from compression.distillation.alignment import Aligner

CreatePruner = Callable[[Student, DistillSettings], Pruner]


class Distill(Step):
    """A student, trained from its initial weights."""

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
        # Own byte pairs count by their content, as inputs.
        student = settings.student().model_copy(update={"bpe_model": None, "bpe_vectors": None})
        about = {"settings": settings, "definition": task, "create_pruner": create_pruner}
        return cls(task=task.name, seed=settings.seed, student=student, recipe=settings.recipe(), **about)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return rows, logits, and whatever the student is initialised with."""
        return learning_inputs(self.settings, self.definition) | start_inputs(self.settings, self.definition)

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Train the student and save its best weights; a stopped run continues."""
        settings, task = self.settings, self.definition
        rows = distillation_set(settings, task)
        held_out = held_out_rows(settings, task, rows.teacher)
        start = find_start(settings, task, rows)
        facts: dict[str, Any] = {
            "kind": "student",
            "stage": "distilled",
            "task": task.name,
            "labels": task.labels,
            "pair": task.pair,
            "tokens": task.tokens,
            "arch": settings.student_arch,
            "seed": settings.seed,
            "select_on": settings.select_on,
            "teacher": rows.teacher,
            "trained_on": tuple(sorted({task.name, *start.read_before()})),
            "alpha": settings.alpha,
            "augmented": rows.augmented,
            "student": start.settings.model_dump(mode="json"),
        }
        seed_everything(settings.seed)
        student = Student(settings.student_arch, start.settings, task.outputs, task.pair, task.tokens)
        start.give(student, settings)
        general = start.general if settings.adapter_tuning else None
        if general is not None:
            freeze_all_but_adapters(student)
            facts |= {"base": settings.start_from, "base_key": inputs["general"].key}
            facts["trained_parameters"] = trained_parameters(student)
        pruner = self.create_pruner(student, settings) if settings.prune_aware and self.create_pruner else None
        aligner = _aligner(settings, start.inside) if settings.aligns and start.inside else None
        callbacks = [] if pruner is None else [pruner]
        data = TrainingData(rows, held_out)
        place = context.work, context.name, context.key
        history = train_student(settings, task, student, start.tokenizer, data, *place, callbacks, aligner)
        if pruner is not None:
            facts["compression"] = {"sparsity": pruner.finish()}
        save_student(out, student, start.tokenizer, history, general)
        return facts


def distill(settings: DistillSettings, create_pruner: CreatePruner | None = None) -> Path:
    """Build a student. Returns its model folder; a finished one is reused, a stopped one continues.

    create_pruner: needed for --prune-aware only.
    """
    task = load_task(settings.task)
    if task.regression and settings.loss != "mse":
        raise UserError(f"--loss {settings.loss} compares classes; {task.name} is a regression: take mse")
    if task.tokens and settings.student_arch == "ffn":
        raise UserError(f"{task.name} has a label for every word, and an FFN one state a text: take another student")
    name = settings.model_name or student_name(settings)
    alias = settings.paths.model(task.name, name)
    return settings.paths.make(Distill.of(settings, create_pruner), settings.context(name), alias=alias).path


def student_name(settings: DistillSettings) -> str:
    """Return a name of the settings that sweeps vary: bilstm-bpe25-a0-aug-s3201976."""
    data = "orig" if settings.only_original_data else f"aug{_share(settings.bootstrap_data_ratio)}"
    data += f"-rows{_share(settings.downsample_data)}" if settings.downsample_data < 1 else ""
    aware = "-pa" if settings.prune_aware else ""
    embedding = f"{settings.embedding_type}{settings.embedding_dim}"
    return f"{settings.student_arch}-{embedding}-a{settings.alpha:g}-{data}{aware}-s{settings.seed}"


def _share(share: float) -> str:
    return "" if share == 1 else f"{share:g}"


def _aligner(settings: DistillSettings, teacher: Path) -> Aligner:
    # Hugging Face's library, which other students do not need.
    from compression.distillation.alignment import Aligner, AlignmentTeacher

    device = pick_device(settings.cpu)
    return Aligner(settings, AlignmentTeacher.load(teacher, device)).to(device)
