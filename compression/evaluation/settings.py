"""Settings of evaluate.py."""

from typing import Literal

from common.store.settings import StageSettings


class EvaluateSettings(StageSettings):
    """Evaluation (the thesis's table C.4, and more)."""

    most_used = ("task", "model_name", "split", "packed", "time", "json_")

    model_name: str
    """Model to score: its name in the workspace, or the path of its folder."""
    arch: str | None = None
    """Check that the model has this architecture."""
    split: Literal["test", "validation", "train"] = "test"
    """Rows to score; test: every test split of the task."""
    packed: bool = False
    """Score the student's packed file by compression.runtime, without PyTorch. Nothing is saved then."""
    time: bool = False
    """Also time the model: sentences per second, and milliseconds for a single sentence."""
    json_: bool = False
    """Print the rows of results.json to stdout instead of a table."""
