"""Experiments whose teacher is a file of logits: its scores, and students that learn from them."""

import csv
import shutil

import pytest
import tiny
from processes import run_script
from stages import score_of
from sweep_grid import results, settings, sweep, write_grid

from common.config import build
from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from compression.augmentation.preprocess import preprocess
from compression.augmentation.settings import PreprocessSettings
from compression.experiments.jobs import plan_chain
from compression.experiments.run import run
from compression.experiments.sweep.runs import report
from publish import PublishSettings, publish


@pytest.fixture
def logits(workspace, tmp_path):
    """A file with the logits of the teacher tiny-bert."""
    file, rows = tmp_path / "logits.parquet", ("processed", "test")
    given = {"task": "sst-2", "workspace": workspace, "cpu": True, "loadbar": False, "model_name": "tiny-bert"}
    preprocess(PreprocessSettings(**given, generate_loss=rows, logits_to=file))
    return file


def test_a_sweep_learns_from_a_file_and_has_the_scores_of_its_logits(workspace, tmp_path, logits, capsys):
    imported = {"generate_loss": ["processed", "test"], "logits_from": str(logits), "model_name": "copy"}
    own = {"only_original_data": True, "compression_actions": ["distill", "pack"]}
    grid = {"seeds": [1], "axes": {"alpha": [0]}, "settings": own}
    path = write_grid(tmp_path, shared=[{"preprocess": imported}, {"evaluate": {"time": True}}], **grid)
    sweep(path, settings(workspace))
    teacher, student = results(workspace)
    own = score_of(workspace, "tiny-bert")
    assert (teacher["model"], teacher["bytes_gzip"], teacher["parts"]) == ("copy", None, {})
    assert all(teacher[size] == own[size] > 0 for size in ("parameters", "bytes_model"))
    assert student["teacher"] == "copy"
    assert teacher["metrics"] == own["metrics"]
    words = ("--task", "sst-2", "--workspace", workspace, "--cpu", "--no-loadbar")
    assert run_script("evaluate.py", *words, "--model-name", "copy") == 0
    sizes = f"{own['parameters']:,} parameters, {own['bytes_model']:,} bytes"
    assert capsys.readouterr().out.endswith(f"; imported as logits, of {sizes}\n")
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    shutil.copy(tiny.ROOT / "zoo" / "tasks.yaml", zoo)
    publish(build(PublishSettings, {"workspace": workspace, "zoo": zoo, "name": "tiny-1k"}), "g")
    assert f"| copy: {100 * teacher['metrics']['accuracy']:.2f} in " in (zoo / "README.md").read_text()
    report(settings(workspace).paths, "g")
    assert f"| copy | – | teacher | {own['parameters']:,} |" in (workspace / "experiments/g/report.md").read_text()


def test_a_chain_with_an_imported_teacher_analyses_its_students(workspace, glue, logits):
    words = ["--task", "sst-2", "--workspace", workspace, "--cpu", "--no-loadbar", "--data-dir", glue, "--epochs", 1]
    words += ["--logits-from", logits, "--model-name", "copy", "--generate-loss", "processed", "test", "--name", "g"]
    words += ["--student-arch", "rnn", "--embedding-type", "char", "--seed", tiny.SEED]
    rows, _ = run(plan_chain(["preprocess", "compress", "evaluate", "analyze"], list(map(str, words))))
    assert [row["model"] for row in rows] == ["copy", f"rnn-char100-a0-orig-s{tiny.SEED}"]
    assert [path.name for path in (workspace / "analysis/sst-2").iterdir()] == [rows[1]["model"]]


def test_scores_follow_the_logits_that_are_there_now(workspace, tmp_path, logits):
    given = {"task": "sst-2", "workspace": workspace, "cpu": True, "loadbar": False, "model_name": "copy"}
    preprocess(PreprocessSettings(**given, generate_loss=("processed",), logits_from=logits))
    with pytest.raises(UserError, match="--generate-loss test --logits-from FILE"):
        score_of(workspace, "copy")
    test, answers = load_split(Workspace(workspace), load_task("sst-2"), "test"), tmp_path / "answers.csv"
    for number, label in enumerate(("negative", "positive")):
        with answers.open("w", newline="") as file:
            csv.writer(file).writerows([("sentence1", "label"), *((text, label) for text in test.sentence1)])
        preprocess(PreprocessSettings(**given, generate_loss=("test",), logits_from=answers))
        row = score_of(workspace, "copy")
        assert row["metrics"]["accuracy"] == pytest.approx((test.labels == number).mean())
