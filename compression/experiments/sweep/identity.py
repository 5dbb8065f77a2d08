"""Which run is which: a hash of a run's effective settings and of the fingerprints of the files it reads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.data.data import file_text_fingerprint, read_metadata
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.store.workspace import Workspace, file_fingerprint, fingerprint
from common.teachers.logits import teacher_fingerprint
from common.training.models import CONFIG_FILE, WEIGHTS_FILE, general_folder
from compression.distillation.distill import INPUTS_COUNT_INSTEAD, NOT_IDENTITY, own_settings, unused
from compression.settings import CompressSettings
from compression.tokenizers.bpe_files import cached_files


def effective_settings(settings: CompressSettings, chains: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The settings that decide what a run gives: not where, how loudly and under which names it runs."""
    own = settings.model_dump(mode="json", exclude=NOT_IDENTITY | INPUTS_COUNT_INSTEAD | unused(settings))
    return {**own, "chains": [list(chain) for chain in chains] or [list(settings.compression_actions)]}


def input_fingerprints(settings: CompressSettings) -> dict[str, str]:
    """Role -> fingerprint of everything a run reads. Raises UserError for files that are not there (yet)."""
    paths, task = settings.paths, load_task(settings.task)
    splits = ("train", "validation", *task.test_splits)
    found = {name: _of_split(paths.split(task.name, name)) for name in splits}
    if settings.alpha < 1 or not settings.only_original_data:
        found |= _teacher_inputs(settings, paths, task)
    if settings.start_from:
        found["general"] = _of_file(general_folder(paths, settings.start_from) / WEIGHTS_FILE)
    return found | {name: _of_file(file) for name, file in _byte_pairs(settings).items()}


def _byte_pairs(settings: CompressSettings) -> dict[str, Path]:
    """Files of byte pairs that are not made from the task's text: the user's own, or BPEmb's."""
    if settings.embedding_type != "bpe":
        return {}
    own = settings.bpe_model, settings.bpe_vectors
    cached = cached_files(settings.vocab_size, settings.embedding_dim, settings.bpe_source)
    model, vectors = own if all(own) else cached or (None, None)
    return {name: file for name, file in (("bpe_model", model), ("bpe_vectors", vectors)) if file}


def _teacher_inputs(settings: CompressSettings, paths: Workspace, task: Task) -> dict[str, str]:
    from compression.augmentation.preprocess import only_teacher

    teacher = settings.teacher or only_teacher(paths, task)
    now = _of_teacher(paths.model(task.models_task, teacher))
    sources = {"train": paths.split(task.name, "train")}
    if not settings.only_original_data:
        sources[settings.augmented] = paths.augmented(task.name, settings.augmented)
    found = {}
    for name, source in sources.items():
        logits = paths.logits(task.name, teacher, name)
        found[f"logits {name}"] = _of_file(logits)
        found[f"text {name}"] = text = _of_text(source)
        made = read_metadata(logits)
        # Stale logits would be refused hours later, in the run.
        if (made.get("text"), made.get("teacher")) != (text, now):
            raise UserError(f"{logits}: of other text or another teacher than there is now")
    return found


def run_identity(effective: dict[str, Any], inputs: dict[str, str]) -> str:
    """16 hex digits that name a run."""
    return fingerprint([effective, inputs])


def family_identity(settings: CompressSettings, inputs: dict[str, str]) -> str:
    """8 hex digits for the names of models that differ in their seed alone.

    Whatever is done to a student afterwards does not count, so that runs that prune it find the student that another
    run has distilled: what was done is told by the ends of names.
    """
    own = {name: value for name, value in own_settings(settings).items() if name not in _NOT_FAMILY}
    return fingerprint([own, inputs])[:8]


_NOT_FAMILY = {"seed", *INPUTS_COUNT_INSTEAD}


def _cached(function: Callable[[Path], str], watched: str = "") -> Callable[[Path], str]:
    """`function` of a path, asked once for each state of the file: hundreds of runs read the same few."""

    @functools.lru_cache(maxsize=64)
    def of_state(path: Path, modified: int, size: int) -> str:
        return function(path)

    def of_path(path: Path) -> str:
        try:
            found = (path / watched).stat()
        except FileNotFoundError:
            raise UserError(f"{path}: not made yet") from None
        return of_state(path, found.st_mtime_ns, found.st_size)

    return of_path


_of_file = _cached(file_fingerprint)
_of_text = _cached(file_text_fingerprint)
_of_split = _cached(lambda path: read_metadata(path).get("fingerprint") or file_text_fingerprint(path))
_of_teacher = _cached(teacher_fingerprint, watched=CONFIG_FILE)
