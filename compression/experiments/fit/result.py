"""The result of a fit, as text and as JSON."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from common.config import Settings
from common.store.files import whole_file
from common.tables import text_table
from compression.experiments.commands import packed_commands
from compression.experiments.fit.search import Trained
from compression.experiments.fit.settings import Baseline


class FitResult(Settings):
    """Result of a fit: the contents of the file, the students tried, and the packed file.

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
    student: str
    """The student that was chosen, in words."""
    model: str
    """Its name in the workspace."""
    metric: str
    validation: float
    rows: dict[str, int]
    """Split -> rows."""
    metrics: dict[str, float]
    """Metrics of the packed student on the test rows."""
    baselines: tuple[Baseline, ...]
    packed: str
    """The packed file in the workspace."""
    output: str
    """Path of the packed file given by --output, or the one in the workspace."""
    bytes: int
    sha256: str
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
    def commands(self) -> list[str]:
        """Example commands that use the packed file."""
        scores_of = Path(self.scores_of) if self.scores_of else None
        return packed_commands(Path(self.output), self.example, columns=self.texts, scores_of=scores_of)

    def as_json(self) -> dict[str, Any]:
        """Return all fields and the commands, for JSON."""
        return {**self.model_dump(mode="json"), "commands": self.commands}

    def summary(self) -> list[str]:
        """Return the result in sentences, for the report."""
        score = f"{100 * self.metrics[self.metric]:.2f}"
        lines = [
            f"{self.task}: {self.rows['train']:,} rows to train on, {self.rows['validation']:,} for validation, "
            f"{self.rows['test']:,} for test.",
            *self.notes,
            f"Teacher: {self.teacher}.",
            f"Student: {self.student}, {self.bytes:,} bytes packed; {self.metric} on test {score} "
            f"(on validation {100 * self.validation:.2f}).",
        ]
        lines += [
            f"{baseline.name}: {self.metric} on test {100 * baseline.metrics[self.metric]:.2f} ({baseline.details})."
            if baseline.metrics
            else f"{baseline.name}: absent ({baseline.details})."
            for baseline in self.baselines
        ]
        return [*lines, f"It took {self.seconds / 60:.1f} of {self.minutes:g} minutes."]

    def text(self) -> str:
        """Return the result for a terminal."""
        return "\n".join([*self.summary(), "", tried_table(self.tried, self.metric), "", *self.commands,
                          f"report: {self.report}"])  # fmt: skip


def write_output(packed: Path, output: Path | None) -> None:
    """Copy the packed file to --output, if it is given."""
    if output is not None:
        with whole_file(output) as partial:
            shutil.copyfile(packed, partial)


def tried_table(tried: tuple[Trained, ...], metric: str) -> str:
    """Return the students that were trained as a table, in their order."""
    header = ("student", "epochs", f"{metric}, validation", "bytes, about", "seconds", "")
    body = [
        [
            student.in_words,
            str(student.epochs),
            "" if student.score is None else f"{100 * student.score:.2f}",
            f"{student.candidate.bytes:,}",
            f"{student.seconds:.1f}",
            student.note,
        ]
        for student in tried
    ]
    return text_table(header, body, [False, True, True, True, True, False])
