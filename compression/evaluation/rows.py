"""Rows of results.json."""

from typing import Any, NotRequired, TypedDict


class Row(TypedDict):
    """A model's scores on one split, its sizes, and how it was built. What is unknown or does not apply is None.

    Fields that are not required are of sweeps, of models that were timed, or of tasks with probabilities.
    """

    task: str
    split: str
    model: str
    stage: str
    """Last action: teacher, distilled, pruned, ...; packed: a packed file; peer: another library's model."""
    actions: NotRequired[list[str]]
    """Everything done to the model, in order."""
    student_arch: str | None
    embedding_type: str | None
    embedding_dim: int | None
    vocab_size: int | None
    alpha: float | None
    augmented: bool
    seed: int
    teacher: str | None
    select_on: str
    """Split that chose the weights."""
    run: str
    """Folder of the model."""
    config_hash: str
    """Key of the model."""
    made_from: NotRequired[list[str]]
    """Keys of the models that it was built from, its parent's first."""
    evaluation: NotRequired[str]
    """Key of the scores and predictions."""
    parameters: int | None
    nonzero_parameters: int | None
    trained_parameters: NotRequired[int]
    bytes_model: int | None
    bytes_gzip: int | None
    bytes_packed: int | None
    parts: dict[str, int]
    """Part of the model -> parameters."""
    settings: dict[str, Any]
    """Settings of the last action."""
    validation: dict[str, float] | None
    """Metric -> score on validation, from 0 to 1."""
    rows: int
    """Number of rows that were scored."""
    metrics: dict[str, float]
    """Metric -> score, from 0 to 1; the task's main metric first."""
    data: str | None
    """Fingerprint of the split."""
    ece: NotRequired[float]
    calibration: NotRequired[dict[str, Any] | None]
    threshold: NotRequired[float]
    seconds: dict[str, float | None]
    joules: NotRequired[dict[str, float]]
    speed: NotRequired[dict[str, Any]]
    run_id: NotRequired[str]
    """Run of a sweep."""
    cell: NotRequired[dict[str, str]]
    """Cell of a sweep: axis -> label."""
