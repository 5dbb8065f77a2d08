"""Fine-tuning a teacher on a task: length-bucketed batches, mixed precision, best weights on validation."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from common.batching import shuffled_batches
from common.data import Split, load_split
from common.devices import pick_device, pick_dtype
from common.errors import UserError
from common.metrics import compute
from common.models import (
    CONFIG_FILE,
    SUBFOLDERS,
    ModelConfig,
    clear_training,
    is_finished,
    read_config,
    training_folder,
)
from common.progress import say
from common.seeds import seed_everything
from common.tasks import Task, check_no_overlap, load_task
from common.teachers import check_arch
from common.teachers.huggingface import HuggingFaceTeacher, resolve
from common.teachers.settings import FinetuneSettings
from common.training import Run, fit, linear_schedule, write_history
from common.workspace import file_fingerprint, fingerprint, whole_folder, write_json


def finetune(settings: FinetuneSettings) -> Path:
    """Fine-tune and save a teacher. Returns its model folder; a finished one is reused, a stopped one goes on."""
    check_arch(settings.arch)
    task = load_task(settings.task)
    source, short_name = resolve(settings.arch)
    splits = {
        name: load_split(settings.paths, task, name) for name in ("train", task.selection_split(settings.select_on))
    }
    trained_on = _lineage(Path(settings.arch), task)
    config = ModelConfig(
        name=settings.model_name or short_name,
        kind="teacher",
        stage="teacher",
        task=task.name,
        labels=task.labels,
        pair=task.pair,
        arch=short_name,
        seed=settings.seed,
        select_on=settings.select_on,
        trained_on=trained_on,
        settings=settings.model_dump(mode="json", exclude={"workspace", "force", "loadbar", "model_name"}),
        fingerprint=_identity(settings, source, splits),
    )
    folder = settings.paths.model(task.name, config.name)
    if is_finished(folder, config.fingerprint, settings.force):
        say(f"teacher {config.name} is up to date")
        return folder
    _train(settings, source, task, splits, config, folder)
    return folder


def _lineage(arch: Path, task: Task) -> tuple[str, ...]:
    """Every task the encoder has been trained on so far, and this one. Refuses a leak."""
    folder = arch.parent if arch.name in SUBFOLDERS else arch  # a backend's own folder inside a model of ours
    before = read_config(folder).trained_on if (folder / CONFIG_FILE).exists() and not _is_foreign(folder) else ()
    check_no_overlap(list(before), task.name)
    return tuple(sorted({*before, task.name}))


def _is_foreign(folder: Path) -> bool:
    """A Hugging Face folder has a config.json too, without our fields."""
    try:
        read_config(folder)
    except UserError:
        return True
    return False


def _identity(settings: FinetuneSettings, source: str, splits: dict[str, Split]) -> str:
    own = settings.model_dump(mode="json", exclude={"workspace", "force", "loadbar", "cpu", "model_name", "arch"})
    weights = sorted(Path(source).glob("*.safetensors")) if Path(source).is_dir() else []
    files: Any = [file_fingerprint(path) for path in weights] or source
    return fingerprint([own, files, {name: split.fingerprint() for name, split in splits.items()}])


def _train(
    settings: FinetuneSettings, source: str, task: Task, splits: dict[str, Split], config: ModelConfig, folder: Path
) -> None:
    device = pick_device(settings.cpu)
    dtype = pick_dtype("fp16" if settings.fp16 else settings.precision, device)
    seed_everything(settings.seed)
    teacher = HuggingFaceTeacher(source, task.labels, device, dtype, settings.max_tokens)
    if settings.freeze_embeddings:
        teacher.model.get_input_embeddings().requires_grad_(False)
    train, held_out = splits["train"], splits[task.selection_split(settings.select_on)]
    encoded = teacher.encode(train)
    labels = torch.from_numpy(train.labels).to(device)

    def validate() -> float:
        predictions = teacher.logits(held_out, "validating").argmax(1)
        return compute(task.metrics[:1], held_out.labels, predictions)[task.metrics[0]]

    run = Run(
        model=teacher.model,
        optimizer=torch.optim.AdamW(
            [p for p in teacher.model.parameters() if p.requires_grad],
            lr=settings.lr,
            weight_decay=settings.weight_decay,
        ),
        batches=lambda epoch: shuffled_batches(encoded.lengths, settings.batch_size, settings.seed, epoch),
        loss=lambda rows: nn.functional.cross_entropy(teacher.forward(encoded, rows), labels[rows]),
        validate=validate,
        epochs=settings.max_epochs,
        patience=settings.patience,
        seed=settings.seed,
        state_file=training_folder(folder) / "state.safetensors",
        fingerprint=config.fingerprint,
        schedule=linear_schedule(settings.warmup),
        label=f"fine-tuning {config.name}",
    )
    history = fit(run)
    with whole_folder(folder) as partial:
        teacher.save(partial)
        write_json(partial / CONFIG_FILE, config.model_dump(mode="json"))
        write_history(partial / "history.jsonl", history)
    clear_training(folder)
