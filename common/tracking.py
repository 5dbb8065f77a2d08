"""Recording runs with sacred, through its public interface. The only file that imports sacred."""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any


def record(name: str, folder: Path, settings: dict[str, Any], work: Callable[[], Any]) -> Any:
    """Run `work` as one sacred run; settings, packages, machine, times and outcome go to a numbered folder in `folder`.

    Returns what `work` returns. What it raises is recorded as the run's failure and raised again.
    """
    with warnings.catch_warnings():
        # sacred 0.8.7 imports pkg_resources, which warns on import; nothing here can be done about it.
        warnings.simplefilter("ignore", UserWarning)
        from sacred import SETTINGS, Experiment
        from sacred.observers import FileStorageObserver

    SETTINGS.CAPTURE_MODE = "no"  # our output is bars and one table; the record is in files
    experiment = Experiment(name, save_git_info=False, interactive=True)
    experiment.logger = _quiet_logger()
    experiment.observers.append(FileStorageObserver(str(folder)))
    experiment.add_config({"settings": settings})
    outcome: dict[str, Any] = {}

    @experiment.main
    def main() -> None:
        outcome["value"] = work()

    experiment.run()
    return outcome["value"]


def _quiet_logger() -> logging.Logger:
    """sacred announces every start and end; the board is ours."""
    logger = logging.getLogger("sacred")
    logger.setLevel(logging.CRITICAL)
    return logger
