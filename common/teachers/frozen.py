"""Vectors of texts by a frozen encoder: features of a linear teacher (common.teachers.linear)."""

from __future__ import annotations

import functools
import hashlib
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from common.data.split import Split
from common.devices import autocast, cpu_cores, threads
from common.progress import Advance, nothing
from common.stopping import check_time
from common.store.files import whole_file
from common.teachers.base import SCORING_BATCH
from common.teachers.huggingface.pretrained import check_complete, load_pretrained, within_positions
from common.teachers.linear import compared
from common.training.batching import sorted_batches

_METHOD = 1
"""Version of the vectors: increase it when `FrozenEncoder` gives others for the same text."""
_DIGEST_BYTES = 16
_TEXTS = 4096
"""Number of texts in a file of the cache: at most so many are read again after a stop."""


class FrozenEncoder:
    """An encoder of Hugging Face's whose weights are not trained."""

    def __init__(self, source: str | Path, device: torch.device, dtype: torch.dtype, max_tokens: int) -> None:
        """Load an encoder by folder or name. Raises UserError if something cannot be loaded or lacks tensors."""
        self.tokenizer, self.model, new = load_pretrained(source, "AutoModel", what="encoder")
        check_complete(source, self.model, new)
        on_cpu = device.type == "cpu"
        self.model.to(device, dtype if on_cpu else torch.float32).eval()
        self.device, self.dtype = device, torch.float32 if on_cpu else dtype
        self.max_tokens = within_positions(max_tokens, self.model)

    def vectors(self, texts: Sequence[str], advance: Advance = nothing) -> np.ndarray:
        """Return the mean of the last layer over each text's tokens, with length 1, float16 [n, dim].

        `advance` is called with the number of texts done since its last call.
        """
        tokens = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens) if texts else {}
        rows = [dict(zip(tokens, row, strict=True)) for row in zip(*tokens.values(), strict=True)]
        lengths = np.array([len(row["input_ids"]) for row in rows], np.int64)
        vectors = np.empty((len(texts), self.model.config.hidden_size), np.float16)

        def read(batch: np.ndarray) -> int:
            check_time()
            with torch.inference_mode(), autocast(self.dtype, self.device):
                padded = self.tokenizer.pad([rows[row] for row in batch], return_tensors="pt").to(self.device)
                states = self.model(**padded).last_hidden_state.float()
                mask = padded["attention_mask"].unsqueeze(-1)
                mean = (states * mask).sum(1) / mask.sum(1)
                vectors[batch] = torch.nn.functional.normalize(mean, dim=1).half().cpu().numpy()
            return len(batch)

        # One batch a core: threads that share a short batch mostly wait for each other if another program is running.
        workers = cpu_cores() if self.device.type == "cpu" else 1
        with threads(1), ThreadPoolExecutor(workers) as pool:
            for done in pool.map(read, sorted_batches(lengths, SCORING_BATCH)):
                advance(done)
        return vectors


class FrozenVectors:
    """An encoder's vectors as features of rows. They are cached by text, in files that can be deleted at any time.

    The encoder reads each text of a workspace once, even if it occurs in several splits, tasks or commands.
    """

    strength = 10.0

    def __init__(self, folder: Path, identity: str, load: Callable[[], FrozenEncoder]) -> None:
        """folder: of the workspace's caches; identity: fingerprint of all that the vectors depend on; load: returns the
        encoder; it is called if a text has no vector yet."""
        self.folder = folder / f"vectors-{identity}-{_METHOD}"
        self._load = load

    @functools.cached_property
    def encoder(self) -> FrozenEncoder:
        """The encoder, loaded when it is first needed."""
        return self._load()

    def fit(self, train: Split) -> np.ndarray:
        """Return the features of train: there is nothing to learn."""
        return self(train)

    def __call__(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return the features of each row, float32 [n, features]; for pairs, those of `compared`.

        Every text is read once: in pairs, many occur several times.
        """
        texts = list(dict.fromkeys(split.texts()))
        index = {text: number for number, text in enumerate(texts)}
        vectors = self.of(texts, advance).astype(np.float32)
        return compared([vectors[[index[text] for text in column]] for column in split.sentences()])

    def of(self, texts: Sequence[str], advance: Advance = nothing) -> np.ndarray:
        """Return the vectors of texts, float16 [n, dim]."""
        digests = [hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest() for text in texts]
        vectors = self._read(set(digests))
        by_digest = dict(zip(digests, texts, strict=True))
        missing = [(digest, text) for digest, text in by_digest.items() if digest not in vectors]
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
