"""Scripts of the repository, run in the tests' own process: a new one would load PyTorch for seconds."""

import runpy
import sys
from unittest import mock

import tiny


def run_script(script: str, *words: object) -> int:
    """Run a script with these arguments. Returns its exit code; output goes to capsys."""
    with mock.patch.object(sys, "argv", [script, *map(str, words)]):
        try:
            runpy.run_path(str(tiny.ROOT / script), run_name="__main__")
        except SystemExit as stop:
            return stop.code
    return 0
