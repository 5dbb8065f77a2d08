"""The C runtime, built outside the repository once a session."""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import tiny

SOURCE = tiny.ROOT / "runtimes" / "c"
NO_COMPILER = "no C compiler: cc is not found"
COMPACT = "CFLAGS=-DFW_COMPACT"
"""The setting of make for the form that microcontrollers use."""
COVERAGE = os.environ.get("C_COVERAGE")
"""Folder of builds that count which lines run and are kept, if it is set: see benchmarks/c_coverage.py."""
_folders = []


@functools.cache
def _folder(*settings):
    """Return the folder of what is built with some settings."""
    if COVERAGE:
        folder = Path(COVERAGE, " ".join(settings) or "usual")
        folder.mkdir(exist_ok=True)
    else:
        folder = Path(tempfile.mkdtemp(prefix="c-runtime-"))
        _folders.append(folder)
    for name in ("Makefile", "featherweight.h", "featherweight.c", "fwt.c", "fuzz.c"):
        shutil.copy(SOURCE / name, folder)
    return folder


@functools.cache
def built(target, *settings):
    """Return the path of what `make` builds. settings: make's variables. Skips the test without a compiler or make."""
    if not shutil.which("cc") or not shutil.which("make"):
        pytest.skip(NO_COMPILER)
    # -O1: compiling takes longer than all answers of the tests.
    counting = ["OPTIMISE=-O0 --coverage", "SANITIZE=-O0 --coverage -march=native"]
    how = counting if COVERAGE else ["NATIVE=", "OPTIMISE=-O1"]
    command = ["make", "-s", "-C", str(_folder(*settings)), *how, *settings, target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return _folder(*settings) / target


def remove():
    """Remove what was built."""
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
