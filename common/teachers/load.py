"""Loading teachers and masked language models, whichever library they are of."""

from pathlib import Path

import numpy as np
import torch

from common.data.split import Split
from common.errors import UserError
from common.progress import Advance, nothing
from common.store.workspace import Workspace, default_root, file_fingerprint, fingerprint
from common.teachers.base import MaskedLM, States, Teacher, is_fairseq
from common.teachers.fairseq.masked_lm import FairseqMaskedLM
from common.teachers.fairseq.sources import model_files
from common.teachers.fairseq.teacher import FairseqTeacher
from common.teachers.huggingface.masked_lm import HuggingFaceMaskedLM, masked_lm_files
from common.teachers.huggingface.tagger import load_teacher_of_either
from common.training.models import members_of


def load_teacher(folder: Path, device: torch.device, dtype: torch.dtype) -> Teacher:
    """Return a fine-tuned teacher, or an ensemble of them, from its model folder."""
    if members_of(folder):
        # An ensemble loads its members with this function.
        from common.teachers.ensemble import EnsembleTeacher

        return EnsembleTeacher.load(folder, device, dtype)
    if (folder / "fairseq").is_dir():
        return FairseqTeacher.load(folder, device, dtype)
    return load_teacher_of_either(folder, device, dtype)


def load_masked_lm(source: str, device: torch.device, downloads: Path | None = None) -> MaskedLM:
    """Return the masked language model of that name or folder: a RoBERTa by fairseq, or any of Hugging Face's.

    downloads: where the official RoBERTa archives are kept; unset means in the default workspace.
    Raises UserError when there is no such model.
    """
    if is_fairseq(source):
        return FairseqMaskedLM.load(source, device, downloads or Workspace(default_root()).downloads())
    return HuggingFaceMaskedLM.load(source, device)


def masked_lm_fingerprint(source: str, downloads: Path) -> str:
    """Return a fingerprint of a masked language model's files. Raises UserError when there is no such model."""
    files = model_files(source, downloads) if is_fairseq(source) else masked_lm_files(source)
    return fingerprint([(path.name, file_fingerprint(path)) for path in files])
