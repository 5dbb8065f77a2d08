"""Settings of `experiment.py publish`."""

from pathlib import Path

from common.store.settings import WorkspaceSettings


class PublishSettings(WorkspaceSettings):
    """Publication."""

    most_used = ("name", "model", "task")

    name: str
    """Name of the model in the zoo, such as sst-2-12k."""
    task: str | None = None
    """Task of the model; unset: the experiment's only one."""
    model: str | None = None
    """Family of models, as tables of sizes name it ('BiLSTM, 12 KB'), of which the best seed on validation is taken;
    or one model's name. Unset: the experiment's only family."""
    zoo: Path = Path("zoo")
    """Folder of the zoo, with tasks.yaml."""
