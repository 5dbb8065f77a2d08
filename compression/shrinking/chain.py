"""The actions of compress.py, in order: each builds a student, or a file of one, from the one before."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pydantic

from common.config import Settings
from common.data.split import find_rows, find_splits
from common.data.tasks import Task, check_trains, load_task
from common.errors import UserError
from common.progress import say
from common.seeds import seed_everything
from common.store.artifact import Artifact, artifact_at
from common.store.files import fingerprint
from common.store.step import Context, Step
from common.store.workspace import Workspace
from common.training.models import ModelConfig, find_model, read_config
from compression.distillation.dataset import held_out_inputs, learning_inputs
from compression.distillation.distill import distill
from compression.packing import pack_student
from compression.settings import (
    CompressSettings,
    FactorizeSettings,
    LossSettings,
    PruneSettings,
    QuantizeSettings,
    RowsSettings,
    TrainSettings,
    TuneSettings,
)
from compression.shrinking import factorize, prune, quantize
from compression.shrinking.context import CPU, CompressionContext
from compression.students.saved import load_student, save_student


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
    """How it is trained afterwards. None without --tune-epochs, as are the next three."""
    objective: LossSettings | None
    rows: RowsSettings | None
    train: TrainSettings | None
    settings: CompressSettings = pydantic.Field(exclude=True)
    task: Task = pydantic.Field(exclude=True)
    parent: Path = pydantic.Field(exclude=True)
    """Folder of the student to make smaller."""

    @classmethod
    def of(cls, settings: CompressSettings, parent: Path, name: str = "") -> Shrink:
        """Return the step that the settings describe. name: of the student that it builds."""
        groups = {"tune": TuneSettings, "objective": LossSettings, "rows": RowsSettings, "train": TrainSettings}
        tuning = {field: settings.part(group) if settings.tune_epochs else None for field, group in groups.items()}
        about = {"settings": settings, "task": load_task(settings.task), "parent": parent}
        return cls(seed=settings.seed, **tuning, **cls.own(settings, name), **about)

    @classmethod
    def own(cls, settings: CompressSettings, name: str) -> dict[str, Any]:
        """Return the step's own groups of settings, and single ones."""
        raise NotImplementedError

    @property
    def counts_words(self) -> bool:
        """Whether it depends on how often training text uses each token."""
        return False

    @property
    def measures(self) -> bool:
        """Whether it depends on rows that it measures something on: inputs, units, scores."""
        return False

    @property
    def chooses(self) -> bool:
        """Whether the rows that choose among epochs choose anything else."""
        return False

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the student to make smaller, and the rows and logits that are read."""
        settings, parent = self.settings, read_config(self.parent)
        inputs = {"parent": artifact_at(self.parent)}
        if self.tune or self.counts_words or self.measures:
            inputs["splits"] = find_splits(paths, self.task)
        if self.tune:
            inputs |= learning_inputs(settings, self.task, guided=settings.guide == "teacher")
        elif self.counts_words and parent.augmented and not settings.only_original_data:
            inputs["augmented"] = find_rows(paths, self.task, settings.augmented)
        if self.tune or self.chooses:
            inputs |= held_out_inputs(settings, self.task, parent.teacher)
        return inputs

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Load the student, change it, and save the result with all of its weights."""
        seed_everything(self.seed)
        student, tokenizer, parent = load_student(self.parent, CPU)
        place = context.name, context.work, context.key
        work = CompressionContext(self.settings, self.task, self.parent, parent, student, tokenizer, *place)
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
        groups = [group for group in cls.own(settings, "").values() if isinstance(group, Settings)]
        groups += [settings.part(TuneSettings)] if settings.tune_epochs else []
        changed = {key: value for group in groups for key, value in _changed(group).items()}
        others = {key: value for key, value in changed.items() if key not in cls.named}
        return cls.actions.suffix(settings) + (f"-{fingerprint(others)[:4]}" if others else "")


class Factorize(Shrink):
    """Matrices become products of two where that is smaller."""

    stage, actions, named = "factorized", factorize, ("rank",)

    factorize: FactorizeSettings

    @classmethod
    def own(cls, settings: CompressSettings, name: str) -> dict[str, Any]:
        """Return the settings of factorising."""
        return {"factorize": settings.part(FactorizeSettings)}

    @property
    def counts_words(self) -> bool:
        """Where the embedding is factorized: its rows count as often as text uses them."""
        return "embedding" in self.factorize.factorize


class Prune(Shrink):
    """Weights become zero, or units or tokens are removed."""

    stage, actions, named = "pruned", prune, ("prune_movement", "prune_units", "prune_vocabulary")

    prune: PruneSettings

    @classmethod
    def own(cls, settings: CompressSettings, name: str) -> dict[str, Any]:
        """Return the settings of pruning."""
        return {"prune": settings.part(PruneSettings)}

    @property
    def counts_words(self) -> bool:
        """Where rare tokens are removed."""
        return self.prune.prune_vocabulary > 0

    @property
    def measures(self) -> bool:
        """Where units are removed: those that move the logits least."""
        return self.prune.prune_units > 0


class Quantize(Shrink):
    """Weights become codes of few bits."""

    stage, actions = "quantized", quantize
    named = (*QuantizeSettings.model_fields, *TuneSettings.model_fields)

    quantize: QuantizeSettings
    select_on: str | None
    """Split that chooses the bits, where they are chosen."""
    name: str | None
    """Name of the student where --max-bytes counts its packed file, which holds the name."""

    @classmethod
    def own(cls, settings: CompressSettings, name: str) -> dict[str, Any]:
        """Return the settings of quantizing."""
        own = settings.part(QuantizeSettings)
        select_on = settings.select_on if _chooses_bits(own) else None
        return {"quantize": own, "select_on": select_on, "name": None if own.max_bytes is None else name}

    @property
    def measures(self) -> bool:
        """Where inputs are calibrated, or bits are chosen."""
        return self.quantize.ptq_classifier or self.chooses

    @property
    def chooses(self) -> bool:
        """Where bits are chosen."""
        return _chooses_bits(self.quantize)


SHRINK: dict[str, type[Shrink]] = {"factorize": Factorize, "prune": Prune, "quantize": Quantize}


class StudentFile(Step):
    """Base of the steps that build one file of a student."""

    file: ClassVar[str]
    """Name of the file in the artifact."""

    name: str
    """The student's name, which the file holds."""
    student: Path = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the student."""
        return {"model": artifact_at(self.student)}


class Pack(StudentFile):
    """A student as one .fwt file (docs/format.md)."""

    file: ClassVar[str] = "student.fwt"

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Write the packed file."""
        (out / self.file).write_bytes(pack_student(self.student))
        return {}


class Export(StudentFile):
    """A student as an ONNX file."""

    file: ClassVar[str] = "student.onnx"

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Write the ONNX file."""
        from compression.export.onnx_export import export_onnx  # onnx is optional

        export_onnx(self.student, out / self.file)
        return {}


FILES: dict[str, type[StudentFile]] = {"pack": Pack, "export": Export}


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
    return settings.paths.make(step.of(settings, folder, name), settings.context(name), alias=alias).path


def write_file(settings: CompressSettings, kind: type[StudentFile], folder: Path) -> Path:
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


def _chooses_bits(settings: QuantizeSettings) -> bool:
    return settings.max_bytes is not None or settings.max_loss is not None


def _changed(group: Settings) -> dict[str, Any]:
    return group.model_dump(mode="json", exclude_defaults=True)
