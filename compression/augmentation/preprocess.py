"""The work of preprocess.py: splits, augmented rows, teacher logits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pydantic

from common.config import Settings, flag, nearest, pairs
from common.data.prepare import prepare
from common.data.rows import PROCESSED, is_augmented
from common.data.split import check_prepared, count_rows, find_splits
from common.data.tasks import Task, check_trains, load_task
from common.devices import Precision
from common.errors import UserError
from common.launch.launcher import Launcher
from common.progress import say
from common.store.artifact import Artifact
from common.store.settings import StageSettings
from common.store.step import Context, Step
from common.store.store import Store
from common.store.workspace import Workspace


class AugmentSettings(Settings):
    """Augmentation."""

    augment: Literal["tinybert"] | None = None
    """Write augmented training rows by this method."""
    augmented: str = "tinybert"
    """Name of the augmented rows; sets made with other settings are kept separately (compress.py --augmented NAME)."""
    masked_lm: str | None = None
    """Masked language model for --augment: roberta_base, roberta_large, or the name or folder of a fairseq or Hugging
    Face model. Unset: every word is replaced by GloVe neighbours."""
    variants: int = pydantic.Field(20, gt=0)
    """N of TinyBERT's Algorithm 1: variants drawn of each row; duplicates are dropped."""
    replace_probability: float = pydantic.Field(0.4, gt=0, le=1)
    """p: probability that a word is replaced."""
    candidates: int = pydantic.Field(15, gt=0)
    """K: number of likely replacements of a word."""
    glove: Path | None = None
    """GloVe vectors as text; unset: the packaged 6B 50d vectors."""


class LaunchSettings(Settings):
    """Launching."""

    launcher: Literal["local", "processes", "ray", "slurm"] = "local"
    """Where augmentation and the teacher run: this process, several, Ray (RAY_ADDRESS, or one started here), or
    Slurm."""
    workers: int = pydantic.Field(0, ge=0)
    """Workers of the launcher; 0: one per CPU core, on a cluster as many as it can take."""
    slurm: tuple[str, ...] = ()
    """KEY=VALUE for submitit with --launcher slurm, such as partition=gpu timeout_min=120. May be repeated."""


class PreprocessSettings(AugmentSettings, LaunchSettings, StageSettings):
    """Data and logits (the thesis's table C.2, and more)."""

    most_used = (
        *("task", "glue_preprocess", "data_dir", "augment", "masked_lm", "variants", "generate_loss"),
        *("model_name", "launcher"),
    )

    glue_preprocess: bool = False
    """Prepare the task's splits; the default when no other action is given."""
    data_dir: Path | None = None
    """Folder with an unpacked copy of GLUE, or with its zips; unset: download from the official address."""
    generate_loss: tuple[str, ...] = ()
    """Write the teacher's logits of these rows: processed (train), tinybert or augmented (those that --augmented
    names), validation, a test split."""
    model_name: str | None = None
    """Teacher for --generate-loss; unset: the task's only one."""
    teacher_arch: str | None = None
    """Check that the teacher has this architecture."""
    precision: Precision = "auto"
    """Arithmetic of the teacher: auto is bf16 where the hardware has it."""
    json_: bool = False
    """Print the results and the report on the task's files as JSON to stdout."""

    @property
    def launch(self) -> Launcher:
        """Where long work runs."""
        return Launcher(self.launcher, self.workers, options=pairs("--slurm", self.slurm))


class Augment(Step):
    """Variants of train rows by TinyBERT's Algorithm 1. File: rows.parquet."""

    version: ClassVar[int] = 2

    variants: int
    replace_probability: float
    candidates: int
    fraction: float
    """Share of variants to keep (the thesis keeps a quarter for QQP and MNLI)."""
    seed: int
    settings: PreprocessSettings = pydantic.Field(exclude=True)
    task: Task = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the splits, the GloVe vectors, and the masked language model where there is one."""
        from common.teachers.load import masked_lm_fingerprint
        from compression.augmentation.glove import glove_fingerprint

        glove, masked_lm = self.settings.glove, self.settings.masked_lm
        inputs = {"splits": find_splits(paths, self.task), "glove": Artifact(glove_fingerprint(glove), Path())}
        if masked_lm:
            inputs["masked_lm"] = Artifact(masked_lm_fingerprint(masked_lm, paths.downloads()), Path())
        return inputs

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Write the variants of every row of train."""
        from common.launch.shards import map_parts
        from compression.augmentation.augment import AugmentTask

        paths, task = context.paths, self.task
        work = AugmentTask(
            masked_lm=self.settings.masked_lm,
            glove=self.settings.glove,
            candidates=self.candidates,
            variants=self.variants,
            probability=self.replace_probability,
            fraction=self.fraction,
            held_out=tuple(paths.split(task.name, name) for name in ("validation", *task.test_splits)),
            seed=self.seed,
            cpu=context.cpu,
            downloads=paths.downloads(),
        )
        if not self.settings.masked_lm:
            say("no --masked-lm: every word is replaced by GloVe neighbours")
        source, target = paths.split(task.name, "train"), out / AUGMENTED_FILE
        map_parts(source, target, work, self.settings.launch, context.name, context.work)
        say(f"{count_rows(target, ''):,} augmented rows from {count_rows(source, ''):,}")
        return {"task": task.name}


AUGMENTED_FILE = "rows.parquet"


def preprocess(settings: PreprocessSettings) -> dict[str, Any]:
    """Build what the settings ask for, in the order of the stages. Returns rows by file written or found."""
    task, paths = load_task(settings.task), settings.paths
    if not is_augmented(task, settings.augmented):
        raise UserError(f"--augmented: {settings.augmented!r} is the name of other rows")
    rows: dict[str, Any] = {}
    logits_over = _row_names(task, settings.generate_loss, settings.augmented)
    if settings.glue_preprocess or not (settings.augment or logits_over):
        splits = prepare(paths, task, settings.data_dir, settings.seed, settings.force)
        rows |= {name: len(split) for name, split in splits.items()}
    check_prepared(paths, task)
    if settings.augment:
        rows[settings.augmented] = _augment(settings, paths, task)
    for name in logits_over:
        rows[f"{flag('generate_loss')} {name}"] = _generate(settings, paths, task, name)
    return rows


def _augment(settings: PreprocessSettings, paths: Store, task: Task) -> int:
    """Build the augmented rows of train. Returns their number."""
    check_trains(task)
    target = paths.augmented(task.name, settings.augmented)
    step = Augment(
        variants=settings.variants,
        replace_probability=settings.replace_probability,
        candidates=settings.candidates,
        fraction=task.augment_fraction,
        seed=settings.seed,
        settings=settings,
        task=task,
    )
    paths.make(step, settings.context(f"augmenting {task.name}"), alias=target, file=AUGMENTED_FILE, replace=True)
    return count_rows(target, "")


def _row_names(task: Task, names: Sequence[str], augmented: str) -> list[str]:
    """Return names of rows, `augmented` replaced by the name of those rows. Raises UserError for unknown ones."""
    known = task.splits if task.models_of else (PROCESSED, augmented, *task.splits)
    meant = [augmented if name == "augmented" else name for name in names]
    for name in meant:
        if name not in known:
            raise UserError(f"unknown rows {name!r}{nearest(name, known)} (rows: {', '.join(known)})")
    return meant


def _generate(settings: PreprocessSettings, paths: Store, task: Task, name: str) -> int:
    """Build the teacher's logits over some rows. Returns the number of rows."""
    from common.teachers.logits import generate
    from common.training.models import find_model
    from compression.augmentation.label_shift import say_label_table

    teacher = settings.model_name or only_teacher(paths, task)
    _, config = find_model(paths, task, teacher, settings.teacher_arch)
    if config.kind != "teacher":
        raise UserError(f"{teacher} is a student; logits come from a teacher")
    target = generate(paths, task, teacher, name, settings.precision, settings.launch, settings.cpu, settings.force)
    if is_augmented(task, name) and not task.regression and not task.tokens:
        say_label_table(task, paths.split(task.name, "train"), target)
    return count_rows(target, "")


def only_teacher(paths: Workspace, task: Task) -> str:
    """Name of the task's one teacher. Raises UserError when there is none, or several to choose from."""
    from common.training.models import read_config, saved_models

    configs = [read_config(folder) for folder in saved_models(paths.root / "models" / task.models_task)]
    teachers = [config.name for config in configs if config.kind == "teacher"]
    if not teachers:
        command = f"python finetune.py --task {task.models_of or task.argument}"
        raise UserError(f"no teacher for {task.name} yet; run: {command}")
    if len(teachers) > 1:
        raise UserError(
            f"several teachers for {task.name} ({', '.join(teachers)}); name one with --model-name or --teacher"
        )
    return teachers[0]
