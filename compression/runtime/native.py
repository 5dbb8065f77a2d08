"""The C runtime (runtimes/c) through ctypes: gives a packed student's answers as `Model` does, several times faster.

    make -C runtimes/c
    model = load_native("sst-2-12k")

`import compression.runtime` does not import this module: ctypes takes longer to load than a small file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable

import numpy as np

from .kinds import BY_WORD, MULTILABEL, LabelOrNone, kind_with
from .model import Model, Sentences, Texts, read_with
from .reader import PackedError
from .shapes import ARCHS, EMBEDDINGS

FOLDER = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "runtimes", "c"))
LIBRARY = os.path.join(FOLDER, "libfeatherweight.so")
_OK, _WORKSPACE = 0, 14
_FIRST_WORKSPACE = 1 << 22


class _String(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("length", ctypes.c_uint32), ("characters", ctypes.c_uint32))


class _Model(ctypes.Structure):
    """The fields of a fw_model that its callers may read, which come first."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("arch", "embedding", "pair", "tags", "multilabel", "rejects")),
        *((name, ctypes.c_uint32) for name in ("labels", "outputs", "max_tokens")),
        ("temperature", ctypes.c_float),
        ("name", _String),
        ("task", _String),
        ("threshold", ctypes.c_float),
    )


class _Word(ctypes.Structure):
    _fields_ = (("start", ctypes.c_size_t), ("length", ctypes.c_size_t), ("label", ctypes.c_uint32))


def _library() -> ctypes.CDLL:
    """Return the C runtime. Raises PackedError if it is not built, or older than its header (by make's rule)."""
    try:
        library = _declared(ctypes.CDLL(LIBRARY))
        header = os.path.join(FOLDER, "featherweight.h")  # a wheel has the library alone
        if not os.path.exists(header) or os.path.getmtime(LIBRARY) >= os.path.getmtime(header):
            return library
        problem = "it is older than featherweight.h"
    except OSError as error:
        if not os.path.exists(LIBRARY):
            raise PackedError(f"the C runtime is not built; run: make -C {FOLDER}") from None
        problem = str(error)
    except AttributeError as error:  # another library, or another version
        problem = str(error)
    raise PackedError(f"the C runtime cannot be loaded ({problem}); build it again: make -C {FOLDER}")


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """Return the library, with the types of its functions declared."""
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.fw_open.argtypes = pointer, ctypes.c_char_p, size
    library.fw_load.argtypes = pointer, pointer, size
    library.fw_start.argtypes = pointer, size
    library.fw_many.argtypes = pointer, ctypes.c_char_p, pointer, size, pointer, size, pointer, pointer
    library.fw_tag.argtypes = pointer, ctypes.c_char_p, size, pointer, size, pointer, size, pointer, pointer
    library.fw_label.argtypes = pointer, ctypes.c_uint32, pointer
    library.fw_workspace_size.argtypes = pointer, size
    library.fw_memory_size.argtypes = (pointer,)
    library.fw_error.argtypes = (ctypes.c_int,)
    for name in ("fw_model_size", "fw_memory_size", "fw_workspace_size"):
        getattr(library, name).restype = size
    library.fw_start.restype = None
    library.fw_label.restype, library.fw_error.restype = pointer, ctypes.c_char_p
    return library


class NativeModel(Model):
    """A packed student in the C runtime; see `Model` for its attributes and methods.

    Any number of threads may use it at the same time: each call has a workspace of its own. Texts are tidied by the
    runtime itself: logits are those of the tidied texts.
    """

    def __init__(self, data: bytes) -> None:
        """Raises PackedError if the bytes are not a packed student, or one that the C runtime does not read."""
        self._c = library = _library()
        self.packed, self.bytes = data, len(data)
        self._block = ctypes.create_string_buffer(library.fw_model_size())
        self._check(library.fw_open(self._block, data, len(data)))
        size = library.fw_memory_size(self._block)
        try:
            self._memory = np.empty(size, np.uint8)
        except (MemoryError, ValueError):
            raise PackedError(f"the model needs {size:,} bytes of memory") from None
        self._check(library.fw_load(self._block, self._memory.ctypes.data, size))
        fields = _Model.from_buffer(self._block)
        self.name, self.task = (_text(string.bytes, string.length) for string in (fields.name, fields.task))
        self.labels = tuple(self._label(index) for index in range(fields.labels))
        self.pair, bits = bool(fields.pair), BY_WORD * bool(fields.tags) | MULTILABEL * bool(fields.multilabel)
        self._kind = LabelOrNone() if fields.rejects else kind_with(bits, None, self.pair, self.labels)
        self.kind, self.rejects = self._kind.name, self._kind.rejects
        self.arch, self.embedding = ARCHS[fields.arch], EMBEDDINGS[fields.embedding]
        self.outputs, self.max_tokens, self.temperature = fields.outputs, fields.max_tokens, fields.temperature
        self.threshold = None if fields.threshold < 0 else fields.threshold
        self.plain_words = False  # they matter to questions, which the C runtime refuses
        self._workspaces: list[np.ndarray] = []  # those of the first size that no call uses

    def __reduce__(self) -> tuple:
        """Return what a pickle has: the packed file."""
        return NativeModel, (self.packed,), {"name": self.name}

    def _check(self, status: int) -> None:
        if status != _OK:
            raise PackedError(self._c.fw_error(status).decode())

    def _label(self, index: int) -> str:
        length = ctypes.c_size_t()
        return _text(self._c.fw_label(self._block, index, ctypes.byref(length)), length.value)

    def _run(self, longest: int, function: Callable[[int, int], int]) -> None:
        """Call a function with a workspace's address and size, and again with a larger one while that is too small.

        longest: bytes of the longest text. Raises PackedError for the status that the function returns.
        """
        try:
            workspace = self._workspaces.pop()
        except IndexError:
            workspace = self._new_workspace(_FIRST_WORKSPACE)
        while (status := function(workspace.ctypes.data, workspace.size)) == _WORKSPACE:
            if workspace.size >= self._c.fw_workspace_size(self._block, longest):
                break
            workspace = self._new_workspace(2 * workspace.size)
        if workspace.size == _FIRST_WORKSPACE:  # a larger one, for a long text, would be held for good
            self._workspaces.append(workspace)
        self._check(status)

    def _new_workspace(self, size: int) -> np.ndarray:
        # Pages of its own, not malloc's: what one of many threads has freed would stay with that thread.
        workspace = np.frombuffer(mmap.mmap(-1, size), np.uint8)
        self._c.fw_start(workspace.ctypes.data, size)
        return workspace

    def _logits(self, texts: list[Sentences]) -> np.ndarray:
        coded = [text.encode() for sentences in texts for text in sentences]
        if self.kind == "tags":
            return self._word_logits(coded)
        count = len(coded) // (1 + self.pair)
        logits = np.empty((count, self.outputs), np.float32)
        ends = np.cumsum([len(text) for text in coded], dtype=np.uintp)
        whole, done = b"".join(coded), ctypes.c_size_t()

        def many(workspace: int, size: int) -> int:
            return self._c.fw_many(
                self._block, whole, ends.ctypes.data, count, workspace, size, logits.ctypes.data, ctypes.byref(done)
            )

        self._run(max(map(len, coded), default=0), many)
        return logits

    def _word_logits(self, texts: list[bytes]) -> np.ndarray:
        of_texts = [self._logits_of_words(text) for text in texts]
        by_text = np.full((len(texts), max(map(len, of_texts), default=0), self.outputs), np.nan, np.float32)
        for row, logits in zip(by_text, of_texts):
            row[: len(logits)] = logits
        return by_text

    def _logits_of_words(self, text: bytes) -> np.ndarray:
        most, count = len(text) // 2 + 1, ctypes.c_size_t()
        words, logits = (_Word * most)(), np.empty((most, self.outputs), np.float32)

        def tag(workspace: int, size: int) -> int:
            return self._c.fw_tag(
                self._block, text, len(text), workspace, size, words, most, ctypes.byref(count), logits.ctypes.data
            )

        self._run(len(text), tag)
        return logits[: count.value]

    def probabilities(self, texts: Texts) -> np.ndarray:
        """Return probabilities, or for a regression, the score itself; see `Model.probabilities`."""
        return self._kind.probabilities(self.logits(texts), self.temperature)


def _text(at: int, length: int) -> str:
    return ctypes.string_at(at, length).decode() if length else ""


def load_native(model: str | os.PathLike) -> NativeModel:
    """Return the model of a packed file, given by its path or by its name in the zoo, in the C runtime.

    Raises PackedError as `load` does, if the C runtime does not read the student, and if it is not built.
    """
    return read_with(NativeModel, model)
