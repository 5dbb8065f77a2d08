"""Saving and loading students: a folder with config.json, model.safetensors and the tokenizer's files."""

from pathlib import Path
from typing import Any

import torch

from common.config import build
from common.errors import UserError
from common.store.workspace import whole_folder, write_json
from common.training.checkpoint import load_tensors, save_tensors
from common.training.models import CONFIG_FILE, WEIGHTS_FILE, ModelConfig, base_file, load_weights, read_config
from common.training.training import write_history
from compression.students.layers import round_inputs
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.students.weights import restore_matrices
from compression.tokenizers import Tokenizer, load_tokenizer


def save_student(
    folder: Path,
    config: ModelConfig,
    student: Student,
    tokenizer: Tokenizer,
    history: list[dict[str, Any]] | None = None,
) -> None:
    """Write a student's folder, whole or not at all; of one that has a base, only the weights that the base has not."""
    tensors = student.state_dict()
    if (base := base_file(folder, config)) is not None:
        below, _ = load_tensors(base)
        tensors = {name: tensor for name, tensor in tensors.items() if not _same(tensor, below.get(name))}
    with whole_folder(folder) as partial:
        save_tensors(partial / WEIGHTS_FILE, tensors, {})
        tokenizer.save(partial)
        write_json(partial / CONFIG_FILE, config.model_dump(mode="json"))
        if history is not None:
            write_history(partial / "history.jsonl", history)


def _same(tensor: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and tensor.shape == other.shape and bool((tensor == other).all())


def load_student(folder: Path, device: torch.device) -> tuple[Student, Tokenizer, ModelConfig]:
    """Load a student ready to score. Raises UserError when its files are missing, damaged or do not fit."""
    config = read_config(folder)
    student = restore_student(folder, config, load_weights(folder))
    return student.to(device).eval(), load_tokenizer(build(StudentSettings, config.student), folder), config


def restore_student(folder: Path, config: ModelConfig, tensors: dict[str, torch.Tensor]) -> Student:
    """Return the student whose weights files hold these tensors. Raises UserError when they do not fit its config."""
    settings = build(StudentSettings, config.student)
    student = Student(config.arch, settings, config.outputs, config.pair, config.tokens)
    try:
        restore_matrices(student, tensors)
        round_inputs(student, config.compression.get("inputs", {}), None)
        student.load_state_dict(tensors)
    except (UserError, RuntimeError) as error:
        message = " ".join(str(error).split())[:300]
        raise UserError(f"{folder / WEIGHTS_FILE}: does not fit its config.json: {message}") from error
    return student
