"""Grid files: reading and checking a file, and replacing the values of its axes and settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pydantic
import yaml

from common.config import Settings, build, load_with_base, nearest, pairs, underscored
from common.errors import UserError
from compression.experiments.chain import ExperimentFile
from compression.experiments.jobs import check_known
from compression.experiments.report.record import Quote, TableLayout
from compression.experiments.report.reference import quoted_figures
from compression.shrinking.settings import Action, CompressSettings

RUN_FIELDS = set(CompressSettings.model_fields)
"""Settings of a run."""
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


class Rule(Settings):
    """Settings for the cells of a grid that match, or their exclusion."""

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


class GridFile(ExperimentFile):
    """A YAML file of a grid in configs/experiments."""

    shared: tuple[dict[str, dict[str, Any] | None], ...] = ()
    """Jobs done once per task before the runs: splits, teacher, augmented rows, logits. A job with `for_tasks: [NAME]`
    is for those tasks only. A finetune job with `each_seed: true` trains a teacher for every seed; reports show their
    mean, and students learn from the last one."""
    axes: dict[str, list[Any] | dict[str, dict[str, Any]]] = {}
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
            if isinstance(values, list) and len(set(map(str, values))) < len(values):
                raise ValueError(f"axes: {name} has a value twice")
        return axes


def read_grid_file(path: Path) -> GridFile:
    """Return a grid file merged with its base. Raises UserError for errors that can be found before building cells."""
    loaded = load_with_base(path)
    if "jobs" in loaded:
        raise UserError(f"{path} is a list of jobs: python experiment.py run {path}")
    file = build(GridFile, loaded)
    labelled = [labels for labels in file.axes.values() if isinstance(labels, dict)]
    groups = [settings or {} for labels in labelled for settings in labels.values()]
    for settings in (file.axes, file.settings, *groups, *(rule.set for rule in file.rules)):
        _check_allowed(settings)
    _check_rules(file)
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


def _check_rules(file: GridFile) -> None:
    # Checked before axes are narrowed: a rule for a value that --set leaves out is not an error.
    known = {*file.axes, *RUN_FIELDS}
    for rule in file.rules:
        for key, values in rule.when.items():
            if key not in known:
                raise UserError(f"rules: {key!r} is neither an axis nor a setting{nearest(key, known)}")
            for value in values if isinstance(values, list) else [values]:
                _check_value(file, key, value)
        check_known(underscored(rule.set), ["compress"])


def _check_value(file: GridFile, key: str, value: Any) -> None:
    """Raise UserError for a label or value that the axis or setting cannot have, since it would never match."""
    labels = file.axes.get(key)
    if isinstance(labels, dict):
        if label_of(value) not in labels:
            raise UserError(f"rules: axis {key} has no value {value!r}{nearest(str(value), labels)}")
        return
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


def narrowed(file: GridFile, chosen: dict[str, Any]) -> tuple[GridFile, dict[str, Any]]:
    """Return the file with the values chosen for its axes and seeds, and the other chosen settings."""
    _check_allowed(chosen)
    axes, seeds = dict(file.axes), file.seeds
    for key in [key for key in chosen if key in axes or key == "seeds"]:
        values = chosen[key] if isinstance(chosen[key], list) else [chosen[key]]
        by_label = {label_of(value): value for value in values}
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
    others = {key: value for key, value in chosen.items() if key not in axes and key != "seeds"}
    return file.model_copy(update={"seeds": seeds, "axes": axes}), others


def label_of(value: Any) -> str:
    """Return an axis value's label: true and false as in YAML, 1 for 1.0, lists with spaces."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return " ".join(map(label_of, value)) if isinstance(value, list | tuple) else str(value)
