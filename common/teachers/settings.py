"""Settings of fine-tuning, in a module of their own so that --help does not wait for PyTorch."""

from pathlib import Path
from typing import Any

import pydantic

from common.config import CONFIG_DIR, Settings, Uses, flag, load_yaml
from common.devices import Precision
from common.store.files import folder_name
from common.store.settings import StageSettings
from common.teachers.packages import MPNET
from common.training.settings import LogitsSettings

LINEAR = "linear"
"""--arch of a linear model on tf-idf."""
FAIRSEQ_ARCHS = ("roberta_base", "roberta_large")


def is_fairseq(arch: str) -> bool:
    """Return whether fairseq fine-tunes an --arch: an official RoBERTa, or a folder with fairseq's model.pt.

    Everything else is for Hugging Face.
    """
    return arch in FAIRSEQ_ARCHS or (Path(arch) / "model.pt").exists()


class TeacherTraining(Settings):
    """Training."""

    downsample_data: float = pydantic.Field(1.0, gt=0, le=1)
    """Share of the training rows to learn from, drawn at random."""
    batch_size: int = pydantic.Field(32, gt=0)
    """Rows in a batch."""
    max_epochs: int = pydantic.Field(3, gt=0)
    """Passes over the training rows at most; the best one on validation is kept."""
    stop_after: int | None = pydantic.Field(None, gt=0)
    """Stop after this many epochs, while the schedule is that of --max-epochs; unset: train for all of them."""
    max_updates: int | None = pydantic.Field(None, gt=0)
    """RoBERTa: steps of the optimizer at most."""
    patience: int = pydantic.Field(2, gt=0)
    """Stop after this many epochs without a better validation score."""
    lr: float = pydantic.Field(1e-4, gt=0)
    """Peak learning rate of AdamW, warmed up and then lowered linearly to zero."""
    warmup: float = pydantic.Field(0.06, ge=0, lt=1)
    """Share of training over which the learning rate rises."""
    weight_decay: float = pydantic.Field(0.01, ge=0)
    """Weight decay of AdamW."""
    max_tokens: int = pydantic.Field(128, gt=2)
    """Word pieces at which a row (a pair counts as one) is cut; for questions, the length of a window."""
    attention_dropout: float | None = pydantic.Field(None, ge=0, lt=1)
    """Share of the attention weights that training sets to zero; unset: the encoder's own value. 0 halves the
    time of training on texts of hundreds of tokens on a CPU."""
    freeze_embeddings: bool = True
    """Do not train the word embeddings: much faster on a CPU, and no worse in our runs."""
    adapters: int = pydantic.Field(0, ge=0)
    """Width of bottleneck adapters, two a layer: they and the head alone are trained, and saved apart from the encoder,
    which is not copied. 0: the whole encoder is trained. Adapters need a higher --lr (unset: 0.001)."""
    precision: Precision = "auto"
    """Arithmetic: auto, fp32, bf16 or fp16; auto is bf16 where the hardware has it."""
    fp16: bool = False
    """Train with 16-bit floats: the thesis's flag, the same as --precision fp16."""
    select_on: str = pydantic.Field("validation", pattern="^(validation|test)$")
    """Split that chooses the checkpoint; test only to reproduce the thesis."""

    @property
    def arithmetic(self) -> Precision:
        """Precision to train with."""
        return "fp16" if self.fp16 else self.precision


class GuidanceSettings(LogitsSettings):
    """Distillation."""

    augmented: str | None = None
    """With --teacher: name of augmented rows to learn from too; their labels are the teacher's choices."""


class FinetuneSettings(TeacherTraining, GuidanceSettings, StageSettings):
    """Fine-tuning (the thesis's table C.1, and more)."""

    most_used = (
        *("task", "arch", "model_name", "max_epochs", "batch_size", "lr", "as_is", "ensemble", "adapters"),
        *("teacher", "alpha"),
    )

    arch: str = "minilm"
    """Encoder to start from: minilm or mpnet (packaged), roberta_base, roberta_large or a folder (fairseq), or the name
    or folder of any Hugging Face encoder. configs/teachers has mpnet's and RoBERTa's defaults. linear: no encoder, but
    logistic regression (for numbers ridge regression) on tf-idf of words and characters, which takes seconds."""
    frozen: bool = False
    """Do not train the encoder: fit logistic (or ridge) regression to its vectors of the texts, which are cached. The
    unset name of the teacher ends in -frozen."""
    as_is: bool = False
    """Import --arch without training: a classifier that is already fine-tuned for the task's labels. It may also be
    TASK/NAME, a teacher in the workspace."""
    ensemble: tuple[str, ...] = ()
    """Names of two or more teachers of the task: their mean logits are the new teacher's, and nothing is trained."""
    teacher: str | None = None
    """Another teacher of the task, whose logits this one learns as a student does (a teacher assistant). Unset: learn
    from the labels."""
    model_name: str | None = None
    """Name to save the teacher under; unset: the encoder's name, or ensemble."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> "FinetuneSettings":
        if self.fp16 and self.precision not in ("auto", "fp16"):
            raise ValueError(f"--fp16 contradicts --precision {self.precision}")
        if self.adapters and (self.as_is or self.ensemble):
            raise ValueError("--adapters need training, but --as-is and --ensemble do not train")
        if self.frozen and (self.as_is or self.ensemble or self.adapters or self.teacher):
            raise ValueError("--frozen learns from labels alone: without --as-is, --ensemble, --adapters, --teacher")
        for field in ("adapters", "frozen", "stop_after", "teacher"):
            if getattr(self, field) and is_fairseq(self.arch):
                raise ValueError(f"{flag(field)} is for Hugging Face encoders, not for fairseq's {self.arch}")
        if self.frozen and self.is_linear:
            raise ValueError("--frozen is for Hugging Face encoders, not for --arch linear")
        if self.is_linear and (self.as_is or self.adapters or self.teacher):
            raise ValueError("--arch linear learns from labels alone: without --as-is, --adapters, --teacher")
        if self.ensemble and self.as_is:
            raise ValueError("--ensemble and --as-is exclude each other")
        if self.teacher and self.alpha == 1 and not self.augmented:
            raise ValueError("--teacher has no effect with --alpha 1, which learns from labels only")
        if len(self.ensemble) == 1 or len(set(self.ensemble)) < len(self.ensemble):
            raise ValueError("--ensemble takes two or more teachers, each once")
        return self

    def _uses(self) -> Uses:
        guidance = set(GuidanceSettings.model_fields)
        training = {*TeacherTraining.model_fields, *guidance, "teacher"}
        yield self.teacher, guidance, "without --teacher"
        yield not self.adapters, ["freeze_embeddings"], "with --adapters: the encoder is frozen"
        yield not self.as_is, {*training, "seed", "cpu"} - {"max_tokens"}, "with --as-is: nothing is trained"
        yield not self.ensemble, {*training, "arch", "seed", "cpu"}, "with --ensemble: nothing is trained"
        yield not self.is_linear, {*training, "cpu"}, "with --arch linear"
        yield not self.frozen, training - {"max_tokens", "precision", "fp16"}, "with --frozen"

    @property
    def is_linear(self) -> bool:
        """Whether a linear model on tf-idf is asked for."""
        return self.arch == LINEAR and not self.ensemble

    @property
    def encoder(self) -> str:
        """The --arch; folders, and mpnet's, as absolute paths, or as ./paths from the workspace that they are in."""
        folder = self.paths.downloads() / MPNET if self.arch == "mpnet" else Path(self.arch)
        if not folder.is_dir():
            return self.arch
        path = self.paths.relative(folder)
        return path if Path(path).is_absolute() else f"./{path}"

    @property
    def name(self) -> str:
        """Name that the teacher is saved under."""
        if self.model_name or self.ensemble:
            return self.model_name or "ensemble"
        encoder = folder_name(Path(self.arch))
        return f"{encoder}-frozen" if self.frozen else encoder


def defaults_for(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults, below YAML and flags, of the chosen encoder: MPNet's, or a RoBERTa's for the chosen task."""
    arch = str(chosen.get("arch", ""))
    name = "roberta" if is_fairseq(arch) else arch
    values = load_yaml(CONFIG_DIR / "teachers" / f"{name}.yaml") if name in ("mpnet", "roberta") else {}
    recipes = values.pop("tasks", {})
    values |= recipes.get(chosen.get("task"), {})
    if str(chosen.get("adapters", 0)) != "0" and name != "roberta":
        values["lr"] = 1e-3
    return values
