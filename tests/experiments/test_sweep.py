"""Sweeps: every run is done once, also after a stop; failures do not stop other runs; changed results are noticed."""

import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading

import pivot_rows
import pytest
import tiny
from processes import run_script, wait_until
from sweep_grid import METHODS, model_bytes, results, runs, settings, sweep, words, write_grid

from archive import read_finished
from common.errors import UserError
from common.launch.launcher import Launcher
from common.store.locks import only_one
from common.store.processes import Process
from compression.evaluation.evaluate import Evaluate
from compression.experiments import run as run_module
from compression.experiments.report.record import read_record
from compression.experiments.report.results import read_results, write_results
from compression.experiments.run import distinct, plan_runs, plan_sweep
from compression.experiments.sweep import board, work
from compression.experiments.sweep.grid import plan_grid
from compression.experiments.sweep.runs import RunFolder, failures, report
from compression.shrinking.chain import compress

LONG = {"epochs": 100, "patience": 100}
ONE_RUN = {"seeds": [1], "axes": {"alpha": [1]}}


@pytest.fixture
def done(swept, tmp_path):
    """A copy of the swept workspace for a test to write in, and its grid file."""
    return tiny.copy_workspace(swept[0], tmp_path / "workspace"), swept[1]


@contextlib.contextmanager
def started(path, workspace):
    """A sweep in a process of its own, which is killed at the end."""
    command = [sys.executable, "experiment.py", *words(path, workspace)]
    process = subprocess.Popen(
        command, cwd=tiny.ROOT, env=tiny.environment(), stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(file, text):
    wait_until(lambda: file.exists() and text in file.read_text())


def planned(path, workspace):
    return distinct(plan_runs(plan_grid(path, settings(workspace))))


def test_every_cell_runs_with_every_seed(swept):
    workspace, _ = swept
    record = read_record(workspace / "experiments" / "g")
    rows = results(workspace)
    found = {(row["cell"]["method"], row["seed"]) for row in rows}
    assert found == {(method, seed) for method in METHODS for seed in (1, 2)}
    assert {run.id for run in record.runs} == {row["run_id"] for row in rows} == set(runs(workspace))
    assert len(list((workspace / "experiments" / "g" / "sacred").glob("*/run.json"))) == 4


def test_a_finished_run_is_never_repeated(done, tmp_path):
    workspace, path = done
    before = runs(workspace), model_bytes(workspace)
    sweep(path, settings(workspace))
    assert runs(workspace) == before[0]
    # The same cells in another experiment are the same runs; a third seed adds the missing ones only.
    sweep(write_grid(tmp_path, "h", seeds=[1, 2, 3]), settings(workspace))
    assert before[0].items() <= runs(workspace).items()
    assert len(runs(workspace)) == len(results(workspace, "h")) == 6
    assert before[1].items() <= model_bytes(workspace).items()


def test_runs_whose_students_are_finished_do_not_count_for_estimates(done):
    workspace, path = done
    shutil.rmtree(workspace / "runs")
    sweep(path, settings(workspace))
    assert {RunFolder(settings(workspace).paths, run).record().work for run in runs(workspace)} == {0}
    assert plan_sweep(plan_grid(path, settings(workspace, set_=("seeds=[1,2,3]",))), 1)["seconds"] is None


def test_a_sweep_gives_the_bytes_of_compress_by_hand(swept, workspace):
    given = {"task": "sst-2", "student_arch": "ffn", "embedding_type": "hash", "seed": 1, **tiny.small()}
    (folder,) = compress(tiny.compress_settings(workspace=workspace, **given, **METHODS["teacher"]))
    (row,) = [row for row in results(swept[0]) if (row["cell"]["method"], row["seed"]) == ("teacher", 1)]
    assert model_bytes(swept[0])[row["model"]] == (folder / "model.safetensors").read_bytes()


def test_a_run_waits_for_its_model_and_a_sweep_resumes_after_kill_9(swept, workspace):
    path = swept[1]
    first, second, third, last = planned(path, workspace)
    lock = workspace / "runs" / f"sst-2-{last.name}"
    with only_one(lock, "the last run"), started(path, workspace) as process:
        with only_one(second.folder.paths.model("sst-2", second.name), second.name):
            wait_for(second.folder.log, f"another command is using {second.name}; waiting for it")
        wait_for(third.folder.log, "epoch 1/")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    stopped = runs(workspace)
    assert {first.id, second.id} <= set(stopped) <= {first.id, second.id, third.id}
    sweep(path, settings(workspace))
    assert stopped.items() <= runs(workspace).items()
    assert len(runs(workspace)) == 4
    assert model_bytes(workspace) == model_bytes(swept[0])
    assert [row["metrics"] for row in results(workspace)] == [row["metrics"] for row in results(swept[0])]


def test_ctrl_c_stops_cleanly_and_the_sweep_resumes_later(workspace, tmp_path):
    path = write_grid(tmp_path, settings=LONG, **ONE_RUN)
    (run,) = planned(path, workspace)
    with started(path, workspace) as process:
        wait_for(run.folder.log, "epoch 2/")
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=60)
    assert process.returncode == 130, output.decode()
    assert b"run the same command again to resume" in output
    assert not run.folder.file.exists()
    assert (tiny.work_folder(workspace) / "state.safetensors").stat().st_size
    sweep(path, settings(workspace))
    assert "resuming from epoch" in run.folder.log.read_text()
    assert len(results(workspace)) == 1


def test_a_run_whose_worker_is_killed_resumes_in_another(workspace, tmp_path, capsys):
    path = write_grid(tmp_path, settings=LONG, **ONE_RUN)
    (run,) = planned(path, workspace)

    def kill_worker():
        wait_for(run.folder.log, "epoch 2/")
        os.kill(run.folder.record().process.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill_worker)
    thread.start()
    sweep(path, settings(workspace, launcher="processes", workers=1))
    thread.join()
    assert "restarting its job" in capsys.readouterr().err
    assert "resuming from epoch" in run.folder.log.read_text()
    assert len(results(workspace)) == 1


@pytest.mark.parametrize(
    "given", [{}, {"launcher": "slurm", "slurm": ("cluster=local",), "workers": 2}], ids=["here", "slurm"]
)
def test_shared_jobs_and_runs_go_where_the_launcher_says(workspace, tmp_path, monkeypatch, given):
    if given:
        pytest.importorskip("submitit")
    monkeypatch.chdir(tmp_path)
    path = write_grid(tmp_path, shared=[{"evaluate": {"model_name": "tiny-bert"}}], **ONE_RUN)
    sweep(path, settings(workspace, **given))
    teacher, student = results(workspace)
    assert (teacher["stage"], "cell" in teacher) == ("teacher", False)
    assert student["cell"] == {"alpha": "1"}
    assert not (tmp_path / ".submitit").exists()


class Terminal(io.StringIO):
    """A screen."""

    def isatty(self):
        return True


def test_failed_runs_do_not_stop_others_and_only_they_are_retried(workspace, tmp_path, monkeypatch, capsys):
    path = write_grid(tmp_path, seeds=[1], axes={"lr": [1e30, 0.02], "alpha": [1]})
    monkeypatch.setattr(board, "POLL_SECONDS", 0.02)
    for name, value in {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", screen := Terminal())
        assert run_script("experiment.py", *words(path, workspace, "--loadbar")) == 1
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "0/2 done" in shown
    assert "1/2 done, 0 running, 1 failed" in shown
    assert "-s1  " in shown  # a run, before its time
    assert "error: 1 of 2 runs failed" in shown
    assert "the loss became" in shown
    record = read_record(workspace / "experiments" / "g")
    (bad,) = failures(settings(workspace).paths, record)
    assert [run.cell["lr"] for run in record.runs if run.id == bad.id] == ["1e+30"]
    assert len(results(workspace)) == 1
    before = runs(workspace)
    sweep(path, settings(workspace))
    assert runs(workspace) == before
    capsys.readouterr()
    sweep(path, settings(workspace, retry_failed=True, loadbar=True))
    after = runs(workspace)
    assert {identity for identity in after if after[identity] != before[identity]} == {bad.id}
    assert re.search(r"^\[2/2\] ffn\S+ failed: .*the loss became", capsys.readouterr().err, re.MULTILINE)


def test_a_full_disk_stops_the_sweep_in_one_line_and_no_run_counts_as_failed(workspace, tmp_path, capsys):
    path = write_grid(tmp_path, **ONE_RUN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, limits[1]))
    try:
        assert run_script("experiment.py", *words(path, workspace)) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    output = capsys.readouterr().err
    assert "File too large" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert not runs(workspace)
    sweep(path, settings(workspace))
    assert len(results(workspace)) == 1


def test_a_run_whose_model_is_missing_or_damaged_or_whose_rows_were_changed_is_repeated(done):
    workspace, path = done
    before, models = runs(workspace), model_bytes(workspace)
    deleted, damaged, changed = results(workspace)[:3]
    (workspace / "models" / "sst-2" / deleted["model"]).unlink()
    shutil.rmtree((workspace / "store" / deleted["config_hash"]).resolve())
    weights = workspace / "models" / "sst-2" / damaged["model"] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    file = workspace / "runs" / changed["run_id"] / "result.json"
    file.write_text(file.read_text().replace('"accuracy": 0', '"accuracy": 1'))
    sweep(path, settings(workspace))
    after = runs(workspace)
    repeated = {identity for identity in after if after[identity] != before[identity]}
    assert repeated == {deleted["run_id"], damaged["run_id"], changed["run_id"]}
    assert model_bytes(workspace) == models


def test_results_changed_by_hand_are_written_again_or_refused(done, capsys):
    workspace, _ = done
    paths = settings(workspace).paths
    file = workspace / "experiments" / "g" / "results.json"
    rows = json.loads(file.read_text())
    rows[0]["metrics"]["accuracy"] = 1.0
    file.write_text(json.dumps(rows))
    _, gathered = report(paths, "g")
    assert "row 1" in capsys.readouterr().err
    assert gathered[0]["metrics"]["accuracy"] < 1
    # Without its runs, as in a repository of results, it cannot be repaired.
    file.write_text(json.dumps(rows))
    shutil.rmtree(workspace / "runs")
    with pytest.raises(UserError, match=r"row 1 .* was changed after it was written"):
        report(paths, "g")
    write_results(file, rows)
    assert report(paths, "g")[1][0]["metrics"]["accuracy"] == 1


def test_two_experiments_of_one_name_are_refused(done, tmp_path):
    workspace, path = done
    with pytest.raises(UserError, match=r"'g' already exists, from 'g.yaml', .* from 'g.yaml epochs=1'; .*--name"):
        sweep(path, settings(workspace, set_=("epochs=1",)))
    other = tmp_path / "other.yaml"
    other.write_text(path.read_text())
    with pytest.raises(UserError, match=r"this one is from 'other.yaml'"):
        sweep(other, settings(workspace))
    sweep(other, settings(workspace, name="another"))
    assert len(results(workspace, "another")) == 4


def test_chains_share_one_distilled_student_and_find_that_of_another_sweep(done, tmp_path):
    workspace, _ = done
    before = model_bytes(workspace)
    chains = [["distill", "prune", "quantize"], ["distill", "quantize"]]
    axes = {"task": ["sst-2"], "model": {"a": METHODS["labels"]}}
    table = {"rows": ["model", "stage"], "columns": ["task"]}
    sweep(write_grid(tmp_path, "chains", chains=chains, axes=axes, table=table, seeds=[1]), settings(workspace))
    models = [row["model"] for row in results(workspace, "chains")]
    assert [model.partition("+")[1:] for model in models] == [("", ""), ("+", "p"), ("+", "p+q"), ("+", "q")]
    assert models[0] in before
    assert {name for name in model_bytes(workspace) if name not in before} == set(models[1:])


def test_a_sweep_that_is_timed_finds_the_models_of_one_that_was_not(done, tmp_path):
    workspace, path = done
    before, of_untimed = model_bytes(workspace), set(runs(workspace))
    assert not any("speed" in row for row in results(workspace))
    sweep(path, settings(workspace, name="timed", set_=("time=true", "seeds=[1]")))
    assert [row["speed"]["runtime"] for row in results(workspace, "timed")] == ["numpy"] * len(METHODS)
    assert model_bytes(workspace) == before
    assert len(set(runs(workspace)) - of_untimed) == len(METHODS)
    with pytest.raises(UserError, match="--runtime has no effect without --packed or --time"):
        plan_grid(path, settings(workspace, set_=("runtime=c",)))
    plan_grid(path, settings(workspace, set_=("time=true", "runtime=c")))


def test_runs_that_were_scored_by_an_earlier_version_are_scored_again(done, monkeypatch):
    workspace, path = done
    before, models, rows = runs(workspace), model_bytes(workspace), results(workspace)
    built = {row["model"]: (workspace / "models/sst-2" / row["model"]).resolve() for row in rows}
    monkeypatch.setattr(Evaluate, "version", Evaluate.version + 1)
    # Until the sweep is resumed, the experiment has the rows of its runs, as any other that is finished.
    report(settings(workspace).paths, "g")
    assert results(workspace) == rows
    assert read_finished(workspace / "experiments" / "g").rows == rows
    assert plan_sweep(plan_grid(path, settings(workspace)), 1)["finished"] == 0
    sweep(path, settings(workspace))
    again = results(workspace)
    assert {row["run_id"] for row in again} == runs(workspace).keys() - before.keys()
    assert not {row["evaluation"] for row in again} & {row["evaluation"] for row in rows}
    assert [row["metrics"] for row in again] == [row["metrics"] for row in rows]
    assert read_finished(workspace / "experiments" / "g").rows == again
    assert model_bytes(workspace) == models
    assert {name: (workspace / "models/sst-2" / name).resolve() for name in built} == built


def test_cells_with_the_same_settings_are_one_run(done, tmp_path):
    workspace, _ = done
    axes = {"method": {"a": METHODS["labels"], "b": {**METHODS["labels"], "alpha": 1.0}}}
    record = sweep(write_grid(tmp_path, "same", axes=axes, seeds=[1]), settings(workspace))
    assert len({run.id for run in record.runs}) == 1
    assert [row["cell"]["method"] for row in results(workspace, "same")] == ["a", "b"]


def test_files_of_a_killed_run_are_ignored(done):
    workspace, _ = done
    folder = RunFolder(settings(workspace).paths, next(iter(runs(workspace))))
    assert folder.status() == "finished"
    record = json.loads(folder.file.read_text())
    ended = subprocess.Popen(["true"])
    ended.wait()
    here = Process.current()
    for process, status in [
        (here._replace(pid=ended.pid), "waiting"),
        (here._replace(start=here.start - 1), "waiting"),  # the same number, used again
        (here, "running"),
        (here._replace(machine="0badcafe", pid=ended.pid), "running"),
        (None, "waiting"),
        (["here"], "waiting"),
    ]:
        folder.file.write_text(json.dumps({**record, "status": "running", "process": process}))
        assert folder.status() == status
    for text in ("{", "{}", "[]"):
        folder.file.write_text(text)
        assert folder.status() == "waiting"


def test_an_interrupted_sweep_keeps_the_shared_results_of_the_one_before(tmp_path, monkeypatch):
    plan = plan_grid(write_grid(tmp_path, shared=[{"preprocess": {}}]), settings(tmp_path))
    file = tmp_path / "experiments/g/shared/0.json"

    def rows_of(model):
        return [pivot_rows.row(None, 1, {}, model=model)]

    def interrupted(jobs):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "run_jobs", lambda jobs: rows_of("before"))
    run_module.run_shared(plan, Launcher())
    assert [row["model"] for row in read_results(file)] == ["before"]
    monkeypatch.setattr(work, "run_jobs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_module.run_shared(plan, Launcher())
    assert [row["model"] for row in read_results(file)] == ["before"]
    assert not list((tmp_path / "experiments/g").glob(".shared*"))
    monkeypatch.setattr(work, "run_jobs", lambda jobs: rows_of("after"))
    run_module.run_shared(plan, Launcher())
    assert [row["model"] for row in read_results(file)] == ["after"]
