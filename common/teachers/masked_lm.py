"""Masked language models: which words could stand at a masked place. One interface, a class per backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from common.store.files import file_fingerprint, fingerprint
from common.store.workspace import Workspace, default_root
from common.teachers import is_fairseq

if TYPE_CHECKING:
    import numpy as np
    import torch


@dataclasses.dataclass(frozen=True)
class Pieces:
    """A sentence as the model reads it, begin and end marks included.

    ids: piece ids; spans: for each piece the characters [start, end) of the sentence it covers without white space
    around it, (0, 0) for marks.
    """

    ids: list[int]
    spans: list[tuple[int, int]]


class MaskedLM(Protocol):
    """What augmentation asks of a masked language model."""

    mask_id: int
    """Id of the mask piece."""
    max_pieces: int
    """Longest sequence the model reads, marks included."""

    def encode(self, sentences: Sequence[str]) -> list[Pieces]:
        """Pieces of each sentence, cut at max_pieces."""
        ...

    def words(self) -> list[str]:
        """By piece id: the whole word the piece stands for, or "" for marks and for parts of words."""
        ...

    def predict(self, ids: np.ndarray, lengths: np.ndarray, places: np.ndarray) -> torch.Tensor:
        """Logits of every piece at one place of each row, float32 [batch, pieces], on the CPU or a GPU.

        ids: int64 [batch, longest], anything where padded; lengths, places: int64 [batch].
        Only the asked places go through the output layer.
        """
        ...


def load_masked_lm(source: str, device: torch.device, downloads: Path | None = None) -> MaskedLM:
    """The masked language model of that name or folder: a RoBERTa by fairseq, or any of Hugging Face's.

    downloads: where the official RoBERTa archives are kept; unset means in the default workspace.
    Raises UserError when there is no such model.
    """
    if is_fairseq(source):
        from common.teachers.fairseq.masked_lm import FairseqMaskedLM

        return FairseqMaskedLM.load(source, device, downloads or Workspace(default_root()).downloads())
    from common.teachers.huggingface.masked_lm import HuggingFaceMaskedLM

    return HuggingFaceMaskedLM.load(source, device)


def masked_lm_fingerprint(source: str, downloads: Path) -> str:
    """Fingerprint of the contents of a masked language model's files. Raises UserError when there is no such model."""
    if is_fairseq(source):
        from common.teachers.fairseq.sources import model_files

        files = model_files(source, downloads)
    else:
        from common.teachers.huggingface.masked_lm import masked_lm_files

        files = masked_lm_files(source)
    return fingerprint([(path.name, file_fingerprint(path)) for path in files])
