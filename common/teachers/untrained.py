"""Saving a teacher that is not trained here: one that is adopted, or an ensemble of others."""

from collections.abc import Callable
from pathlib import Path

from common.progress import say
from common.store.locks import only_one
from common.store.workspace import whole_folder, write_json
from common.teachers.settings import FinetuneSettings
from common.training.models import CONFIG_FILE, ModelConfig, is_finished


def save_untrained(
    settings: FinetuneSettings, config: ModelConfig, write: Callable[[Path], None] = lambda partial: None
) -> Path:
    """Write a teacher's folder, whole or not at all; a finished one is reused. Returns it.

    write: writes the teacher's own files below the folder; an ensemble has none. Raises UserError when another model
    has its name.
    """
    folder = settings.paths.model(config.task, config.name)
    with only_one(folder, f"teacher {config.name}"):
        if is_finished(folder, config.fingerprint, settings.force):
            say(f"teacher {config.name} is up to date")
            return folder
        with whole_folder(folder) as partial:
            write(partial)
            write_json(partial / CONFIG_FILE, config.model_dump(mode="json"))
    return folder
