"""A cache of a frozen encoder's vectors by text: files in the workspace, which can be deleted at any time."""

from __future__ import annotations

import functools
import hashlib
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from common.progress import Advance, nothing
from common.store.files import whole_file
from common.teachers.frozen import FrozenEncoder

_METHOD = 1
"""Version of the vectors: increase it when `FrozenEncoder` gives others for the same text."""
_DIGEST_BYTES = 16
_TEXTS = 4096
"""Texts in a file: the most that are read again after a stop."""


class CachedVectors:
    """Vectors of texts, of which each is read by the encoder once: in any split, task or command of the workspace."""

    def __init__(self, folder: Path, identity: str, load: Callable[[], FrozenEncoder]) -> None:
        """folder: of the workspace's caches; identity: all that vectors depend on; load: returns the encoder, and is
        called when a text has no vector yet."""
        self.folder = folder / f"vectors-{identity}-{_METHOD}"
        self._load = load

    @functools.cached_property
    def encoder(self) -> FrozenEncoder:
        """The encoder, loaded when it is first needed."""
        return self._load()

    def __call__(self, texts: Sequence[str], advance: Advance = nothing) -> np.ndarray:
        """Return the vectors of texts, float16 [n, dim]."""
        digests = [hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest() for text in texts]
        vectors = self._read(set(digests))
        missing = [(digest, text) for digest, text in dict(zip(digests, texts, strict=True)).items()]
        missing = [(digest, text) for digest, text in missing if digest not in vectors]
        advance(len(texts) - len(missing))
        for start in range(0, len(missing), _TEXTS):
            some, new_texts = zip(*missing[start : start + _TEXTS], strict=True)
            new = self.encoder.vectors(new_texts, advance)
            name = hashlib.blake2b(b"".join(some), digest_size=8).hexdigest()
            with whole_file(self.folder / f"{name}.npz") as partial, partial.open("wb") as file:
                np.savez(file, digests=np.frombuffer(b"".join(some), np.uint8).reshape(-1, _DIGEST_BYTES), vectors=new)
            vectors.update(zip(some, new, strict=True))
        return np.stack([vectors[digest] for digest in digests]) if digests else self.encoder.vectors([])

    def _read(self, needed: set[bytes]) -> dict[bytes, np.ndarray]:
        """Return digest -> vector of the needed texts that have one. A damaged file counts as missing."""
        vectors: dict[bytes, np.ndarray] = {}
        for path in sorted(self.folder.glob("[!.]*.npz")):
            try:
                with np.load(path, allow_pickle=False) as arrays:
                    rows, values = arrays["digests"], arrays["vectors"]
                if len(rows) != len(values) or values.dtype != np.float16:
                    continue
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
                continue
            for row, value in zip(rows, values, strict=True):
                if (digest := row.tobytes()) in needed:
                    vectors[digest] = value
        return vectors
