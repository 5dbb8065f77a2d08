"""A workspace that was moved or copied is up to date, from any working folder: a fit, a sweep and a chain."""

import json
import os
import shutil

import own_task
import pytest
import tiny
import torch
import yaml
from processes import run_script
from sweep_grid import METHODS

from common.store.workspace import Workspace

pytestmark = pytest.mark.slow
FLAGS = ["--workspace", "w", "--cpu", "--no-loadbar"]


def commands(task):
    """The words of a fit, and of a chain and a sweep over its task."""
    small = ["--vocab-size", 60, "--embedding-dim", 6, "--cls-hidden-dim", 7, "--epochs", 1]
    student = ["--student-arch", "ffn", "--embedding-type", "hash", "--alpha", 1, "--only-original-data", *small]
    chain = ["preprocess", "compress", "evaluate", "analyze", "--task", task, *FLAGS, *student, "--name", "chain"]
    return [
        ["fit", "reviews.csv", "--max-bytes", 4000, "--minutes", 0.5, *FLAGS],
        [*chain, "--pie-chart"],
        ["sweep", "grid.yaml", *FLAGS, "--launcher", "local", "--set", f"task={task}"],
    ]


def built(workspace):
    """Every artifact with the time at which it was built, and the time at which each run and analysis was written."""
    files = [*workspace.glob("store/*/manifest.json"), *workspace.glob("runs/*/run.json")]
    return {
        str(file.relative_to(workspace)): file.stat().st_mtime_ns
        for file in (*files, *workspace.rglob("analysis.json"))
    }


@pytest.fixture
def made(tmp_path, short_fits, monkeypatch, capsys):
    """A folder with a workspace `w` in which the commands were run, and their files."""
    folder = tmp_path / "old"
    folder.mkdir()
    own_task.write_csv(folder / "reviews.csv", own_task.labelled_rows(120))
    sizes = {"student_arch": "ffn", "embedding_type": "hash", **tiny.small(epochs=1)}
    axes = {"method": {"labels": METHODS["labels"]}}
    grid = {"name": "grid", "settings": {"task": "sst-2", **sizes}, "seeds": [1], "axes": axes}
    (folder / "grid.yaml").write_text(yaml.safe_dump(grid))
    monkeypatch.chdir(folder)
    threads = torch.get_num_threads()
    for words in commands("w/experiments/reviews-4000-0.5min/task.yaml"):
        assert run_script("experiment.py", *words) == 0
    assert torch.get_num_threads() == threads
    capsys.readouterr()
    return folder


def test_nothing_is_built_again_after_a_move(made, tmp_path, monkeypatch, capsys):
    new = tmp_path / "elsewhere" / "renamed"
    new.parent.mkdir()
    before = built(made / "w")
    copy = tmp_path / "copy"
    shutil.copytree(made, copy, symlinks=True)
    made.rename(new)
    for folder in (new, copy):
        monkeypatch.chdir(folder / "w")
        (folder / "v").symlink_to("w")
        for words in commands("experiments/reviews-4000-0.5min/task.yaml"):
            here = {"w": ".", "reviews.csv": "../reviews.csv", "grid.yaml": "../grid.yaml"}
            assert run_script("experiment.py", *(here.get(word, word) for word in words)) == 0, words
        assert built(folder / "w") == before
        assert "up to date" in capsys.readouterr().err
    recorded = [file for file in new.rglob("*.json") if "sacred" not in file.parts]
    outside = str(made / "reviews.csv")
    assert not [file for file in recorded if str(made) in file.read_text().replace(outside, "")]
    assert json.loads((new / "w/experiments/reviews-4000-0.5min/fit.json").read_text())["result"]["file"] == outside


def test_paths_are_recorded_from_the_workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for root in ("link", tmp_path / "link", "./link/../link"):
        paths = Workspace(root)
        assert paths.relative("link/models/x") == paths.relative(tmp_path / "real/models/x") == "models/x"
        assert paths.relative("mine.yaml") == os.path.join(tmp_path, "mine.yaml")  # noqa: PTH118
