"""The actions of compress.py, in order: each builds a student, or a file of one, from the one before."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pydantic

from common.data.rows import find_rows
from common.data.split import find_splits
from common.data.tasks import Task, check_trains, load_task
from common.errors import UserError
from common.progress import say
from common.seeds import seed_everything
from common.store.artifact import Artifact, artifact_at
from common.store.files import fingerprint, whole_file
from common.store.step import Context, Step
from common.store.workspace import Workspace
from common.training.models import ModelConfig, find_model
from compression.distillation.dataset import learning_inputs
from compression.distillation.distill import distill
from compression.packing import pack_student
from compression.settings import (
    CompressSettings,
    FactorizeSettings,
    PruneSettings,
    QuantizeSettings,
    Recipe,
    RowsSettings,
    TuneSettings,
)
from compression.shrinking import factorize, prune, quantize
from compression.shrinking.context import CPU, CompressionContext
from compression.students.saved import load_student, save_student

_ROWS = "rows"


class Shrink(Step):
    """Base of the steps that make a student smaller."""

    stage: ClassVar[str]
    """Stage of the models it builds."""
    actions: ClassVar[Any]
    """Module with `apply`, which changes a student in place, and `suffix`, what it adds to a model's name."""
    named: ClassVar[tuple[str, ...]] = ()
    """Settings that the suffix shows."""

    seed: int
    tune: TuneSettings | None
    """How it is trained afterwards; None without --tune-epochs."""
    recipe: Recipe | None
    """How it learns while it is trained."""
    settings: CompressSettings = pydantic.Field(exclude=True)
    task: Task = pydantic.Field(exclude=True)
    parent: Path = pydantic.Field(exclude=True)
    """Folder of the student to make smaller."""

    @classmethod
    def of(cls, settings: CompressSettings, parent: Path) -> Shrink:
        """Return the step that the settings describe."""
        tunes = settings.tune_epochs > 0
        return cls(
            seed=settings.seed,
            tune=settings.part(TuneSettings) if tunes else None,
            recipe=settings.recipe() if tunes else None,
            settings=settings,
            task=load_task(settings.task),
            parent=parent,
            **cls.own(settings),
        )

    @classmethod
    def own(cls, settings: CompressSettings) -> dict[str, Any]:
        """Return the step's own groups of settings."""
        raise NotImplementedError

    @property
    def counts_words(self) -> bool:
        """Whether it depends on how often training text uses each token."""
        return False

    @property
    def reads_rows(self) -> bool:
        """Whether it depends on the task's rows, other than by training."""
        return self.counts_words

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the student to make smaller, and the rows and logits that are read."""
        settings = self.settings
        inputs = {"parent": artifact_at(self.parent)}
        if self.tune:
            return inputs | learning_inputs(settings, self.task, guided=settings.guide == "teacher")
        if self.reads_rows:
            inputs["splits"] = find_splits(paths, self.task)
        if self.counts_words and not settings.only_original_data:
            inputs["augmented"] = find_rows(paths, self.task, settings.augmented)
        return inputs

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Load the student, change it, and save the result with all of its weights."""
        seed_everything(self.seed)
        student, tokenizer, parent = load_student(self.parent, CPU)
        folder, state = context.work / context.name, context.key
        work = CompressionContext(self.settings, self.task, self.parent, parent, student, tokenizer, folder, state)
        reached = self.actions.apply(work)
        save_student(out, work.student, work.tokenizer, work.history)
        facts = parent.facts()
        for name in ("base", "base_key", "trained_parameters"):
            facts.pop(name)
        changed = {"stage": self.stage, "student": work.student_settings(), "compression": parent.compression | reached}
        return facts | changed

    @classmethod
    def suffix(cls, settings: CompressSettings) -> str:
        """Return what the step adds to a name; four digits of a hash stand for settings that it does not show."""
        own = {name: group for name, group in cls.own(settings).items() if name != _ROWS}
        shown = own | ({"tune": settings.part(TuneSettings)} if settings.tune_epochs else {})
        values = {key: value for group in shown.values() if group for key, value in _changed(group).items()}
        others = {key: value for key, value in values.items() if key not in cls.named}
        return cls.actions.suffix(settings) + (f"-{fingerprint(others)[:4]}" if others else "")


class Factorize(Shrink):
    """Matrices become products of two where that is smaller."""

    stage, actions, named = "factorized", factorize, ("rank",)

    factorize: FactorizeSettings
    rows: RowsSettings

    @classmethod
    def own(cls, settings: CompressSettings) -> dict[str, Any]:
        """Return the settings of factorising, and the rows whose words weigh the embedding's rows."""
        return {"factorize": settings.part(FactorizeSettings), _ROWS: settings.part(RowsSettings)}

    @property
    def counts_words(self) -> bool:
        """Always: the rows of frequent tokens weigh more."""
        return True


class Prune(Shrink):
    """Weights become zero, or units or tokens are removed."""

    stage, actions, named = "pruned", prune, ("prune_movement", "prune_units", "prune_vocabulary")

    prune: PruneSettings
    rows: RowsSettings | None
    """Rows whose words are counted, where rare tokens are removed."""

    @classmethod
    def own(cls, settings: CompressSettings) -> dict[str, Any]:
        """Return the settings of pruning."""
        rows = settings.part(RowsSettings) if settings.prune_vocabulary else None
        return {"prune": settings.part(PruneSettings), _ROWS: rows}

    @property
    def counts_words(self) -> bool:
        """Where rare tokens are removed."""
        return self.prune.prune_vocabulary > 0

    @property
    def reads_rows(self) -> bool:
        """Where units are ranked by what they do on validation, too."""
        return self.counts_words or self.prune.prune_units > 0


class Quantize(Shrink):
    """Weights become codes of few bits."""

    stage, actions = "quantized", quantize
    named = (*QuantizeSettings.model_fields, *TuneSettings.model_fields)

    quantize: QuantizeSettings

    @classmethod
    def own(cls, settings: CompressSettings) -> dict[str, Any]:
        """Return the settings of quantizing."""
        return {"quantize": settings.part(QuantizeSettings)}

    @property
    def reads_rows(self) -> bool:
        """Where inputs are calibrated, or bits are chosen by validation."""
        chosen = self.quantize.max_bytes is not None or self.quantize.max_loss is not None
        return self.quantize.ptq_classifier or chosen


SHRINK: dict[str, type[Shrink]] = {"factorize": Factorize, "prune": Prune, "quantize": Quantize}


class Pack(Step):
    """A student as one .fwt file (docs/format.md)."""

    file: ClassVar[str] = "student.fwt"

    name: str
    """The student's name, which the file holds."""
    student: Path = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the student."""
        return {"model": artifact_at(self.student)}

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Write the packed file."""
        with whole_file(out / self.file) as partial:
            partial.write_bytes(pack_student(self.student))
        return {}


class Export(Step):
    """A student as an ONNX file."""

    file: ClassVar[str] = "student.onnx"

    name: str
    """The student's name, which the file holds."""
    student: Path = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the student."""
        return {"model": artifact_at(self.student)}

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Write the ONNX file."""
        from compression.export.onnx_export import export_onnx  # onnx is optional

        export_onnx(self.student, out / self.file)
        return {}


FILES: dict[str, type[Pack | Export]] = {"pack": Pack, "export": Export}


def compress(settings: CompressSettings) -> list[Path]:
    """Do the actions in order. Returns the folder of each student built, or of the one that files were built from."""
    if "pretrain" in settings.compression_actions:
        from compression.distillation.pretrain import pretrain  # Hugging Face's library, which others do not need

        return [pretrain(settings)]
    task = load_task(settings.task)
    check_trains(task)
    if task.tokens and "export" in settings.compression_actions:
        raise UserError(
            f"{task.name}: a student that gives every word a label is not exported to ONNX; pack it instead"
        )
    folders: list[Path] = []
    name = settings.load_trained_model or ""
    actions = [action for action in settings.compression_actions if action not in FILES]
    for action in actions:
        if action == "distill":
            folders.append(distill(settings, prune.pruning_callback))
        else:
            own_name = settings.model_name if settings.load_trained_model and action == actions[-1] else None
            folders.append(shrink(settings, SHRINK[action], name, own_name))
        name = folders[-1].name
    for action in settings.compression_actions:
        if action in FILES:
            folder, _ = _student(settings, name)
            path = write_file(settings, FILES[action], folder)
            say(f"{action}: {path}, {path.stat().st_size:,} bytes")
            folders = folders or [folder]
    return folders


def shrink(settings: CompressSettings, step: type[Shrink], parent_name: str, name: str | None = None) -> Path:
    """Make a saved student smaller. Returns the folder of the new one; a finished one is reused.

    name: of the new one; None adds the step's suffix to the parent's.
    """
    folder, parent = _student(settings, parent_name)
    name = name or parent.name + step.suffix(settings)
    alias = settings.paths.model(parent.task, name)
    return settings.paths.make(step.of(settings, folder), settings.context(name), alias=alias).path


def write_file(settings: CompressSettings, kind: type[Pack | Export], folder: Path) -> Path:
    """Build a file of a saved student. Returns its path."""
    paths, task = settings.paths, load_task(settings.task)
    alias = (paths.packed if kind is Pack else paths.exported)(task.models_task, folder.name)
    step = kind(name=folder.name, student=folder)
    return paths.make(step, settings.context(alias.name), alias=alias, file=kind.file, replace=True).path


def _student(settings: CompressSettings, name: str) -> tuple[Path, ModelConfig]:
    folder, config = find_model(settings.paths, load_task(settings.task), name)
    if config.kind != "student":
        raise UserError(f"{config.name} is a teacher; only students are made smaller")
    return folder, config


def _changed(group: Any) -> dict[str, Any]:
    return group.model_dump(mode="json", exclude_defaults=True)
