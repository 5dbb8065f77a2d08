"""Experiments: plans are checked before anything runs, chains equal commands by hand, finished work is reused."""

import json
import subprocess
import sys

import pytest
import tiny
import yaml
from processes import run_script
from sweep_grid import planned

from common.config import CONFIG_DIR
from common.errors import UserError
from common.seeds import NAMED_SEEDS
from common.store.workspace import Workspace
from common.training.models import read_config
from compression.experiments.commands import commands_to_try
from compression.experiments.jobs import plan_chain, plan_file
from compression.experiments.report.results import read_results
from compression.experiments.run import check_inputs, run
from compression.shrinking.chain import compress

JOBS = [
    {"compress": {"student_arch": "ffn", "embedding_type": "hash", "compression_actions": ["distill", "quantize"]}},
    {"evaluate": None},
    {"analyze": {"pie-chart": True}},
]


SEEDS = {name: NAMED_SEEDS[name] for name in ("hadfield", "simone")}


def write_experiment(path, workspace, **changes):
    settings = {"task": "sst-2", "workspace": str(workspace), "cpu": True, "loadbar": False, **tiny.small()}
    path.write_text(yaml.safe_dump({"name": "first", "settings": settings, "jobs": JOBS, **changes}))
    return path


@pytest.fixture(scope="module")
def chained(prepared, tmp_path_factory):
    """A workspace with an experiment of two seeds, its file and its rows."""
    folder = tmp_path_factory.mktemp("chained")
    workspace = tiny.copy_workspace(prepared, folder / "workspace")
    path = write_experiment(folder / "e.yaml", workspace, seeds=list(SEEDS))
    rows, _ = run(plan_file(path, []))
    return workspace, path, rows


def test_a_seed_on_the_command_line_replaces_those_of_the_file(tmp_path):
    path = write_experiment(tmp_path / "e.yaml", tmp_path / "w", seeds=list(SEEDS))
    assert [job.flags.get("seed") for job in plan_file(path, []).jobs if job.kind == "compress"] == [*SEEDS.values()]
    (job,) = [job for job in plan_file(path, ["--seed", "7"]).jobs if job.kind == "compress"]
    assert job.settings().seed == 7


def test_a_report_that_fails_loses_no_rows(chained, monkeypatch, capsys):
    monkeypatch.setattr("compression.experiments.run.write_report", lambda *given: 1 / 0)
    rows, _ = run(plan_file(chained[1], []))
    assert [row["metrics"] for row in rows] == [row["metrics"] for row in chained[2]]
    assert "the report could not be made: ZeroDivisionError" in capsys.readouterr().err


def test_a_chain_gives_the_bytes_of_commands_by_hand(chained, workspace):
    settings = {"student_arch": "ffn", "embedding_type": "hash", "compression_actions": ("distill", "quantize")}
    given = {"task": "sst-2", "workspace": workspace, "seed": SEEDS["simone"], **tiny.small(), **settings}
    folders = compress(tiny.compress_settings(**given))
    assert len(folders) == 2
    for folder in folders:
        model = chained[0] / "models" / "sst-2" / folder.name
        assert (model / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
        assert read_config(model) == read_config(folder)


def test_results_and_report_are_written_and_finished_work_is_reused(chained):
    workspace, path, rows = chained
    assert sorted({row["seed"] for row in rows}) == sorted(SEEDS.values())
    assert [row["stage"] for row in rows] == ["distilled", "quantized"] * 2
    folder = workspace / "experiments" / "first"
    assert [{**row, "checksum": ""} for row in read_results(folder / "results.json")] == [
        {**row, "checksum": ""} for row in rows
    ]
    assert all((folder / name).stat().st_size for name in ("report.md", "report.html", "skyline.png"))
    assert (folder / "sacred" / "1" / "run.json").exists()
    files = [*(workspace / "models").rglob("*"), *(workspace / "analysis").rglob("*")]
    times = {file: file.stat().st_mtime_ns for file in files if file.is_file()}
    assert any(file.name == "pie_chart.png" for file in times)
    assert run(plan_file(path, []))[0] == rows
    assert times == {file: file.stat().st_mtime_ns for file in times}


@pytest.mark.slow
def test_commands_to_try_answer_when_pasted(chained, tmp_path):
    workspace, _, rows = chained
    assert commands_to_try(Workspace(workspace), "sst-2", rows) == []
    settings = {"student_arch": "ffn", "embedding_type": "hash", "compression_actions": ["distill", "pack"]}
    jobs = ["--name", "packed", "--seed", str(SEEDS["simone"])]
    file = write_experiment(tmp_path / "e.yaml", workspace, jobs=[{"compress": settings}, {"evaluate": None}])
    done = subprocess.run(
        [sys.executable, "experiment.py", "run", file, *jobs], cwd=tiny.ROOT, capture_output=True, text=True, check=True
    )
    commands = done.stdout.partition("try the best packed student of sst-2:\n")[2].splitlines()
    assert len(commands) == 3
    for command in commands:
        answer = subprocess.run(
            command, shell=True, cwd=tiny.ROOT, capture_output=True, text=True, input="a fine film\n", check=True
        )
        assert answer.stdout.startswith(("negative\t", "positive\t"))


def test_an_experiment_of_another_file_keeps_its_name(chained, tmp_path):
    other = write_experiment(tmp_path / "other.yaml", chained[0], seeds=list(SEEDS))
    with pytest.raises(UserError, match=r"'first' already exists, from 'e.yaml', but this one is from 'other.yaml'"):
        run(plan_file(other, []))
    assert run(plan_file(other, ["--name", "second"]))[0] == chained[2]


def test_flags_override_the_file_in_every_job_that_has_them(tmp_path):
    flags = ["--name", "second", "--epochs", "1", "--no-cpu", "--observer", "sqlite:///a.db", "--observer=files"]
    plan = plan_file(write_experiment(tmp_path / "e.yaml", tmp_path), flags)
    assert plan.observers == ("sqlite:///a.db", "files")
    assert plan.name == "second"
    by_kind = {job.kind: job.flags for job in plan.jobs}
    assert by_kind["compress"]["epochs"] == "1"
    assert "epochs" not in by_kind["evaluate"]
    assert [given["cpu"] for given in by_kind.values()] == [False] * 3


def test_a_chain_on_the_command_line_shares_its_flags():
    plan = plan_chain(["compress", "evaluate"], ["--task", "sst-2", "--alpha", "1", "--name", "x", "--time"])
    assert plan.name == "x"
    assert plan.jobs[0].flags == {"task": "sst-2", "alpha": "1"}
    assert plan.jobs[1].flags == {"task": "sst-2", "time": True}


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
        ({"jobs": [{}], "base": None}, r"jobs: none has a name \(jobs: preprocess, "),
    ],
)
def test_a_faulty_file_is_refused_before_anything_runs(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        plan_file(write_experiment(tmp_path / "e.yaml", tmp_path, **changes), [])
    assert not (tmp_path / "experiments").exists()


def test_files_that_name_one_another_for_pairs_are_refused(tmp_path):
    for name, other in (("one", "two"), ("two", "one")):
        settings = {"task": "qqp"}
        write_experiment(
            tmp_path / f"{name}.yaml", tmp_path, settings=settings, pairs=f"../{tmp_path.name}/{other}.yaml"
        )
    with pytest.raises(UserError, match=r"one\.yaml: this file is named as its own `pairs`"):
        plan_file(tmp_path / "one.yaml", [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epoch", "3"], "unknown flag --epoch; did you mean --epochs"),
        (["stray"], "unexpected argument"),
        (["--name"], "--name: expected one argument"),
    ],
)
def test_a_flag_of_no_job_is_refused(words, message):
    with pytest.raises(UserError, match=message):
        plan_chain(["compress"], ["--task", "sst-2", *words])


CHAINS = CONFIG_DIR / "experiments"


CHAIN_FILES = [*CHAINS.glob("*.yaml"), *CHAINS.glob("presets/**/*.yaml")]


@pytest.mark.parametrize("path", CHAIN_FILES, ids=lambda path: "-".join(path.relative_to(CHAINS).with_suffix("").parts))
def test_every_shipped_chain_can_be_planned(path):
    assert plan_file(path, []).jobs


@pytest.mark.parametrize("size", ["12", "32", "100", "400"])
def test_a_preset_has_the_shape_of_its_size_in_the_sweep_of_sizes(size):
    plan = plan_file(CHAINS / "presets" / f"{size}k.yaml", ["--task", "sst-2"])
    grid = planned(CHAINS / "sweeps" / "sizes.yaml")
    (compress,) = [job.flags for job in plan.jobs if job.kind == "compress"]
    cell = next(cell for cell in grid.cells if cell.labels == {"size": f"BiLSTM, {size} KB"} and cell.seed == 3201976)
    assert compress["max_bytes"] == 1000 * int(size)
    # The sweep has twice the rows, so it needs fewer epochs.
    # Its teacher is a file of logits, so byte pairs start from another one.
    other = {"seed", "teacher", "embedding_init", "augmented", "epochs", "patience", "tune_epochs"}
    other |= {"workspace", "loadbar"}
    assert {**compress, **{key: cell.flags[key] for key in other & cell.flags.keys()}} == cell.flags


def test_what_students_learn_from_is_no_setting_of_their_teacher(tmp_path):
    settings = {"task": "sst-2", "teacher": "big", "alpha": 0.5, "loss": "kl", "augmented": "four", "lr": 0.1}
    jobs = [{"finetune": {"teacher": "bigger"}}, {"finetune": None}, {"compress": None}]
    first, second, compress = plan_file(
        write_experiment(tmp_path / "e.yaml", "w", settings=settings, jobs=jobs), []
    ).jobs
    assert first.flags == {"task": "sst-2", "lr": 0.1, "teacher": "bigger"}
    assert second.flags == {"task": "sst-2", "lr": 0.1}
    assert compress.flags == settings


def test_a_dry_run_prints_the_jobs_and_writes_nothing(tmp_path, capsys):
    path = str(CHAINS / "presets" / "32k.yaml")
    words = [path, "--task", "qqp", "--name", "mine", "--workspace", str(tmp_path), "--dry-run"]
    assert run_script("experiment.py", "run", *words) == 0
    first, *jobs = capsys.readouterr().out.splitlines()
    assert first == "mine, qqp"
    assert [job.split()[0] for job in jobs] == ["preprocess", "finetune", "preprocess", "compress", "evaluate"]
    assert "max_bytes=32000" in jobs[3]
    assert not list(tmp_path.iterdir())


def test_a_preset_runs_the_recipe_for_pairs_where_the_task_is_of_pairs():
    path = CHAINS / "presets" / "32k.yaml"
    for task, aligned in (("sst-2", False), ("qqp", True), ("mnli", True)):
        plan = plan_file(path, ["--task", task, "--name", "mine"])
        (compress,) = [job for job in plan.jobs if job.kind == "compress"]
        assert (compress.settings().pair_encoder == "align") is aligned
        assert compress.settings().symmetric is (task == "qqp")
        assert compress.flags["max_bytes"] == 32000
        assert plan.name == "mine"
        assert {"base.yaml", "32k.yaml"} <= plan.record.files.keys()


def test_a_file_that_is_unset_is_not_looked_for(tmp_path):
    jobs = [{"preprocess": {"augment": "edits", "glove": None}}]
    plan = plan_file(write_experiment(tmp_path / "e.yaml", tmp_path, jobs=jobs, settings={"task": "sst-2"}), [])
    check_inputs(plan.jobs)
    plan.jobs[0].flags["glove"] = "none.txt"
    with pytest.raises(UserError, match=r"preprocess: --glove none.txt: no such file"):
        check_inputs(plan.jobs)


def test_a_grid_is_sent_to_sweep_and_an_unknown_word_is_named(tmp_path, capsys):
    (tmp_path / "grid.yaml").write_text("axes: {alpha: [0]}")
    for word, message in (("run", "experiment.py sweep"), ("swep", "unknown command 'swep'; did you mean sweep")):
        assert run_script("experiment.py", word, tmp_path / "grid.yaml") == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_scripts_in_one_experiment_from_the_command_line(tmp_path, glue, encoder, capsys):
    """experiment.py runs the other scripts' jobs, from text to report; analyze.py reads its models."""
    chain = ["preprocess", "finetune", "compress", "evaluate", "analyze"]
    common = ["--task", "qqp", "--workspace", tmp_path, "--no-loadbar"]
    small = ["--epochs", 1, "--max-epochs", 1, "--embedding-type", "char", "--student-arch", "rnn"]
    data = ["--data-dir", glue, "--arch", encoder, "--alpha", 1, "--only-original-data"]
    assert run_script("experiment.py", *chain, *common, "--cpu", *small, *data, "--name", "all") == 0
    assert "report.html" in capsys.readouterr().out
    name = "rnn-char100-a1-orig-s3201976"
    assert run_script("analyze.py", *common, "--model-name", name, "--json", "--named-params") == 0
    assert json.loads(capsys.readouterr().out)["model"] == name


STAGES = ["preprocess", "finetune", "compress", "evaluate", "analyze"]


def distilling(workspace, encoder, *more):
    """Words of a chain of all stages, from text to a tiny student that learns from a tiny teacher."""
    words = ["--task", "sst-2", "--workspace", workspace, "--cpu", "--no-loadbar", "--arch", encoder, "--alpha", 0]
    return [*map(str, [*words, "--epochs", 1, "--max-epochs", 1, "--name", "first", *more])]


@pytest.fixture(scope="module")
def general(encoder, tmp_path_factory):
    """Workspace with a general student, mini, and nothing else. To be read, not written."""
    folder = tmp_path_factory.mktemp("general")
    (folder / "corpus.txt").write_text("\n".join(text for text, _ in tiny.sentences(40)))
    given = {"embedding_dim": 8, "encoder_hidden_dim": 8, "intermediate_dim": 8, "iterations": 2, "adapters": 4}
    given |= {"heads": 2, "max_tokens": 24, "epochs": 1, "corpus": str(folder / "corpus.txt"), "teacher": str(encoder)}
    given |= {"student_arch": "recursive", "compression_actions": ["pretrain"], "model_name": "mini"}
    compress(tiny.compress_settings(workspace=folder / "workspace", **given))
    return folder / "workspace"


ADAPTER_TUNING = ["--start-from", "mini", "--adapter-tuning"]
SMALL = ["--student-arch", "rnn", "--embedding-type", "char"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "student"),
    [
        ([*SMALL, "--augment", "--variants", "1", "--glove", "GLOVE"], "rnn-char100-a0-aug-s3201976"),
        (ADAPTER_TUNING, "recursive-wordpiece8-a0-orig-s3201976"),
        ([*ADAPTER_TUNING, "--augment", "edits", "--variants", "1"], "recursive-wordpiece8-a0-aug-s3201976"),
    ],
    ids=["augmented", "adapters", "adapters-augmented"],
)
def test_a_chain_of_all_stages_distils_from_text_to_report(general, encoder, glue, glove, tmp_path, more, student):
    workspace = tiny.copy_workspace(general, tmp_path / "workspace")
    more = [glove if word == "GLOVE" else word for word in more]
    rows, _ = run(plan_chain(STAGES, distilling(workspace, encoder, "--data-dir", glue, *more)))
    assert [row["model"] for row in rows] == ["tiny-bert", student]
    assert (workspace / "experiments/first/report.html").exists()
    for row in rows:
        analysis = json.loads((workspace / "analysis/sst-2" / row["model"] / "analysis.json").read_text())
        assert analysis["model_disk_size"]["bytes_model"] == row["bytes_model"]


def test_stages_are_jobs_in_the_order_of_what_they_need():
    words = ["--augment", "edits", "--variants", "3", "--data-dir", "d", "--alpha", "0.5", "--model-name", "t"]
    plan = plan_chain(["compress", "evaluate", "finetune", "preprocess"], ["--task", "sst-2", *words])
    assert list(map(str, plan.jobs)) == [
        "preprocess data_dir=d",
        "finetune model_name=t",
        "preprocess generate_loss=['processed', 'edits'] augment=edits variants=3 model_name=t",
        "compress augmented=['edits'] alpha=0.5",
        "evaluate",
    ]
    words = ["--task", "sst-2", "--alpha", "1"]
    labels = plan_chain(["preprocess", "finetune", "compress"], words)
    assert list(map(str, labels.jobs)) == ["preprocess", "finetune", "compress only_original_data=True alpha=1"]
    several = plan_chain(["preprocess", "compress"], [*words, "--teacher", "t", "--augmented", "a", "b"]).jobs[1:]
    assert list(map(str, several)) == [
        "preprocess generate_loss=['processed', 'a', 'b'] model_name=t",
        "compress alpha=1 teacher=t augmented=['a', 'b']",
    ]
    assistant = plan_chain(
        ["finetune", "preprocess"], ["--task", "sst-2", "--teacher", "t", "--generate-loss", "train"]
    )
    assert [job.kind for job in assistant.jobs] == ["preprocess", "preprocess", "finetune"]


@pytest.mark.parametrize(
    ("stages", "more", "message"),
    [
        (
            ["finetune", "compress"],
            ["--only-original-data"],
            "logits/tiny-bert/train.parquet: does not exist, and",
        ),
        (["finetune", "compress"], [], "augmented/tinybert.parquet: does not exist"),
        (STAGES, ["--data-dir", "GLUE", "--teacher", "other"], "models/sst-2/other: does not exist"),
        (STAGES, ["--data-dir", "GLUE", "--augment", "--glove", "none.txt"], "--glove none.txt: no such file"),
        (
            STAGES,
            ["--data-dir", "GLUE", *ADAPTER_TUNING, "--student-arch", "recursive"],
            "models/general/mini: does not",
        ),
    ],
)
def test_a_chain_that_cannot_work_is_refused_before_it_begins(stages, more, message, tmp_path, encoder, glue):
    words = distilling(tmp_path, encoder, *(str(glue) if word == "GLUE" else word for word in more))
    with pytest.raises(UserError, match=message):
        run(plan_chain(stages, words))
    assert not (tmp_path / "store").exists()
