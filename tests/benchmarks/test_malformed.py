"""Malformed data sets and task files: each is refused in one line, and leaves nothing behind."""

import sys
import time

import pytest
import tiny
from processes import run_script

sys.path.insert(0, str(tiny.ROOT / "benchmarks"))

from malformed import SECONDS, is_one_line, malformed_fits, malformed_tasks, readable_tasks


def test_there_are_116_different_ones(tmp_path):
    names = [name for make in (malformed_tasks, malformed_fits, readable_tasks) for name, _ in make(tmp_path / "files")]
    assert len(names) == len(set(names)) == 116


@pytest.mark.slow
def test_each_is_refused_in_one_line(tmp_path, capsys):
    workspace, wrong = tmp_path / "workspace", []
    commands = [(name, ["preprocess.py", "--task", path]) for name, path in malformed_tasks(tmp_path / "tasks")]
    commands += [(name, ["experiment.py", *words]) for name, words in malformed_fits(tmp_path / "fits")]
    for name, words in commands:
        started = time.monotonic()
        code = run_script(*words, "--workspace", workspace)
        lines = capsys.readouterr().err.splitlines()
        if code != 2 or not is_one_line(lines) or time.monotonic() - started > SECONDS:
            wrong.append((name, code, lines))
    assert wrong == []
    left = [path for path in workspace.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert [path for path in left if "experiments" not in path.parts] == []  # fit keeps the time it has used


@pytest.mark.slow
def test_files_of_programs_are_prepared(tmp_path, capsys):
    wrong = []
    for name, path in readable_tasks(tmp_path / "tasks"):
        code = run_script("preprocess.py", "--task", path, "--workspace", tmp_path / "workspace", "--force")
        if code:
            wrong.append((name, capsys.readouterr().err))
    assert wrong == []
