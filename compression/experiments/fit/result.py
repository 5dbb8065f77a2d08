"""The result of a fit, as text and as JSON."""

import math
import shutil
from pathlib import Path
from typing import Any

from common.config import Settings
from common.store.files import whole_file
from compression.evaluation.label_scores import LabelScore
from compression.experiments.commands import packed_commands
from compression.experiments.fit.settings import Baseline
from compression.experiments.fit.students import Trained
from compression.runtime import load
from compression.runtime.model import Texts

_FEW_EPOCHS = 3
"""A student that was trained for fewer is certainly not as good as it could be."""


class Answered(Settings):
    """Share of the rows whose answers have at least this probability, and the accuracy on these; None without any."""

    probability: float
    share: float
    accuracy: float | None


class Packed(Settings):
    """The packed file of one size. In fit.json, its paths are relative to the workspace."""

    max_bytes: int
    student: str
    """The student that was chosen, in words."""
    model: str
    """Its name in the workspace."""
    epochs: int
    """Epochs that it was trained for, before quantization."""
    validation: float
    """Its score on validation."""
    metrics: dict[str, float]
    """Its metrics on the test rows, each with its most probable label."""
    at_threshold: Answered | None = None
    """Share of the test rows that the packed file answers, and the accuracy on these; None without --reject."""
    packed: str
    """The packed file in the workspace."""
    output: str
    """Path of the packed file given by --output, else the one in the workspace; in fit.json always the latter."""
    bytes: int
    sha256: str


class Mistake(Settings):
    """A wrong answer. row: number in the test split, from 0; probability: of the answer, None for numbers."""

    row: int
    text: str
    label: str
    answer: str
    probability: float | None


class Analysis(Settings):
    """Answers of a student to the labelled rows of the test split.

    per_label is empty for numbers, confusion and answered also if no row is labelled. confusion: label -> answer ->
    rows, without zeros; for tasks of one label a text only. mistakes: the most confident ones first, or the largest.
    """

    per_label: tuple[LabelScore, ...] = ()
    confusion: dict[str, dict[str, int]] = {}
    mistakes: tuple[Mistake, ...] = ()
    answered: tuple[Answered, ...] = ()


class Opening(Settings):
    """Contents of the user's file, as known before the first stage."""

    task: str
    """Contents of the file, in words."""
    notes: tuple[str, ...]
    texts: tuple[str, ...]
    """Columns of texts."""
    agreement: bool = False
    """Whether the labels of the test rows are the answers of a teacher."""


class FitResult(Opening):
    """Result of a fit: the contents of the file, the students tried, and the packed files.

    In fit.json, paths in the workspace are relative to it.
    """

    name: str
    """Name of the experiment and of the task in the workspace."""
    file: str
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
    analysis: Analysis = Analysis()
    """Of the recommended packed file's answers to the test rows."""
    seconds: float
    """Seconds taken by the whole fit."""
    minutes: float
    report: str
    example: tuple[str, ...]
    """A row to try the packed file with."""
    explains: bool = True
    """Whether --explain of predict.py applies: not to labels of words."""
    scores_of: str | None = None
    """The task's YAML file if it is a regression; it holds the range of the scores."""

    @property
    def best(self) -> Packed:
        """The recommended packed file."""
        return self.sizes[self.chosen]

    @property
    def score_name(self) -> str:
        """Name of the score in sentences."""
        return f"agreement with the teacher ({self.metric})" if self.agreement else self.metric

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the recommended packed file on the test rows."""
        return self.best.metrics

    @property
    def per_label(self) -> tuple[LabelScore, ...]:
        """Precision, recall, F1 and rows of each label on the test rows."""
        return self.analysis.per_label

    @property
    def confusion(self) -> dict[str, dict[str, int]]:
        """Label -> answer -> test rows, without zeros; empty if a row has several labels or a number."""
        return self.analysis.confusion

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
        return packed_commands(Path(self.output), self.example, self.explains, self.texts, scores_of)

    def as_json(self) -> dict[str, Any]:
        """Return all fields, those of the recommended packed file and of its analysis, and words on them, for JSON."""
        fields = self.model_dump(mode="json")
        words = {"warnings": self.warnings, "commands": self.commands}
        return {**self.best.model_dump(mode="json"), **fields.pop("analysis"), **fields, **words}

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
        if self.best.epochs < _FEW_EPOCHS:
            warnings.append(f"There was time for few epochs of training ({self.best.epochs}). Give more --minutes.")
        return warnings

    def summary(self) -> list[str]:
        """Return the result in sentences, for the report."""
        train, validation, test = (f"{self.rows[name]:,}" for name in ("train", "validation", "test"))
        rows = f"{train} rows to train on, {validation} for validation, {test} for test"
        lines = [f"{self.task}: {rows}.", *self.notes, f"Teacher: {self.teacher}.", *map(self._in_words, self.sizes)]
        if len(self.sizes) > 1:
            lines.append(f"Recommended: {self.bytes:,} bytes ({self.output}).")
        for one in self.baselines:
            score = f"{self.score_name} on test {_percent(one.metrics[self.metric])}" if one.metrics else "absent"
            lines.append(f"{one.name}: {score} ({one.details}).")
        return [*lines, *self.warnings, f"It took {self.seconds / 60:.1f} of {self.minutes:g} minutes."]

    def _in_words(self, size: Packed) -> str:
        score, answered = size.metrics[self.metric], size.at_threshold
        text = f"Student: {size.student}, {size.bytes:,} bytes packed; {self.score_name} on test {_percent(score)}"
        if self.metric == "accuracy":
            low, high = wilson(score, self.rows["test"])
            text += f" (95 % interval {_percent(low)} to {_percent(high)})"
        text += f", on validation {_percent(size.validation)}."
        if answered:
            right = "" if answered.accuracy is None else f", {_percent(answered.accuracy)} % of these right"
            text += f" Answers {_percent(answered.share)} % of the test texts{right} (the others: none of these)."
        return text

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
