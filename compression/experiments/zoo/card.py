"""The card of a model of the zoo: zoo/<name>.json, next to zoo/<name>.fwt."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from common.config import Settings, build
from common.errors import UserError
from common.store.files import read_json

ZOO = Path(__file__).parents[3] / "zoo"
"""The zoo of this repository."""


class Scores(Settings):
    """Scores of the packed file on one test split."""

    rows: int
    """Number of its rows."""
    data: str
    """Fingerprint of its texts and labels."""
    metrics: dict[str, float]
    """Metric -> score of this file, read by compression.runtime."""


class Spread(Settings):
    """A metric over the seeds of a family, a mean over test splits: PyTorch's scores, of the experiment's rows."""

    mean: float
    sd: float
    """Sample standard deviation, with n - 1."""


class Family(Settings):
    """Models that differ from this one in their seed alone."""

    name: str
    """Its name in the report of the experiment."""
    seeds: tuple[int, ...]
    metrics: dict[str, Spread]


class Teacher(Settings):
    """The teacher that the model learned from."""

    name: str
    encoders: tuple[str, ...]
    """Encoder that was fine-tuned, several for an ensemble; of a teacher imported as logits its name."""
    bytes: int | None
    """Of its weights files; null where it was imported as logits."""
    metrics: dict[str, float]
    """Its own scores on test, a mean over test splits; none where it was imported without answers for test."""


class Training(Settings):
    """Training data of the model."""

    rows: int
    """Rows of train."""
    augmented_rows: int | None
    """Further rows made by augmentation; null: none."""
    augmentation: dict[str, Any] | None
    """Settings of the method, of TinyBERT's Algorithm 1 variants, replace_probability, candidates, fraction; those of
    several sets of rows by their names."""
    alpha: float | None
    """Weight of the labels in the loss; the rest is the teacher's. 1: labels only."""


class TaskNotes(Settings):
    """Notes on a task in zoo/tasks.yaml."""

    question: str
    """Question that a model of the task answers."""
    data: str
    """The dataset, with its source in the literature."""
    source: str
    """Where it is from."""
    licence: str
    """Licence of the data."""
    limits: tuple[str, ...]
    """Limits of the models: texts and uses that they were not built for."""


class Card(Settings):
    """Contents of a card."""

    name: str
    task: str
    about: TaskNotes
    kind: Literal["texts", "pairs", "words", "answers"]
    """Unit that has a label: a text, a pair of texts, or each word of a text; answers are parts of a context."""
    labels: tuple[str, ...]
    """Labels that the model predicts; none where it predicts a score."""
    bytes: int
    """Size of the packed file."""
    sha256: str
    """SHA-256 of the packed file, in hex."""
    test: dict[str, Scores]
    """Test split -> this file's scores."""
    seed: int
    """Seed of this file."""
    family: Family | None
    """Null where only one seed was trained."""
    architecture: dict[str, Any]
    """The student's kind, embedding, sizes, and everything done to it."""
    parameters: int
    teacher: Teacher | None
    """Null for a model trained on labels only."""
    training: Training
    command: str
    """The command that made it."""
    date: str
    """Day on which it was made."""

    def shown(self, metric: str) -> str:
        """Return a score on test for a table, in percent: '83.60', or with two test splits '83.60 / 83.12'."""
        return " / ".join(f"{100 * scores.metrics[metric]:.2f}" for scores in self.test.values())


def read_card(path: Path) -> Card:
    """Return the card in a file. Raises UserError when it is missing or malformed."""
    try:
        return build(Card, read_json(path))
    except UserError as error:
        raise UserError(f"{path}: not a card of the zoo: {error}") from error


def read_cards(folder: Path) -> list[Card]:
    """Return the cards of a zoo, by task and then by size."""
    return sorted(map(read_card, folder.glob("[!.]*.json")), key=lambda card: (card.task, card.bytes))
