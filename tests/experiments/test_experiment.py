"""Experiments: plans are checked before anything runs, chains equal commands by hand, finished work is reused."""

import json

import pytest
import tiny
import yaml

from common.config import CONFIG_DIR
from common.errors import UserError
from common.seeds import NAMED_SEEDS
from common.training.models import read_config
from compression.experiments.chain import plan_chain, plan_file
from compression.experiments.jobs import recorded_settings
from compression.experiments.report.results import read_results
from compression.experiments.run import run_plan
from compression.experiments.sweep.grid import load_grid
from compression.shrinking.chain import compress

JOBS = [
    {"compress": {"student_arch": "ffn", "embedding_type": "hash", "compression_actions": ["distill", "quantize"]}},
    {"evaluate": None},
    {"analyze": {"pie-chart": True}},
]


def write_experiment(path, workspace, **changes):
    settings = {"task": "sst-2", "workspace": str(workspace), "cpu": True, "loadbar": False, **tiny.small()}
    path.write_text(yaml.safe_dump({"name": "first", "settings": settings, "jobs": JOBS, **changes}))
    return path


def test_a_chain_gives_the_bytes_that_commands_by_hand_give(workspace, tmp_path):
    by_hand = tiny.copy_workspace(workspace, tmp_path / "by-hand")
    run_plan(plan_file(write_experiment(tmp_path / "e.yaml", workspace, seeds=[tiny.SEED]), []))
    settings = {"student_arch": "ffn", "embedding_type": "hash", "compression_actions": ("distill", "quantize")}
    folders = compress(tiny.compress_settings(task="sst-2", workspace=by_hand, **tiny.small(), **settings))
    assert len(folders) == 2
    for folder in folders:
        chained = workspace / "models" / "sst-2" / folder.name
        assert (chained / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
        assert read_config(chained) == read_config(folder)


def test_results_and_report_are_written_and_finished_work_is_reused(workspace, tmp_path):
    path = write_experiment(tmp_path / "e.yaml", workspace, seeds=["hadfield", "simone"])
    rows, _ = run_plan(plan_file(path, []))
    assert sorted({row["seed"] for row in rows}) == sorted([NAMED_SEEDS["hadfield"], NAMED_SEEDS["simone"]])
    assert [row["stage"] for row in rows] == ["distilled", "quantized"] * 2
    folder = workspace / "experiments" / "first"
    assert [{**row, "checksum": ""} for row in read_results(folder / "results.json")] == [
        {**row, "checksum": ""} for row in rows
    ]
    assert all((folder / name).stat().st_size for name in ("report.md", "report.html", "skyline.png"))
    assert (folder / "sacred" / "1" / "run.json").exists()
    made = [*(workspace / "models").rglob("*"), *(workspace / "analysis").rglob("*")]
    times = {file: file.stat().st_mtime_ns for file in made if file.is_file()}
    assert any(file.name == "pie_chart.png" for file in times)
    assert run_plan(plan_file(path, []))[0] == rows
    assert times == {file: file.stat().st_mtime_ns for file in times}


def test_flags_override_the_file_in_every_job_that_knows_them(workspace, tmp_path):
    plan = plan_file(
        write_experiment(tmp_path / "e.yaml", workspace), ["--name", "second", "--epochs", "1", "--no-cpu"]
    )
    assert plan.name == "second"
    by_kind = {job.kind: job.given for job in plan.jobs}
    assert by_kind["compress"]["epochs"] == "1"
    assert "epochs" not in by_kind["evaluate"]
    assert [given["cpu"] for given in by_kind.values()] == [False] * 3


def test_a_chain_on_the_command_line_shares_its_flags():
    plan = plan_chain(["compress", "evaluate"], ["--task", "sst-2", "--alpha", "1", "--name", "x", "--time"])
    assert plan.name == "x"
    assert plan.jobs[0].given == {"task": "sst-2", "alpha": "1"}
    assert plan.jobs[1].given == {"task": "sst-2", "time": True}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"jobs": [{"compres": {}}]}, "unknown job 'compres'; did you mean compress"),
        ({"jobs": [{"compress": {"alhpa": 0}}]}, "unknown setting 'alhpa'; did you mean alpha"),
        ({"jobs": [{"compress": {"alpha": 2}}]}, "--alpha"),
        ({"settings": {"taks": "sst-2"}}, "no job has a setting 'taks'; did you mean task"),
        ({"seeds": ["benington"]}, "unknown seed 'benington'; did you mean bennington"),
        ({"job": []}, "unknown setting 'job'; did you mean jobs"),
        ({"name": "../x"}, "is not a name for an experiment"),
        ({"jobs": []}, "jobs"),
    ],
)
def test_a_faulty_file_is_refused_before_anything_runs(workspace, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        plan_file(write_experiment(tmp_path / "e.yaml", workspace, **changes), [])
    assert not (workspace / "experiments").exists()


def test_a_flag_no_job_knows_is_refused(workspace, tmp_path):
    with pytest.raises(UserError, match="unknown flag --epoch; did you mean --epochs"):
        plan_file(write_experiment(tmp_path / "e.yaml", workspace), ["--epoch", "3"])
    with pytest.raises(UserError, match="stray word"):
        plan_chain(["evaluate"], ["--task", "sst-2", "stray"])


CHAINS = CONFIG_DIR / "experiments"


@pytest.mark.parametrize("path", [*CHAINS.glob("*.yaml"), *CHAINS.glob("presets/*.yaml")], ids=lambda path: path.stem)
def test_every_shipped_chain_can_be_planned(path):
    assert plan_file(path, []).jobs


@pytest.mark.parametrize("size", ["12", "32", "100", "400"])
def test_a_preset_is_what_its_class_of_size_was_measured_with(size):
    plan = plan_file(CHAINS / "presets" / f"{size}k.yaml", ["--task", "sst-2"])
    grid = load_grid(CHAINS / "sweeps" / "sizes.yaml", [])
    (compress,) = [job.given for job in plan.jobs if job.kind == "compress"]
    cell = next(cell for cell in grid.cells if cell.labels == {"size": f"BiLSTM, {size} KB"} and cell.seed == 3201976)
    assert compress["max_bytes"] == 1000 * int(size)
    assert {**compress, "seed": cell.seed} == cell.given
    shared = [job for job in plan.jobs if job.kind in ("preprocess", "finetune")]
    assert [recorded_settings(job.given) for job in shared] == [
        recorded_settings(job.given) for job in grid.shared["sst-2"] if job.kind in ("preprocess", "finetune")
    ]


def test_an_experiment_of_another_file_keeps_its_name(workspace, tmp_path):
    run_plan(plan_file(write_experiment(tmp_path / "e.yaml", workspace), []))
    other = plan_file(write_experiment(tmp_path / "other.yaml", workspace), [])
    with pytest.raises(UserError, match=r"'first' is there already, from 'e.yaml', and this one is from 'other.yaml'"):
        run_plan(other)
    run_plan(plan_file(write_experiment(tmp_path / "other.yaml", workspace), ["--name", "second"]))


def test_a_grid_is_sent_to_sweep_and_an_unknown_word_is_named(tmp_path):
    (tmp_path / "grid.yaml").write_text("axes: {alpha: [0]}")
    done = tiny.run_command("experiment.py", "run", tmp_path / "grid.yaml")
    assert (done.returncode, "experiment.py sweep" in done.stderr) == (2, True)
    done = tiny.run_command("experiment.py", "swep", tmp_path / "grid.yaml")
    assert (done.returncode, "unknown word 'swep'; did you mean sweep" in done.stderr) == (2, True)


def test_the_six_scripts_in_one_experiment_from_the_command_line(tmp_path, glue, encoder):
    """experiment.py runs the other scripts' jobs, from text to report; analyze.py and evaluate.py read its models."""
    chain = ["preprocess", "finetune", "compress", "evaluate", "analyze"]
    common = ["--task", "qqp", "--workspace", tmp_path, "--cpu", "--no-loadbar"]
    small = ["--epochs", 1, "--max-epochs", 1, "--embedding-type", "char", "--student-arch", "rnn"]
    data = ["--data-dir", glue, "--arch", encoder, "--alpha", 1, "--only-original-data"]
    done = tiny.run_command("experiment.py", *chain, *common, *small, *data, "--name", "all")
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    name = "rnn-char100-a1-orig-s3201976"
    analysed = tiny.run_command("analyze.py", *common, "--model-name", name, "--json", "--named-params")
    assert analysed.returncode == 0, analysed.stderr
    assert json.loads(analysed.stdout)["model"] == name
