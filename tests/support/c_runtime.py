"""The C runtime, built outside the repository once a session."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import tiny

SOURCE = tiny.ROOT / "runtimes" / "c"
NO_COMPILER = "no C compiler: cc is not found"


@functools.cache
def _folder():
    folder = Path(tempfile.mkdtemp(prefix="c-runtime-"))
    for name in ("Makefile", "featherweight.h", "featherweight.c", "fwt.c", "fuzz.c"):
        shutil.copy(SOURCE / name, folder)
    return folder


@functools.cache
def built(target, *settings):
    """Return the path of what `make` builds. settings: make's variables. Skips the test without a compiler or make."""
    if not shutil.which("cc") or not shutil.which("make"):
        pytest.skip(NO_COMPILER)
    # -O1: compiling takes longer than all answers of the tests.
    command = ["make", "-s", "-C", str(_folder()), "NATIVE=", "OPTIMISE=-O1", *settings, target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return _folder() / target


def remove():
    """Remove what was built."""
    if _folder.cache_info().currsize:
        shutil.rmtree(_folder(), ignore_errors=True)
