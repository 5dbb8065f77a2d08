"""Python 3.14 has a package `compression` in its standard library; a stand-in for it is tried on any version."""

import subprocess
import sys

import pytest
import tiny

pytestmark = pytest.mark.slow


@pytest.fixture
def library(tmp_path):
    """A folder like the standard library's: gzip imports from the package `compression`."""
    package = tmp_path / "library" / "compression"
    (package / "_common").mkdir(parents=True)
    for file in ("__init__.py", "_common/__init__.py"):
        (package / file).write_text("")
    (package / "_common" / "_streams.py").write_text("BUFFER_SIZE = 8192")
    (package / "zstd.py").write_text("open = 'zstd'")
    (package / "runtime.py").write_text("raise ImportError('this is not ours')")
    (package.parent / "gzip_3_14.py").write_text(
        "from compression._common import _streams\nfrom compression import zstd"
    )
    return package.parent


def run(script, folder, library):
    command = [sys.executable, "-c", script]
    environment = tiny.environment(PYTHONPATH=str(library))
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


OURS = "print(compression.runtime.__file__, gzip_3_14.zstd.open, gzip_3_14._streams.BUFFER_SIZE)"


@pytest.mark.parametrize("imports", ["gzip_3_14, compression.runtime", "compression.runtime, gzip_3_14"])
def test_ours_is_found_first_and_the_standard_librarys_modules_too(library, imports):
    assert run(f"import {imports}; {OURS}", tiny.ROOT, library) == [
        str(tiny.ROOT / "compression" / "runtime" / "__init__.py"),
        "zstd",
        "8192",
    ]


def test_ours_is_found_in_a_process_that_has_imported_the_other_one(library, tmp_path):
    """A worker process that was started in another folder: it gets the path of its parent when gzip is loaded."""
    script = (
        f"import gzip_3_14, sys; sys.path.insert(0, {str(tiny.ROOT)!r}); import common, compression.runtime; {OURS}"
    )
    assert run(script, tmp_path, library)[0] == str(tiny.ROOT / "compression" / "runtime" / "__init__.py")
