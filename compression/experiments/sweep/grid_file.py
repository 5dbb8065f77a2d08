"""Grid files as they are written: reading and checking one, and giving its axes and settings other values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pydantic
import yaml

from common.config import Settings, build, load_with_base, nearest, pairs, underscored
from common.errors import UserError
from compression.experiments.jobs import check_known
from compression.experiments.report.record import Quote, TableLayout
from compression.experiments.report.reference import quoted_figures
from compression.shrinking.settings import Action, CompressSettings

RUN_FIELDS = set(CompressSettings.model_fields)
"""Settings of a run."""
_NOT_OURS = {
    "seed": "give `seeds`",
    "seed_name": "give `seeds`",
    "model_name": "models are named after their settings",
    "load_trained_model": "a run begins with distill",
    "workspace": "give --workspace",
    "loadbar": "give --no-loadbar",
    "force": "finished runs are never done again",
}
"""Settings of compress.py that a grid decides by itself, and what to do instead."""


class Rule(Settings):
    """What holds for some cells of a grid."""

    when: dict[str, Any] = pydantic.Field(min_length=1)
    """Axis -> label, or setting -> value, or a list of either; all must match."""
    set: dict[str, Any] = {}
    """Settings of the cells that match."""
    skip: bool = False
    """Leave them out."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> Rule:
        if bool(self.set) == self.skip:
            raise ValueError("rules: a rule has either `set` or `skip: true`")
        return self


class GridFile(Settings):
    """A YAML file of a grid in configs/experiments."""

    name: str
    """Name of the experiment's folder in the workspace."""
    title: str = ""
    """Heading of the report."""
    settings: dict[str, Any] = {}
    """Fixed settings. What compress.py knows is for the runs; task, augmented and all others reach the shared jobs."""
    seeds: tuple[str | int, ...] = ()
    """Seeds, by number or by the thesis's names: every cell runs once with each."""
    shared: tuple[dict[str, dict[str, Any] | None], ...] = ()
    """Jobs done once a task before the runs: splits, teacher, augmented rows, logits."""
    axes: dict[str, list[Any] | dict[str, dict[str, Any]]] = {}
    """Axis -> values of the setting of that name, or label -> settings."""
    rules: tuple[Rule, ...] = ()
    """Conditions, in order."""
    chains: tuple[tuple[Action, ...], ...] = ()
    """Lists of compression actions that every run does, beginning with the same distill; unset: the settings' own."""
    table: TableLayout | None = None
    """Table of means and deviations in the report."""
    quote: Quote | None = None
    """Figures of the thesis to show beside ours."""

    @pydantic.field_validator("axes", mode="after")
    @classmethod
    def _check_axes(cls, axes: dict[str, Any]) -> dict[str, Any]:
        for name, values in axes.items():
            if not values:
                raise ValueError(f"axes: {name} has no values")
            if isinstance(values, list) and name not in RUN_FIELDS:
                raise ValueError(f"axes: {name!r} names no setting of a run{nearest(name, RUN_FIELDS)}")
            if isinstance(values, list) and len(set(map(str, values))) < len(values):
                raise ValueError(f"axes: {name} names a value twice")
        return axes


def read_grid_file(path: Path) -> GridFile:
    """A grid file, on top of its base. Raises UserError for whatever can be told to be wrong without making cells."""
    loaded = load_with_base(path)
    if "jobs" in loaded:
        raise UserError(f"{path} is a list of jobs: python experiment.py run {path}")
    file = build(GridFile, loaded)
    groups = [
        settings or {} for values in file.axes.values() if isinstance(values, dict) for settings in values.values()
    ]
    for settings in (file.axes, file.settings, *groups, *(rule.set for rule in file.rules)):
        refuse_own(settings)
    _check_rules(file)
    _check_table(file)
    if file.quote:
        quoted_figures(file.quote.table)  # a table that the thesis has not is refused now, not when all is done
    return file


def refuse_own(settings: Iterable[str]) -> None:
    """Raises UserError for a setting that is not a grid's to give."""
    for key in settings:
        if instead := _NOT_OURS.get(key.replace("-", "_")):
            raise UserError(f"{key} is not a grid's to set: {instead}")


def _check_table(file: GridFile) -> None:
    known = {*file.axes, "task", "stage"}
    for name in (*file.table.rows, *file.table.columns) if file.table else ():
        if name not in known:
            raise UserError(f"table: {name!r} is no axis{nearest(name, known)}")


def _check_rules(file: GridFile) -> None:
    # Before axes are narrowed: a rule about a value that is left out now is no mistake.
    known = {*file.axes, *RUN_FIELDS}
    for rule in file.rules:
        for key, wanted in rule.when.items():
            if key not in known:
                raise UserError(f"rules: {key!r} is neither an axis nor a setting{nearest(key, known)}")
            for value in wanted if isinstance(wanted, list) else [wanted]:
                _check_value(file, key, value)
        check_known(underscored(rule.set), ["compress"])


def _check_value(file: GridFile, key: str, value: Any) -> None:
    """A rule about a label that no axis can have, or a value that no setting can, would silently match nothing."""
    labels = file.axes.get(key)
    if isinstance(labels, dict) and label_of(value) not in labels:
        raise UserError(f"rules: axis {key} has no value {value!r}{nearest(str(value), labels)}")
    if not isinstance(labels, dict):
        try:
            pydantic.TypeAdapter(CompressSettings.model_fields[key].annotation).validate_python(value)
        except pydantic.ValidationError as error:
            raise UserError(f"rules: {key} cannot be {value!r}: {error.errors()[0]['msg']}") from error


def parse_assignments(words: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE words, their values read as YAML. Raises UserError for another form."""
    values: dict[str, Any] = {}
    for key, text in pairs("--set", words).items():
        try:
            values[key.replace("-", "_")] = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError) as error:  # a date that cannot be is a ValueError
            raise UserError(f"--set {key}={text}: {' '.join(str(error).split())}") from error
    return values


def narrowed(file: GridFile, chosen: dict[str, Any]) -> GridFile:
    """The file with the values chosen for its axes and seeds, which are taken out of `chosen`."""
    refuse_own(chosen)
    changes: dict[str, Any] = {}
    axes = dict(file.axes)
    for key in [key for key in chosen if key in axes or key == "seeds"]:
        value = chosen.pop(key)
        wanted = list({label_of(one): one for one in (value if isinstance(value, list) else [value])}.values())
        if not wanted:
            raise UserError(f"--set {key}: no value is left")
        if key == "seeds":
            changes["seeds"] = tuple(wanted)
        else:
            values = axes[key]
            axes[key] = _named(key, values, list(map(label_of, wanted))) if isinstance(values, dict) else wanted
    return file.model_copy(update={**changes, "axes": axes})


def _named(axis: str, values: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    for label in wanted:
        if label not in values:
            raise UserError(f"--set {axis}: no value {label!r}{nearest(label, values)} (values: {', '.join(values)})")
    return {label: settings for label, settings in values.items() if label in wanted}


def label_of(value: Any) -> str:
    """An axis value's label: true and false as YAML spells them, lists with spaces."""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(label_of, value)) if isinstance(value, list) else str(value)
