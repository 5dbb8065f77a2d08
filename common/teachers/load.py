"""Loading of teachers and masked language models of any library."""

from pathlib import Path

import torch

from common.store.files import file_fingerprint, fingerprint
from common.teachers.base import Teacher
from common.teachers.ensemble import EnsembleTeacher
from common.teachers.fairseq.checkpoint import CHECKPOINT_FILE, read_model
from common.teachers.fairseq.convert import converted, tokenizer_of
from common.teachers.fairseq.library import load_fairseq
from common.teachers.fairseq.sources import model_files, resolve
from common.teachers.huggingface.classes import load_teacher_of_any
from common.teachers.huggingface.masked_lm import HuggingFaceMaskedLM, masked_lm_files
from common.teachers.linear_step import load_linear
from common.teachers.settings import is_fairseq
from common.training.models import check_runs, is_linear, members_of


def load_teacher(folder: Path, device: torch.device, dtype: torch.dtype) -> Teacher:
    """Return a fine-tuned teacher, or an ensemble of them, from its model folder.

    Raises UserError when something is missing or damaged, or the teacher has imported logits only.
    """
    check_runs(folder)
    if members := members_of(folder):
        return EnsembleTeacher([load_teacher(member, device, dtype) for member in members])
    if is_linear(folder):
        return load_linear(folder, device, dtype)
    return load_teacher_of_any(folder, device, dtype)


def load_masked_lm(source: str, device: torch.device, downloads: Path) -> HuggingFaceMaskedLM:
    """Return the masked language model of that name or folder: any of Hugging Face's, or a RoBERTa of fairseq's.

    downloads: where the official RoBERTa archives are kept. Raises UserError when there is no such model.
    """
    if is_fairseq(source):
        load_fairseq(f"the masked language model {source}")  # before a large download, not after it
        folder = Path(resolve(source, downloads)[0])
        architecture, tensors = read_model(folder / CHECKPOINT_FILE)
        tokenizer = tokenizer_of(folder, downloads, architecture.max_positions, prefix=True)
        return HuggingFaceMaskedLM(converted(architecture, tensors, tokenizer, folder), tokenizer, device)
    return HuggingFaceMaskedLM.load(source, device)


def masked_lm_fingerprint(source: str, downloads: Path) -> str:
    """Return a fingerprint of a masked language model's files. Raises UserError when there is no such model."""
    files = model_files(source, downloads) if is_fairseq(source) else masked_lm_files(source)
    return fingerprint([(path.name, file_fingerprint(path)) for path in files])
