"""Microcontrollers: the program for a Cortex-M4 runs in QEMU, and the Arduino sketch with a serial port of our own."""

import shutil
import subprocess

import c_runtime
import numpy as np
import pytest
import tiny

from compression.runtime import load, zoo_file

FOLDER = tiny.ROOT / "runtimes"
TEXTS = ["a wonderful film", "dull and boring , not worth it", "", "caf\u00e9 \u2603 THE film !", "the " * 40]
LINES = "".join(f"{text}\n" for text in TEXTS).encode()
CODE, RAM = 40 * 1024, 64 * 1024
SERIAL = r"""
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
inline void delay(int) {}
struct Port {
  void begin(long) {}
  explicit operator bool() const { return true; }
  int read() {
    int byte = std::getchar();
    if (byte < 0) std::exit(0);
    return byte;
  }
  void write(const uint8_t *bytes, size_t count) { std::fwrite(bytes, 1, count, stdout); }
  void print(const char *text) { std::fputs(text, stdout); }
  void println(const char *text) { std::puts(text); }
  void println(float number, int digits) { std::printf("%.*f\n", digits, (double)number); }
};
static Port Serial;
#include "featherweight.ino"
int main() {
  setup();
  for (;;) loop();
}
"""

pytestmark = pytest.mark.slow
"""Every test compiles the runtime."""


def run(*command, **more):
    """Return what a command prints."""
    done = subprocess.run(list(map(str, command)), capture_output=True, timeout=300, **more)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return done.stdout.decode()


def check(lines, texts):
    """Check lines of a label and a probability against NumPy's."""
    model = load(zoo_file("sst-2-9k"))
    expected = model.probabilities(texts)
    cells = [line.split() for line in lines]
    assert [label for label, _ in cells] == [model.labels[i] for i in expected.argmax(1)]
    np.testing.assert_allclose([float(probability) for _, probability in cells], expected.max(1), atol=1e-3)


@pytest.fixture(scope="module", params=["", "1"], ids=["unicode", "ascii"])
def program(request, tmp_path_factory):
    """(variables of make that build the program for a Cortex-M4, its path, whether it reads ASCII only)."""
    for tool in ("arm-none-eabi-gcc", "make"):
        if not shutil.which(tool):
            pytest.skip(f"no compiler for Cortex-M: {tool} is not found")
    path = tmp_path_factory.mktemp("cortex-m") / "featherweight.elf"
    variables = (f"OUT={path}", f"ASCII={request.param}")
    run("make", "-s", "-C", FOLDER / "cortex-m", *variables)
    return variables, path, bool(request.param)


def test_a_cortex_m4_answers_in_64_kb(program):
    """Its linker script has 64 KB of memory; the stack, at the start of it, faults where it is too small."""
    if not shutil.which("qemu-system-arm"):
        pytest.skip("qemu-system-arm is not found")
    variables, path, ascii_only = program
    texts = [text for text in TEXTS if text.isascii() or not ascii_only]
    lines = "".join(f"{text}\n" for text in texts).encode()
    printed = run("make", "-s", "-C", FOLDER / "cortex-m", "run", *variables, input=lines).splitlines()
    check(printed[1 : 1 + len(texts)], texts)
    figures = {name: int(value) for name, value in (line.split("\t") for line in printed[:1] + printed[-4:])}
    assert 0 < figures["bytes of the model in memory"] < figures["bytes to decode it"] < RAM
    assert 0 < figures["bytes of stack"] < RAM - figures["bytes to decode it"]
    sizes = dict(line.split()[:2] for line in run("arm-none-eabi-size", "-A", path).splitlines() if line[:1] == ".")
    flash = sum(int(sizes[name]) for name in (".code", ".constants", ".exceptions", ".data"))
    assert flash < CODE or not ascii_only


def test_lines_that_it_cannot_read_are_refused(program):
    if not shutil.which("qemu-system-arm"):
        pytest.skip("qemu-system-arm is not found")
    variables, _, ascii_only = program
    command = ["make", "-s", "-C", FOLDER / "cortex-m", "run", *variables]
    wrong = {b"x" * 600: b"error: the text needs a larger workspace"}
    wrong[b"a caf\xc3\xa9" if ascii_only else b"a caf\xe9"] = b"error: the text is not " + (
        b"ASCII" if ascii_only else b"UTF-8"
    )
    for line, message in wrong.items():
        done = subprocess.run(command, input=line + b"\n", capture_output=True, timeout=60)
        assert done.returncode
        assert message in done.stdout


def test_the_arduino_sketch_answers(tmp_path):
    for tool in ("cc", "c++"):
        if not shutil.which(tool):
            pytest.skip(f"no compiler: {tool} is not found")
    for path in (FOLDER / "arduino" / "featherweight").glob("featherweight.[ci]*"):
        shutil.copy(path, tmp_path)
    shutil.copy(FOLDER / "c" / "featherweight.h", tmp_path)
    (tmp_path / "model.h").write_text(run(c_runtime.built("fwt"), "embed", zoo_file("sst-2-9k")))
    (tmp_path / "port.cpp").write_text(SERIAL)
    run("cc", "-c", "-std=c99", "-O1", "featherweight.c", "-o", "runtime.o", cwd=tmp_path)
    run("c++", "-Wall", "-Wextra", "-Werror", "port.cpp", "runtime.o", "-o", "sketch", cwd=tmp_path)
    check(run(tmp_path / "sketch", input=LINES).splitlines(), TEXTS)
