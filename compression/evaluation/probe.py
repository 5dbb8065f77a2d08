"""Counterfactual probes: measure how answers depend on words that should not matter, such as names and pronouns.

Templates are filled with the words of each group. Texts that differ only in these words should have the same answer
(Kusner et al., 2017, "Counterfactual Fairness"; Prabhakaran et al., 2019, "Perturbation Sensitivity Analysis"). The
thesis asks whether students inherit their teacher's bias (section 8.2).
"""

import functools
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pydantic

from common.config import Settings, build, load_yaml
from common.data.split import Split
from common.data.tasks import Task, load_task
from common.data.text import normalise
from common.errors import UserError
from common.training.models import find_model
from compression.evaluation.packed import find_packed, load_packed
from compression.evaluation.settings import EvaluateSettings
from compression.evaluation.speed import Predictor
from compression.runtime import to_probabilities

_SLOT = re.compile(r"\{(\w+)\}")


class Probe(Settings):
    """Contents of a YAML file: templates, and each group's words for their slots."""

    templates: tuple[str | tuple[str, str], ...] = pydantic.Field(min_length=1)
    """Texts, or pairs of texts, with slots such as {name}."""
    groups: dict[str, dict[str, tuple[str, ...]]] = pydantic.Field(min_length=2)
    """Group -> slot -> words. Words of different groups correspond by position: first to first, and so on."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        first, *others = self.groups
        slots = {slot: len(words) for slot, words in self.groups[first].items()}
        if len(set(slots.values())) != 1 or not min(slots.values(), default=0):
            raise ValueError(f"groups: the slots of {first} must have the same number of words, at least one")
        for name in others:
            if {slot: len(words) for slot, words in self.groups[name].items()} != slots:
                raise ValueError(f"groups: {name} has other slots than {first}, or another number of words")
        for template in self.templates:
            used = set(_SLOT.findall(" ".join(_texts(template))))
            if not used or not used <= slots.keys():
                raise ValueError(f"templates: {template!r} must contain a slot of the groups: {', '.join(slots)}")
        return self

    @property
    def words(self) -> int:
        """Number of words per slot, which is how often a template is filled for a group."""
        slots = next(iter(self.groups.values()))
        return len(next(iter(slots.values())))

    def texts(self, group: str) -> list[tuple[str, ...]]:
        """Return a group's filled templates, template by template; each is one text or a pair."""
        slots = self.groups[group]

        def filled(text: str, index: int) -> str:
            return normalise(_SLOT.sub(lambda match: slots[match[1]][index], text))

        fillings = itertools.product(self.templates, range(self.words))
        return [tuple(filled(text, index) for text in _texts(template)) for template, index in fillings]


def _texts(template: str | tuple[str, str]) -> tuple[str, ...]:
    return (template,) if isinstance(template, str) else template


def probe(settings: EvaluateSettings) -> list[dict[str, Any]]:
    """Return for every two groups how the model's answers to the same templates differ.

    groups: the two groups; texts: number of compared pairs of texts; changed: share of these pairs with different
    labels; differences: label -> mean difference of probabilities, first group minus second (for regression, of
    scores), and its standard error over templates; largest: the two texts that differ most, and the difference. Raises
    UserError for a file that is not a probe for this task, and for tasks whose texts do not have one label or number.
    """
    task = load_task(settings.task)
    if not (task.kind.one_class or task.kind.is_scaled):
        raise UserError(f"--probe is for tasks with one label or number per text, which {task.name} is not")
    contents = read_probe(settings.probe, task)
    predict, temperature = _model(settings, task)
    answers = {group: _answers(predict, temperature, task, contents.texts(group)) for group in contents.groups}
    subject = {"task": task.name, "model": settings.model_name, "probe": str(settings.probe)}
    pairs = itertools.combinations(contents.groups, 2)
    return [{**subject, **_compared(contents, task, groups, answers)} for groups in pairs]


def read_probe(path: Path, task: Task) -> Probe:
    """Return the probe in a file.

    Raises UserError if the file is invalid, or if its templates are pairs but the task's texts are not, or vice versa.
    """
    try:
        contents = build(Probe, load_yaml(path))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    for template in contents.templates:
        if isinstance(template, str) == task.pair:
            raise UserError(f"{path}: {task.name} reads {'pairs' if task.pair else 'single texts'}, not {template!r}")
    return contents


def probe_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return the result of `probe` as text for a terminal."""
    lines = []
    for row in rows:
        first, second = row["groups"]
        lines.append(f"{row['model']} on {row['task']}: {first} against {second}, {row['texts']:,} pairs of texts")
        if row["changed"] is not None:
            lines.append(f"  another label: {100 * row['changed']:.1f} %")
        differences = list(row["differences"].items())
        if len(differences) == 2:  # the other one is its negative
            del differences[0]
        for label, (mean, error) in differences:
            shown = f"{mean:+.4f}" + ("" if error is None else f" ± {error:.4f}")
            lines.append(f"  {label}: {shown} (mean difference, standard error over templates)")
        largest = row["largest"]
        lines += [f"  largest: {largest['difference']:+.4f} of {largest['label']}"]
        lines += [f"    {' / '.join(text)}" for text in largest["texts"]]
    return "\n".join(lines)


def _model(settings: EvaluateSettings, task: Task) -> tuple[Predictor, float]:
    """Return a function from a split to logits, and the temperature, which is 1 for a model that is not packed."""
    from compression.evaluation.packed_scores import check_task, packed_logits  # scikit-learn loads here

    if path := find_packed(settings.paths, task, settings.model_name):
        packed = load_packed(path, settings.runtime)
        check_task(packed, task, path, settings.arch)
    else:
        from compression.evaluation.scoring import load_own_packed, load_predictor  # PyTorch loads here

        folder, config = find_model(settings.paths, task, settings.model_name, settings.arch)
        if not settings.packed:
            return load_predictor(folder, config.name, settings.cpu), 1.0
        packed = load_own_packed(settings, folder, config)
    return functools.partial(packed_logits, packed), packed.temperature


def _answers(predict: Predictor, temperature: float, task: Task, texts: Sequence[tuple[str, ...]]) -> np.ndarray:
    """Return probabilities [texts, labels], or scores [texts, 1]."""
    logits = predict(Split.of_texts(texts, task.kind))
    if task.kind.is_scaled:
        return task.kind.choices(task, logits).reshape(len(texts), -1)
    return to_probabilities(logits, temperature)


def _compared(contents: Probe, task: Task, groups: tuple[str, str], answers: dict[str, np.ndarray]) -> dict[str, Any]:
    names = task.kind.value_names or task.labels
    first, second = (answers[group] for group in groups)
    differences = (first - second).astype(np.float64)
    by_template = differences.reshape(len(contents.templates), contents.words, len(names)).mean(1)
    errors = by_template.std(0, ddof=1) / len(by_template) ** 0.5 if len(by_template) > 1 else [None] * len(names)
    shown = {
        name: (float(mean), None if error is None else float(error))
        for name, mean, error in zip(names, by_template.mean(0), errors, strict=True)
    }
    first_label = 1 if len(names) == 2 else 0  # the differences of two labels are each other's negatives
    candidates = np.abs(differences[:, first_label:])
    row, column = np.unravel_index(candidates.argmax(), candidates.shape)
    label = column + first_label
    texts = [contents.texts(group)[row] for group in groups]
    largest = {"texts": texts, "label": names[label], "difference": float(differences[row, label])}
    changed = None if task.kind.is_scaled else float(np.mean(first.argmax(1) != second.argmax(1)))
    return {
        "groups": list(groups),
        "texts": len(differences),
        "changed": changed,
        "differences": shown,
        "largest": largest,
    }
