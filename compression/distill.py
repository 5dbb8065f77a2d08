"""Distillation: a student learns a teacher's logits, the labels, or both."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.batching import shuffled_batches
from common.data import Split, load_split
from common.devices import pick_device
from common.errors import UserError
from common.locks import only_one
from common.metrics import main_score
from common.models import ModelConfig, clear_training, is_finished, training_folder
from common.progress import say
from common.seeds import seed_everything
from common.targets import targets
from common.tasks import Task, load_task
from common.training import Run, fit, linear_schedule
from common.workspace import fingerprint
from compression.distillation_set import DistillationSet, distillation_set, held_out_rows
from compression.embeddings import Tokenizer, load_tokenizer
from compression.embeddings.bpe import BpeTokenizer
from compression.embeddings.bpe_files import find_files, read_vectors
from compression.losses import combined
from compression.prune import gradual_pruner, sparsity_by_part
from compression.scoring import bucket_lengths, encode_split, forward, student_logits
from compression.settings import PRUNE_SETTINGS, QUANTIZE_SETTINGS, CompressSettings
from compression.student_store import save_student
from compression.students.settings import StudentSettings
from compression.students.student import Student

NOT_IDENTITY = {
    "workspace",
    "force",
    "loadbar",
    "cpu",
    "model_name",
    "seed_name",
    "compression_actions",
    "load_trained_model",
}
"""Settings that do not change what is learned."""
INPUTS_COUNT_INSTEAD = {"teacher", "bpe_model", "bpe_vectors"}
"""Names whose content is in the fingerprint: the same logits and vectors under other names give the same student."""


def distill(settings: CompressSettings) -> Path:
    """Train and save a student. Returns its model folder; a finished one is reused, a stopped one goes on."""
    task = load_task(settings.task)
    if task.regression and settings.loss != "mse":
        raise UserError(f"--loss {settings.loss} compares classes; {task.name} is a regression: take mse")
    rows = distillation_set(settings, task)
    held_out = held_out_rows(settings, task, rows.teacher)
    tokenizer, student_settings, vectors = _tokenizer(settings, task)
    name = settings.model_name or student_name(settings)
    config = ModelConfig(
        name=name,
        kind="student",
        stage="distilled",
        task=task.name,
        labels=task.labels,
        pair=task.pair,
        arch=settings.student_arch,
        seed=settings.seed,
        select_on=settings.select_on,
        teacher=rows.teacher,
        trained_on=(task.name,),
        alpha=settings.alpha,
        augmented=rows.augmented,
        settings=own_settings(settings),
        student=student_settings.model_dump(mode="json"),
        fingerprint=_identity(settings, rows, held_out, tokenizer, vectors),
    )
    folder = settings.paths.model(task.name, name)
    with only_one(folder, f"student {name}"):
        if is_finished(folder, config.fingerprint, settings.force):
            say(f"student {name} is up to date")
        else:
            _train(settings, task, config, rows, held_out, tokenizer, vectors, folder)
    return folder


def student_name(settings: CompressSettings) -> str:
    """A name that tells the settings sweeps vary: bilstm-bpe25-a0-aug-s3201976."""
    data = "orig" if settings.only_original_data else f"aug{_share(settings.bootstrap_data_ratio)}"
    data += f"-rows{_share(settings.downsample_data)}" if settings.downsample_data < 1 else ""
    aware = "-pa" if settings.prune_aware else ""
    embedding = f"{settings.embedding_type}{settings.embedding_dim}"
    return f"{settings.student_arch}-{embedding}-a{settings.alpha:g}-{data}{aware}-s{settings.seed}"


def _share(share: float) -> str:
    return "" if share == 1 else f"{share:g}"


def _tokenizer(settings: CompressSettings, task: Task) -> tuple[Tokenizer, StudentSettings, np.ndarray | None]:
    """The tokenizer, the student's settings as they turn out, and pre-trained vectors where there are any."""
    student = settings.student()
    if student.embedding_type != "bpe":
        return load_tokenizer(student, Path()), student, None
    train = load_split(settings.paths, task, "train")
    sentences = [text for column in train.sentences() for text in column]
    model_file, vector_file = find_files(student, sentences, settings.paths.bpe(task.name))
    vectors = read_vectors(vector_file, model_file, student.embedding_dim)
    # The saved settings must not point outside the student's folder; a vocabulary of the user's own sets its size.
    student = student.model_copy(update={"vocab_size": len(vectors), "bpe_model": None, "bpe_vectors": None})
    return BpeTokenizer(model_file, student.max_tokens), student, vectors


def _identity(
    settings: CompressSettings,
    rows: DistillationSet,
    held_out: Split,
    tokenizer: Tokenizer,
    vectors: np.ndarray | None,
) -> str:
    own = {name: value for name, value in own_settings(settings).items() if name not in INPUTS_COUNT_INSTEAD}
    inputs = [array.tobytes() for array in (rows.logits, vectors) if array is not None]
    if isinstance(tokenizer, BpeTokenizer):
        inputs.append(tokenizer.model_bytes)
    hashes = [hashlib.sha256(content).hexdigest() for content in inputs]
    return fingerprint([own, rows.split.fingerprint(), held_out.fingerprint(), hashes])


def own_settings(settings: CompressSettings) -> dict[str, Any]:
    """The settings that decide what is learned: not those of later actions, nor where and how loudly it runs."""
    later = QUANTIZE_SETTINGS if settings.prune_aware else QUANTIZE_SETTINGS | PRUNE_SETTINGS
    return settings.model_dump(mode="json", exclude=NOT_IDENTITY | later)


def _train(
    settings: CompressSettings,
    task: Task,
    config: ModelConfig,
    rows: DistillationSet,
    held_out: Split,
    tokenizer: Tokenizer,
    vectors: np.ndarray | None,
    folder: Path,
) -> None:
    device = pick_device(settings.cpu)
    seed_everything(settings.seed)
    student = Student(config.arch, StudentSettings(**config.student), task.outputs, task.pair)
    if vectors is not None:
        student.embedding.start_from(vectors)
    student.to(device)
    encoded, held_out_encoded = encode_split(tokenizer, rows.split), encode_split(tokenizer, held_out)
    labels = torch.from_numpy(targets(task, rows.split.labels)).to(device)
    logits = None if rows.logits is None else torch.from_numpy(rows.logits).to(device)
    lengths = bucket_lengths(encoded)
    pruner = gradual_pruner(student, settings) if settings.prune_aware else None

    def loss(batch: np.ndarray) -> torch.Tensor:
        teacher = None if logits is None else logits[batch]
        predicted = forward(student, encoded, batch, device)
        return combined(predicted, labels[batch], teacher, settings.alpha, settings.loss, settings.temperature)

    def validate() -> float:
        return main_score(task, held_out.labels, student_logits(student, held_out_encoded, device, "validating"))

    run = Run(
        model=student,
        optimizer=make_optimizer(settings, student),
        batches=lambda epoch: shuffled_batches(lengths, settings.batch_size, settings.seed, epoch),
        loss=loss,
        validate=validate,
        epochs=settings.epochs,
        patience=settings.patience,
        seed=settings.seed,
        state_file=training_folder(folder) / "state.safetensors",
        fingerprint=config.fingerprint,
        max_grad_norm=settings.max_grad_norm,
        label=config.name,
    )
    if settings.schedule == "linear":
        run.schedule = linear_schedule(0.05)
    if pruner is not None:
        run.on_start, run.extra_state = pruner.start, pruner.state
        run.after_step, run.eligible = pruner.step, pruner.finished
    history = fit(run)
    if pruner is not None:
        config = config.model_copy(update={"compression": {"sparsity": sparsity_by_part(pruner.parts)}})
    save_student(folder, config, student, tokenizer, history)
    clear_training(folder)


def make_optimizer(settings: CompressSettings, student: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer the settings name, over all of the student's parameters, each once (seed fault 7)."""
    common: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.optimizer == "adadelta":
        return torch.optim.Adadelta(student.parameters(), rho=0.95, **common)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(student.parameters(), **common)
