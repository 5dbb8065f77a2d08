"""Teachers of a fit: cheap ones first, with logits of train by models that have not learned from the row (out of fold).

A linear model over n-grams takes seconds, and one over the vectors of a frozen encoder takes the time to read the texts
once. The mean of their log-probabilities is often better than an encoder that was fine-tuned in a hurry. If there is
time, a fine-tuned encoder joins.
"""

from __future__ import annotations

import json
import time

import numpy as np

from common.config import Settings
from common.data.split import Split
from common.devices import best_precision, pick_device, pick_dtype
from common.errors import UserError
from common.progress import say
from common.stopping import OutOfTime, at_once
from common.teachers.finetune import backend
from common.teachers.frozen import FrozenEncoder
from common.teachers.logits import find_logits, saved_logits
from common.teachers.settings import is_fairseq
from common.training.metrics import main_score
from compression.experiments.fit.stages import Stages
from compression.experiments.fit.state import FINE_TUNED, FROZEN, LINEAR, MEAN

FOLDS = 4
_LEAST_SECONDS = 30.0
"""With less time left, no encoder is loaded."""
_FROZEN_SHARE, _FINE_TUNED_SHARE = 0.35, 0.35
"""Shares of the time left that reading all texts once, and fine-tuning, may take."""
_MAX_TOKENS = 128
_BATCHES, _BATCH = 5, 16
"""Batches of texts whose time is measured before the encoder reads all of them."""
_EPOCHS, _BACKWARD = 3, 3.0
"""Epochs of fine-tuning, and the time of a training step in relation to a forward pass."""


class Taught(Settings):
    """The teacher that students learn from.

    teacher: its name, or None; why: the teachers' scores, in words; encoder: name of the teacher on vectors of a frozen
    encoder, from whose vectors of words embeddings start, or None.
    """

    teacher: str | None
    why: str
    encoder: str | None = None


class _Teachers:
    """The teachers of one fit: builds them as ordinary stages and compares their logits of train."""

    def __init__(self, stages: Stages, train: Split) -> None:
        self.stages, self.train = stages, train
        self.labelled = np.flatnonzero(train.labelled)
        self.logits: dict[str, np.ndarray] = {}

    def build(self, name: str, share: float, folds: int | None, **flags: object) -> None:
        """Build a teacher and its logits of train, unless it takes more than a share of the time left."""
        limit = share * self.stages.clock.left
        out_of_fold = {} if folds is None else {"folds": folds}
        try:
            self.stages.run("teachers", "finetune", limit, model_name=name, **flags)
            self.stages.run(
                "teachers", "preprocess", limit, generate_loss=("processed",), model_name=name, **out_of_fold
            )
        except OutOfTime:
            return
        except UserError as error:
            say(f"{name}: {error}")
            return
        task = self.stages.task
        self.logits[name] = saved_logits(task, find_logits(self.stages.settings.paths, task, name, "train").path)

    def score(self, *names: str) -> float:
        """Return the score of the mean of some teachers on the labelled rows of train."""
        mean = np.mean([self.logits[name] for name in names], axis=0)
        return main_score(self.stages.task, self.train.labels[self.labelled], mean[self.labelled])

    def mean_of(self, names: tuple[str, ...]) -> str:
        """Return the name of a teacher with the mean logits of some teachers; built if these are several."""
        if len(names) == 1:
            return names[0]
        self.stages.run("teachers", "finetune", None, ensemble=names, model_name=MEAN)
        self.stages.run("teachers", "preprocess", None, generate_loss=("processed",), model_name=MEAN, folds=FOLDS)
        return MEAN


def teach(stages: Stages, train: Split) -> Taught:
    """Build the teachers that there is time for. Returns the one to learn from."""
    settings, clock, task = stages.settings, stages.clock, stages.task
    if task.kind.by_word:
        return Taught(teacher=None, why="none: cheap teachers label whole texts")
    teachers = _Teachers(stages, train)
    teachers.build(LINEAR, 0.4, FOLDS, arch="linear")
    texts = [text for column in train.sentences() for text in column]
    seconds = float("inf")
    if clock.left > _LEAST_SECONDS and not is_fairseq(settings.encoder):
        with at_once():
            seconds = _encoder_seconds(stages, texts)
    if seconds < _FROZEN_SHARE * clock.left:
        teachers.build(FROZEN, 2 * _FROZEN_SHARE, FOLDS, arch=settings.encoder, frozen=True, max_tokens=_MAX_TOKENS)
    scores = {(name,): teachers.score(name) for name in teachers.logits}
    if not scores:
        return Taught(teacher=None, why="none: there was no time for one")
    if len(scores) > 1:
        scores[tuple(teachers.logits)] = teachers.score(*teachers.logits)
    best = max(scores, key=lambda names: scores[names])
    why = "; ".join(f"{' and '.join(names)} {100 * value:.1f}" for names, value in scores.items())
    why = f"{' and '.join(best)} (on train rows that it has not learned from: {why})"
    if _EPOCHS * (_BACKWARD + 0.2) * seconds < _FINE_TUNED_SHARE * clock.left:
        teachers.build(
            FINE_TUNED,
            2 * _FINE_TUNED_SHARE,
            None,
            arch=settings.encoder,
            max_epochs=_EPOCHS,
            patience=_EPOCHS,
            max_tokens=_MAX_TOKENS,
        )
        if FINE_TUNED in teachers.logits:
            score = _validation_score(stages)
            joins = score + 0.5 / np.sqrt(len(train)) > scores[best]
            best = (*best, FINE_TUNED) if joins else best
            why += f"; fine-tuned {100 * score:.1f} on validation" + (", joins" if joins else ", left out")
    encoder = FROZEN if FROZEN in teachers.logits else None
    return Taught(teacher=teachers.mean_of(best), why=why, encoder=encoder)


def _encoder_seconds(stages: Stages, texts: list[str]) -> float:
    """Return the estimated seconds in which the encoder reads all texts once; infinite if it cannot be loaded."""
    settings = stages.settings
    source, _ = backend(settings.encoder).resolve(settings.encoder, settings.paths.downloads())
    device = pick_device(settings.cpu)
    encoder = FrozenEncoder(source, device, pick_dtype(best_precision(device), device), _MAX_TOKENS)
    encoder.vectors(texts[:4])  # the first call also prepares kernels
    by_length = sorted(texts, key=len)
    places = np.linspace(0, max(0, len(texts) - _BATCH), _BATCHES).astype(int)
    batches = [by_length[place : place + _BATCH] for place in places]  # of similar lengths, as they are read later
    began = time.perf_counter()
    for batch in batches:
        encoder.vectors(batch)
    return (time.perf_counter() - began) * len(texts) / sum(map(len, batches))


def _validation_score(stages: Stages) -> float:
    """Return the best score of the fine-tuned encoder on validation."""
    history = stages.settings.paths.model(stages.task.name, FINE_TUNED) / "history.jsonl"
    return max(json.loads(line)["score"] for line in history.read_text(encoding="utf-8").splitlines())
