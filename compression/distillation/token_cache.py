"""A cache of training rows' token ids: files in the workspace under a fingerprint, mapped into memory.

A sweep trains many students on the same rows, and encoding takes far longer than reading a file. The files can be
deleted at any time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from common.data.split import Split
from common.kinds.ragged import EncodedText
from common.store.files import fingerprint, whole_folder
from common.store.locks import only_one
from compression.students.batch import EncodedRows
from compression.students.scoring import encode_split
from compression.tokenizers import Tokenizer

_METHOD = 1
"""Version of the encoding: increase it when a tokenizer of the same identity gives other tokens."""


def cached_tokens(cache: Path, tokenizer: Tokenizer, split: Split) -> EncodedRows:
    """Return the token ids of a split, as `encode_split` does: read from the cache, or encoded and saved there."""
    identity = [_METHOD, tokenizer.identity, tokenizer.max_tokens, split.text_fingerprint]
    columns = ["text"]
    if split.sentence2 is not None:
        columns.append("second")
    if split.kind.by_word:
        identity.append(split.kind.name)
        columns.append("word_starts")
    folder = cache / fingerprint(identity)
    max_tokens = tokenizer.max_tokens if split.kind.always_pairs else None
    with only_one(folder, "tokens of training rows", wait=True):
        cached = _read(folder, columns, max_tokens)
        if cached is not None:
            return cached
        encoded = encode_split(tokenizer, split)
        with whole_folder(folder) as partial:
            for i, column in enumerate(encoded.columns):
                np.save(partial / f"ids{i}.npy", column.ids)
                np.save(partial / f"offsets{i}.npy", column.offsets)
        return encoded


def _read(folder: Path, columns: list[str], max_tokens: int | None) -> EncodedRows | None:
    """Return the rows saved in a folder; None if it is missing or damaged. max_tokens: as in EncodedRows."""
    try:
        texts = {
            column: EncodedText(_mapped(folder / f"ids{i}.npy"), _mapped(folder / f"offsets{i}.npy"))
            for i, column in enumerate(columns)
        }
        return EncodedRows(**texts, max_tokens=max_tokens)
    except (OSError, ValueError, EOFError):
        return None


def _mapped(file: Path) -> np.ndarray:
    return np.asarray(np.load(file, mmap_mode="r"))
