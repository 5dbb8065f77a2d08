"""Stopping: after one request work is saved and the command ends; after two it ends at once."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import tiny
import torch
from stops import stopped_in_step
from toy_run import toy

import common.training.loop
from common.stopping import asked, at_once, check, graceful, listen
from common.training.checkpoint import load_tensors
from common.training.loop import fit

LOOP = """
import time
from common.cli import run_script
from common.stopping import asked

def main():
    print("ready", flush=True)
    while not asked():
        time.sleep(0.01)
    print("asked", flush=True)
    time.sleep(30)

run_script(main)
"""
NAMES = {signal.SIGINT: "ctrl-c", signal.SIGTERM: "terminate"}


@pytest.mark.slow
@pytest.mark.parametrize("number", NAMES, ids=NAMES.get)
def test_the_first_signal_is_a_request_and_the_second_one_stops(number):
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP],
        cwd=tiny.ROOT,
        env=tiny.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job inherits that it is ignored
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == "asked\n"
    assert process.poll() is None
    process.send_signal(number)
    _, output = process.communicate(timeout=10)
    assert process.returncode == 130
    assert output.strip().splitlines() == [
        "stopping; press Ctrl-C again to stop immediately",
        "error: interrupted; run the same command again to resume",
    ]


def test_requests_end_with_their_context():
    handlers = [signal.getsignal(number) for number in NAMES]
    with graceful():
        check()
        with graceful():
            os.kill(os.getpid(), signal.SIGTERM)
            assert asked()
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert not asked()
    assert [signal.getsignal(number) for number in NAMES] == handlers


def test_a_request_that_arrives_in_a_destructor_is_not_lost():
    class Destroyed:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)

    def work():
        with at_once():
            Destroyed()  # ends here: Python ignores exceptions in destructors
            for _ in range(1000):
                time.sleep(0.01)

    with graceful():
        with pytest.raises(KeyboardInterrupt):
            work()
        assert asked()


def test_work_with_nothing_to_save_stops_at_the_first_request():
    with graceful():
        with pytest.raises(KeyboardInterrupt), at_once():
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), at_once():
            pytest.fail("it began after the request")
    with graceful():
        with at_once(), at_once():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked()


def test_a_signal_that_is_ignored_stays_so_and_other_threads_change_nothing():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with graceful():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGINT)
            assert not asked()
    finally:
        signal.signal(signal.SIGINT, before)
    seen = []

    def elsewhere():
        with graceful():
            seen.extend(signal.getsignal(number) for number in NAMES)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(number) for number in NAMES]


def test_a_worker_listens_to_its_parent():
    parent = threading.Event()
    listen(parent.is_set)
    try:
        check()
        parent.set()
        assert asked()
    finally:
        listen(lambda: False)


@pytest.fixture
def logged(monkeypatch):
    """The values that training logs: (name, value, step)."""
    values = []
    monkeypatch.setattr(common.training.loop, "log_metric", lambda *value: values.append(value))
    monkeypatch.setattr(common.training.loop, "STEPS_BETWEEN_LOSSES", 2)
    return values


def test_losses_scores_and_rates_are_logged_with_their_steps(tmp_path, logged):
    run, _ = toy(tmp_path, [0.25, 0.75], schedule=lambda progress: 1 - progress)
    losses, losses_of = [], run.losses
    run.losses = lambda rows, parts: [losses.append(loss) or loss for loss in losses_of(rows, parts)]
    fit(run)
    one, two, three, four, five, six = (loss.item() for loss in losses)
    assert [value for value in logged if value[0] == "train_loss"] == [
        ("train_loss", (one + two) / 2, 2),
        ("train_loss", three, 3),
        ("train_loss", (four + five) / 2, 5),
        ("train_loss", six, 6),
    ]
    assert [value for value in logged if value[0] != "train_loss"] == [
        ("validation_score", 0.25, 3),
        ("learning_rate", pytest.approx(0.05), 3),
        ("validation_score", 0.75, 6),
        ("learning_rate", 0.0, 6),
    ]


@pytest.mark.parametrize("step", [1, 3, 5, 9])
def test_a_run_asked_to_stop_keeps_its_current_step(tmp_path, logged, step):
    whole, _ = toy(tmp_path / "whole", [0.1, 0.9, 0.5])
    fit(whole)
    expected, logged[:] = list(logged), []
    first, _ = toy(tmp_path / "stopped", [0.1, 0.9, 0.5])
    with stopped_in_step(step):
        fit(first)
    state = load_tensors(first.state_file)[1]["state"]
    assert state["total_steps"] == 3 * state["epoch"] + state["step"] == step
    second, _ = toy(tmp_path / "stopped", [0.1, 0.9, 0.5][state["epoch"] :], epochs=3)
    fit(second)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True))
    assert logged == expected


def test_a_stop_while_validating_keeps_the_epoch(tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    run, _ = toy(tmp_path, validate=interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(run)
    state = load_tensors(run.state_file)[1]["state"]
    assert (state["epoch"], state["step"]) == (0, 3)
