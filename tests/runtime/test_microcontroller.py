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
RAM = 64 * 1024
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


def check(lines):
    """Check lines of a label and a probability against NumPy's."""
    model = load(zoo_file("sst-2-12k"))
    expected = model.probabilities(TEXTS)
    cells = [line.split() for line in lines]
    assert [label for label, _ in cells] == [model.labels[i] for i in expected.argmax(1)]
    np.testing.assert_allclose([float(probability) for _, probability in cells], expected.max(1), atol=1e-3)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program for a Cortex-M4."""
    for tool in ("arm-none-eabi-gcc", "make"):
        if not shutil.which(tool):
            pytest.skip(f"no compiler for Cortex-M: {tool} is not found")
    path = tmp_path_factory.mktemp("cortex-m") / "featherweight.elf"
    run("make", "-s", "-C", FOLDER / "cortex-m", f"OUT={path}")
    return path


def test_a_cortex_m4_answers_in_64_kb(program):
    """Its linker script has 64 KB of memory; the stack, at the start of it, faults where it is too small."""
    if not shutil.which("qemu-system-arm"):
        pytest.skip("qemu-system-arm is not found")
    printed = run("make", "-s", "-C", FOLDER / "cortex-m", "run", f"OUT={program}", input=LINES).splitlines()
    check(printed[1 : 1 + len(TEXTS)])
    figures = {name: int(value) for name, value in (line.split("\t") for line in printed[:1] + printed[-4:])}
    assert 0 < figures["bytes of the model in memory"] < figures["bytes to decode it"] < RAM
    assert 0 < figures["bytes of stack"] < RAM - figures["bytes to decode it"]


def test_a_line_that_is_too_long_is_refused(program):
    if not shutil.which("qemu-system-arm"):
        pytest.skip("qemu-system-arm is not found")
    command = ["make", "-s", "-C", FOLDER / "cortex-m", "run", f"OUT={program}"]
    done = subprocess.run(command, input=b"x" * 600 + b"\n", capture_output=True, timeout=60)
    assert done.returncode
    assert b"error: the text needs a larger workspace" in done.stdout


def test_the_arduino_sketch_answers(tmp_path):
    for tool in ("cc", "c++"):
        if not shutil.which(tool):
            pytest.skip(f"no compiler: {tool} is not found")
    for path in (FOLDER / "arduino" / "featherweight").glob("featherweight.[ci]*"):
        shutil.copy(path, tmp_path)
    shutil.copy(FOLDER / "c" / "featherweight.h", tmp_path)
    (tmp_path / "model.h").write_text(run(c_runtime.built("fwt"), "embed", zoo_file("sst-2-12k")))
    (tmp_path / "port.cpp").write_text(SERIAL)
    run("cc", "-c", "-std=c99", "-O1", "featherweight.c", "-o", "runtime.o", cwd=tmp_path)
    run("c++", "-Wall", "-Wextra", "-Werror", "port.cpp", "runtime.o", "-o", "sketch", cwd=tmp_path)
    check(run(tmp_path / "sketch", input=LINES).splitlines())
