"""The library of the C runtime: one that is missing, old or another one is refused; its tables are Python's."""

import ctypes.util
import os
import shutil
import sys
import unicodedata

import c_runtime
import packed_students as made
import pytest

from compression.runtime import PackedError, native
from compression.runtime.native import load_native


@pytest.fixture(autouse=True)
def _library(c_library):
    """Every test of this file needs the library."""


def test_a_library_that_is_not_built_is_named(tmp_path, monkeypatch):
    path = made.write_packed(made.write_student(tmp_path / "s", "ffn", "hash"))
    monkeypatch.setattr(native, "LIBRARY", str(tmp_path / "nothing.so"))
    with pytest.raises(PackedError, match=r"the C runtime is not built; run: make -C .*runtimes/c$"):
        load_native(path)


def test_what_is_not_the_library_is_named(tmp_path, monkeypatch):
    path = made.write_packed(made.write_student(tmp_path / "s", "ffn", "hash"))
    (tmp_path / "wrong.so").write_text("no library")
    for library in (str(tmp_path / "wrong.so"), ctypes.util.find_library("m")):
        monkeypatch.setattr(native, "LIBRARY", library)
        with pytest.raises(PackedError, match=r"cannot be loaded \(.*\); build it again: make -C .*runtimes/c$"):
            load_native(path)


def test_a_library_older_than_the_header_is_refused(tmp_path, monkeypatch):
    path = made.write_packed(made.write_student(tmp_path / "s", "ffn", "hash"))
    old = shutil.copy(native.LIBRARY, tmp_path / "old.so")
    os.utime(old, (0, 0))
    monkeypatch.setattr(native, "LIBRARY", str(old))
    with pytest.raises(PackedError, match=r"\(it is older than featherweight.h\); build it again: make"):
        load_native(path)


@pytest.mark.slow
def test_tables_are_those_of_unicodedata():
    sys.path.insert(0, str(c_runtime.SOURCE))
    import unicode_tables

    source = unicode_tables.HEADER.read_text(encoding="utf-8")
    version = source.split('#define FW_UNICODE "')[-1].split('"')[0]
    if version != unicodedata.unidata_version:
        pytest.skip(f"the tables are of Unicode {version}, this Python's of {unicodedata.unidata_version}")
    assert unicode_tables.with_tables(source) == source
