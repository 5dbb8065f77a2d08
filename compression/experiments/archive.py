"""`experiment.py archive`: copy finished experiments from a workspace to a folder that can be committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.store.settings import WorkspaceSettings
from compression.experiments.report.archived import read_finished, write_archive


class ArchiveSettings(WorkspaceSettings):
    """Archiving."""

    to: Path = Path("docs/results")
    """Folder of archived experiments; each is written to a folder of its own name in it, whole or not at all."""


def archive(settings: ArchiveSettings, names: Sequence[str]) -> list[Path]:
    """Archive experiments, all or none. Returns their new folders.

    Raises UserError for one that is unfinished, or whose rows were changed by hand.
    """
    found = [read_finished(settings.paths.experiment(name)) for name in names]
    return [write_archive(one, settings.paths.root, settings.to) for one in found]
