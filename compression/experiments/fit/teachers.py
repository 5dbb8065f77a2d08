"""Teachers of a fit: cheap ones first, with logits of train by models that have not learned from the row (out of fold).

A linear model over n-grams takes seconds, and one over the vectors of a frozen encoder takes the time to read the texts
once. The mean of their log-probabilities is often better than an encoder that was fine-tuned in a hurry. If there is
time, a fine-tuned encoder joins.
"""

import math
import time

import numpy as np

from common.config import Settings
from common.data.readers.tables import read_source
from common.data.split import Split
from common.devices import best_precision, pick_device, pick_dtype
from common.errors import UserError
from common.progress import say
from common.stopping import OutOfTime, at_once
from common.teachers.answers import read_answers
from common.teachers.base import SCORING_BATCH
from common.teachers.finetune import find_encoder
from common.teachers.frozen import FrozenEncoder
from common.teachers.linear import counts_parts, temperature_of
from common.teachers.logits import load_logits
from common.training.metrics import main_score
from common.training.models import read_history
from compression.experiments.fit.contents.answers import ANSWERS_FILE, write_answers
from compression.experiments.fit.stages import Stages
from compression.experiments.fit.state import ANSWERS, FINE_TUNED, FROZEN, LINEAR, MEAN, UNSURE, VARIANTS
from compression.runtime import to_probabilities

FOLDS = 4
_LEAST_SECONDS = 30.0
"""With less time left, no encoder is loaded."""
_MOST_TEXTS_A_SECOND = 400
"""Texts that an encoder reads a second on a fast CPU. Loading it takes some seconds, so it must have a chance."""
_UNTIL, _STOPPED = 0.45, 0.5
"""Shares of the whole time at which teachers should be built, and at which one that takes longer is stopped: students
have at least half of the time."""
_MAX_TOKENS, _CONTEXT_TOKENS = 128, 320
"""Tokens of a text, and of a question and its context together, that an encoder reads."""
_BATCHES = 4
"""Batches of texts whose time is measured before the encoder reads all of them."""
_FEWEST_EPOCHS, _MOST_EPOCHS = 2, 3
"""Epochs of fine-tuning."""
_BACKWARD = 3.0
"""Time of a training step in relation to a forward pass."""
_FEWEST_VARIANTS, _MOST_VARIANTS = 3, 10
"""Variants of each text that teachers read for students to learn from."""
_LEAST_SHARE = 1e-6
"""Smallest probability in a teacher's answers, so that logits are finite."""


class Taught(Settings):
    """The teacher that students learn from.

    teacher: its name, or None; why: the teachers' scores, in words; encoder: name of the teacher on vectors of a frozen
    encoder, from whose vectors of words embeddings start, or None.
    """

    teacher: str | None
    why: str
    encoder: str | None = None
    alpha: float = 0.5
    """Weight of the labels in the losses of students: 0 if the teacher's answers have them."""
    variants: int = 0
    """Variants of each text that the teacher has read."""


class _Teachers:
    """The teachers of one fit: builds them as ordinary stages and compares their logits of train."""

    def __init__(self, stages: Stages, train: Split) -> None:
        self.stages, self.train = stages, train
        self.labelled = np.flatnonzero(train.labelled)
        self.logits: dict[str, np.ndarray] = {}
        self.scores: list[str] = []
        """How good they are, in words."""
        self.best: tuple[str, ...] = ()
        """Names of those to learn from."""
        self.best_score = 0.0

    def left(self, share: float) -> float:
        """Return the seconds left until a share of the whole time has passed."""
        return share * self.stages.settings.seconds - self.stages.clock.used

    def build(self, name: str, **flags: object) -> None:
        """Build a cheap teacher and its logits of train by folds, unless it takes too long."""
        try:
            self.stages.run("teachers", "finetune", self.left(_STOPPED), model_name=name, **flags)
            self.read_train(name, folds=FOLDS)
        except OutOfTime:
            pass
        except UserError as error:
            say(f"{name}: {error}")

    def build_cheap(self) -> float:
        """Build the linear teacher and the one over a frozen encoder, if there is time.

        Returns the estimated seconds in which the encoder reads train once; infinite if it cannot be loaded in time.
        """
        settings, task = self.stages.settings, self.stages.task
        seconds = math.inf
        texts = self.train.texts()
        linear_seconds = _linear_seconds(texts, task.outputs) * self.stages.clock.slowdown
        if not task.kind.by_word and linear_seconds < self.left(_STOPPED):
            self.build(LINEAR, arch="linear")
        is_fast = pick_device(settings.cpu).type != "cpu"
        may_read = is_fast or len(texts) / _MOST_TEXTS_A_SECOND < self.left(_UNTIL)
        if self.stages.clock.left > _LEAST_SECONDS and may_read:
            with at_once():
                seconds = _encoder_seconds(self.stages, texts)
        if seconds < self.left(_UNTIL) and not task.kind.by_word:
            self.build(FROZEN, arch=settings.encoder, frozen=True, max_tokens=_MAX_TOKENS)
        return seconds

    def choose(self) -> None:
        """Choose the best teacher, or all if their mean is better."""
        choices = {(name,): self.score(name) for name in self.logits}
        if len(choices) > 1:
            choices[tuple(self.logits)] = self.score(*self.logits)
        if choices:
            self.scores.append(f"on train rows that it has not learned from: {_in_words(choices)}")
            self.best = max(choices, key=lambda names: choices[names])
            self.best_score = choices[self.best]

    def join_answers(self, agreement: bool) -> None:
        """Let the user's answers join the best teachers, whose mean rows without an answer get.

        Without other teachers, all rows must have an answer. If rows have an answer and a label that is not one, what
        is best on these is chosen.
        """
        settings, task, train, best = self.stages.settings, self.stages.task, self.train, self.best
        file = settings.paths.experiment(settings.experiment) / ANSWERS_FILE
        if not file.exists():
            return
        logits = read_answers(file, task, train, "train", partial=True)
        answered = ~np.isnan(logits[:, 0])
        if not best and not answered.all():
            return
        both = np.flatnonzero(answered & train.labelled)
        if len(both):
            logits /= np.float32(temperature_of(task, logits[both], train.labels[both]))
        if best:
            logits[~answered] = np.mean([self.logits[name] for name in best], axis=0)[~answered]
        file = file.with_stem(f"{file.stem}-of-train")
        write_answers(file, task, dict(zip(zip(*train.sentences(), strict=True), logits, strict=True)))
        self.stages.run("teachers", "preprocess", generate_loss=("processed",), logits_from=file, model_name=ANSWERS)
        self.logits[ANSWERS] = load_logits(settings.paths, task, ANSWERS, "train")
        self.best = (*best, ANSWERS)
        if best and len(both) and not agreement:
            choices = {names: self.score(*names, rows=both) for names in (self.best, (ANSWERS,), best)}
            self.scores.append(f"on the {len(both):,} labelled ones with an answer: {_in_words(choices)}")
            self.best = max(choices, key=lambda names: choices[names])
            self.best_score = self.score(*self.best)

    def join_fine_tuned(self, seconds: float) -> None:
        """Let a fine-tuned encoder join the best teachers if there is time for one and it is not worse.

        seconds: estimated seconds in which the encoder reads train once.
        """
        settings, task = self.stages.settings, self.stages.task
        epochs = min(_MOST_EPOCHS, int(self.left(_UNTIL) / ((_BACKWARD + 0.2) * seconds)))
        if epochs < _FEWEST_EPOCHS:
            return
        flags = {"arch": settings.encoder, "model_name": FINE_TUNED, "max_epochs": epochs, "patience": epochs}
        flags["max_tokens"] = _CONTEXT_TOKENS if task.kind.always_pairs else _MAX_TOKENS
        try:  # of one that takes too long, the best epoch is kept
            if self.stages.train("teachers", "finetune", self.left(_STOPPED) - seconds, flags) == 0:
                return
            self.read_train(FINE_TUNED, seconds=2 * seconds)
        except OutOfTime:
            return
        except UserError as error:
            say(f"{FINE_TUNED}: {error}")
            return
        validated = max(epoch["score"] for epoch in read_history(settings.paths.model(task.name, FINE_TUNED)))
        joins = not self.best or validated + 0.5 / np.sqrt(len(self.train)) > self.best_score
        self.scores.append(f"fine-tuned {100 * validated:.1f} on validation, {'joins' if joins else 'left out'}")
        if joins:
            self.best = (*self.best, FINE_TUNED)

    def read_train(self, name: str, seconds: float = 0.0, **flags: object) -> None:
        """Get a teacher's logits of train. seconds: minimum of the time limit. Raises OutOfTime."""
        limit = max(seconds, self.left(_STOPPED))
        self.stages.run("teachers", "preprocess", limit, generate_loss=("processed",), model_name=name, **flags)
        self.logits[name] = load_logits(self.stages.settings.paths, self.stages.task, name, "train")

    def read_variants(self, name: str, count: int) -> int:
        """Write variants of each text of train and get a teacher's logits of them.

        count: number of variants of a text that there is time for. Returns the number of variants of each text.
        """
        count = min(count, _MOST_VARIANTS)
        if count < _FEWEST_VARIANTS:
            return 0
        try:
            self.stages.run("teachers", "preprocess", augment=VARIANTS, variants=count)
            self.stages.run("teachers", "preprocess", self.left(_STOPPED), generate_loss=(VARIANTS,), model_name=name)
        except OutOfTime:
            return 0
        except UserError as error:  # texts of one or two words have no variants
            say(f"{VARIANTS}: {error}")
            return 0
        self.scores.append(f"they have read {count} variants of each text")
        return count

    def score(self, *names: str, rows: np.ndarray | None = None) -> float:
        """Return the score of the mean of some teachers on some rows of train, by default the labelled ones."""
        rows = self.labelled if rows is None else rows
        mean = np.mean([self.logits[name] for name in names], axis=0)
        return main_score(self.stages.task, self.train.labels[rows], mean[rows])

    def mean_of(self, names: tuple[str, ...]) -> str:
        """Return the name of a teacher with the mean logits of some teachers; built if these are several."""
        if len(names) == 1:
            return names[0]
        self.stages.run("teachers", "finetune", ensemble=names, model_name=MEAN)
        self.stages.run("teachers", "preprocess", generate_loss=("processed",), model_name=MEAN, folds=FOLDS)
        return MEAN


def teach(stages: Stages, train: Split, agreement: bool = False) -> Taught:
    """Build the teachers that there is time for. Returns the one to learn from.

    agreement: whether labels are the answers of the user's file, so that nothing says how good these are.
    """
    settings, task = stages.settings, stages.task
    teachers = _Teachers(stages, train)
    seconds = teachers.build_cheap()
    teachers.choose()
    teachers.join_answers(agreement)
    teachers.join_fine_tuned(seconds)
    best = teachers.best
    if not best:
        return Taught(teacher=None, why="none: there was no time for one")
    name = teachers.mean_of(best)
    variants = 0
    read_by = {FROZEN, FINE_TUNED} & {*best}
    if read_by and not (task.kind.by_word or task.pair or settings.has_answers or settings.other):
        variants = teachers.read_variants(name, int(teachers.left(_UNTIL) / (len(read_by) * seconds)))
    encoder = next((encoder for encoder in (FROZEN, FINE_TUNED) if encoder in teachers.logits), None)
    why = f"{' and '.join(best)} ({'; '.join(teachers.scores)})"
    return Taught(teacher=name, why=why, encoder=encoder, variants=variants)


def unsure_of_others(stages: Stages, train: Split, taught: Taught) -> Taught:
    """Return a teacher for which a text of --other has each label with the same probability.

    For other texts it has the mean of their label and of the teacher's probabilities; without a teacher it has the
    label, and texts without one are like those of --other. A student that learns from it is unsure of texts that no
    label is for (outlier exposure: Hendrycks, Mazeika and Dietterich, 2019).
    """
    settings, task = stages.settings, stages.task
    folder = settings.paths.experiment(settings.experiment)
    texts = list(zip(*train.sentences(), strict=True))
    others = set(zip(*read_source(folder / task.source.files["unlabelled"], task, False).sentences(), strict=True))
    labels = np.eye(task.outputs, dtype=np.float32)[train.labels]
    labels[~train.labelled] = 1 / task.outputs
    shares = labels.copy()
    if taught.teacher:
        shares = to_probabilities(load_logits(settings.paths, task, taught.teacher, "train"))
        shares[train.labelled] = (shares + labels)[train.labelled] / 2
    shares[[text in others for text in texts]] = 1 / task.outputs
    file = folder / f"{UNSURE}.parquet"
    write_answers(file, task, dict(zip(texts, np.log(np.maximum(shares, _LEAST_SHARE)), strict=True)))
    stages.run("teachers", "preprocess", generate_loss=("processed",), logits_from=file, model_name=UNSURE)
    return taught.model_copy(update={"teacher": UNSURE, "alpha": 0.0})


def _in_words(scores: dict[tuple[str, ...], float]) -> str:
    return "; ".join(f"{' and '.join(names)} {100 * value:.1f}" for names, value in scores.items())


def _linear_seconds(texts: list[str], outputs: int) -> float:
    """Return the seconds in which a usual computer fits a linear teacher and gets its logits of train."""
    features = 1.15 if counts_parts(texts) else 0.25  # of a text, in relation to its characters
    return 1e-6 * sum(map(len, texts)) * (1.5 + 0.17 * features * outputs)


def _encoder_seconds(stages: Stages, texts: list[str]) -> float:
    """Return the estimated seconds in which the encoder reads all texts once; infinite if it cannot be loaded."""
    settings = stages.settings
    source, _ = find_encoder(settings.encoder, settings.paths.downloads())
    device = pick_device(settings.cpu)
    encoder = FrozenEncoder(source, device, pick_dtype(best_precision(device), device), _MAX_TOKENS)
    by_length = sorted(texts, key=len)
    places = ((np.arange(_BATCHES) + 0.5) / _BATCHES * max(0, len(texts) - SCORING_BATCH)).astype(int)
    # Batches of texts of similar lengths, as `vectors` makes them of all texts.
    sample = [text for place in places for text in by_length[place : place + SCORING_BATCH]]
    # The first call prepares kernels: on a GPU those of each shape, which takes longer than reading all texts.
    encoder.vectors(texts[:4] if device.type == "cpu" else sample)
    began = time.perf_counter()
    encoder.vectors(sample)
    return (time.perf_counter() - began) * len(texts) / len(sample)
