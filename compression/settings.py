"""Settings of compress.py: the thesis's table C.3, every setting of configs/students, and what goes beyond them."""

from pathlib import Path
from typing import Any, Literal

import pydantic

from common.cli import StageSettings
from common.config import OLD_NAMES
from common.errors import UserError
from common.seeds import NAMED_SEEDS
from common.tasks import load_task
from compression.students.settings import StudentArch, StudentSettings, student_defaults

Action = Literal["distill", "prune", "quantize"]
PRUNE_SETTINGS = {"prune_magnitude", "prune_topv", "prune_threshold", "prune_local"}
QUANTIZE_SETTINGS = {"ptq_embedding", "dq_encoder", "dq_classifier", "ptq_classifier", "calibration_rows"}


class DistillSettings(StageSettings, StudentSettings):
    """Distillation: which student, from whom, on what, how."""

    student_arch: StudentArch = "bilstm"
    """Student architecture. The thesis's old name emb-ffn means ffn."""
    teacher: str | None = None
    """Teacher whose logits to learn from; unset means the task's only one."""
    augmented: str = "tinybert"
    """Augmented rows to train on beside the task's own."""
    only_original_data: bool = False
    """Leave augmented rows out."""
    bootstrap_data_ratio: float = pydantic.Field(1.0, gt=0, le=1)
    """Share of the augmented rows to learn from, drawn at random."""
    downsample_data: float = pydantic.Field(1.0, gt=0, le=1)
    """Share of the task's own rows to learn from, drawn at random; augmented rows made from others are left out too."""
    alpha: float = pydantic.Field(0.0, ge=0, le=1)
    """Weight of the labels: 1 learns from labels only, 0 from the teacher only."""
    loss: Literal["mse", "temperature-softmax", "kl"] = "mse"
    """Distillation loss: mse on logits, mse on temperature softmax (the thesis's FFN), or Hinton's T^2 KL."""
    temperature: float = pydantic.Field(3.0, gt=0)
    """Temperature of temperature-softmax and kl."""
    epochs: int = pydantic.Field(10, gt=0)
    """Passes over the training rows."""
    patience: int = pydantic.Field(5, gt=0)
    """Stop after this many epochs without a better validation score; the best weights are kept."""
    batch_size: int = pydantic.Field(64, gt=0)
    """Rows in a batch."""
    optimizer: Literal["adamw", "adam", "adadelta"] = "adamw"
    """Optimizer; adadelta with rho 0.95 is the thesis's for its BiLSTM."""
    lr: float = pydantic.Field(3e-3, gt=0)
    """Learning rate, the peak one with a linear schedule."""
    schedule: Literal["linear", "constant"] = "linear"
    """linear warms up over 5 % of training and falls to zero; constant is the thesis's."""
    weight_decay: float = pydantic.Field(0.0, ge=0)
    """Weight decay."""
    max_grad_norm: float = pydantic.Field(1.0, ge=0)
    """Norm that gradients are clipped to; 0 does not clip."""
    select_on: Literal["validation", "test"] = "validation"
    """Split that chooses the weights; test only to reproduce the thesis."""
    prune_aware: bool = False
    """Prune gradually while distilling, to the targets pruning would use."""


class CompressSettings(DistillSettings):
    """Everything compress.py can be told."""

    compression_actions: tuple[Action, ...] = ("distill",)
    """What to do, in this order: distill, prune, quantize."""
    load_trained_model: str | None = None
    """Start from this student instead of distilling one."""
    model_name: str | None = None
    """Name of the student; unset builds one from the settings. Pruning adds +p, quantizing +q."""
    seed_name: Literal["bennington", "hadfield", "feynman", "simone"] | None = None
    """The thesis's seeds by name: 3201976, 8291959, 5111918, 2211933."""
    prune_magnitude: bool = False
    """Prune weights whose absolute value is below --prune-threshold."""
    prune_topv: bool = False
    """Prune the smallest weights to a given sparsity; what happens when neither is asked for."""
    prune_threshold: float | None = pydantic.Field(None, ge=0)
    """Top-V: share of weights to prune, in [0, 1). Magnitude: absolute value, 0.05 when unset."""
    prune_local: bool = False
    """Prune each matrix apart, not all together, to --prune-threshold. Without one: table 6.3's targets."""
    ptq_embedding: bool = False
    """Quantize embeddings to 8 bits, one scale a vector (hash importance scalars to 16-bit floats)."""
    dq_encoder: bool = False
    """Quantize the encoder's matrices to 8 bits; its inputs are quantized as they come."""
    dq_classifier: bool = False
    """Quantize the classifier's matrices to 8 bits; its inputs are quantized as they come."""
    ptq_classifier: bool = False
    """Quantize the classifier's matrices to 8 bits; its inputs by ranges calibrated on training text."""
    calibration_rows: int = pydantic.Field(1024, gt=0)
    """Training rows used to calibrate --ptq-classifier."""

    @classmethod
    def translate(cls, layer: dict[str, Any]) -> dict[str, Any]:
        """emb-ffn is ffn; a seed's name is its number."""
        translated = dict(layer)
        if layer.get("student_arch") in OLD_NAMES:
            translated["student_arch"] = OLD_NAMES[layer["student_arch"]]
        if layer.get("seed_name") in NAMED_SEEDS:
            translated["seed"] = NAMED_SEEDS[translated.pop("seed_name")]
            if layer.get("seed", translated["seed"]) != translated["seed"]:
                raise UserError("--seed and --seed-name exclude each other")
        return translated

    @pydantic.model_validator(mode="after")
    def _check_actions(self) -> "CompressSettings":
        actions = self.compression_actions
        if len(set(actions)) != len(actions):
            raise ValueError("--compression-actions names an action twice")
        if "distill" in actions and actions[0] != "distill":
            raise ValueError("--compression-actions: distill comes first")
        if "distill" in actions and self.load_trained_model:
            raise ValueError(
                "--load-trained-model starts from a finished student: leave distill out of --compression-actions"
            )
        if "distill" not in actions and not self.load_trained_model:
            raise ValueError("without distill, --load-trained-model must name the student to compress")
        if self.prune_magnitude and self.prune_topv:
            raise ValueError("--prune-magnitude and --prune-topv exclude each other")
        if self.dq_classifier and self.ptq_classifier:
            raise ValueError("--dq-classifier and --ptq-classifier exclude each other")
        if not self.prune_magnitude and (self.prune_threshold or 0) >= 1:
            raise ValueError("--prune-threshold: a share of weights is below 1 (got " + str(self.prune_threshold) + ")")
        return self

    def student(self) -> StudentSettings:
        """The part that builds the student."""
        return StudentSettings(**{name: getattr(self, name) for name in StudentSettings.model_fields})


def defaults_for(given: dict[str, Any]) -> dict[str, Any]:
    """Defaults of the student architecture and task the user asks for: what lies below YAML and flags."""
    arch = given.get("student_arch", "bilstm")
    arch = OLD_NAMES.get(arch, arch)
    if not (Path(__file__).parent.parent / "configs" / "students" / f"{arch}.yaml").exists():
        return {}
    if "task" not in given:
        return student_defaults(arch, False)
    task = load_task(given["task"])
    # The other losses compare distributions over classes.
    return student_defaults(arch, task.pair) | ({"loss": "mse"} if task.regression else {})
