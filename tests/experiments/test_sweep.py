"""Sweeps: runs are done once, whatever stops them; failures stay apart; what was tampered with is noticed."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
import yaml
from sweep_grid import METHODS, settings, write_grid

from common.data.prepare import prepare
from common.data.tasks import load_task
from common.errors import UserError
from common.store.files import file_sha256
from common.store.locks import only_one
from common.store.workspace import Workspace
from compression.experiments.report.record import read_record
from compression.experiments.report.results import read_results, write_results
from compression.experiments.sweep.grid import load_grid
from compression.experiments.sweep.plan import distinct, plan_runs
from compression.experiments.sweep.runs import RunFolder
from compression.experiments.sweep.settings import SweepSettings
from compression.experiments.sweep.sweep import failures, plan_sweep, report, sweep


def command(path, workspace, *flags):
    shared = ["--workspace", workspace, "--cpu", "--no-loadbar", "--workers", 2]
    return [sys.executable, "experiment.py", "sweep", *map(str, [path, *shared, *flags])]


def results(workspace, name="g"):
    return read_results(workspace / "experiments" / name / "results.json")


def runs(workspace):
    """Identity -> when the run's record was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in (workspace / "runs").glob("*/run.json")}


def model_bytes(workspace):
    return {path.parent.name: path.read_bytes() for path in (workspace / "models").rglob("ffn*/model.safetensors")}


def said(workspace, words):
    """Wait until the workspace's one run has said these words. Returns its log."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        log = next((workspace / "runs").glob("*/log.txt"), None)
        if log and words in log.read_text():
            return log
        time.sleep(0.01)
    raise TimeoutError(words)


def test_every_cell_runs_with_every_seed_and_a_finished_run_is_never_done_again(workspace, tmp_path):
    path = write_grid(tmp_path)
    record = sweep(path, settings(workspace))
    rows = results(workspace)
    found = {(row["cell"]["method"], row["seed"]) for row in rows}
    assert found == {(method, seed) for method in METHODS for seed in (1, 2)}
    assert {run.id for run in record.runs} == {row["run_id"] for row in rows} == set(runs(workspace))
    assert len(list((workspace / "experiments" / "g" / "sacred").glob("*/run.json"))) == 4
    before = runs(workspace), model_bytes(workspace)
    sweep(path, settings(workspace))
    # The same cells in another experiment are the same runs; a third seed adds the missing ones alone.
    sweep(write_grid(tmp_path, "h", seeds=[1, 2, 3]), settings(workspace))
    assert before[0].items() <= runs(workspace).items()
    assert len(runs(workspace)) == 6
    assert len(results(workspace, "h")) == 6
    assert before[1].items() <= model_bytes(workspace).items()


def test_a_sweep_gives_the_bytes_that_compress_gives_by_hand(workspace, tmp_path):
    from compression.shrinking.chain import compress

    by_hand = tiny.copy_workspace(workspace, tmp_path / "by-hand")
    sweep(write_grid(tmp_path, seeds=[1], axes={"alpha": [0]}), settings(workspace))
    given = {"task": "sst-2", "student_arch": "ffn", "embedding_type": "hash", "alpha": 0, "seed": 1, **tiny.small()}
    (folder,) = compress(tiny.compress_settings(workspace=by_hand, **given))
    assert list(model_bytes(workspace).values()) == [(folder / "model.safetensors").read_bytes()]


def test_after_kill_9_a_sweep_goes_on_and_repeats_nothing(workspace, tmp_path):
    path = write_grid(tmp_path, settings={**yaml.safe_load(write_grid(tmp_path).read_text())["settings"], "epochs": 12})
    never_stopped = tiny.copy_workspace(workspace, tmp_path / "whole")
    process = subprocess.Popen(command(path, workspace), cwd=tiny.ROOT, env=tiny.environment(), start_new_session=True)
    deadline = time.monotonic() + 120
    while not runs(workspace) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = runs(workspace)
    assert 0 < len(done) < 4
    finished = subprocess.run(command(path, workspace), cwd=tiny.ROOT, env=tiny.environment(), capture_output=True)
    assert finished.returncode == 0, finished.stderr.decode()
    assert done.items() <= runs(workspace).items()
    assert len(runs(workspace)) == 4
    sweep(path, settings(never_stopped))
    assert model_bytes(workspace) == model_bytes(never_stopped)
    scores = [[row["metrics"] for row in results(place)] for place in (workspace, never_stopped)]
    assert scores[0] == scores[1]


def test_failures_do_not_stop_the_rest_and_retry_failed_runs_just_them(workspace, tmp_path):
    path = write_grid(tmp_path, axes={"lr": [0.02, 0.01, 1e30], "alpha": [1]}, table=None)
    first = subprocess.run(command(path, workspace), cwd=tiny.ROOT, env=tiny.environment(), capture_output=True)
    assert first.returncode == 1
    assert "error: 2 of 6 runs failed" in first.stderr.decode()
    assert "the loss became" in first.stderr.decode()
    record = read_record(workspace / "experiments" / "g")
    bad = {run.id for run in failures(SweepSettings(workspace=workspace).paths, record)}
    assert {run.cell["lr"] for run in record.runs if run.id in bad} == {"1e+30"}
    assert len(results(workspace)) == 4
    before = runs(workspace)
    sweep(path, settings(workspace))
    assert runs(workspace) == before
    sweep(path, settings(workspace, retry_failed=True))
    after = runs(workspace)
    assert {identity for identity in after if after[identity] != before[identity]} == bad


def test_a_run_whose_model_is_gone_or_damaged_or_whose_rows_were_changed_is_done_again(workspace, tmp_path):
    path = write_grid(tmp_path)
    sweep(path, settings(workspace))
    before, models = runs(workspace), model_bytes(workspace)
    deleted, damaged, changed = results(workspace)[:3]
    Path(deleted["run"]).unlink()
    shutil.rmtree((workspace / "store" / deleted["config_hash"]).resolve())
    weights = workspace / "models" / "sst-2" / damaged["model"] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    file = workspace / "runs" / changed["run_id"] / "result.json"
    file.write_text(file.read_text().replace('"accuracy": 0', '"accuracy": 1'))
    sweep(path, settings(workspace))
    after = runs(workspace)
    touched = {identity for identity in after if after[identity] != before[identity]}
    assert touched == {deleted["run_id"], damaged["run_id"], changed["run_id"]}
    assert model_bytes(workspace) == models


def test_results_changed_by_hand_are_made_again_or_refused(workspace, tmp_path, capsys):
    sweep(write_grid(tmp_path), settings(workspace))
    paths = SweepSettings(workspace=workspace).paths
    file = workspace / "experiments" / "g" / "results.json"
    rows = json.loads(file.read_text())
    rows[0]["metrics"]["accuracy"] = 1.0
    file.write_text(json.dumps(rows))
    _, told = report(paths, "g")
    assert "row 1" in capsys.readouterr().err
    assert told[0]["metrics"]["accuracy"] < 1
    # Without its runs beside it, as in a repository of results, nothing can mend it.
    file.write_text(json.dumps(rows))
    shutil.rmtree(workspace / "runs")
    with pytest.raises(UserError, match=r"row 1 .* was changed after it was written"):
        report(paths, "g")
    write_results(file, rows)
    assert report(paths, "g")[1][0]["metrics"]["accuracy"] == 1


def test_two_experiments_of_one_name_are_refused(workspace, tmp_path):
    path = write_grid(tmp_path)
    sweep(path, settings(workspace, set_=("epochs=1",)))
    with pytest.raises(UserError, match=r"'g' is there already.*--name"):
        sweep(path, settings(workspace))
    other = tmp_path / "other.yaml"
    other.write_text(path.read_text())
    with pytest.raises(
        UserError, match=r"'g' is there already, from 'g.yaml epochs=1', and this one is from 'other.yaml"
    ):
        sweep(other, settings(workspace, set_=("epochs=1",)))
    sweep(path, settings(workspace, name="another"))
    assert len(results(workspace, "another")) == 4


def test_chains_share_one_distilled_student_and_other_sweeps_find_it(workspace, tmp_path):
    chains = [["distill", "prune", "quantize"], ["distill", "quantize"]]
    axes = {"model": {"a": {"embedding_dim": 6}}}
    table = {"rows": ["model", "stage"], "columns": ["task"]}
    sweep(
        write_grid(tmp_path, "chains", chains=chains, axes={"task": ["sst-2"], **axes}, table=table, seeds=[1]),
        settings(workspace),
    )
    rows = results(workspace, "chains")
    assert [row["model"].partition("+")[1:] for row in rows] == [("", ""), ("+", "p"), ("+", "p+q"), ("+", "q")]
    weights = workspace / "models" / "sst-2" / rows[0]["model"] / "model.safetensors"
    before = weights.stat().st_mtime_ns
    sweep(write_grid(tmp_path, "plain", axes=axes, table=None, seeds=[1]), settings(workspace))
    assert results(workspace, "plain")[0]["model"] == rows[0]["model"]
    assert weights.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "given", [{}, {"launcher": "slurm", "slurm": ("cluster=local",), "workers": 2}], ids=["here", "slurm"]
)
def test_shared_jobs_and_runs_go_where_the_launcher_says(workspace, tmp_path, monkeypatch, given):
    if given:
        pytest.importorskip("submitit")
    monkeypatch.chdir(tmp_path)
    shared = [{"evaluate": {"model_name": "tiny-bert"}}]
    sweep(
        write_grid(tmp_path, shared=shared, axes={"alpha": [0, 1]}, table=None, seeds=[1]), settings(workspace, **given)
    )
    teacher, *students = results(workspace)
    assert (teacher["stage"], "cell" in teacher) == ("teacher", False)
    assert [row["cell"]["alpha"] for row in students] == ["0", "1"]
    assert not (tmp_path / ".submitit").exists()


def test_cells_with_the_same_settings_are_one_run(workspace, tmp_path):
    axes = {"method": {"a": {"alpha": 1}, "b": {"alpha": 1.0}}}
    record = sweep(write_grid(tmp_path, axes=axes, table=None, seeds=[1]), settings(workspace))
    assert len({run.id for run in record.runs}) == 1
    assert [row["cell"]["method"] for row in results(workspace)] == ["a", "b"]


def test_ctrl_c_stops_cleanly_and_the_sweep_goes_on_later(workspace, tmp_path):
    long = {**yaml.safe_load(write_grid(tmp_path).read_text())["settings"], "epochs": 400, "patience": 400}
    path = write_grid(tmp_path, settings=long, seeds=[1], axes={"alpha": [1]}, table=None)
    process = subprocess.Popen(command(path, workspace), cwd=tiny.ROOT, env=tiny.environment(), stderr=subprocess.PIPE)
    said(workspace, "epoch 2/")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told.decode()
    assert b"goes on from" in told
    assert not runs(workspace)
    state = tiny.work_folder(workspace) / "state.safetensors"
    assert state.stat().st_size
    assert not list((workspace / "runs").glob("*/running.json"))
    short = [*command(path, workspace)]
    process = subprocess.Popen(short, cwd=tiny.ROOT, env=tiny.environment(), stderr=subprocess.DEVNULL)
    said(workspace, "resuming from epoch")
    process.kill()
    process.wait()


def test_a_run_whose_process_is_killed_goes_on_in_another(workspace, tmp_path):
    long = {**yaml.safe_load(write_grid(tmp_path).read_text())["settings"], "epochs": 25, "patience": 25}
    path = write_grid(tmp_path, settings=long, seeds=[1], axes={"alpha": [1]}, table=None)
    process = subprocess.Popen(command(path, workspace), cwd=tiny.ROOT, env=tiny.environment(), stderr=subprocess.PIPE)
    log = said(workspace, "epoch 2/")
    os.kill(json.loads((log.parent / "running.json").read_text())["pid"], signal.SIGKILL)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told.decode()
    assert b"its job is started again" in told
    assert "resuming from epoch" in log.read_text()
    assert len(results(workspace)) == 1


def test_a_run_waits_for_a_command_that_builds_the_same_model(workspace, tmp_path):
    path, asked = write_grid(tmp_path, seeds=[1], axes={"alpha": [1]}, table=None), settings(workspace)
    (run,) = distinct(plan_runs(load_grid(path, (), asked.flags), asked.paths, "g", {}, (), 1))
    words = [*command(path, workspace), "--launcher", "local"]
    with only_one(asked.paths.model("sst-2", run.name), run.name):
        process = subprocess.Popen(words, cwd=tiny.ROOT, env=tiny.environment(), stderr=subprocess.PIPE)
        said(workspace, f"another command is at work on {run.name}; waiting for it")
    _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told.decode()
    assert len(results(workspace)) == 1


def test_a_full_disk_stops_the_sweep_in_one_line_and_no_run_counts_as_failed(workspace, tmp_path):
    path = write_grid(tmp_path)

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run(
        [*command(path, workspace), "--launcher", "local"],
        cwd=tiny.ROOT,
        env=tiny.environment(),
        capture_output=True,
        text=True,
        preexec_fn=little_room,
    )
    assert done.returncode == 2
    assert "File too large" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not runs(workspace)
    sweep(path, settings(workspace))
    assert len(results(workspace)) == 4


def test_a_terminal_shows_one_live_board(workspace, tmp_path):
    path = write_grid(tmp_path, axes={"lr": [0.02, 1e30], "alpha": [1]}, seeds=[1], table=None)
    ours, theirs = os.openpty()
    words = [word for word in command(path, workspace) if word != "--no-loadbar"]
    size = {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
    process = subprocess.Popen(
        words, cwd=tiny.ROOT, env=tiny.environment(**size), stderr=theirs, stdout=subprocess.DEVNULL
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while some := os.read(ours, 4096):
            shown += some
    os.close(ours)
    assert process.wait() == 1
    assert b"0/2 done" in shown
    assert b"1/2 done, 0 running, " in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown)
    assert b"1 failed" in shown
    assert b"-s1  " in shown  # a run, beside the time it has taken


def test_inputs_that_are_missing_or_stale_are_named_before_anything_runs(workspace, glue, tmp_path):
    path = write_grid(tmp_path)
    (workspace / "data" / "sst-2" / "logits" / "tiny-bert" / "tinybert.parquet").unlink()
    missing = r"tinybert.parquet: no such file; run: python preprocess.py .* --generate-loss tinybert"
    with pytest.raises(UserError, match=missing):
        sweep(path, settings(workspace))
    assert re.search(missing, plan_sweep(path, settings(workspace))["inputs"])
    prepare(Workspace(workspace), load_task("sst-2"), glue, seed=99)
    with pytest.raises(UserError, match="augmented from other splits than there are now"):
        sweep(path, settings(workspace))
    assert not (workspace / "runs").exists()


def test_byte_pairs_that_appear_later_make_other_runs(workspace, tmp_path, monkeypatch):
    from compression.experiments.sweep.identity import identify
    from compression.tokenizers import bpe_files

    monkeypatch.setattr(bpe_files, "CACHE", tmp_path)
    given = tiny.compress_settings(task="sst-2", workspace=workspace, alpha=1, only_original_data=True, **tiny.small())
    given = given.model_copy(update={"bpe_source": "auto"})
    before = identify(given, ())
    for name in ("en.wiki.bpe.vs60.model", "en.wiki.bpe.vs60.d6.w2v.bin"):
        (tmp_path / name).write_bytes(b"pairs")
    after = identify(given, ())
    assert after.id != before.id
    assert after.family != before.family
    assert after.inputs.items() - before.inputs.items() == {
        ("bpe_model", file_sha256(tmp_path / "en.wiki.bpe.vs60.model")),
        ("bpe_vectors", file_sha256(tmp_path / "en.wiki.bpe.vs60.d6.w2v.bin")),
    }
    assert identify(given.model_copy(update={"bpe_source": "train"}), ()).inputs == before.inputs


def test_a_dry_run_tells_numbers_and_time_and_writes_nothing(workspace, tmp_path):
    path = write_grid(tmp_path)
    plan = plan_sweep(path, settings(workspace))
    assert (plan["cells"], plan["runs"], plan["finished"], plan["seconds"]) == (2, 4, 0, None)
    assert not (workspace / "experiments").exists()
    sweep(path, settings(workspace, set_=("seeds=[1]",)))
    plan = plan_sweep(path, settings(workspace))
    assert (plan["runs"], plan["finished"], plan["failed"]) == (4, 2, 0)
    assert plan["seconds"] is not None


def test_what_a_killed_run_left_behind_is_seen_through(workspace, tmp_path):
    sweep(write_grid(tmp_path, seeds=[1], axes={"alpha": [1]}, table=None), settings(workspace))
    (identity,) = runs(workspace)
    folder = RunFolder(SweepSettings(workspace=workspace).paths, identity)
    assert folder.status() == "finished"
    (folder.folder / "run.json").unlink()
    import platform

    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    folder.running.write_text(json.dumps({"host": platform.node(), "pid": dead.pid}))
    assert folder.status() == "waiting"
    folder.running.write_text(json.dumps({"host": platform.node(), "pid": os.getpid()}))
    assert folder.status() == "running"
    folder.running.write_text("{")
    assert folder.status() == "waiting"
    (folder.folder / "run.json").write_text("{}")
    assert folder.status() == "waiting"
