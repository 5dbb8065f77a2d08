"""make builds again when its variables change, and only then."""

import re
import shutil
import subprocess

import pytest
import tiny

INIT = tiny.ROOT / "runtimes" / "python" / "package" / "__init__.py"
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


def test_a_program_is_built_with_what_is_installed(tmp_path):
    """With pkg-config where it is there, and else with the flags that its file has."""
    folder = tmp_path / "runtimes" / "c"
    shutil.copytree(tiny.ROOT / "runtimes" / "c", folder)
    shutil.copytree(tiny.ROOT / "runtimes" / "python" / "package", tmp_path / "runtimes" / "python" / "package")
    (tmp_path / "zoo").mkdir()
    for name in ("sst-2-12k", "bc2gm"):
        shutil.copy(tiny.ROOT / "zoo" / f"{name}.fwt", tmp_path / "zoo")
    subprocess.run(["make", "-s", "-C", folder, "fwt", "OPTIMISE=-O0"], check=True, capture_output=True, timeout=60)
    assert subprocess.run([folder / "fwt", "info", "bc2gm"], capture_output=True).returncode == 0
    make = ["make", "-s", "-C", folder, "install", f"PREFIX={tmp_path / 'usr'}", "OPTIMISE=-O0"]
    subprocess.run(make, check=True, capture_output=True, timeout=60)
    file = tmp_path / "usr" / "lib" / "pkgconfig" / "featherweight.pc"
    lines = dict(re.findall(r"^(\w+)[:=] ?(.*)$", file.read_text(), re.MULTILINE))
    assert lines["Version"] == re.search(r'^__version__ = "(.*)"', INIT.read_text(), re.MULTILINE)[1]
    flags = f"{lines['Cflags']} {lines['Libs']}".replace("${prefix}", lines["prefix"])
    if shutil.which("pkg-config"):
        query = ["pkg-config", "--cflags", "--libs", file]
        assert subprocess.run(query, check=True, capture_output=True, text=True).stdout.split() == flags.split()
    (tmp_path / "p.c").write_text('#include "featherweight.h"\nint main(void) { return fw_error(1)[0] == 0; }\n')
    build = ["cc", tmp_path / "p.c", *flags.split(), "-o", tmp_path / "p"]
    subprocess.run(build, check=True, capture_output=True, timeout=60)
    library = {"LD_LIBRARY_PATH": str(tmp_path / "usr" / "lib")}
    subprocess.run([tmp_path / "p"], check=True, env=library, timeout=60)
    shutil.rmtree(tmp_path / "zoo")
    fwt = [tmp_path / "usr" / "bin" / "fwt", "info"]
    assert subprocess.run([*fwt, "sst-2-12k"], check=True, capture_output=True).stdout.startswith(b"task\tsst-2\n")
    zoo = tmp_path / "usr" / "share" / "featherweight"
    message = f"error: bc2gm: not a file, and not a model of the zoo; {zoo}: sst-2-12k\n"
    assert subprocess.run([*fwt, "bc2gm"], capture_output=True, text=True).stderr == message


def test_the_program_for_cortex_m(commands, tmp_path):
    variables = (f"CROSS={tmp_path / 'arm-'}", "MODEL=../m.fwt")
    usual = commands("cortex-m", *variables)
    assert "-DFW_ASCII" not in usual
    assert "-DFW_ASCII" not in commands("cortex-m", *variables)  # the sizes alone are printed again
    assert "-DFW_ASCII" in commands("cortex-m", *variables, "ASCII=1")
    (tmp_path / "runtimes" / "other.fwt").write_bytes(b"FWT")
    assert "../other.fwt" in commands("cortex-m", variables[0], "MODEL=../other.fwt")
    assert "-DMEMORY=1000" in commands("cortex-m", *variables, "MEMORY=1000")
