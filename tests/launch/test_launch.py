"""Launchers: the same work with every kind of worker, workers that die, exceptions, and clean stops."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import pytest
import small_slurm
import tiny
import torch
from launch_work import TracedJob, numbers, pids, run_job
from processes import wait_until

import common.launch.dispatch
from common.devices import cpu_cores
from common.errors import UserError
from common.launch.launcher import Launcher
from common.progress import nothing
from common.stopping import graceful

pytestmark = [pytest.mark.usefixtures("ends_ray"), pytest.mark.slow]
LAUNCHERS = {
    "local": Launcher(),
    "one process": Launcher("processes", 1),
    "processes": Launcher("processes", 3),
    "ray": Launcher("ray", 2),
    "jobs": Launcher("slurm", 2, options={"cluster": "local"}),
    "slurm": Launcher("slurm", 2, options=(("partition", "short"), ("timeout_min", "30"))),
}
OTHERS = ["processes", "ray", "jobs", "slurm"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty current folder; workers can import tests' modules."""
    monkeypatch.setenv("PYTHONPATH", str(tiny.SUPPORT))
    monkeypatch.setattr(common.launch.dispatch, "ATTEMPTS", 2)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def launcher(request, tmp_path, monkeypatch):
    """The launcher of a name; what it needs is installed, or the test skipped."""
    launcher = LAUNCHERS[request.param]
    for kind, library in (("ray", "ray"), ("slurm", "submitit")):
        if launcher.kind == kind and importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    if launcher.kind == "slurm":
        monkeypatch.setattr("submitit.core.core.Job._results_timeout_s", 0)  # no slow disk to wait for
    if request.param == "slurm":
        monkeypatch.setenv("PATH", f"{small_slurm.install(tmp_path / 'slurm')}:{os.environ['PATH']}")
    return launcher


def traced(folder, *troubles, count=4):
    """Jobs with these troubles, and further ones without."""
    names = [*troubles, *[""] * (count - len(troubles))]
    return [TracedJob(folder, number, trouble) for number, trouble in enumerate(names)]


def run(launcher, jobs, **given):
    """Run the jobs. Returns the rows reported."""
    reported = []
    launcher.run(run_job, jobs, reported.append, **given)
    return sum(reported)


def outputs(folder):
    """Threads, working folder and visible GPUs of every job done."""
    return {tuple(path.read_text().split("\n")) for path in folder.glob("done-*")}


@pytest.mark.parametrize("launcher", ["local", *OTHERS], indirect=True)
def test_every_job_runs_once_in_the_launchers_folder(launcher, folder):
    assert run(launcher, traced(Path())) == 8  # a relative path means the same there
    assert numbers(folder, "started") == numbers(folder, "done") == [0, 1, 2, 3]
    assert {cwd for _, cwd, _ in outputs(folder)} == {str(folder)}
    assert not (folder / ".submitit").exists()


def test_without_jobs_no_worker_is_started():
    for launcher in LAUNCHERS.values():
        assert run(launcher, []) == 0


@pytest.mark.parametrize("launcher", ["processes", "ray", "slurm"], indirect=True)
def test_the_job_of_a_worker_that_dies_runs_again_and_is_lost_after_all_attempts(launcher, folder, capsys):
    lost = []
    jobs = traced(Path(), "", "killed once", "killed")  # Ray's cluster was started in another folder
    assert run(launcher, jobs, lost=lost.append) == 6
    assert lost == [jobs[2]]
    assert numbers(folder, "started") == [0, 1, 1, 2, 2, 3]
    assert numbers(folder, "done") == [0, 1, 3]
    output = capsys.readouterr().err
    assert output.count("restarting its job") == 2
    assert output.count("giving up its job after 2 attempts") == 1


@pytest.mark.parametrize("launcher", ["one process", "jobs"], indirect=True)
def test_without_a_callback_a_lost_job_is_an_error(launcher, folder):
    with pytest.raises(UserError, match="2 workers died on the same job") as caught:
        run(launcher, traced(folder, "killed", count=1))
    if launcher.kind == "slurm":
        log = Path(str(caught.value).split("its log is ")[1].split(" (")[0])
        assert log.is_relative_to(folder / ".submitit")
        assert log.exists()


@pytest.mark.parametrize(
    ("launcher", "trouble", "error"),
    [
        *((name, "refused", UserError("1: no good")) for name in ("local", "one process", "ray", "jobs")),
        ("jobs", "fails", ZeroDivisionError("1 over nothing")),
    ],
    indirect=["launcher"],
)
def test_an_exception_in_a_job_is_raised_and_ends_the_work(launcher, folder, trouble, error):
    with pytest.raises(type(error)) as caught:
        run(launcher, traced(folder, "", trouble, count=6), lost=lambda job: pytest.fail("not lost"))
    assert repr(caught.value) == repr(error)
    if launcher.kind == "local" or launcher.workers == 1:
        assert numbers(folder, "started") == [0, 1]
    assert not (folder / ".submitit").exists()


@pytest.mark.parametrize(("threads", "seen"), [(3, "3"), (0, str(max(1, cpu_cores() // 2)))])
def test_processes_get_their_threads(folder, threads, seen):
    run(Launcher("processes", 2, threads), traced(folder, count=2))
    assert {count for count, _, _ in outputs(folder)} == {seen}


def test_processes_are_as_many_as_cores_have_room_for(folder, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(5))
    run(Launcher("processes", 0, 2), traced(folder, count=9))
    assert 1 <= len(pids(folder)) <= 2


@pytest.mark.parametrize(
    ("launcher", "visible", "seen"),
    [
        (Launcher("processes"), None, {"0", "1"}),
        (Launcher("processes", 3), "GPU-a,GPU-b", {"GPU-a", "GPU-b"}),
        (Launcher("processes", 2, cpu=True), None, {"None"}),
    ],
    ids=["one each", "shared", "cpu"],
)
def test_processes_have_a_gpu_each(folder, monkeypatch, launcher, visible, seen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    workers = launcher.workers or 2
    run(launcher, traced(folder, *[f"meets {workers}"] * 4))
    assert len(pids(folder)) == workers
    assert {gpu for _, _, gpu in outputs(folder)} == seen


@pytest.mark.parametrize(("cpu", "gpus"), [(False, 1), (True, 0)])
def test_ray_reserves_a_gpu_unless_the_work_is_for_the_cpu(monkeypatch, cpu, gpus):
    ray = mock.Mock(is_initialized=lambda: True, cluster_resources=lambda: {"CPU": 4.0, "GPU": 2.0})
    ray.wait.side_effect = lambda running, **_: (running, [])
    monkeypatch.setitem(sys.modules, "ray", ray)
    run(Launcher("ray", 2, cpu=cpu), traced(Path(), count=2))
    assert ray.remote.return_value.options.call_args.kwargs["num_gpus"] == gpus


@pytest.mark.parametrize(("threads", "more"), [(3, {}), (0, {"cpus_per_task": "3"})], ids=["threads", "cores"])
@pytest.mark.parametrize("launcher", ["slurm"], indirect=True)
def test_slurm_gets_an_array_with_threads_and_options(launcher, folder, tmp_path, threads, more):
    run(Launcher("slurm", 1, threads, {**dict(launcher.options), **more}), traced(folder, count=2))
    assert {count for count, _, _ in outputs(folder)} == {"3"}
    (script,) = tmp_path.glob("slurm/script-*")
    expected = ["cpus-per-task=3", "partition=short", "time=30", "array=0-1%1"]
    assert {f"#SBATCH --{line}" for line in expected} <= set(script.read_text().splitlines())


def test_missing_clusters_and_libraries_are_named(folder, monkeypatch):
    def refused(**options):
        with pytest.raises(UserError) as caught:
            run(Launcher("slurm", 2, options=options), traced(folder, count=1))
        assert "\n" not in str(caught.value)
        assert not (folder / ".submitit").exists()
        return str(caught.value)

    assert "unknown cluster 'cloud'; choose slurm or local" in refused(cluster="cloud")
    assert "Unknown argument 'partitoin'" in refused(cluster="local", partitoin="short")
    assert '"timeout_min" expected type' in refused(cluster="local", timeout_min="soon")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        assert "sbatch, srun, sacct and scancel are not on this machine" in refused()
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert "pip install -r requirements-slurm.txt" in refused(cluster="local")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install -r requirements-ray\.txt"):
        run(Launcher("ray", 2), traced(folder, count=1))


@pytest.mark.parametrize("launcher", ["slurm"], indirect=True)
def test_an_error_of_slurm_is_one_line(launcher, folder, tmp_path):
    (tmp_path / "slurm" / "sbatch").write_text("#!/bin/sh\necho sbatch: error: invalid partition >&2; exit 1\n")
    with pytest.raises(UserError, match=r"^Slurm refuses the jobs: sbatch: error: invalid partition$"):
        run(launcher, traced(folder, count=2))


@pytest.mark.parametrize("launcher", OTHERS, indirect=True)
def test_a_stop_lets_running_jobs_save_and_starts_no_more(launcher, folder):
    def ask():
        wait_until(lambda: len(numbers(folder, "started")) >= 2)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=ask)
    with graceful():
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run(launcher, traced(folder, *["waits"] * 4))
    thread.join()
    assert numbers(folder, "saved") == numbers(folder, "started")
    assert 2 <= len(numbers(folder, "started")) <= 3


def test_a_stop_comes_between_two_jobs_of_this_process(folder):
    def run_and_ask(job, advance):
        run_job(job, advance)
        os.kill(os.getpid(), signal.SIGTERM)

    with graceful(), pytest.raises(KeyboardInterrupt):
        Launcher().run(run_and_ask, traced(folder), nothing)
    assert numbers(folder, "done") == [0]


@pytest.fixture
def script(folder):
    """Start launch_work.py in a new process group, and wait until two jobs have started."""
    started = []

    def start(trouble):
        words = [str(tiny.SUPPORT / "launch_work.py"), str(folder), trouble]
        path = os.pathsep.join([str(tiny.ROOT), os.environ["PYTHONPATH"]])
        process = subprocess.Popen(
            [sys.executable, *words],
            env=tiny.environment(PYTHONPATH=path),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell's background jobs ignore SIGINT, and so do their children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        wait_until(lambda: len(numbers(folder, "started")) == 2 or process.poll() is not None)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text()


def test_ctrl_c_in_a_terminal_stops_all_processes_where_they_can_resume(script, folder):
    process = script("waits")
    os.killpg(process.pid, signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output.count("stopping; press Ctrl-C again to stop immediately") == 1
    assert "Traceback" not in output
    assert numbers(folder, "saved") == numbers(folder, "started") == [0, 1]
    wait_until(lambda: all(map(gone, pids(folder))))


def test_a_second_ctrl_c_stops_at_once(script, folder):
    process = script("deaf")
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in output
    assert all(map(gone, pids(folder)))


def test_workers_end_with_a_killed_parent(script, folder):
    process = script("deaf")
    process.kill()
    process.communicate()
    wait_until(lambda: all(map(gone, pids(folder))))


def test_killed_workers_leave_no_semaphores(script, folder):
    """Pebble ends idle workers by a signal, at any moment: the resource tracker warned of what they had not removed."""
    _, output = script("killed once").communicate(timeout=120)
    assert numbers(folder, "done") == [0, 1, 2, 3]
    assert output.count("restarting its job") == 4
    assert "resource_tracker" not in output
