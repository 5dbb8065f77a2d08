"""The notebook of first steps: its code runs from top to bottom, with the package as the wheel has it."""

import json
import os
import subprocess
import sys

import pytest
import tiny


@pytest.mark.slow
def test_the_notebook_works_from_top_to_bottom(tmp_path):
    package = tmp_path / "featherweight"
    package.mkdir()
    for path in (tiny.ROOT / "runtimes/python/package").iterdir():
        (package / path.name).symlink_to(path)
    (package / "_train").symlink_to(tiny.ROOT)
    (tmp_path / "guide").symlink_to(tiny.ROOT / "docs/guide")
    (tmp_path / "notebooks").mkdir()
    cells = json.loads((tiny.ROOT / "docs/notebooks/first-steps.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [
        "".join(cell["source"]).replace("minutes=1", "minutes=0.2") for cell in cells if cell["cell_type"] == "code"
    ]
    code.append("print(path.stat().st_size, *classifier.predict(checked_texts))")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", "\n".join(code)]
    done = subprocess.run(command, cwd=tmp_path / "notebooks", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "sst-2-12k 11951 bytes\n" in done.stdout
    size, *predicted = done.stdout.splitlines()[-1].split()
    assert int(size) <= 32_000
    assert len(predicted) == 80
    assert set(predicted) <= {"account", "billing", "delivery"}
