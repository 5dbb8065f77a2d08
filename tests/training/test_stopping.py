"""Stopping: asked once, work is kept and the command ends; asked twice, it ends at once."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import tiny
import torch
from toy_run import toy

import common.training.loop
from common.stopping import asked, check, graceful, listen
from common.training.checkpoint import load_tensors
from common.training.loop import fit
from compression.distillation.distill import distill

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


def begin(*words, **pipes):
    """Start Python as a terminal does: a shell's background jobs, and their children, ignore SIGINT."""
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        cwd=tiny.ROOT,
        env=tiny.environment(),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **pipes,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", NAMES, ids=NAMES.get)
def test_the_first_signal_asks_and_the_second_one_stops(number):
    process = begin("-c", LOOP, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == "asked\n"
    assert process.poll() is None
    process.send_signal(number)
    _, output = process.communicate(timeout=10)
    assert process.returncode == 130
    assert output.strip().splitlines() == [
        "stopping; once more stops at once",
        "error: interrupted; the same command goes on from the last checkpoint",
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


def stopping_in(function, call):
    """The function, but for a request to stop in the middle of that call."""
    left = [call]

    def stopping(*arguments):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*arguments)

    return stopping


@pytest.fixture
def logged(monkeypatch):
    """What training logs: (name, value, step)."""
    values = []
    monkeypatch.setattr(common.training.loop, "log_metric", lambda *value: values.append(value))
    monkeypatch.setattr(common.training.loop, "STEPS_BETWEEN_LOSSES", 2)
    return values


def test_losses_scores_and_rates_are_logged_with_their_steps(tmp_path, logged):
    run, _ = toy(tmp_path, [0.25, 0.75], schedule=lambda progress: 1 - progress)
    losses = []
    plain = run.loss

    def noted(rows):
        losses.append(plain(rows))
        return losses[-1]

    run.loss = noted
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


@pytest.mark.parametrize("call", range(1, 10))
def test_a_run_asked_to_stop_keeps_its_current_step(tmp_path, logged, call):
    whole, _ = toy(tmp_path / "whole", [0.1, 0.9, 0.5])
    fit(whole)
    expected, logged[:] = list(logged), []
    first, _ = toy(tmp_path / "stopped", [0.1, 0.9, 0.5])
    first.loss = stopping_in(first.loss, call)
    with graceful(), pytest.raises(KeyboardInterrupt):
        fit(first)
    state = load_tensors(tmp_path / "stopped" / "run.training" / "state.safetensors")[1]["state"]
    assert state["total_steps"] == 3 * state["epoch"] + state["step"] == call
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
    state = load_tensors(tmp_path / "run.training" / "state.safetensors")[1]["state"]
    assert (state["epoch"], state["step"]) == (0, 3)


@pytest.mark.slow
def test_a_stopped_command_resumes_to_the_same_bytes(prepared, tmp_path):
    given = tiny.small(student_arch="rnn", embedding_type="char", model_name="s", epochs=12, patience=12)
    settings = tiny.compress_settings(
        task="sst-2", workspace=tiny.copy_workspace(prepared, tmp_path / "whole"), **given
    )
    whole = distill(settings)
    workspace = tiny.copy_workspace(prepared, tmp_path / "stopped")
    words = ["compress.py", "--task", "sst-2", "--workspace", workspace, "--cpu", "--no-loadbar", "--seed", tiny.SEED]
    for name, value in given.items():
        words += ["--" + name.replace("_", "-"), value]
    process = begin(*words)
    for line in process.stderr:
        if "epoch 3/12" in line:
            process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    folder = workspace / "models" / "sst-2" / "s"
    assert not folder.exists()
    state = load_tensors(tiny.work_folder(workspace) / "state.safetensors")[1]["state"]
    done = tiny.run_command(*words)
    assert done.returncode == 0, done.stderr
    assert f"resuming from epoch {state['epoch'] + 1}, step {state['step']}" in done.stderr
    assert state["step"] > 0
    for name in ("model.safetensors",):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
