"""The search for the best student: every kind once, then variations of the best one, for as long as there is time.

A training takes seconds, so each student is trained to the end, with a learning rate that falls to zero. The clock is
looked at before each training: it gets the epochs that fit into a share of the time left, at the speed of the trainings
before it.
"""

import math
import time
from collections.abc import Iterator
from typing import Any

import torch

from common.data.split import load_split
from common.errors import UserError
from common.progress import say
from common.stopping import OutOfTime
from common.training.metrics import main_score
from compression.experiments.fit.stages import Stages
from compression.experiments.fit.state import PACKED, TRAINED, VARIANTS
from compression.experiments.fit.students import VARIATIONS, Candidate, Trained, candidates, varied
from compression.experiments.fit.teachers import Taught
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits

_CPU = torch.device("cpu")
_BATCH_SIZES = ((2000, 32), (20_000, 64), (math.inf, 256))
"""Batch size of trainings with fewer rows."""
_STEPS = 1500
"""Optimizer steps of a training, if there is time for them."""
_FEWEST_STEPS = 200
"""Those of the first bag, whatever time is left: they take seconds, and fewer teach it nothing."""
_USUAL_EPOCHS = (15, 40)
"""Fewest and most epochs of a training, if there is time for them."""
_FEWEST_EPOCHS = 6
"""A slow student is tried if there is time for so many, or, for pairs, for half of the optimizer steps."""
_FIRST_SHARE, _SHARE = 0.7, 0.25
"""Shares of the time left that one training may take: of a bag or of the first kind for pairs, and of any other kind. A
variation may take all of it."""
_OVER = 2.0
"""A training that takes this many times its share of the time is stopped."""
_ROWS_A_SECOND = 6000
"""Rows of an epoch, before one was measured."""
_OVER_AGAIN = 1.3
"""Time of the last training, with validation's rows, in relation to the same training without them."""
_TUNED = 2.0
"""Time of an epoch of quantization-aware training in relation to one of training."""
_FEWER = 0.6
"""A bag with less than this share of the best student's epochs would say little, and is not trained."""
_SLOWER = {"ffn": 1, "conv": 4, "bilstm": 10}
_SLOWER_PAIRS = {"ffn": 1, "conv": 2, "bilstm": 4}
"""Approximate time of an epoch in relation to a bag's, until one was measured; bags of pairs take longer."""
_MANY_OUTPUTS = 8
"""With so many outputs, a bag's embeddings start from the teacher's logits; with fewer, from its encoder's vectors."""
_TUNE_EPOCHS, _TUNE_BATCH = 10, 4
"""Epochs of quantization-aware training, and its batch size in relation to that of training, at most 256."""
_FINALISTS = 2
_REFIT_ROWS = 1 / 12
"""Validation's rows are learned from in the end if they are at least this share of train's. On five sets of 900 to
10,300 rows they added 1.0 points, on two of 14,000 and 19,000 nothing."""
_REFIT_SHARE = 0.35
"""Largest share of the time of all students that may be kept for it."""
_REJECTION_BYTES = 8
"""Bytes that --reject adds to a packed file, at most."""
_LONG_TEXT = 600
"""Mean characters of long texts."""


class Search:
    """The students of one size: which were trained, how long they took, and how good they are on validation."""

    def __init__(self, stages: Stages, max_bytes: int, taught: Taught, train_until: float, pack_until: float) -> None:
        """taught: the teacher to learn from; train_until, pack_until: seconds of the clock at which each should end."""
        self.stages, self.task, self.state, self.clock = stages, stages.task, stages.state, stages.clock
        self.max_bytes, self.taught = max_bytes, taught
        self.train_until, self.pack_until = train_until, pack_until
        self.seconds = pack_until - self.clock.used
        """Seconds for all students."""
        paths = stages.settings.paths
        validation = load_split(paths, self.task, "validation")
        self.held_out = validation.labelled_rows()
        train = load_split(paths, self.task, "train")
        self.rows = len(train)
        self.has_pairs = self.task.pair and not self.task.kind.by_word
        self.long_texts = sum(map(len, train.sentence1)) > _LONG_TEXT * self.rows
        self.batch_size = next(size for most, size in _BATCH_SIZES if self.rows < most)
        self.row_seconds: dict[str, float] = {}
        """Seconds of a row in training, by architecture."""
        self.trained: list[Trained] = []
        self.error: UserError | None = None

    @property
    def left(self) -> float:
        """Seconds left for training students, besides the last training, with validation's rows."""
        return self.train_until - self.clock.used - self._refit_seconds

    @property
    def _refit_seconds(self) -> float:
        settings, ranked = self.stages.settings, self.ranked()
        is_possible = not (settings.reject or settings.has_answers or settings.other)  # validation has no answers
        if not (ranked and is_possible and len(self.held_out) >= _REFIT_ROWS * self.rows):
            return 0.0
        seconds = (_OVER_AGAIN + _TUNED * _TUNE_EPOCHS / ranked[0].epochs) * ranked[0].seconds
        return seconds if seconds <= _REFIT_SHARE * self.seconds else 0.0

    def run(self) -> Trained:
        """Return the student that is best on validation, quantized and packed. Raises UserError if none fits."""
        dropout = 0.1 if self.rows > 5000 else 0.2
        kinds = candidates(self.task, self.max_bytes, dropout, self.long_texts, self.taught.alpha)
        for candidate in kinds:
            is_first_of_pairs = self.has_pairs and not self.trained
            share = _FIRST_SHARE if candidate.is_bag or is_first_of_pairs else _SHARE
            if self._epochs(candidate, share) >= self._fewest_epochs(candidate):
                self._train(candidate, "", share)
        if not self.ranked():
            self._train(kinds[0], "", _SHARE, must=True)
        if not self.ranked():
            raise self.error or UserError(f"{self.stages.settings.file}: no student could be trained")
        improved = True
        while improved:
            improved = False
            for change, candidate in self._changes():
                before = self.ranked()[0]
                epochs = self._epochs(candidate, share=1)
                if epochs * self._epoch_rows(candidate) < _FEWER * before.epochs * self._epoch_rows(before.candidate):
                    continue
                if candidate.flags["epochs"] > before.candidate.flags["epochs"] and epochs <= before.epochs:
                    continue  # there is no time for more epochs
                self._train(candidate, change, share=1)
                improved |= self.ranked()[0] is not before
        return self._packed()

    def _fewest_epochs(self, candidate: Candidate) -> float:
        """Return the number of epochs for which there must be time if a kind is to be tried."""
        if candidate.is_bag:
            ranked = self.ranked()
            return _FEWER * ranked[0].epochs if ranked else self._first_epochs(candidate)
        if self.has_pairs:
            return min(_FEWEST_EPOCHS, self._epochs_of(candidate, _STEPS // 2))
        return _FEWEST_EPOCHS

    def ranked(self) -> list[Trained]:
        """Return the trained students, the best first."""
        return sorted((student for student in self.trained if student.score is not None), key=self._rank)

    def _rank(self, student: Trained) -> tuple[int, float]:
        """Return the place of a student among others, lower is better.

        Scores that differ by less than half their standard error are equal; then the lower loss decides.
        """
        step = 0.25 / math.sqrt(len(self.held_out))
        return -round(student.score / step), student.loss

    def _changes(self) -> Iterator[tuple[str, Candidate]]:
        """Yield variations of the best student so far, without those that were tried; it may change in between."""
        best = self.ranked()[0].candidate
        tried = [student.candidate.flags for student in self.trained]
        if self.taught.variants and best.is_bag and "augmented" not in best.flags:
            flags = {**best.flags, "augmented": VARIANTS, "alpha": 0.0}
            if flags not in tried:
                yield "with variants of the texts", best.model_copy(update={"flags": flags})
        for change, factors in VARIATIONS:
            candidate = varied(self.task, self.ranked()[0].candidate, factors, self.max_bytes)
            if candidate is not None and candidate.flags not in tried:
                tried.append(candidate.flags)
                yield change, candidate

    def _epoch_rows(self, candidate: Candidate) -> int:
        return self.rows * (1 + self.taught.variants if "augmented" in candidate.flags else 1)

    def _epochs_of(self, candidate: Candidate, steps: int) -> int:
        """Return the number of epochs, at least one, that have about as many optimizer steps."""
        steps_of_one = math.ceil(self._epoch_rows(candidate) / self.batch_size)
        return max(1, round(steps / steps_of_one))

    def _usual_epochs(self, candidate: Candidate) -> int:
        """Return the number of epochs that a candidate is trained for, if there is time for them."""
        usual = max(_USUAL_EPOCHS[0], min(_USUAL_EPOCHS[1], self._epochs_of(candidate, _STEPS)))
        return round(usual * candidate.flags["epochs"])

    def _first_epochs(self, candidate: Candidate) -> int:
        """Return the number of epochs that the first bag is trained for, whatever time is left."""
        epochs = self._epochs_of(candidate, _FEWEST_STEPS)
        return min(epochs, self._usual_epochs(candidate))

    def _epochs(self, candidate: Candidate, share: float) -> int:
        """Return the number of epochs that a candidate is trained for, in a share of the time left."""
        arch = candidate.flags["student_arch"]
        measured = self.row_seconds or {"ffn": 1 / _ROWS_A_SECOND}
        slower = _SLOWER_PAIRS if self.has_pairs else _SLOWER
        reference = min(measured, key=lambda name: slower[name])
        row_seconds = measured.get(arch, measured[reference] * slower[arch] / slower[reference])
        epoch_seconds = row_seconds * self._epoch_rows(candidate)
        return min(self._usual_epochs(candidate), int(share * self.left / epoch_seconds))

    def _train(self, candidate: Candidate, change: str, share: float, must: bool = False) -> None:
        """Train a candidate in a share of the time left, and add it with its score to the trained ones.

        must: train it for the fewest epochs, whatever time is left.
        """
        name = f"{candidate.student.replace(' ', '-')}-{self.max_bytes}-{len(self.trained) + 1}"
        student = self.state.decide(
            f"{TRAINED} {name}", Trained, lambda: self._distilled(name, candidate, change, share, must)
        )
        self.trained.append(student)
        if student.seconds:
            rows = student.epochs * self._epoch_rows(candidate)
            self.row_seconds[candidate.flags["student_arch"]] = student.seconds / rows

    def _distilled(self, name: str, candidate: Candidate, change: str, share: float, must: bool) -> Trained:
        """Return a candidate with its result, or with a note on why there is none. share, must: as in `_train`."""
        epochs = self._first_epochs(candidate) if must else self._epochs(candidate, share)
        student = Trained(model=name, candidate=candidate, change=change, epochs=epochs)
        if epochs < 1:
            return student.model_copy(update={"note": "no time left"})
        flags = {**self._flags(candidate), "epochs": epochs, "patience": epochs, "model_name": name}
        limit = None if must else min(1, _OVER * share) * self.left + 1
        began = time.perf_counter()
        try:
            completed = self.stages.train("students", "compress", limit, flags)
        except UserError as error:
            say(f"{name}: {error}")
            self.error = error
            return student.model_copy(update={"note": str(error)[:80]})
        if completed == 0:
            seconds = time.perf_counter() - began
            return student.model_copy(update={"epochs": 1, "seconds": seconds, "note": "stopped in its first epoch"})
        if completed:
            student = student.model_copy(update={"epochs": completed, "note": "stopped early"})
        student = student.model_copy(update={**self._validated(name), "seconds": time.perf_counter() - began})
        say(f"[{self.clock.used:.0f} s] {student.in_words}: {student.score:.4f} on validation, {student.seconds:.0f} s")
        return student

    def _flags(self, candidate: Candidate) -> dict[str, Any]:
        """Return the flags of compress.py that distil a candidate, besides its epochs and its name."""
        flags = {name: value for name, value in candidate.flags.items() if name != "epochs"}
        flags |= {"compression_actions": ("distill",), "batch_size": self.batch_size}
        if self.taught.teacher is None:
            return {**flags, "alpha": 1.0, "only_original_data": True}
        if candidate.is_bag and not self.task.pair and self.task.outputs >= _MANY_OUTPUTS:
            flags["embedding_init"] = "logits"
        elif self.taught.encoder and (self.task.kind.by_word or flags.get("ngrams") == "words"):
            flags["embedding_init"] = self.taught.encoder
        loss = {"loss": "kl", "temperature": 1.0} if self.task.kind.has_distributions else {"loss": "mse"}
        return {**flags, **loss, "only_original_data": "augmented" not in flags, "teacher": self.taught.teacher}

    def _validated(self, name: str) -> dict[str, float]:
        student, tokenizer, _ = load_student(self.stages.settings.paths.model(self.task.name, name), _CPU)
        logits = student_logits(student, encode_split(tokenizer, self.held_out), _CPU, name)
        score = main_score(self.task, self.held_out.labels, logits, self.held_out.sentence2)
        if self.task.kind.by_word:  # hardly two students have the same score
            return {"score": score, "loss": 0.0}
        targets = torch.from_numpy(self.task.kind.targets(self.task, self.held_out.labels))
        return {"score": score, "loss": self.task.kind.label_loss(torch.from_numpy(logits), targets).item()}

    def _packed(self) -> Trained:
        """Return the best finalist, quantized and packed; a student that does not fit is replaced by the next one."""
        done: list[tuple[Trained, Trained]] = []
        for student in self.ranked():
            spent = max((packed.seconds for _, packed in done), default=0.0)
            left = self.pack_until - self.clock.used - self._refit_seconds
            if len(done) == _FINALISTS or (done and left < 2 * spent):
                break
            try:
                done.append((student, self._quantized(student)))
            except UserError as error:
                say(f"{student.model}: {error}")
                self.error = error
        if not done:
            raise self.error or UserError(f"--max-bytes {self.max_bytes}: no student fits")
        return self._refitted(*min(done, key=lambda pair: self._rank(pair[1])))

    def _refitted(self, student: Trained, packed: Trained) -> Trained:
        """Return a finalist that was trained again, with validation's rows too; the same one if there is no time."""
        seconds = _OVER_AGAIN * student.seconds
        if not self._refit_seconds or student.note or self.pack_until - self.clock.used < seconds + packed.seconds:
            return packed
        name = f"{student.model}-all"
        flags = {**self._flags(student.candidate), "epochs": student.epochs, "model_name": name, "refit": packed.model}

        def trained_again() -> Trained:
            if self.taught.teacher:
                rows = {"generate_loss": ("validation",), "model_name": self.taught.teacher}
                self.stages.run("students", "preprocess", seconds, **rows)
            limit = self.pack_until - self.clock.used - packed.seconds
            if self.stages.train("students", "compress", limit, flags) is not None:
                raise OutOfTime
            return packed.model_copy(update={"model": name, "refit": True})

        try:
            return self._quantized(self.state.decide(f"{TRAINED} {name}", Trained, trained_again))
        except OutOfTime:
            say(f"{name}: no time left")
        except UserError as error:
            say(f"{name}: {error}")
        return packed

    def _quantized(self, student: Trained) -> Trained:
        name = f"{student.model}-packed"
        return self.state.decide(f"{PACKED} {name}", Trained, lambda: self._quantize(student, name))

    def _quantize(self, student: Trained, name: str) -> Trained:
        began = time.perf_counter()
        left = self.pack_until - self.clock.used
        if student.refit:
            tune = student.tune_epochs
        else:
            epoch_seconds = student.seconds / student.epochs
            tune = max(0, min(_TUNE_EPOCHS, int(left / (6 * epoch_seconds)))) if epoch_seconds else _TUNE_EPOCHS
        flags = self._flags(student.candidate)
        learning = ("student_arch", "alpha", "only_original_data", "augmented", "teacher", "loss", "temperature")
        quantized = {
            "load_trained_model": student.model,
            "compression_actions": ("quantize",),
            "model_name": name,
            "max_bytes": self.max_bytes - (_REJECTION_BYTES if self.stages.settings.reject else 0),
            "batch_size": min(256, _TUNE_BATCH * self.batch_size),
            **{flag: flags[flag] for flag in learning if flag in flags},
        }
        try:
            self.stages.run("quantize and pack", "compress", left if tune else None, **quantized, tune_epochs=tune)
        except OutOfTime:
            if student.refit:
                raise
            # --force: it may have stopped just after the name was taken
            self.stages.run("quantize and pack", "compress", **quantized, force=True)
        self.stages.run("quantize and pack", "compress", load_trained_model=name, **self.stages.settings.packing)
        packed = student.model_copy(update={"model": name, "tune_epochs": tune, "seconds": time.perf_counter() - began})
        if student.refit:
            say(f"[{self.clock.used:.0f} s] {name}: trained with validation's rows too, packed")
            return packed
        packed = packed.model_copy(update=self._validated(name))
        say(f"[{self.clock.used:.0f} s] {name}: {packed.score:.4f} on validation, packed")
        return packed
