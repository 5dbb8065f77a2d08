"""The result of a fit, as text and as JSON."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

from common.config import Settings
from common.store.files import whole_file
from compression.experiments.commands import packed_commands
from compression.experiments.fit.search import Trained
from compression.experiments.fit.settings import Baseline
from compression.runtime import load
from compression.runtime.model import Texts


class Packed(Settings):
    """The packed file of one size. In fit.json, its path in the workspace is relative to that."""

    max_bytes: int
    student: str
    """The student that was chosen, in words."""
    model: str
    """Its name in the workspace."""
    validation: float
    """Its score on validation."""
    metrics: dict[str, float]
    """Its metrics on the test rows."""
    packed: str
    """The packed file in the workspace."""
    output: str
    """Path of the packed file given by --output, or the one in the workspace."""
    bytes: int
    sha256: str


class FitResult(Settings):
    """Result of a fit: the contents of the file, the students tried, and the packed files.

    In fit.json, paths in the workspace are relative to it.
    """

    name: str
    """Name of the experiment and of the task in the workspace."""
    file: str
    task: str
    """Contents of the file, in words."""
    notes: tuple[str, ...]
    teacher: str
    """Description of the teacher's work, or the reason for no teacher."""
    stages: dict[str, float]
    """Stage -> seconds taken."""
    tried: tuple[Trained, ...]
    sizes: tuple[Packed, ...]
    """The packed file of each size, in the order of --max-bytes."""
    chosen: int
    """Place in `sizes` of the recommended one."""
    metric: str
    rows: dict[str, int]
    """Split -> rows."""
    majority: float | None
    """Share of the test rows that have the most frequent label; None if rows have no single label."""
    baselines: tuple[Baseline, ...]
    seconds: float
    """Seconds taken by the whole fit."""
    minutes: float
    report: str
    texts: tuple[str, ...]
    """Columns of texts."""
    example: tuple[str, ...]
    """A row to try the packed file with."""
    scores_of: str | None = None
    """The task's YAML file if it is a regression; it holds the range of the scores."""

    @property
    def best(self) -> Packed:
        """The recommended packed file."""
        return self.sizes[self.chosen]

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the recommended packed file on the test rows."""
        return self.best.metrics

    @property
    def bytes(self) -> int:
        """Size of the recommended packed file."""
        return self.best.bytes

    @property
    def output(self) -> str:
        """Path of the recommended packed file."""
        return self.best.output

    def predict(self, texts: Texts) -> list[Any]:
        """Return the recommended packed file's answer to each text, as `compression.runtime` does."""
        return load(self.output).predict(texts)

    @property
    def commands(self) -> list[str]:
        """Example commands that use the packed file."""
        scores_of = Path(self.scores_of) if self.scores_of else None
        return packed_commands(Path(self.output), self.example, columns=self.texts, scores_of=scores_of)

    def as_json(self) -> dict[str, Any]:
        """Return all fields, those of the recommended packed file, and the commands, for JSON."""
        return {**self.best.model_dump(mode="json"), **self.model_dump(mode="json"), "commands": self.commands}

    @property
    def warnings(self) -> list[str]:
        """Return what is wrong with the result, in sentences with what to do; --strict makes it an exit code."""
        score, tested = self.metrics[self.metric], max(1, self.rows["test"])
        margin = 1.96 * math.sqrt(0.25 / tested)
        better = [one for one in self.baselines if one.metrics and one.metrics[self.metric] > score + 0.5 * margin]
        advice = "Give more --minutes, more rows or a larger --max-bytes, or look at the labels."
        warnings = []
        if self.majority is not None and score <= self.majority + 0.5 * margin:
            warnings.append(f"The result is no better than always the same label ({_percent(self.majority)}). {advice}")
        if better:
            best = max(better, key=lambda baseline: baseline.metrics[self.metric])
            warnings.append(f"The result is behind {best.name} ({_percent(best.metrics[self.metric])}). {advice}")
        return warnings

    def summary(self) -> list[str]:
        """Return the result in sentences, for the report."""
        rows = self.rows
        lines = [
            f"{self.task}: {rows['train']:,} rows to train on, {rows['validation']:,} for validation, "
            f"{rows['test']:,} for test.",
            *self.notes,
            f"Teacher: {self.teacher}.",
            *(self._in_words(size) for size in self.sizes),
        ]
        if len(self.sizes) > 1:
            lines.append(f"Recommended: {self.bytes:,} bytes ({self.output}).")
        lines += [
            f"{baseline.name}: {self.metric} on test {_percent(baseline.metrics[self.metric])} ({baseline.details})."
            if baseline.metrics
            else f"{baseline.name}: absent ({baseline.details})."
            for baseline in self.baselines
        ]
        return [*lines, *self.warnings, f"It took {self.seconds / 60:.1f} of {self.minutes:g} minutes."]

    def _in_words(self, size: Packed) -> str:
        score, interval = size.metrics[self.metric], ""
        if self.metric == "accuracy":
            low, high = wilson(score, self.rows["test"])
            interval = f" (95 % interval {_percent(low)} to {_percent(high)})"
        return (
            f"Student: {size.student}, {size.bytes:,} bytes packed; {self.metric} on test {_percent(score)}{interval}, "
            f"on validation {_percent(size.validation)}."
        )

    def tried_students(self) -> str:
        """Return the students that were tried, in their order, as a sentence."""
        tried = [
            f"{student.in_words} {student.note or f'{_percent(student.score)} ({student.epochs} epochs)'}"
            for student in self.tried
        ]
        return f"Tried, {self.metric} on validation: {'; '.join(tried)}."

    def text(self) -> str:
        """Return the result for a terminal; the report has the students that were tried."""
        return "\n".join([*self.summary(), "", self.commands[0], self.commands[-1], f"report: {self.report}"])


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of `count` rows (Wilson, 1927)."""
    z = 1.96
    centre, width = share + z * z / (2 * count), z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    scale = 1 + z * z / count
    return (centre - width) / scale, (centre + width) / scale


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def write_output(packed: Path, output: Path | None) -> None:
    """Copy the packed file to --output, if it is given."""
    if output is not None:
        with whole_file(output) as partial:
            shutil.copyfile(packed, partial)
