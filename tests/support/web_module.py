"""The WebAssembly module in wasmtime, used as runtimes/web/featherweight.js uses it."""

import functools
import runpy
import struct

import numpy as np
import tiny

FOLDER = tiny.ROOT / "runtimes" / "web"
MODULE, WRAPPER = FOLDER / "featherweight.wasm", FOLDER / "featherweight.js"


def builder():
    """Return the functions of build.py."""
    return runpy.run_path(str(FOLDER / "build.py"))


@functools.cache
def compiled():
    """Return wasmtime's engine, and the module in it."""
    import wasmtime

    engine = wasmtime.Engine()
    return engine, wasmtime.Module.from_file(engine, str(MODULE))


class WebModel:
    """A packed file in an instance of the module."""

    def __init__(self, data):
        """Raises ValueError with the module's text for what it refuses."""
        import wasmtime

        engine, module = compiled()
        self._store = wasmtime.Store(engine)
        self._exports = wasmtime.Instance(self._store, module, []).exports(self._store)
        self.memory = self._exports["memory"]
        self._write(self.call("room", len(data)), data)
        self._check(self.call("open", len(data)))
        self.pair, self.by_word, _, self.rejects, count, self.outputs = self._about()[4:10]
        self.temperature, self.threshold = self._about()[11], self._about()[18]
        self.labels = tuple(self._label(index) for index in range(count))
        self.name, self.task = self._text(12), self._text(15)

    def call(self, name, *words):
        return self._exports[name](self._store, *words)

    def _read(self, at, length):
        return bytes(self.memory.read(self._store, at, at + length))

    def _write(self, at, data):
        self.memory.write(self._store, data, at)

    def _about(self):
        return struct.unpack("<11If6If", self._read(self.call("about"), 76))

    def _text(self, place):
        return self._read(*self._about()[place : place + 2]).decode()

    def _label(self, index):
        self.call("label", index)
        return self._text(0)

    def _check(self, status):
        if status:
            raise ValueError(self._read(self.call("error", status), 100).split(b"\0")[0].decode())

    def write(self, *texts):
        """Write texts where the module reads them. Returns the bytes of each."""
        coded = [text.encode() for text in texts]
        self._write(self.call("input", sum(map(len, coded))), b"".join(coded))
        return [len(each) for each in coded]

    def probabilities(self, *texts):
        """Return the probabilities of a text or a pair."""
        lengths = self.write(*texts)
        self._check(self.call("predict", *lengths, *[0] * (2 - len(lengths))))
        at, length = self._about()[:2]
        return np.frombuffer(self._read(at, 4 * length), "<f4")

    def tags(self, text):
        """Return (words, their labels, their logits)."""
        self._check(self.call("tag", *self.write(text)))
        at, count = self._about()[:2]
        words = np.frombuffer(self._read(at, 12 * count), "<u4").reshape(count, 3)
        logits = np.frombuffer(self._read(at + 12 * count, 4 * count * self.outputs), "<f4")
        found = [text.encode()[start : start + length].decode() for start, length, _ in words]
        return found, [self.labels[label] for *_, label in words], logits.reshape(count, self.outputs)
