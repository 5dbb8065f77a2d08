"""Malformed data sets and task files: each is refused in one line, and leaves nothing behind."""

import sys
import time

import pytest
import tiny
from processes import run_script

sys.path.insert(0, str(tiny.ROOT / "benchmarks"))

from malformed import SECONDS, malformed_tasks


def test_there_are_71_different_ones(tmp_path):
    names = [name for name, _ in malformed_tasks(tmp_path)]
    assert len(names) == len(set(names)) == 71


@pytest.mark.slow
def test_each_is_refused_in_one_line(tmp_path, capsys):
    workspace, wrong = tmp_path / "workspace", []
    for name, path in malformed_tasks(tmp_path / "tasks"):
        started = time.monotonic()
        code = run_script("preprocess.py", "--task", path, "--workspace", workspace)
        lines = capsys.readouterr().err.splitlines()
        one_line = len(lines) == 1 and lines[0].startswith("error: ") and len(lines[0]) < 1500
        if code != 2 or not one_line or time.monotonic() - started > SECONDS:
            wrong.append((name, code, lines))
    assert wrong == []
    assert [path for path in workspace.rglob("*") if path.is_file() and path.suffix != ".lock"] == []
