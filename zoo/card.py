"""Card of a model in the zoo: zoo/<name>.json, next to zoo/<name>.fwt."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from common.config import Settings, build
from common.errors import UserError
from common.store.files import read_json

ZOO = Path(__file__).parent
"""The zoo folder of this repository."""


class Scores(Settings):
    """Scores of the packed file on one test split."""

    rows: int
    """Number of rows in the split."""
    data: str
    """Fingerprint of the split's texts and labels."""
    metrics: dict[str, float]
    """Metric -> score of this file, computed with compression.runtime."""


class Spread(Settings):
    """A metric over a family's seeds, averaged over test splits: PyTorch's scores, from the experiment's rows."""

    mean: float
    sd: float
    """Sample standard deviation, with n - 1."""


class Family(Settings):
    """Models that differ from this one only in their seed."""

    name: str
    """Its name in the report of the experiment."""
    seeds: tuple[int, ...]
    metrics: dict[str, Spread]


class Teacher(Settings):
    """The teacher that the model learned from."""

    name: str
    encoders: tuple[str, ...]
    """Encoder that was fine-tuned, several for an ensemble; the teacher's name if it was imported as logits."""
    bytes: int | None
    """Size of its weights files; null if it was imported as logits."""
    metrics: dict[str, float]
    """Its own test scores, averaged over test splits; empty if it was imported without answers for test."""


class Training(Settings):
    """Training data of the model."""

    rows: int
    """Number of rows of train that it learned from."""
    augmented_rows: int | None
    """Number of additional rows from augmentation that it learned from; null: none."""
    augmentation: dict[str, Any] | None
    """Settings of the method: for TinyBERT's Algorithm 1 variants, replace_probability, candidates, fraction; by name
    if there are several sets of rows."""
    alpha: float | None
    """Weight of the labels in the loss, next to the teacher's 1 - alpha. 1: labels only."""


class TaskNotes(Settings):
    """Notes on a task in zoo/tasks.yaml."""

    title: str
    """What the task's models read and answer, in a few words."""
    question: str
    """Question that the task's models answer."""
    data: str
    """The data set and the paper that describes it."""
    source: str
    """Where the data are from."""
    licence: str
    """Licence of the data."""
    use: str
    """What the licence allows to use the models for, if it binds what is trained on the data."""
    limits: tuple[str, ...]
    """Limits of the models: texts and uses that they are not intended for."""


class Card(Settings):
    """Contents of a card."""

    name: str
    task: str
    notes: TaskNotes
    kind: Literal["texts", "pairs", "words", "answers"]
    """Unit that is labelled: a text, a pair of texts, or each word of a text; answers are parts of a context."""
    labels: tuple[str, ...]
    """Labels that the model predicts; empty if it predicts a score."""
    range: tuple[float, float] | None
    """Range of the score: the file's is 0 to 1; null for labels."""
    bytes: int
    """Size of the packed file."""
    sha256: str
    """SHA-256 of the packed file, in hex."""
    test: dict[str, Scores]
    """Test split -> scores of this file."""
    seed: int
    """Seed of this file."""
    family: Family | None
    """Null if only one seed was trained."""
    architecture: dict[str, Any]
    """The student's architecture, embedding, sizes, and all compression applied to it."""
    parameters: int
    teacher: Teacher | None
    """Null for a model trained on labels only."""
    training: Training
    command: str
    """Command that built the model."""
    date: str
    """Date on which the model was built."""

    def shown(self, metric: str) -> str:
        """Return a test score for a table, in percent: '83.60', or '83.60 / 83.12' for two test splits."""
        return " / ".join(f"{100 * scores.metrics[metric]:.2f}" for scores in self.test.values())


def read_card(path: Path) -> Card:
    """Return the card in a file. Raises UserError if it is missing or malformed."""
    try:
        return build(Card, read_json(path))
    except UserError as error:
        raise UserError(f"{path}: not a card of the zoo: {error}") from error


def read_cards(folder: Path) -> list[Card]:
    """Return the cards of a zoo, sorted by task and then by size."""
    return sorted(map(read_card, folder.glob("[!.]*.json")), key=lambda card: (card.task, card.bytes))
