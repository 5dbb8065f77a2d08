"""make builds again when its variables change, and only then."""

import shutil
import subprocess

import pytest
import tiny

COMPILER = """#!/bin/sh
echo "$@" >> {log}
while [ $# -gt 1 ]; do [ "$1" = -o ] && touch "$2"; shift; done
"""
"""A compiler that writes down its arguments, and an empty file."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("make"), reason="no make here")]


@pytest.fixture
def commands(tmp_path):
    """A function that runs make in a copy of a runtime's folder, and returns the compiler's command lines."""
    shutil.copytree(tiny.ROOT / "runtimes" / "c", tmp_path / "runtimes" / "c")
    shutil.copytree(tiny.ROOT / "runtimes" / "cortex-m", tmp_path / "runtimes" / "cortex-m")
    (tmp_path / "runtimes" / "m.fwt").write_bytes(b"FWT")
    log = tmp_path / "log"
    for name in ("cc", "arm-gcc", "arm-size"):
        (tmp_path / name).write_text(COMPILER.format(log=log))
        (tmp_path / name).chmod(0o755)

    def run(folder, *words):
        log.write_text("")
        command = ["make", "-s", "-C", str(tmp_path / "runtimes" / folder), *words]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return log.read_text()

    return run


def test_the_c_runtime(commands, tmp_path):
    compiler = f"CC={tmp_path / 'cc'}"
    assert "-march=native" in commands("c", compiler, "fwt")
    assert commands("c", compiler, "fwt") == ""
    assert "-march=native" not in commands("c", compiler, "fwt", "NATIVE=")
    assert commands("c", compiler, "fwt", "NATIVE=") == ""
    assert "-DFW_ASCII" in commands("c", compiler, "fwt", "NATIVE=", "CFLAGS=-DFW_ASCII")
    assert commands("c", compiler).count("\n") == 2


def test_the_program_for_cortex_m(commands, tmp_path):
    variables = (f"CROSS={tmp_path / 'arm-'}", "MODEL=../m.fwt")
    usual = commands("cortex-m", *variables)
    assert "-DFW_ASCII" not in usual
    assert "-DFW_ASCII" not in commands("cortex-m", *variables)  # the sizes alone are printed again
    assert "-DFW_ASCII" in commands("cortex-m", *variables, "ASCII=1")
    (tmp_path / "runtimes" / "other.fwt").write_bytes(b"FWT")
    assert "../other.fwt" in commands("cortex-m", variables[0], "MODEL=../other.fwt")
    assert "-DMEMORY=1000" in commands("cortex-m", *variables, "MEMORY=1000")
