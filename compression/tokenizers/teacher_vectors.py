"""Vectors of byte pairs by what a teacher makes of them: each piece read alone, as a sentence of its own.

The state that the teacher's head reads (the last layer's at the first token; of one that tags words, at a word's first
piece) tells what a piece means for the task, also of pieces that the training text rarely shows. Its principal
components, as many as the student's embedding is wide, are where the student's embedding starts from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common.data.split import Split
from common.devices import pick_device
from common.errors import UserError
from common.progress import counter
from common.store.artifact import artifact_at
from common.store.files import fingerprint, whole_file
from common.store.locks import only_one
from common.training.models import members_of, read_config

_BATCH = 256
_SPREAD = 0.3
"""Standard deviation of all numbers together: that of embeddings that start at random does as well."""


def find_teacher_vectors(pieces: Sequence[str], teacher: Path, dim: int, folder: Path, cpu: bool) -> np.ndarray:
    """Vectors of the pieces, float32 [pieces, dim], made once and kept in `folder`.

    teacher: its model folder; the states of an ensemble's members are put side by side. Raises UserError when it is
    not there, and for more dimensions than there are pieces or the states have.
    """

    place = ["first piece"] if read_config(teacher).tokens else []
    file = folder / f"{fingerprint([list(pieces), artifact_at(teacher).key, dim, *place])}.teacher.npy"
    with only_one(file, f"vectors of {teacher.name}", wait=True):
        if not file.exists():
            vectors = principal_components(_states(pieces, teacher, cpu), dim)
            with whole_file(file) as partial, partial.open("wb") as stream:
                np.save(stream, vectors, allow_pickle=False)
    return np.load(file, allow_pickle=False)


def principal_components(states: np.ndarray, dim: int) -> np.ndarray:
    """The first components of rows, float32 [n, dim], scaled alike. states: float [n, width]. Raises UserError."""
    if dim > min(states.shape):
        raise UserError(f"--embedding-init teacher: {min(states.shape)} dimensions at most (--embedding-dim is {dim})")
    left, values, _ = np.linalg.svd(states - states.mean(0), full_matrices=False)
    components = left[:, :dim] * values[:dim]
    return (components * (_SPREAD / components.std())).astype(np.float32)


def _states(pieces: Sequence[str], teacher: Path, cpu: bool) -> np.ndarray:
    """States that the head reads, float32 [pieces, width]; those of several members side by side."""
    import torch

    from common.teachers.load import load_teacher

    texts = [piece.replace("\u2581", " ").strip() for piece in pieces]  # sentencepiece's sign for a space
    split = Split(texts, None, np.zeros(len(texts), np.int64), np.arange(len(texts)))
    found = []
    for member in members_of(teacher) or [teacher]:
        place = int(read_config(member).tokens)
        model = load_teacher(member, pick_device(cpu), torch.float32)
        with counter(f"{member.name} over byte pairs", len(texts)) as advance:
            parts = []
            for start in range(0, len(texts), _BATCH):
                rows = np.arange(start, min(start + _BATCH, len(texts)))
                parts.append(model.states(split.take(rows)).hidden[-1][:, place].cpu().numpy())
                advance(len(rows))
        found.append(np.concatenate(parts))
    return np.concatenate(found, 1)
