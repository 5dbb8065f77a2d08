"""The work of preprocess.py: splits, augmented rows, teacher logits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pydantic

from common.config import flag, nearest, pairs
from common.data.data import Split, check_task_file, count_rows, read_split
from common.data.prepare import prepare
from common.data.tasks import Task, check_trains, load_task
from common.devices import Precision
from common.errors import UserError
from common.launch import Launcher
from common.progress import say
from common.store.settings import StageSettings
from common.store.workspace import Workspace, file_fingerprint


class PreprocessSettings(StageSettings):
    """Settings of preprocess.py (the thesis's table C.2 and what goes beyond it)."""

    glue_preprocess: bool = False
    """Prepare the task's splits; also what happens when no other action is asked for."""
    data_dir: Path | None = None
    """Folder with an unpacked copy of GLUE, or with its zips; unset downloads from the official address."""
    augment: Literal["tinybert"] | None = None
    """Write augmented training rows by this method."""
    augmented: str = "tinybert"
    """Name of the augmented rows: sets made with other settings lie side by side (compress.py --augmented NAME)."""
    generate_loss: tuple[str, ...] = ()
    """Write the teacher's logits over rows: processed (train), tinybert or augmented (those that --augmented names),
    validation, a test split."""
    teacher_states: tuple[str, ...] = ()
    """Write the teacher's hidden states and attention maps over these rows, named as in --generate-loss."""
    model_name: str | None = None
    """Teacher for --generate-loss and --teacher-states; unset means the task's only one."""
    teacher_arch: str | None = None
    """Check that the teacher has this architecture."""
    masked_lm: str | None = None
    """Masked language model for --augment: roberta_base, roberta_large, or the name or folder of one of fairseq's or
    Hugging Face's. Unset: every word is replaced by GloVe neighbours."""
    variants: int = pydantic.Field(20, gt=0)
    """N of TinyBERT's Algorithm 1: variants drawn of each row; repeated ones are dropped."""
    replace_probability: float = pydantic.Field(0.4, gt=0, le=1)
    """p: chance that a word is replaced."""
    candidates: int = pydantic.Field(15, gt=0)
    """K: likely replacements of a word."""
    glove: Path | None = None
    """GloVe vectors as text; unset means the packaged 6B 50d vectors."""
    precision: Precision = "auto"
    """Arithmetic of the teacher: auto is bf16 where the hardware has it."""
    launcher: Literal["local", "processes", "ray", "slurm"] = "local"
    """Who augments and runs the teacher: this process, several, Ray (RAY_ADDRESS, or one started here), or Slurm."""
    workers: int = pydantic.Field(0, ge=0)
    """Workers of the launcher; 0 means one a CPU core, on a cluster as many as it has room for."""
    slurm: tuple[str, ...] = ()
    """KEY=VALUE for submitit with --launcher slurm, such as partition=gpu timeout_min=120. Repeatable."""
    json_: bool = False
    """Print what was done and the report on the task's files as JSON to stdout."""

    @property
    def launch(self) -> Launcher:
        """Where long work runs."""
        return Launcher(self.launcher, self.workers, options=pairs("--slurm", self.slurm))


def preprocess(settings: PreprocessSettings) -> dict[str, Any]:
    """Do what the settings ask, in the order of the stages. Returns rows by file written or found."""
    task, paths = load_task(settings.task), settings.paths
    if not _is_augmented(task, settings.augmented):
        raise UserError(f"--augmented: {settings.augmented!r} is the name of other rows")
    rows: dict[str, Any] = {}
    asked = settings.augment or settings.generate_loss or settings.teacher_states
    logits_over, states_over = (
        _row_names(task, names, settings.augmented) for names in (settings.generate_loss, settings.teacher_states)
    )
    if settings.glue_preprocess or not asked:
        splits = prepare(paths, task, settings.data_dir, settings.seed, settings.force)
        rows |= {name: len(split) for name, split in splits.items()}
    check_task_file(paths, task)
    if settings.augment:
        rows[settings.augmented] = _augment(settings, paths, task)
    for name in logits_over:
        rows[f"{flag('generate_loss')} {name}"] = _generate(settings, paths, task, name)
    for name in states_over:
        rows[f"{flag('teacher_states')} {name}"] = _states(settings, paths, task, name)
    return rows


def _augment(settings: PreprocessSettings, paths: Workspace, task: Task) -> int:
    """Write the augmented rows of train, unless they are there. Returns their number."""
    from common.launch.shards import map_parts
    from compression.augmentation.augment import AugmentTask

    check_trains(task)
    source = paths.split(task.name, "train")
    count = count_rows(source, f"run: python preprocess.py --task {task.argument}")
    target = paths.augmented(task.name, settings.augmented)
    work = AugmentTask(
        masked_lm=settings.masked_lm,
        glove=settings.glove,
        candidates=settings.candidates,
        variants=settings.variants,
        probability=settings.replace_probability,
        fraction=task.augment_fraction,
        held_out=tuple(paths.split(task.name, name) for name in ("validation", *task.test_splits)),
        seed=settings.seed,
        cpu=settings.cpu,
        downloads=paths.downloads(),
    )
    identity = {"train": file_fingerprint(source), "settings": work.identity()}
    if not settings.masked_lm:
        say("no --masked-lm: every word is replaced by GloVe neighbours")
    done = map_parts(source, target, work, identity, settings.launch, f"augmenting {task.name}", settings.force)
    if done:
        say(f"{count_rows(target, ''):,} augmented rows from {count:,}")
    return count_rows(target, "")


def rows_file(paths: Workspace, task: Task, name: str) -> Path:
    """The split file behind a --generate-loss name: train (processed), augmented rows, validation, or a test split."""
    if _is_augmented(task, name):
        return paths.augmented(task.name, name)
    return paths.split(task.name, "train" if name == "processed" else name)


def _is_augmented(task: Task, name: str) -> bool:
    return name != "processed" and name not in task.splits


def distillation_split(paths: Workspace, task: Task, name: str) -> Split:
    """The rows behind a --generate-loss name. Raises UserError with the command that makes them."""
    return read_split(rows_file(paths, task, name), _how_to_make(task, name))


def _how_to_make(task: Task, name: str) -> str:
    wanted = f" --augment tinybert --augmented {name}" if name != "tinybert" else " --augment tinybert"
    return f"run: python preprocess.py --task {task.argument}" + (wanted if _is_augmented(task, name) else "")


def _row_names(task: Task, names: Sequence[str], augmented: str) -> list[str]:
    """The rows that are meant, `augmented` standing for those of that name. Raises UserError for unknown ones."""
    known = task.splits if task.models_of else ("processed", augmented, *task.splits)
    meant = [augmented if name == "augmented" else name for name in names]
    for name in meant:
        if name not in known:
            raise UserError(f"unknown rows {name!r}{nearest(name, known)} (rows: {', '.join(known)})")
    return meant


def _teacher(settings: PreprocessSettings, paths: Workspace, task: Task, name: str) -> Path:
    """The model folder of the teacher to run over rows `name`, after every check that can be made beforehand."""
    from common.training.models import find_model

    teacher_name = settings.model_name or only_teacher(paths, task)
    folder, config = find_model(paths, task, teacher_name, settings.teacher_arch)
    if config.kind != "teacher":
        raise UserError(f"{teacher_name} is a student; logits come from a teacher")
    count_rows(rows_file(paths, task, name), _how_to_make(task, name))
    return folder


def _generate(settings: PreprocessSettings, paths: Workspace, task: Task, name: str) -> int:
    from common.teachers.logits import LogitsWork, generate
    from compression.augmentation.label_shift import say_label_table

    folder = _teacher(settings, paths, task, name)
    source = rows_file(paths, task, name)
    work = LogitsWork(folder, settings.cpu, settings.precision, settings.seed)
    split_name = "train" if name == "processed" else name
    target = generate(paths, task, split_name, source, work, settings.launch, settings.force)
    if _is_augmented(task, name) and not task.regression and not task.tokens:
        say_label_table(task, paths.split(task.name, "train"), target)
    return count_rows(source, "")


def _states(settings: PreprocessSettings, paths: Workspace, task: Task, name: str) -> int:
    from common.teachers.states import StatesWork, generate_states

    work = StatesWork(_teacher(settings, paths, task, name), settings.cpu, settings.seed)
    return generate_states(paths, task, name, rows_file(paths, task, name), work, settings.launch, settings.force)


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
