"""The work of compress.py: a chain of distill, prune and quantize, each saving a model the next one loads."""

from pathlib import Path
from typing import Any

import torch

from common.data import load_split
from common.devices import pick_device
from common.errors import UserError
from common.locks import only_one
from common.models import ModelConfig, find_model, is_finished, weights_file
from common.progress import say
from common.seeds import seed_everything
from common.tasks import Task, check_trains, load_task
from common.workspace import file_fingerprint, fingerprint
from compression.embeddings import Tokenizer
from compression.prune import prune_student
from compression.quantize import quantize_student
from compression.scoring import encode_split, forward
from compression.settings import PRUNE_SETTINGS, QUANTIZE_SETTINGS, CompressSettings
from compression.student_store import load_student, save_student
from compression.students.student import Student

SUFFIX = {"prune": "+p", "quantize": "+q"}
STAGE = {"prune": "pruned", "quantize": "quantized"}


def compress(settings: CompressSettings) -> list[Path]:
    """Do the actions in order. Returns the folder each one's model is in."""
    from compression.distill import distill

    check_trains(load_task(settings.task))
    folders: list[Path] = []
    name = settings.load_trained_model or ""
    for action in settings.compression_actions:
        if action == "distill":
            folders.append(distill(settings))
        else:
            last = action == settings.compression_actions[-1]
            own_name = settings.model_name if settings.load_trained_model and last else None
            folders.append(_shrink(settings, action, name, own_name))
        name = folders[-1].name
    return folders


def _shrink(settings: CompressSettings, action: str, parent_name: str, own_name: str | None) -> Path:
    """Prune or quantize a saved student and save the result beside it."""
    task = load_task(settings.task)
    parent_folder, parent = find_model(settings.paths, task, parent_name)
    if parent.kind != "student":
        raise UserError(f"{parent.name} is a teacher; only students are pruned and quantized")
    used = settings.model_dump(mode="json", include=PRUNE_SETTINGS if action == "prune" else QUANTIZE_SETTINGS)
    identity = fingerprint(
        [action, used, settings.seed, parent.fingerprint, file_fingerprint(weights_file(parent_folder))]
    )
    name = own_name or parent.name + SUFFIX[action]
    folder = settings.paths.model(task.name, name)
    with only_one(folder, f"student {name}"):
        if is_finished(folder, identity, settings.force):
            say(f"student {name} is up to date")
        else:
            _save_smaller(settings, action, task, parent_folder, parent, used, folder, identity)
    return folder


def _save_smaller(
    settings: CompressSettings,
    action: str,
    task: Task,
    parent_folder: Path,
    parent: ModelConfig,
    used: dict[str, Any],
    folder: Path,
    identity: str,
) -> None:
    """Load the parent, do the action with the settings `used` for it, save the model in `folder`."""
    seed_everything(settings.seed)
    student, tokenizer, _ = load_student(parent_folder, pick_device(cpu=True))
    if action == "prune":
        reached: dict[str, Any] = {"sparsity": prune_student(student, parent, settings)}
        say(
            f"{folder.name}: sparsity "
            + ", ".join(f"{part} {share:.1%}" for part, share in reached["sparsity"].items() if "." not in part)
        )
    else:
        reached = {"quantized": _quantize(settings, task, parent, student, tokenizer), "bits": 8}
    changed = {
        "name": folder.name,
        "stage": STAGE[action],
        "parent": parent.name,
        "settings": used,
        "compression": {**parent.compression, **reached},
        "fingerprint": identity,
    }
    save_student(folder, parent.model_copy(update=changed), student, tokenizer)


def _quantize(
    settings: CompressSettings, task: Task, parent: ModelConfig, student: Student, tokenizer: Tokenizer
) -> dict[str, str]:
    """Quantize a student in place. Returns part -> how."""
    if parent.stage == "quantized":
        raise UserError(f"{parent.name} is quantized already")
    asked = {
        "embedding": "static" if settings.ptq_embedding else None,
        "encoder": "dynamic" if settings.dq_encoder else None,
        "classifier": "static" if settings.ptq_classifier else "dynamic" if settings.dq_classifier else None,
    }
    parts = {part: how for part, how in asked.items() if how}
    parts = parts or {"embedding": "static", "encoder": "dynamic", "classifier": "dynamic"}
    if parent.arch == "ffn":
        parts.pop("encoder", None)  # a mean has no weights
    if not parts:
        raise UserError(f"{parent.name} has no weights in its encoder, and nothing else was to be quantized")
    calibration = (
        _classifier_inputs(settings, task, student, tokenizer) if parts.get("classifier") == "static" else None
    )
    with torch.no_grad():
        quantize_student(student, parts, calibration)
    return parts


def _classifier_inputs(settings: CompressSettings, task: Task, student: Student, tokenizer: Tokenizer) -> torch.Tensor:
    """What the classifier reads over the first training rows, [rows, width]: training text, never test's."""
    train = load_split(settings.paths, task, "train")
    rows = torch.arange(min(settings.calibration_rows, len(train))).numpy()
    seen: list[torch.Tensor] = []
    hook = student.classifier.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    try:
        with torch.no_grad():
            forward(student, encode_split(tokenizer, train.take(rows)), rows, torch.device("cpu"))
    finally:
        hook.remove()
    return torch.cat(seen)
