"""Saving and loading students: a folder with manifest.json, model.safetensors and the tokenizer's files."""

from pathlib import Path
from typing import Any

import torch

from common.config import build
from common.errors import UserError
from common.training.checkpoint import load_tensors, load_weights, save_tensors
from common.training.models import WEIGHTS_FILE, ModelConfig, read_config, write_history
from compression.students.embeddings import load_tokenizer
from compression.students.layers import round_inputs
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.students.weights import restore_matrices
from compression.tokenizers import Tokenizer


def save_student(
    out: Path,
    student: Student,
    tokenizer: Tokenizer,
    history: list[dict[str, Any]] | None = None,
    base: Path | None = None,
) -> None:
    """Write a student's weights and tokenizer into a folder; with a base, only the weights that differ from it.

    base: model folder of the general student that this student's adapters were trained for.
    """
    tensors = student.state_dict()
    if base is not None:
        below, _ = load_tensors(base / WEIGHTS_FILE)
        tensors = {name: t for name, t in tensors.items() if name not in below or not torch.equal(t, below[name])}
    save_tensors(out / WEIGHTS_FILE, tensors, {})
    tokenizer.save(out)
    if history is not None:
        write_history(out, history)


def load_student(folder: Path, device: torch.device) -> tuple[Student, Tokenizer, ModelConfig]:
    """Load a student ready to score. Raises UserError when its files are missing, damaged or do not fit."""
    config = read_config(folder)
    student = restore_student(folder, config, load_weights(folder))
    return student.to(device).eval(), load_tokenizer(build(StudentSettings, config.student), folder), config


def restore_student(folder: Path, config: ModelConfig, tensors: dict[str, torch.Tensor]) -> Student:
    """Return the student with these tensors as weights. Raises UserError if they do not fit its config."""
    settings = build(StudentSettings, config.student)
    student = Student(config.arch, settings, config.outputs, config.pair, config.task_kind.by_word)
    try:
        restore_matrices(student, tensors)
        round_inputs(student, config.compression.get("inputs", {}), None)
        student.load_state_dict(tensors)
    except (UserError, RuntimeError) as error:
        message = " ".join(str(error).split())[:300]
        raise UserError(f"{folder / WEIGHTS_FILE}: does not fit its manifest.json: {message}") from error
    return student
