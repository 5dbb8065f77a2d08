"""The library of the C runtime: one that is missing, old or another one is refused; its tables are Python's."""

import collections
import contextlib
import ctypes
import ctypes.util
import itertools
import os
import shutil
import sys
import unicodedata
import zlib
from pathlib import Path

import c_runtime
import damage
import numpy as np
import packed_students as made
import pytest
from c_parity import TEXTS, both

from compression.runtime import PackedError, native, zoo_file
from compression.runtime.native import load_native

pytestmark = pytest.mark.usefixtures("c_library")
NOT_PACKED, TOO_MANY, NO_MEMORY, NO_WORKSPACE, NOT_UTF8, WRONG_KIND = 1, 9, 13, 14, 15, 16


def test_a_library_that_is_not_built_is_named(tmp_path, monkeypatch):
    path = made.packed(tmp_path / "s", "ffn", "hash")
    monkeypatch.setattr(native, "LIBRARY", str(tmp_path / "nothing.so"))
    with pytest.raises(PackedError, match=r"the C runtime is not built; run: make -C .*runtimes/c$"):
        load_native(path)


def test_what_is_not_the_library_is_named(tmp_path, monkeypatch):
    path = made.packed(tmp_path / "s", "ffn", "hash")
    (tmp_path / "wrong.so").write_text("no library")
    for library in (str(tmp_path / "wrong.so"), ctypes.util.find_library("m")):
        monkeypatch.setattr(native, "LIBRARY", library)
        with pytest.raises(PackedError, match=r"cannot be loaded \(.*\); build it again: make -C .*runtimes/c$"):
            load_native(path)


def test_a_library_older_than_the_header_is_refused(tmp_path, monkeypatch):
    path = made.packed(tmp_path / "s", "ffn", "hash")
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
    library.fw_predict.argtypes = library.fw_logits.argtypes
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
    assert library.fw_logits(single._block, b"a", 1, b"a", 1, room, len(room), logits) == WRONG_KIND
    assert _many(tags, ["a"], room, len(room))[:2] == (WRONG_KIND, 0)
    assert library.fw_tag(tags._block, b"\xff", 1, room, len(room), word, 1, count, logits) == NOT_UTF8
    for text in (b"\xff", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"):
        assert library.fw_predict(single._block, text, len(text), None, 0, room, len(room), logits) == NOT_UTF8
    assert library.fw_predict(single._block, b"a film", 6, None, 0, room, len(room), logits) == 0
    assert np.array_equal(logits[:2], single.probabilities(["a film"])[0])
    for text, most in ((b"a b", 1), (b"", 0)):
        assert library.fw_tag(tags._block, text, len(text), room, len(room), word, most, count, logits) == TOO_MANY
    assert library.fw_label(single._block, 0, None)
    assert library.fw_label(single._block, 2, None) is library.fw_label(nothing, 0, None) is None
    assert library.fw_error(-1) == library.fw_error(99) == b"no such status"
    assert library.fw_workspace_size(single._block, 1 << 40) == ctypes.c_size_t(-1).value


def _many(model, texts, room, size, start=0):
    """Return the status of fw_many, how many texts it has answered, and their logits. start: as if so many were."""
    coded = [text if isinstance(text, bytes) else text.encode() for text in texts]
    ends, done = np.cumsum([len(text) for text in coded], dtype=np.uintp), ctypes.c_size_t(start)
    logits = np.zeros((len(ends) // (1 + model.pair), model.outputs), np.float32)
    whole, at = b"".join(coded), ends.ctypes.data
    count = len(logits)
    status = native._library().fw_many(
        model._block, whole, at, count, room, size, logits.ctypes.data, ctypes.byref(done)
    )
    return status, done.value, logits


MIXED = [*TEXTS[-3:], "caf\u00e9", "film", "a " * 60, *("the film " * (n % 6) for n in range(130)), "", "good"]
"""More texts than are read together, of all lengths."""


@pytest.mark.parametrize("arch", made.ARCHS)
def test_texts_together_have_the_logits_of_each_alone(tmp_path, arch):
    """Bit by bit; with states of a few numbers and of whole vectors."""
    more = ({},) if arch not in ("rnn", "bilstm", "gru") else ({"encoder_hidden_dim": 16}, {"pooling": "last"})
    for number, sizes in enumerate(more):
        _, model = both(tmp_path / str(number), arch, "hash", **sizes)
        alone = np.concatenate([model.logits([text]) for text in MIXED])
        assert np.array_equal(model.logits(MIXED), alone)
        assert np.array_equal(model.logits(MIXED[:2]), alone[:2])
        assert np.array_equal(model.logits(MIXED[::-1]), alone[::-1])


@pytest.mark.parametrize("name", ["sst-2-32k", "sst-2-100k", "qqp-12k"])
def test_texts_of_the_zoos_models_together(name):
    model = load_native(zoo_file(name))
    texts = list(itertools.pairwise(MIXED[::9])) if model.pair else MIXED[::3]
    assert np.array_equal(model.logits(texts), np.concatenate([model.logits([text]) for text in texts]))


def test_a_text_that_is_not_answered_ends_texts_together():
    """One that is not UTF-8 has its own status, wherever it is; one that does not fit can be tried again."""
    model, room = load_native(zoo_file("sst-2-12k")), ctypes.create_string_buffer(1 << 20)
    alone = model.logits(MIXED)
    for at in (0, 1, 7, len(MIXED) - 1):
        status, done, logits = _many(model, [*MIXED[:at], b"a \xff", *MIXED[at:]], room, len(room))
        assert (status, done) == (NOT_UTF8, at)
        assert np.array_equal(logits[:at], alone[:at])
    seen = set()
    for size in [*range(0, 9_000, 304), 16_000, 50_000]:
        native._library().fw_start(room, size)
        status, done, logits = _many(model, MIXED, room, size)
        assert (status, done == len(MIXED)) in ((0, True), (NO_WORKSPACE, False))
        assert np.array_equal(logits[:done], alone[:done])
        seen.add(done)
        if len(seen) == 2:
            native._library().fw_start(room, len(room))
            status, all_done, logits = _many(model, MIXED, room, len(room), done)
            assert (status, all_done) == (0, len(MIXED))
            assert np.array_equal(logits[done:], alone[done:])
    assert {0, len(MIXED)} < seen


def test_deflate_is_refused_where_zlib_refuses_it():
    """Stored blocks, fixed and other codes, with changes at their beginning, so that lengths and codes contradict."""
    library, rng = native._library(), np.random.default_rng(4)
    block = ctypes.create_string_buffer(library.fw_model_size())
    header, rest = damage.take_apart(Path(zoo_file("sst-2-12k")).read_bytes())
    seen = collections.Counter()
    for number in range(20_000):
        level, strategy = ((0, 0), (9, zlib.Z_FIXED), (9, 0), (9, 0))[number % 4]
        deflate = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
        stored = bytearray(deflate.compress(header) + deflate.flush())
        for _ in range(rng.integers(4)):
            stored[rng.integers(80)] ^= 1 << rng.integers(8)
        if number % 8 == 7:
            stored[1 : rng.integers(2, 80)] = rng.bytes(40)
        inflate, found = zlib.decompressobj(-15), None
        with contextlib.suppress(zlib.error):
            found = inflate.decompress(stored, len(header) + 1)
        whole = found is not None and len(found) == len(header) and inflate.eof and not inflate.unused_data
        data = damage.assemble(header, rest, bytes(stored))
        status = library.fw_open(block, data, len(data))
        assert whole if not status else not whole or found != header, (number, status)
        seen[whole] += 1
    assert min(seen.values()) > 1000


@pytest.mark.slow
def test_tables_are_those_of_unicodedata():
    sys.path.insert(0, str(c_runtime.SOURCE))
    import unicode_tables

    source = unicode_tables.HEADER.read_text(encoding="utf-8")
    version = source.split('#define FW_UNICODE "')[-1].split('"')[0]
    if version != unicodedata.unidata_version:
        pytest.skip(f"the tables are of Unicode {version}, this Python's of {unicodedata.unidata_version}")
    assert unicode_tables.with_tables(source) == source
