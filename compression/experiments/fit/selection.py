"""Selection of the student: successive halving, then quantization of the finalists to the size."""

from __future__ import annotations

import functools
import math
import time
from typing import Any

import numpy as np
import torch

from common.config import Settings
from common.data.split import Split, load_split
from common.devices import threads
from common.errors import UserError
from common.progress import say
from common.stopping import OutOfTime, at_once
from common.training.metrics import main_score
from compression.experiments.fit.candidates import Candidate, find_candidates
from compression.experiments.fit.halving import FINALISTS, Cost, Rung, Trained, best_first, plan_rung, rung_sizes
from compression.experiments.fit.plan import Speeds, reserve_of
from compression.experiments.fit.speeds import measured_cost
from compression.experiments.fit.stages import AUGMENTED, Stages
from compression.experiments.fit.state import PACKED, TEACHER, TRAINED, TUNED
from compression.runtime.words import stands_alone
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits
from compression.tokenizers.bpe_files import most_pieces

_CPU = torch.device("cpu")
_STEPS = 20_000
"""Approximate maximum number of optimizer steps in the last rung."""
_TUNE_EPOCHS = 3
_ALPHA = 0.5
"""Weight of the labels in the loss if there is a teacher, which may have learned from few of the rows."""
_MEASURING = 0.05
"""Share of the remaining time for measuring candidates' costs; candidates not measured by then are left out."""
_INIT = 0.1
"""Share of the remaining time for computing the teacher's vectors of byte pairs."""
_FEWEST_ROWS = 500
"""Minimum number of rows that a student learns from, or all rows if there are fewer."""
_TUNING_FLAGS = ("student_arch", "alpha", "only_original_data", "augmented", "teacher", "loss", "batch_size")
"""A candidate's flags while it is tuned, on all rows."""
_VOCABULARY_TEXTS = 20_000
"""Number of texts from which the number of possible byte pairs is determined."""


class Pool(Settings):
    """The candidates and their estimated costs."""

    candidates: tuple[Candidate, ...]
    costs: dict[str, Cost]
    init: str
    """Value of --embedding-init for byte pairs."""
    own_init: str
    """Value of --embedding-init without a teacher."""
    batch_size: int
    most_epochs: int


class Selection:
    """The candidates of a fit, their training and their scores."""

    def __init__(self, stages: Stages, speeds: Speeds, train: Split, taught: bool, variants: int) -> None:
        """taught: whether there are teacher logits; variants: number of variants of each train row."""
        self.settings, self.state, self.clock = stages.settings, stages.state, stages.clock
        self.stages, self.speeds, self.train, self.taught, self.variants = stages, speeds, train, taught, variants
        validation = load_split(self.settings.paths, stages.task, "validation")
        self.held_out = validation.take(np.flatnonzero(validation.labelled))
        self.trained: dict[tuple[str, int, float], Trained] = {}
        """Keyed by name, epochs and share of rows: if time is short, a rung may repeat those of the previous one."""
        self.slower = 1.0
        """Factor by which training takes longer than estimated."""
        self.error: UserError | None = None

    def run(self) -> Trained:
        """Return the student that is best on validation, quantized and packed. Raises UserError if none fits."""
        with at_once():  # measures, and has nothing to save
            pool = self.state.decide("pool", Pool, self._pool)
        candidates = {candidate.name: candidate for candidate in pool.candidates}
        best: dict[str, Trained] = {}
        alive, sizes, done = list(candidates), rung_sizes(len(candidates)), 0
        for number, size in enumerate(sizes):
            alive = alive[:size]
            rung = self.state.decide(f"rung {number}", Rung, lambda: self._plan(pool, alive, len(sizes) - number, done))  # noqa: B023
            scored = []
            for name in rung.names:
                trained = self._train(pool, candidates[name], rung, number, must=not best)
                if trained.score is not None:
                    scored.append(trained)
                    best[name] = best_first([best.get(name, trained), trained])[0]
            alive = [trained.name for trained in best_first(scored)] or alive
            done = rung.epochs if scored and rung.share == 1 else 0
        if not best:
            raise self.error or UserError(f"{self.settings.file}: no student could be trained")
        return self._quantized([(candidates[trained.name], trained) for trained in best_first(best.values())], pool)

    def _pool(self) -> Pool:
        task, train, speeds = self.stages.task, self.train, self.speeds
        texts = [text for column in train.sentences() for text in column]
        words = float(np.median([len(text.split()) for text in texts[:2000]]))
        pieces = most_pieces(texts[:_VOCABULARY_TEXTS], 30_000)
        possible = find_candidates(self.settings.max_bytes, task.pair, task.labels, words, pieces, task.symmetric)
        candidates = [candidate for candidate in possible if self.taught or not candidate.labels_only]
        if np.mean([any(map(stands_alone, text)) for text in texts[:2000]]) > 0.5:
            # Without spaces, byte pairs of few texts are whole phrases; a hashed word is one letter.
            candidates.sort(key=lambda one: one.embedding_type != "hash")
        rows = len(train) * (1 + self.variants)
        batch_size = 32 if rows < 2000 else 64 if rows < 10_000 else 128 if rows < 40_000 else 256
        vocabularies = {(one.vocab_size, one.embedding_dim) for one in candidates if one.embedding_type == "bpe"}
        slow = self.speeds.start / 5
        seconds = 10 * sum(len(text.split()) for text in texts) / 150_000 * slow
        own_init = "vectors" if seconds <= 0.015 * self.clock.left else "random"
        # A byte pair is about two word pieces, plus two special tokens; the teacher is loaded for each vocabulary.
        init = own_init
        if self.taught:
            seconds = sum(speeds.load / 3 + 4 * size / speeds.infer for size, _ in vocabularies)
            init = "teacher" if seconds <= _INIT * self.clock.left else own_init
        costs: dict[str, Cost] = {}
        began, most = time.perf_counter(), _MEASURING * self.clock.left
        for candidate in candidates:  # the most promising first
            if costs and time.perf_counter() - began > most:
                break
            costs[candidate.name] = measured_cost(
                candidate, train, rows, batch_size, task.outputs, speeds.start, self.settings.cpu
            )
        most_epochs = min(100, max(5, round(_STEPS / math.ceil(rows / batch_size))))
        return Pool(
            candidates=tuple(candidates[: len(costs)]),
            costs=costs,
            init=init,
            own_init=own_init,
            batch_size=batch_size,
            most_epochs=most_epochs,
        )

    def _plan(self, pool: Pool, alive: list[str], rungs_left: int, trained: int) -> Rung:
        left = self._for_students()
        costs = {name: pool.costs[name].slowed(self.slower) for name in alive}
        least = min(1.0, _FEWEST_ROWS / len(self.train))
        rung = plan_rung(costs, left, rungs_left, pool.most_epochs, least, trained)
        shown = f"{rung.epochs} epochs" + (f" on {rung.share:.0%} of the rows" if rung.share < 1 else "")
        if rung.seconds:  # a repeated rung takes no time
            counted = f"{len(rung.names)} student{'s' * (len(rung.names) > 1)}"
            say(f"[{self.clock.used:.0f} s] {counted} for {shown}, about {rung.seconds:.0f} s")
        return rung

    def _for_students(self) -> float:
        return self.clock.left * 0.96 - reserve_of(self.speeds, self.clock.left)

    def _train(self, pool: Pool, candidate: Candidate, rung: Rung, number: int, must: bool) -> Trained:
        """Train a candidate and score it. must: ignore the time limit, because there is no other student yet."""
        how = candidate.name, rung.epochs, rung.share
        if how in self.trained:
            return self.trained[how]
        plan = Trained(
            name=candidate.name,
            model=f"{candidate.name}-{number + 1}",
            rung=number + 1,
            epochs=rung.epochs,
            share=rung.share,
            bytes=candidate.bytes,
        )
        cost = pool.costs[candidate.name]
        with threads(cost.threads):
            trained = self.trained[how] = self.state.decide(
                f"{TRAINED} {plan.model}", Trained, lambda: self._distilled(pool, candidate, plan, must)
            )
        if trained.score is not None and not must:  # the first training also loads parts of the libraries
            ratio = trained.seconds / cost.of(rung.epochs, rung.share)
            self.slower = min(5.0, max(0.2, (self.slower + ratio) / 2))
        return trained

    def _distilled(self, pool: Pool, candidate: Candidate, plan: Trained, must: bool) -> Trained:
        """Return the planned training with its result, or with a note on why there is none."""
        began = time.perf_counter()
        estimate = pool.costs[candidate.name].of(plan.epochs, plan.share) * self.slower
        limit = None if must else min(2 * estimate + 5, self._for_students())
        if limit is not None and limit < min(1.0, estimate):
            return plan.model_copy(update={"note": "no time left"})
        try:
            # All candidates train for the same number of steps; an epoch without variants has fewer.
            epochs = plan.epochs * (1 + self.variants if candidate.labels_only else 1)
            self.stages.run(
                "students",
                "compress",
                limit,
                **self._flags(pool, candidate),
                epochs=epochs,
                patience=epochs,
                **({"downsample_data": plan.share} if plan.share < 1 else {}),
                compression_actions=("distill",),
                model_name=plan.model,
            )
            trained = plan.model_copy(update=self._validate(plan.model, began))
        except OutOfTime:
            return plan.model_copy(update={"note": "stopped: out of time"})
        except UserError as error:
            say(f"{plan.model}: {error}")
            self.error = error
            return plan.model_copy(update={"note": str(error)[:80]})
        took = f"{trained.seconds:.0f} s (estimated {estimate:.0f})"
        say(f"[{self.clock.used:.0f} s] {plan.model}: {trained.score:.4f} on validation, {took}")
        return trained

    def _flags(self, pool: Pool, candidate: Candidate) -> dict[str, Any]:
        """Return a candidate's flags of compress.py."""
        flags = {**candidate.flags(), "batch_size": pool.batch_size, "bpe_source": "train"}
        init = pool.init
        if not self.taught or candidate.labels_only:
            init = pool.own_init
            flags |= {"alpha": 1.0, "only_original_data": True}
        else:
            flags |= {"alpha": _ALPHA, "teacher": TEACHER, "loss": "mse"}
            flags |= {"augmented": AUGMENTED} if self.variants else {"only_original_data": True}
        return flags | ({"embedding_init": init} if candidate.embedding_type == "bpe" else {})

    def _validate(self, name: str, began: float) -> dict[str, float]:
        """Return a student's score and loss on validation, and the seconds since `began`."""
        task = self.stages.task
        student, tokenizer, _ = load_student(self.settings.paths.model(task.name, name), _CPU)
        logits = student_logits(student, encode_split(tokenizer, self.held_out), _CPU, name)
        targets = torch.from_numpy(task.kind.targets(task, self.held_out.labels))
        loss = task.kind.label_loss(torch.from_numpy(logits), targets).item()
        score = main_score(task, self.held_out.labels, logits)
        return {"score": score, "loss": loss, "seconds": round(time.perf_counter() - began, 2)}

    def _quantized(self, order: list[tuple[Candidate, Trained]], pool: Pool) -> Trained:
        """Return the best finalist, quantized and packed; a student that does not fit is replaced by the next one."""
        done: dict[str, Trained] = {}
        for candidate, trained in order:
            if len(done) == FINALISTS:
                break
            last = max((winner.seconds for winner in done.values()), default=0.0)
            if done and self.clock.left < 1.5 * last + self._end():
                break
            name = f"{candidate.name}-{self.settings.max_bytes}"
            work = functools.partial(self._shrunk, trained, candidate, name, pool)
            try:
                with threads(pool.costs[candidate.name].threads):
                    done[name] = self.state.decide(f"{PACKED} {name}", Trained, work)
            except UserError as error:
                say(f"{candidate.name}: {error}")
                self.error = error
        if not done:
            raise self.error or UserError(f"--max-bytes {self.settings.max_bytes}: no student fits")
        return best_first(done.values())[0]

    def _end(self) -> float:
        # Scoring, baselines and the report.
        return 8 + self.speeds.start / 2

    def _shrunk(self, trained: Trained, candidate: Candidate, name: str, pool: Pool) -> Trained:
        began = time.perf_counter()
        available = (self.clock.left - self._end()) / 2
        epoch = pool.costs[candidate.name].epoch * self.slower * 1.3
        most = max(0, min(_TUNE_EPOCHS, int(0.5 * available / max(epoch, 0.01))))
        # Saved before training: with another number, a resumed fit would not find the student that is already packed.
        decision = f"{TUNED} {name}"
        tune = self.state.decide(decision, int, lambda: most)
        flags = {name: value for name, value in self._flags(pool, candidate).items() if name in _TUNING_FLAGS}
        for epochs in dict.fromkeys([tune, 0]):
            try:
                self.stages.run(
                    "quantize and pack",
                    "compress",
                    available if epochs else None,
                    load_trained_model=trained.model,
                    compression_actions=("quantize", "pack"),
                    model_name=name,
                    max_bytes=self.settings.max_bytes,
                    **flags,
                    **({"tune_epochs": epochs} if epochs else {}),
                )
                break
            except OutOfTime:
                self.state.save(decision, 0)
        packed = trained.model_copy(update={"model": name, **self._validate(name, began)})
        say(f"[{self.clock.used:.0f} s] {name}: {packed.score:.4f} on validation, packed")
        return packed
