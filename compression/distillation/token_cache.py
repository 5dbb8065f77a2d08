"""A cache of training rows' token ids: files in the workspace under a fingerprint, mapped into memory.

A sweep trains many students on the same rows, and encoding takes far longer than reading a file. The files can be
deleted at any time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from common.data.ragged import EncodedText
from common.data.split import Split
from common.data.tasks import Task
from common.store.files import fingerprint, whole_folder
from common.store.locks import only_one
from common.store.workspace import Workspace
from compression.students.scoring import encode_split
from compression.tokenizers import Tokenizer

_METHOD = 1
"""Raised when a tokenizer of the same identity gives other tokens."""


def cached_tokens(paths: Workspace, task: Task, tokenizer: Tokenizer, split: Split) -> list[EncodedText]:
    """Return the token ids of a split, as `encode_split` does: read from the workspace, or encoded and saved there."""
    by_word = ["by word"] if split.tokens else []
    identity = fingerprint([_METHOD, tokenizer.identity, split.text_fingerprint(), *by_word])
    folder = paths.tokens(task.name, identity)
    count = 2 if split.tokens else len(split.sentences())
    if cached := _read(folder, count):
        return cached
    with only_one(folder, f"tokens of {task.name}", wait=True):
        if cached := _read(folder, count):
            return cached
        encoded = encode_split(tokenizer, split)
        with whole_folder(folder) as partial:
            for number, text in enumerate(encoded):
                np.save(partial / f"ids{number}.npy", text.ids)
                np.save(partial / f"offsets{number}.npy", text.offsets)
        return encoded


def _read(folder: Path, count: int) -> list[EncodedText]:
    """Return the texts saved in a folder, or an empty list if it is missing or damaged."""
    try:
        return [EncodedText(*(_mapped(folder / f"{kind}{i}.npy") for kind in ("ids", "offsets"))) for i in range(count)]
    except (OSError, ValueError, EOFError):
        return []


def _mapped(path: Path) -> np.ndarray:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
