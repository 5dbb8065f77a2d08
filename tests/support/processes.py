"""Scripts run in the tests' own process, since a new one loads PyTorch for seconds; waiting for other processes."""

import runpy
import sys
import time
from unittest import mock

import tiny


def run_script(script: str, *words: object) -> int:
    """Run a script with these arguments. Returns its exit code; its output goes to capsys."""
    with mock.patch.object(sys, "argv", [script, *map(str, words)]):
        try:
            runpy.run_path(str(tiny.ROOT / script), run_name="__main__")
        except SystemExit as stop:
            return stop.code
    return 0


def wait_until(true, seconds=300):
    """Wait until a function returns true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
