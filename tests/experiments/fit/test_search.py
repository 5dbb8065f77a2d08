"""The search for a student: each kind, then variations of the best, for as long as there is time."""

import threading
import time

import numpy as np
import pytest
from processes import wait_until

from common.data.split import Split
from common.data.tasks import load_task
from common.errors import UserError
from common.stopping import OutOfTime
from compression.experiments.fit import search, state
from compression.experiments.fit.search import Search
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.stages import Stages
from compression.experiments.fit.state import CLOCK_FILE, Clock, State
from compression.experiments.fit.teachers import Taught

ROWS = Split(["a text"] * 600, None, np.zeros(600, np.int64), np.arange(600))


class FakeClock(Clock):
    """A clock that goes only while something is trained."""

    now = 0.0

    @property
    def used(self):
        return self.now


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """A function that searches with students of given speeds and scores. Returns the search."""

    def run(epoch_seconds, score, seconds=300, variants=0, task="sst-2", rows=ROWS):
        clock = FakeClock(tmp_path, seconds)
        stages = Stages(FitSettings(file="f.csv"), load_task(task), clock, State(tmp_path, "id"))

        def train(stage, kind, limit, flags):
            took = epoch_seconds(flags) * flags["epochs"]
            clock.now += took if limit is None else min(took, limit)
            monkeypatch.setattr(search.time, "perf_counter", lambda: clock.now)
            trained.append(flags)
            return None if limit is None or took <= limit else int(flags["epochs"] * limit / took)

        trained = []
        monkeypatch.setattr(search, "load_split", lambda *names: rows)
        monkeypatch.setattr(search.time, "perf_counter", lambda: clock.now)
        monkeypatch.setattr(stages, "train", train)
        taught = Taught(teacher="linear", why="", variants=variants)
        chosen = Search(stages, 32_000, taught, train_until=0.8 * seconds, pack_until=seconds)
        monkeypatch.setattr(chosen, "_validated", lambda name: {"score": score(trained[-1]), "loss": 1.0})
        monkeypatch.setattr(chosen, "_packed", lambda: chosen.ranked()[0])
        return chosen, chosen.run(), clock

    return run


def test_every_kind_is_trained_then_the_best_is_varied(searched):
    chosen, best, clock = searched(lambda flags: 0.1, lambda flags: 0.5 + flags["embedding_dim"] / 1000)
    kinds = [student.candidate.student for student in chosen.trained]
    assert len(set(kinds[:4])) == 4
    assert best.change
    assert best.score == max(student.score for student in chosen.trained)
    assert clock.used <= 0.8 * 300 * 1.1


@pytest.mark.parametrize(("gain", "variants"), [(0.1, True), (-0.1, False)])
def test_variants_of_texts_are_learned_from_if_they_help(searched, gain, variants):
    chosen, best, clock = searched(
        lambda flags: 0.1 if flags["only_original_data"] else 0.4,
        lambda flags: 0.5 + (0.0 if flags["only_original_data"] else gain),
        variants=3,
    )
    with_variants = [student for student in chosen.trained if "augmented" in student.candidate.flags]
    assert with_variants[0].change == "with variants of the texts"
    assert ("augmented" in best.candidate.flags) == variants
    assert clock.used <= 0.8 * 300 * 1.1


def test_many_pairs_are_read_by_the_first_kind_for_few_epochs(searched):
    pairs = Split(["a text"] * 120_000, ["another"] * 120_000, np.zeros(120_000, np.int64), np.arange(120_000))
    _, best, _ = searched(lambda flags: 25.0, lambda flags: 0.5, task="qqp", rows=pairs)
    assert best.candidate.student == "aligned convolution"
    assert 2 <= best.epochs < 6


def test_slow_students_are_left_out_and_one_is_always_trained(searched):
    chosen, best, clock = searched(lambda flags: 100.0, lambda flags: 0.5)
    assert best.note == "stopped early"
    assert clock.used <= 0.8 * 300 + 1
    assert [student.candidate.student for student in chosen.trained if student.score is not None] == [
        best.candidate.student
    ]


@pytest.mark.parametrize("epoch", [1.0, 3.0, 6.0])
def test_bags_without_time_for_as_many_epochs_as_the_best_are_not_trained(searched, epoch):
    chosen, _, _ = searched(lambda flags: epoch, lambda flags: 0.5)
    first, *others = chosen.trained
    assert first.epochs >= 20
    assert all(bag.epochs >= 0.6 * first.epochs for bag in others if bag.candidate.flags["student_arch"] == "ffn")
    assert all(bag.epochs > first.epochs for bag in others if bag.change == "more epochs")


def test_a_machine_that_becomes_slower_gets_shorter_trainings(searched):
    """The third training takes ten times as long: it ends early, and those after it know."""
    calls = []

    def seconds(flags):
        calls.append(flags)
        return 0.2 if len(calls) < 3 else 2.0

    chosen, _, clock = searched(seconds, lambda flags: 0.5)
    assert clock.used <= 300
    assert [student.note for student in chosen.trained].count("stopped early") <= 2
    assert all(student.score is not None for student in chosen.trained if student.epochs)


def test_scores_within_half_a_standard_error_are_decided_by_the_loss(searched):
    chosen, _, _ = searched(lambda flags: 0.1, lambda flags: 0.5)
    first, second = chosen.trained[:2]
    chosen.trained = [
        first.model_copy(update={"score": 0.800, "loss": 0.3}),
        second.model_copy(update={"score": 0.801, "loss": 0.4}),
    ]
    assert chosen.ranked()[0].loss == 0.3
    chosen.trained[1] = second.model_copy(update={"score": 0.9, "loss": 0.4})
    assert chosen.ranked()[0].loss == 0.4


def test_the_reason_is_given_if_no_student_can_be_trained(searched, monkeypatch):
    def failing(flags):
        raise UserError("the text has no words")

    with pytest.raises(UserError, match="the text has no words"):
        searched(failing, lambda flags: 0.5)


def test_a_student_whose_tuning_takes_too_long_is_packed_without_it(searched, monkeypatch):
    chosen, best, _ = searched(lambda flags: 0.1, lambda flags: 0.5)
    runs = []

    def run(stage, kind, limit=None, **flags):
        runs.append(flags)
        if flags.get("tune_epochs"):
            raise OutOfTime

    monkeypatch.setattr(chosen.stages, "run", run)
    assert chosen._quantized(best).model == f"{best.model}-packed"
    assert [flags["compression_actions"] for flags in runs] == [("quantize",), ("quantize",), ("pack",)]
    assert runs[1]["force"]


@pytest.mark.parametrize(("seconds", "learned", "rows"), [(100, True, 600), (10, False, 600), (100, False, 20)])
def test_the_best_student_learns_the_rows_of_validation_if_they_are_many_and_there_is_time(
    searched, monkeypatch, seconds, learned, rows
):
    chosen, best, clock = searched(lambda flags: 0.5, lambda flags: 0.5)
    packed = best.model_copy(update={"model": "packed", "seconds": 5.0, "tune_epochs": 3, "score": 0.4})
    jobs = []
    monkeypatch.setattr(chosen.stages, "run", lambda *names, **flags: jobs.append(flags))
    chosen.pack_until, chosen.held_out = clock.used + seconds, ROWS.take(np.arange(rows))
    again = chosen._refitted(best, packed)
    assert again.refit == learned
    assert again.score == 0.4
    if learned:
        assert jobs[0]["generate_loss"] == ("validation",)
        assert [job.get("tune_epochs") for job in jobs[1:]] == [3, None]
        assert again.in_words.endswith("then trained on validation's rows too")


def test_the_clock_is_written_again_after_a_failed_write(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "_WRITE_SECONDS", 0.001)
    failed, folder = [], tmp_path / "folder"
    monkeypatch.setattr(threading, "excepthook", failed.append)  # prints a traceback
    folder.write_text("no folder")
    with Clock(folder, 60).running():
        time.sleep(0.05)
        folder.unlink()
        wait_until((folder / CLOCK_FILE).exists, 5)
    assert not failed
