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
    """Family of models, named as in tables of sizes ('BiLSTM, 12 KB'), whose best seed on validation is published; or
    the name of a single model. Unset: the experiment's only family."""
    zoo: Path = Path("zoo")
    """Folder of the zoo, with tasks.yaml."""
