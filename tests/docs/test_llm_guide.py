"""The guide on answers of a language model, run from top to bottom."""

import os
import re
import subprocess
import sys

import pytest
import tiny


@pytest.mark.slow
def test_the_guide_works_from_top_to_bottom(tmp_path):
    (tmp_path / "docs").symlink_to(tiny.ROOT / "docs")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$1" in *.py) script="$1"; shift; set -- "{tiny.ROOT}/$script" "$@";; esac\n'
                      f'exec "{sys.executable}" "$@"\n')  # fmt: skip
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tiny.ROOT)}
    guide = (tiny.ROOT / "docs" / "guide" / "llm.md").read_text(encoding="utf-8")
    outputs = [
        subprocess.run(
            block, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout
        for block in re.findall(r"^```bash\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    ]
    texts, answers, first, second, used = outputs
    assert texts.startswith("id,text\n")
    assert '"probabilities": {"account": ' in answers
    assert "agreement with the teacher (accuracy) on test" in first
    assert "answers to 320 of 340 texts" in first
    assert "agreement" not in second
    accuracy = float(re.search(r"accuracy on test ([\d.]+)", second)[1])
    assert accuracy >= 90
    assert used.startswith("billing")
    assert (tmp_path / "tickets.fwt").stat().st_size <= 32_000
