"""Grids: the axes, fixed settings, rules and seeds of a file become cells and the settings of their runs."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
import yaml

from common.choices import described, used_by
from common.config import Settings, Uses, build, load_with_base, nearest, pairs
from common.data.tasks import load_task
from common.errors import UserError
from common.installed import typed
from common.launch.launcher import LAUNCHERS, Launcher
from common.seeds import DEFAULT_SEED
from common.store.settings import QuerySettings, StageSettings
from compression.experiments.jobs import (
    Cell,
    ExperimentFile,
    Job,
    Plan,
    Values,
    check_jobs,
    check_known,
    recorded_settings,
    seed_number,
    settings_for,
    teacher_of,
    with_task_path,
)
from compression.experiments.report.record import (
    ExperimentRecord,
    Quote,
    TableLayout,
    definition_files,
    definition_of,
)
from compression.experiments.report.reference import quoted_figures
from compression.shrinking.settings import Action, CompressSettings

RUN_FIELDS = set(CompressSettings.model_fields)
"""Settings of a run."""
TIMING = ("time", "runtime", "watts")
"""Settings of evaluate that also apply to runs: whether models are timed, by which runtime, at which power."""
_EXCLUDED = {
    "seed": "give `seeds`",
    "seed_name": "give `seeds`",
    "model_name": "models are named after their settings",
    "load_trained_model": "a run begins with distill",
    "workspace": "give --workspace",
    "loadbar": "give --no-loadbar",
    "force": "finished runs are never repeated",
}
"""Settings of compress.py that a grid cannot set, and what to do instead."""


class SweepSettings(QuerySettings):
    """Sweep: how a grid is run; its file has the cells."""

    name: str | None = None
    """Name of the experiment; unset: the file's."""
    set_: tuple[str, ...] = ()
    """KEY=VALUE: fixes a setting, or replaces the values of an axis or of `seeds` (embedding_dim=[25,100]). May
    be repeated."""
    cpu: bool = False
    """Run on the CPU even if there is a GPU."""
    launcher: Literal[tuple(LAUNCHERS)] = pydantic.Field(
        "processes", description=described("Where runs go.", LAUNCHERS)
    )
    workers: int = pydantic.Field(0, ge=0)
    """Runs at a time; 0: one per GPU, without GPUs one per CPU core, on a cluster as many as it can take."""
    threads: int = pydantic.Field(1, gt=0)
    """CPU threads of each run. One is best for students, and results do not depend on the number of workers."""
    slurm: tuple[str, ...] = ()
    """KEY=VALUE for submitit, such as partition=gpu timeout_min=120 gpus_per_node=1. May be repeated."""
    observer: tuple[str, ...] = ()
    """Where runs are recorded in addition to files: sqlite:///runs.db, or mongodb://HOST/DATABASE. May be repeated."""
    dry_run: bool = False
    """Print the plan and its estimated time, and run nothing."""
    retry_failed: bool = False
    """Run again only the runs that failed."""
    loadbar: bool = True
    """Show the progress board, with time left, and the progress bars of shared jobs."""

    def _uses(self) -> Uses:
        yield from used_by("launcher", self.launcher, LAUNCHERS)

    def launch(self) -> Launcher:
        """Return the launcher of the runs. Raises UserError if --slurm is malformed."""
        return Launcher(self.launcher, self.workers, self.threads, pairs("--slurm", self.slurm), self.cpu)


class Rule(Settings):
    """Settings for the cells of a grid that match, or their exclusion."""

    when: dict[str, Any] = pydantic.Field(min_length=1)
    """Axis -> label, or setting -> value, or a list of either; all must match."""
    set: Values = {}
    """Settings of the cells that match."""
    skip: bool = False
    """Leave them out."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.set) == self.skip:
            raise ValueError("rules: a rule has either `set` or `skip: true`")
        return self


class GridFile(ExperimentFile):
    """A YAML file of a grid in configs/experiments."""

    shared: tuple[dict[str, Values], ...] = ()
    """Jobs done once per task before the runs: splits, teacher, augmented rows, logits. A job with `for_tasks: [NAME]`
    is for those tasks only. A finetune job with `each_seed: true` trains a teacher for every seed; reports show their
    mean, and students learn from the last one."""
    axes: dict[str, list[Any] | dict[str, Values]] = {}
    """Axis -> values of the setting of that name, or label -> settings."""
    rules: tuple[Rule, ...] = ()
    """Conditions, in order."""
    chains: tuple[tuple[Action, ...], ...] = ()
    """Lists of compression actions that every run does, beginning with the same distill; unset: the settings' own."""
    table: TableLayout | None = None
    """Table of means and deviations in the report."""
    quote: Quote | None = None
    """Figures of the thesis to show next to ours."""

    @pydantic.field_validator("axes", mode="after")
    @classmethod
    def _check_axes(cls, axes: dict[str, Any]) -> dict[str, Any]:
        for name, values in axes.items():
            if not values:
                raise ValueError(f"axes: {name} has no values")
            if isinstance(values, list) and name not in RUN_FIELDS:
                raise ValueError(f"axes: a run has no setting {name!r}{nearest(name, RUN_FIELDS)}")
            if isinstance(values, list) and len(set(map(label_of, values))) < len(values):
                raise ValueError(f"axes: {name} has a value twice")
        return axes


def plan_grid(path: Path, settings: SweepSettings) -> Plan:
    """Return the plan of a grid's file with the settings of a sweep.

    Raises UserError, before anything runs, for an unknown key, an axis that is not a setting, and a cell with invalid
    settings.
    """
    file = _read_file(path)
    assigned = parse_assignments(settings.set_)
    file, chosen = _narrowed(file, assigned)
    overrides = {**chosen, "workspace": str(settings.workspace), "loadbar": settings.loadbar}
    overrides |= {"cpu": True} if settings.cpu else {}
    fixed = with_task_path(path, {**file.settings, **overrides})
    kinds = [*(kind for job in file.shared for kind in job), "compress"]
    check_known([setting for setting in fixed if setting not in TIMING], kinds)
    seeds = tuple(dict.fromkeys(map(seed_number, file.seeds))) or (DEFAULT_SEED,)
    cells = tuple(_cells(file, seeds, fixed, overrides, path))
    if file.axes and not cells:
        raise UserError("rules: every cell of the grid is skipped")
    tasks = list(dict.fromkeys([cell.flags["task"] for cell in cells] or _tasks(fixed)))
    shared = {task: list(_shared_jobs(file, seeds, {**fixed, "task": task}, overrides)) for task in tasks}
    one_seed = [job for cell in cells if cell.seed == seeds[0] for job in cell.jobs] if chosen else []
    timing = {setting: fixed[setting] for setting in TIMING if setting in fixed}
    evaluated = [Job("evaluate", {**timing, "task": tasks[0]})] if timing else []
    check_jobs([*itertools.chain.from_iterable(shared.values()), *one_seed, *evaluated], chosen)
    for cell in cells:  # runs learn from the teacher that the shared jobs make last, unless they name one
        if teacher := teacher_of(shared[cell.flags["task"]]):
            cell.flags.setdefault("teacher", teacher)
    record = ExperimentRecord(
        name=settings.name or file.name,
        title=file.title or file.name,
        kind="sweep",
        definition=definition_of(path.name, assigned),
        files=definition_files(path),
        jobs=tuple(job.as_record() for jobs in shared.values() for job in jobs),
        settings=recorded_settings(fixed),
        axes={axis: tuple(map(label_of, values)) for axis, values in file.axes.items()},
        seeds=seeds,
        runs=tuple(cell.as_record() for cell in cells),
        table=file.table,
        quote=file.quote,
    )
    timed = timing if fixed.get("time") else {}
    return Plan(record, settings.paths, shared, cells, timed, settings.observer, settings.threads)


def _read_file(path: Path) -> GridFile:
    """Return a grid file merged with its base. Raises UserError for errors that can be found before building cells."""
    loaded = load_with_base(path)
    if "jobs" in loaded:
        raise UserError(f"{path} is a list of jobs: {typed('experiment')} run {path}")
    file = build(GridFile, loaded)
    groups = [group for labels in file.axes.values() if isinstance(labels, dict) for group in labels.values()]
    for settings in (file.axes, file.settings, *groups, *(rule.set for rule in file.rules)):
        _check_allowed(settings)
    names_set = {
        axis: {name for settings in labels.values() for name in settings} if isinstance(labels, dict) else {axis}
        for axis, labels in file.axes.items()
    }
    for (axis, names), (other, others) in itertools.combinations(names_set.items(), 2):
        if both := names & others:
            raise UserError(f"axes: {axis} and {other} both set {min(both)}")
    # Checked before axes are narrowed: a rule for a value that --set leaves out is not an error.
    for rule in file.rules:
        for key, values in rule.when.items():
            for value in values if isinstance(values, list) else [values]:
                _check_value(file, key, value)
        check_known(rule.set, ["compress"])
    known = {*file.axes, "task", "stage"}
    for name in (*file.table.rows, *file.table.columns) if file.table else ():
        if name not in known:
            raise UserError(f"table: {name!r} is not an axis{nearest(name, known)}")
    if file.quote:
        quoted_figures(file.quote.table)  # raises UserError for an unknown table before anything runs
    return file


def _check_allowed(settings: Iterable[str]) -> None:
    for key in settings:
        if instead := _EXCLUDED.get(key.replace("-", "_")):
            raise UserError(f"a grid cannot set {key}: {instead}")


def _check_value(file: GridFile, key: str, value: Any) -> None:
    """Raise UserError for a rule's label or value that the axis or setting cannot have, since it would never match."""
    labels = file.axes.get(key)
    if isinstance(labels, dict):
        if label_of(value) not in labels:
            raise UserError(f"rules: axis {key} has no value {value!r}{nearest(str(value), labels)}")
        return
    if key not in RUN_FIELDS:
        raise UserError(f"rules: {key!r} is neither an axis nor a setting{nearest(key, {*file.axes, *RUN_FIELDS})}")
    try:
        field = CompressSettings.model_fields[key]
        pydantic.TypeAdapter(Annotated[field.annotation, field]).validate_python(value)
    except pydantic.ValidationError as error:
        raise UserError(f"rules: {key} cannot be {value!r}: {error.errors()[0]['msg']}") from error


def parse_assignments(words: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE words as a mapping, with values parsed as YAML. Raises UserError for words of another form."""
    values: dict[str, Any] = {}
    for key, text in pairs("--set", words).items():
        try:
            values[key.replace("-", "_")] = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date
            raise UserError(f"--set {key}={text}: {' '.join(str(error).split())}") from error
    return values


def _narrowed(file: GridFile, chosen: dict[str, Any]) -> tuple[GridFile, dict[str, Any]]:
    """Return the file with the values chosen for its axes and seeds, and the other chosen settings."""
    _check_allowed(chosen)
    axes, seeds, others = dict(file.axes), file.seeds, {}
    for key, value in chosen.items():
        if key not in axes and key != "seeds":
            others[key] = value
            continue
        by_label = {label_of(one): one for one in (value if isinstance(value, list) else [value])}
        if not by_label:
            raise UserError(f"--set {key}: no values")
        if key == "seeds":
            seeds = tuple(by_label.values())
        elif isinstance(labels := axes[key], dict):
            for label in by_label:
                if label not in labels:
                    hint = f"{nearest(label, labels)} (values: {', '.join(labels)})"
                    raise UserError(f"--set {key}: no value {label!r}{hint}")
            axes[key] = {label: settings for label, settings in labels.items() if label in by_label}
        else:
            axes[key] = list(by_label.values())
    return file.model_copy(update={"seeds": seeds, "axes": axes}), others


def label_of(value: Any) -> str:
    """Return an axis value's label: true and false as in YAML, 1 for 1.0, lists with spaces."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return " ".join(map(label_of, value)) if isinstance(value, list | tuple) else str(value)


def _cells(
    file: GridFile, seeds: Sequence[int], fixed: dict[str, Any], overrides: dict[str, Any], path: Path
) -> Iterator[Cell]:
    """Yield every cell with every seed, without the cells that rules skip."""
    if not file.axes:
        return
    by_label = [
        values if isinstance(values, dict) else {label_of(value): {axis: value} for value in values}
        for axis, values in file.axes.items()
    ]
    for combination in itertools.product(*(choices.items() for choices in by_label)):
        labels = {axis: str(label) for axis, (label, _) in zip(file.axes, combination, strict=True)}
        chosen = {name: value for _, settings in combination for name, value in settings.items()}
        flags = _with_rules(file.rules, labels, {**settings_for("compress", fixed), **chosen})
        if flags is None:
            continue
        flags = with_task_path(path, {**flags, **settings_for("compress", overrides)})
        _tasks(flags)
        cell = Cell(labels, seeds[0], flags, file.chains)
        try:
            check_jobs(cell.jobs)
        except UserError as error:
            words = ", ".join(f"{axis} {label}" for axis, label in labels.items())
            raise UserError(f"cell {words}: {str(error).removeprefix('compress: ')}") from error
        for seed in seeds:
            yield dataclasses.replace(cell, seed=seed, flags={**flags, "seed": seed})


def _with_rules(rules: Sequence[Rule], labels: dict[str, str], flags: dict[str, Any]) -> dict[str, Any] | None:
    """Return the settings after applying all matching rules, or None if a rule skips the cell."""
    for rule in rules:
        if all(_matches(key, values, labels, flags) for key, values in rule.when.items()):
            if rule.skip:
                return None
            flags = {**flags, **rule.set}
    return flags


def _matches(key: str, values: Any, labels: dict[str, str], flags: dict[str, Any]) -> bool:
    """Return whether an axis's label, or the value of a setting, as given or by default, is among the values."""
    value = labels.get(key, flags.get(key))
    if key not in labels and key not in flags:
        defaults = Job("compress", flags).defaults()
        value = defaults.get(key, CompressSettings.model_fields[key].get_default(call_default_factory=True))
    return value is not None and label_of(value) in map(label_of, values if isinstance(values, list) else [values])


def _tasks(settings: dict[str, Any]) -> list[str]:
    """Return the tasks that the settings name. Raises UserError if there is none."""
    if "task" not in settings:
        raise UserError("settings: no task is given; set one in the file, or with --set task=NAME")
    return settings["task"] if isinstance(settings["task"], list) else [settings["task"]]


def _shared_jobs(
    file: GridFile, seeds: Sequence[int], fixed: dict[str, Any], overrides: dict[str, Any]
) -> Iterator[Job]:
    """Yield the jobs that come before the runs of a task."""
    task = fixed["task"]
    for kind, values in (pair for job in file.shared for pair in job.items()):
        settings = dict(values)
        tasks = settings.pop("for_tasks", [task])
        if not isinstance(tasks, list):
            raise UserError(f"for_tasks: {tasks!r} is not a list of tasks")
        if load_task(task).name not in [load_task(name).name for name in tasks]:
            continue
        each_seed = kind == "finetune" and settings.pop("each_seed", False)
        job = Job(kind, {**_for_shared(kind, fixed), **settings, **_for_shared(kind, overrides), "task": task})
        if not each_seed:
            yield job
            continue
        name = job.settings().name
        for seed in seeds:
            yield Job(kind, {**job.flags, "seed": seed, "model_name": f"{name}-s{seed}"})


def _for_shared(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that apply to a shared job; a batch size or learning rate applies to runs, not the teacher.

    The split that chooses weights applies to both, and so does a single name of augmented rows, since some jobs write
    these rows and others read them. Several names apply to runs only; shared jobs then name rows after their method or
    by their own settings.
    """
    of_runs = RUN_FIELDS - {*StageSettings.model_fields, "augmented", "select_on"}
    if isinstance(settings.get("augmented"), list | tuple):
        of_runs = of_runs | {"augmented"}
    if kind in ("evaluate", "analyze"):
        of_runs = of_runs | {"arch"}  # --arch names the teacher to fine-tune and would exclude the fine-tuned one
    return {key: value for key, value in settings_for(kind, settings).items() if key not in of_runs}
