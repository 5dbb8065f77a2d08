"""Token ids of training rows, made once: kept in the workspace under a fingerprint, and mapped into memory.

A sweep trains many students on the same rows, and words of a vocabulary are found far more slowly than a file is read.
The files can be deleted at any time.
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
"""To be raised when a tokenizer of the same identity gives other tokens."""


def cached_tokens(paths: Workspace, task: Task, tokenizer: Tokenizer, split: Split) -> list[EncodedText]:
    """Token ids of a split, as `encode_split` gives them. Read from the workspace, or made and kept there."""
    by_word = ["by word"] if split.tokens else []
    identity = fingerprint([_METHOD, tokenizer.identity, split.text_fingerprint(), *by_word])
    folder = paths.tokens(task.name, identity)
    count = 2 if split.tokens else len(split.sentences())
    if found := _read(folder, count):
        return found
    with only_one(folder, f"tokens of {task.name}", wait=True):
        if not (found := _read(folder, count)):
            found = encode_split(tokenizer, split)
            with whole_folder(folder) as partial:
                for name, array in _files(partial, found):
                    np.save(name, array)
    return found


def _files(folder: Path, encoded: list[EncodedText]) -> list[tuple[Path, np.ndarray]]:
    arrays = [("ids", text.ids, i) for i, text in enumerate(encoded)]
    arrays += [("offsets", text.offsets, i) for i, text in enumerate(encoded)]
    return [(folder / f"{kind}{i}.npy", array) for kind, array, i in arrays]


def _read(folder: Path, count: int) -> list[EncodedText]:
    """What is kept in a folder; nothing where it is missing or damaged."""
    try:
        return [EncodedText(*(_mapped(folder / f"{kind}{i}.npy") for kind in ("ids", "offsets"))) for i in range(count)]
    except (OSError, ValueError, EOFError):
        return []


def _mapped(path: Path) -> np.ndarray:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
