"""The library of the C runtime: one that is missing, old or another one is refused; its tables are Python's."""

import ctypes
import ctypes.util
import os
import shutil
import sys
import unicodedata

import c_runtime
import packed_students as made
import pytest

from compression.runtime import PackedError, native, zoo_file
from compression.runtime.native import load_native

NOT_PACKED, TOO_MANY, NO_MEMORY, NO_WORKSPACE, NOT_UTF8, WRONG_KIND = 1, 9, 13, 14, 15, 16


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


def test_a_caller_who_gives_too_little_gets_a_status():
    """Null pointers, memory and workspaces of no bytes, a model that is not open, labels that do not exist."""
    library, word, count = native._library(), (native._Word * 1)(), (ctypes.c_size_t * 1)()
    nothing = ctypes.create_string_buffer(library.fw_model_size())
    logits, room = (ctypes.c_float * 9)(), ctypes.create_string_buffer(1 << 20)
    library.fw_logits.argtypes = (ctypes.c_void_p, *(ctypes.c_char_p, ctypes.c_size_t) * 2)
    library.fw_logits.argtypes += (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    assert library.fw_open(nothing, None, 99) == library.fw_load(nothing, room, len(room)) == NOT_PACKED
    assert library.fw_logits(nothing, b"a", 1, None, 0, room, len(room), logits) == NOT_PACKED
    assert library.fw_tag(nothing, b"a", 1, room, len(room), word, 1, count, logits) == NOT_PACKED
    tags, single = (load_native(zoo_file(name)) for name in ("bc2gm", "sst-2-12k"))
    opened = ctypes.create_string_buffer(single.packed, len(single.packed))
    assert library.fw_open(nothing, single.packed, len(single.packed)) == 0
    assert library.fw_load(nothing, None, 1 << 20) == library.fw_load(nothing, opened, 0) == NO_MEMORY
    library.fw_start(None, 0)
    library.fw_start(room, 0)
    for workspace, size in ((None, 1 << 20), (room, 0), (room, 80)):
        assert library.fw_logits(single._block, b"a", 1, None, 0, workspace, size, logits) == NO_WORKSPACE
    for size in range(0, 30_000, 40):
        library.fw_start(room, size)
        for text in (b"films", b"caf\xc3\xa9", b"a" * 50):
            assert library.fw_logits(single._block, text, len(text), None, 0, room, size, logits) in (0, NO_WORKSPACE)
            status = library.fw_tag(tags._block, text, len(text), room, size, word, 1, count, logits)
            assert status in (0, NO_WORKSPACE)
    assert library.fw_logits(single._block, None, 0, None, 0, room, len(room), logits) == WRONG_KIND
    assert library.fw_logits(tags._block, b"a", 1, None, 0, room, len(room), logits) == WRONG_KIND
    assert library.fw_tag(single._block, b"a", 1, room, len(room), word, 1, count, logits) == WRONG_KIND
    assert library.fw_tag(tags._block, None, 0, room, len(room), word, 1, count, logits) == WRONG_KIND
    assert library.fw_tag(tags._block, b"\xff", 1, room, len(room), word, 1, count, logits) == NOT_UTF8
    for text, most in ((b"a b", 1), (b"", 0)):
        assert library.fw_tag(tags._block, text, len(text), room, len(room), word, most, count, logits) == TOO_MANY
    assert library.fw_label(single._block, 0, None)
    assert library.fw_label(single._block, 2, None) is None
    assert library.fw_error(-1) == library.fw_error(99) == b"no such status"
    assert library.fw_workspace_size(single._block, 1 << 40) == ctypes.c_size_t(-1).value


@pytest.mark.slow
def test_tables_are_those_of_unicodedata():
    sys.path.insert(0, str(c_runtime.SOURCE))
    import unicode_tables

    source = unicode_tables.HEADER.read_text(encoding="utf-8")
    version = source.split('#define FW_UNICODE "')[-1].split('"')[0]
    if version != unicodedata.unidata_version:
        pytest.skip(f"the tables are of Unicode {version}, this Python's of {unicodedata.unidata_version}")
    assert unicode_tables.with_tables(source) == source
