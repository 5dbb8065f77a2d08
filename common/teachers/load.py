"""Loading teachers and masked language models, whichever library they are of.

Backends are imported in functions: scoring a student must import neither their libraries nor what downloads need.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from common.data.split import Split
from common.errors import UserError
from common.progress import Advance, nothing
from common.store.files import file_fingerprint, fingerprint
from common.store.workspace import Workspace, default_root
from common.teachers.base import MaskedLM, States, Teacher, is_fairseq
from common.training.models import check_members, members_of


class EnsembleTeacher:
    """Several teachers, one after the other; see common.teachers.ensemble."""

    def __init__(self, members: Sequence[Teacher]) -> None:
        self.members = list(members)

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return the mean of the members' logits, float32 [n, outputs]; a row is done when the last member is."""
        *others, last = self.members
        parts = [*(member.logits(split) for member in others), last.logits(split, advance)]
        return np.mean(parts, axis=0, dtype=np.float32)

    def states(self, split: Split) -> States:
        """Raises UserError: an ensemble has several."""
        raise UserError("an ensemble has no hidden states of its own: name one of its members")


def load_teacher(folder: Path, device: torch.device, dtype: torch.dtype) -> Teacher:
    """Return a fine-tuned teacher, or an ensemble of them, from its model folder.

    Raises UserError when something is missing or damaged, or a member of an ensemble was replaced.
    """
    if members := members_of(folder):
        check_members(folder)
        return EnsembleTeacher([load_teacher(member, device, dtype) for member in members])
    if (folder / "fairseq").is_dir():
        from common.teachers.fairseq.teacher import FairseqTeacher

        return FairseqTeacher.load(folder, device, dtype)
    from common.teachers.huggingface.tagger import load_teacher_of_either

    return load_teacher_of_either(folder, device, dtype)


def load_masked_lm(source: str, device: torch.device, downloads: Path | None = None) -> MaskedLM:
    """Return the masked language model of that name or folder: a RoBERTa by fairseq, or any of Hugging Face's.

    downloads: where the official RoBERTa archives are kept; unset means in the default workspace.
    Raises UserError when there is no such model.
    """
    if is_fairseq(source):
        from common.teachers.fairseq.masked_lm import FairseqMaskedLM

        return FairseqMaskedLM.load(source, device, downloads or Workspace(default_root()).downloads())
    from common.teachers.huggingface.masked_lm import HuggingFaceMaskedLM

    return HuggingFaceMaskedLM.load(source, device)


def masked_lm_fingerprint(source: str, downloads: Path) -> str:
    """Return a fingerprint of a masked language model's files. Raises UserError when there is no such model."""
    if is_fairseq(source):
        from common.teachers.fairseq.sources import model_files

        files = model_files(source, downloads)
    else:
        from common.teachers.huggingface.masked_lm import masked_lm_files

        files = masked_lm_files(source)
    return fingerprint([(path.name, file_fingerprint(path)) for path in files])
