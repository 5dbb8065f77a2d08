"""Settings of compress.py: its actions on a student, in addition to the settings of distillation."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pydantic

from common.choices import described, one_of, used_by
from common.config import CONFIG_DIR, OLD_NAMES, Bytes, Settings, Uses, flag
from common.data.tasks import load_task
from common.errors import UserError
from common.store.settings import StageSettings
from common.store.workspace import Workspace, default_root
from common.training.models import GENERAL, ModelConfig, model_folder, read_config
from common.training.settings import LogitsSettings
from compression.distillation.settings import (
    OF_UNITS,
    THESIS_ARCHS,
    AlignSettings,
    DistillSettings,
    InitSettings,
    LossSettings,
    PretrainFlags,
    PretrainSettings,
    PruneSettings,
    RowsSettings,
    TrainSettings,
)
from compression.shrinking.choices import DECOMPOSITIONS, QUANTIZERS
from compression.students.settings import StudentFlags, student_defaults

Action = Literal["pretrain", "distill", "factorize", "prune", "quantize", "pack", "export"]
ORDER = get_args(Action)
Part = Literal["embedding", "encoder", "classifier"]
PARTS = get_args(Part)
Bits = Annotated[
    Literal[16, 8, 6, 4, 3, 2], pydantic.BeforeValidator(lambda value: int(value) if str(value).isdecimal() else value)
]


class FactorizeSettings(Settings):
    """Factorisation."""

    factorize: tuple[Part, ...] = PARTS
    """Parts whose matrices `factorize` replaces by products of two, where that is smaller."""
    rank: float = pydantic.Field(0.5, gt=0)
    """Rank of these products: a number of dimensions, or below 1 a share of each matrix's full rank."""
    decomposition: Literal[tuple(DECOMPOSITIONS)] = pydantic.Field(
        "svd", description=described("Form of the products; of the embedding always svd.", DECOMPOSITIONS)
    )

    @pydantic.field_validator("rank")
    @classmethod
    def _whole_above_1(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise ValueError("a rank of 1 or more must be a whole number")
        return value

    def _uses(self) -> Uses:
        yield set(self.factorize) - {"embedding"}, ["decomposition"], "with --factorize embedding alone"


class TuneSettings(Settings):
    """Tuning while or after shrinking."""

    tune_epochs: int = pydantic.Field(0, ge=0)
    """Epochs of training after factorising and pruning, or during it (--prune-movement), and during quantizing
    (quantization-aware training)."""
    tune_lr: float = pydantic.Field(1e-3, gt=0)
    """Learning rate of --tune-epochs (AdamW, linear)."""
    guide: Literal["teacher", "student"] = "teacher"
    """Logits that --tune-epochs learns from: the teacher's, or the student's own before it was shrunk."""


class QuantizeSettings(Settings):
    """Quantization."""

    quantizer: Literal[tuple(QUANTIZERS)] = pydantic.Field(
        "affine", description=described("How weights become codes.", QUANTIZERS)
    )
    bits: Bits = 8
    """Bits of a weight: of its code, or 16 for float16 numbers."""
    bits_embedding: Bits | None = None
    """Bits of the embedding's weights; unset: --bits."""
    bits_encoder: Bits | None = None
    """Bits of the encoder's weights; unset: --bits."""
    bits_classifier: Bits | None = None
    """Bits of the classifier's weights; unset: --bits."""
    granularity: Literal["row", "column", "tensor", "thesis"] | None = None
    """Unit with a range of its own: row, column or the whole matrix (tensor); thesis: rows of the embedding, and the
    whole of each other matrix; unset: row at plain 8 bits, else tensor."""
    ranges: Literal["fitted", "minmax"] = "fitted"
    """Ends of the codes' range: those of least error, or the smallest and largest weight."""
    rounding: Literal["nearest", "stochastic"] = "nearest"
    """Codes of weights during quantization-aware training: the nearest, or drawn so that their mean is the weight."""
    max_bytes: Bytes | None = None
    """Choose bits for each matrix so that the packed file has at most this many bytes."""
    max_loss: float | None = pydantic.Field(None, ge=0)
    """Choose the fewest bits that lose at most this many points of the validation score."""
    ptq_embedding: bool = False
    """Quantize only the embedding (and the parts that the next flags add)."""
    dq_encoder: bool = False
    """Quantize the encoder, and round its inputs to 8 bits by ranges measured for each input."""
    dq_classifier: bool = False
    """Quantize the classifier, and round its inputs to 8 bits by ranges measured for each input."""
    ptq_classifier: bool = False
    """Quantize the classifier, and round its inputs to 8 bits by ranges calibrated on training text."""
    calibration_rows: int = pydantic.Field(1024, gt=0)
    """Training rows used to calibrate --ptq-classifier."""

    @pydantic.model_validator(mode="after")
    def _check_quantizing(self) -> "QuantizeSettings":
        if self.max_bytes is not None and self.max_loss is not None:
            raise ValueError("--max-bytes and --max-loss exclude each other")
        if self.bits != 8 and self.chooses_bits:
            raise ValueError("--max-bytes and --max-loss choose the bits: leave --bits out")
        quantizer, name = QUANTIZERS[self.quantizer], f"--quantizer {self.quantizer}"
        if quantizer.values:
            flags = [f"--bits-{part}" for part in PARTS if self.bits_of(part) is not None]
            if flags or self.bits != 8:
                raise ValueError(f"{name} has {quantizer.values} values: leave {' '.join(flags) or '--bits'} out")
            if self.chooses_bits:
                raise ValueError(f"{name} cannot be combined with --max-bytes or --max-loss, which choose bits")
        if not quantizer.columns and self.granularity == "column":
            raise ValueError(f"{name} is for each row or for the whole matrix, not for columns")
        if self.rounding == "stochastic" and self.quantizer == "codebook":
            raise ValueError(f"--rounding stochastic: {name} has no even steps to round to")
        if not quantizer.thesis and 16 in (self.bits, *map(self.bits_of, PARTS)):
            raise ValueError(f"{name} has at most 8 bits; 16 bits are float16 numbers without codes")
        if self.dq_classifier and self.ptq_classifier:
            raise ValueError("--dq-classifier and --ptq-classifier exclude each other")
        return self

    def _uses(self) -> Uses:
        has_codes = self.chooses_bits or any((self.bits_of(part) or self.bits) < 16 for part in PARTS)
        yield has_codes, ["granularity", "ranges"], "with --bits 16"
        yield from used_by("quantizer", self.quantizer, QUANTIZERS)
        yield self.ptq_classifier, ["calibration_rows"], "without --ptq-classifier"

    @property
    def chooses_bits(self) -> bool:
        """Whether bits are chosen for each matrix."""
        return self.max_bytes is not None or self.max_loss is not None

    def bits_of(self, part: str) -> int | None:
        """Return the bits given for one part."""
        return getattr(self, f"bits_{part}")


class PackSettings(Settings):
    """Packing."""

    reject: float | None = pydantic.Field(None, gt=0, le=1)
    """Answer "none of these" to texts whose most probable label has a probability below a threshold, from which this
    share of the answers is right on validation; in place of the threshold for F1. It adds at most 8 bytes to the file,
    also to --max-bytes. Unset: each text gets a label."""


def _fields(*classes: type[Settings]) -> set[str]:
    return {name for cls in classes for name in cls.model_fields}


_BUILDING = {"model_name", "seed_name", "seed", "cpu"}  # of actions that build a student
_OF_STUDENT = {"load_trained_model", "student_arch"}  # of actions on a finished student
_SHRINKING = _BUILDING | _OF_STUDENT | {"tune_epochs"}
_TEACHING = {"teacher", *AlignSettings.model_fields} - {"align_first", "align_throughout"}
_EPOCHS = _fields(TrainSettings) - {"select_on", "refit", "average_epochs", "word_dropout"}
_TEXT = _fields(RowsSettings) - {"min_confidence"}  # of counting tokens
OF_TUNING = {"batch_size", "accumulate", "max_grad_norm", "precision", "select_on"}
"""Settings of training that tuning has too."""
READS: dict[str, set[str]] = {
    "pretrain": _BUILDING | _fields(StudentFlags, PretrainSettings) | _EPOCHS | _TEACHING | {"init_from_teacher"},
    "distill": _BUILDING
    | _fields(StudentFlags, LossSettings, RowsSettings, TrainSettings, InitSettings, AlignSettings)
    | {"teacher", "recipe"},
    "factorize": _SHRINKING | _fields(FactorizeSettings) | _TEXT,
    "prune": _SHRINKING | _fields(PruneSettings),
    "quantize": _SHRINKING | _fields(QuantizeSettings),
    "pack": _OF_STUDENT | _fields(PackSettings),
    "export": _OF_STUDENT,
    "prune_aware": _fields(PruneSettings) - {*OF_UNITS},
    "tune_epochs": OF_TUNING | _fields(LogitsSettings, RowsSettings) | _TEACHING | {"tune_lr", "guide"},
    "prune_vocabulary": _TEXT,
    "max_bytes": {"select_on"},
    "max_loss": {"select_on"},
}
"""Action, or setting that makes an action read more -> the settings read. All actions read those that are not here."""
_OF_ACTIONS = set().union(*READS.values())
_MANY = 25
"""Number of settings from which --help of an action shows only the usual ones."""
_USUAL = {"model_name", "augmented", "prune_aware", "corpus", "masked_lm_weight", "output_weight"}
"""Settings that --help of actions with many shows, in addition to `most_used` and those that have other defaults."""


class CompressSettings(PretrainFlags, QuantizeSettings, FactorizeSettings, TuneSettings, PackSettings, StageSettings):
    """Actions and names."""

    most_used = (
        *("task", "compression_actions", "student_arch", "embedding_type", "embedding_dim", "teacher"),
        *("alpha", "epochs", "only_original_data", "load_trained_model", "bits", "max_bytes"),
    )

    compression_actions: tuple[Action, ...] = ("distill",)
    """Actions, in this order: distill, factorize, prune, quantize, pack (a .fwt file), export (ONNX). pretrain is
    not combined with others: it trains, on plain text, a transformer that students of any task can start from."""
    load_trained_model: str | None = None
    """Start from this student instead of distilling one."""

    @pydantic.model_validator(mode="after")
    def _check_actions(self) -> "CompressSettings":
        actions = self.compression_actions
        if len(set(actions)) != len(actions):
            raise ValueError("--compression-actions names an action twice")
        if list(actions) != sorted(actions, key=ORDER.index):
            raise ValueError(f"--compression-actions: the order is {', '.join(ORDER)}")
        if "pretrain" in actions and len(actions) > 1:
            raise ValueError("pretrain cannot be combined with other actions; distil with --start-from later")
        if "pretrain" in actions and self.teacher is None:
            raise ValueError("pretrain needs --teacher: minilm, mpnet, a Hugging Face model's folder, or its name")
        if "distill" in actions and self.load_trained_model:
            raise ValueError("--load-trained-model starts from a finished student: leave distill out of the actions")
        if {"pretrain", "distill"}.isdisjoint(actions) and not self.load_trained_model:
            raise ValueError("without distill, --load-trained-model must name the student to compress")
        if "prune" in actions and self.prune_movement and not self.tune_epochs:
            raise ValueError("--prune-movement learns what to prune: give --tune-epochs, or distil with --prune-aware")
        return self

    @property
    def aligns_tuning(self) -> bool:
        """Whether --tune-epochs align the student with the teacher."""
        return self.aligns and self.tune_epochs > 0 and self.guide == "teacher"

    @classmethod
    def shown(cls, values: dict[str, Any], everything: bool) -> set[str]:
        """Return the settings that the given actions read, without actions all; of many, the usual ones."""
        actions = [action for action in ORDER if action in (values.get("compression_actions") or ())]
        if everything or not actions:
            return set(cls.model_fields) - (_OF_ACTIONS - reads(actions or ORDER))
        shown, usual = {"task"}, _USUAL.union(cls.most_used, values)
        for action in actions:
            shown |= READS[action] if len(READS[action]) < _MANY else READS[action] & usual
        return shown

    def _uses(self) -> Uses:
        guided = ("teacher", "alpha", "min_confidence", *AlignSettings.model_fields)
        pretrained, distilled = (action in self.compression_actions for action in ("pretrain", "distill"))
        taught = pretrained or not self.labels_alone
        yield taught, ["teacher", "loss", "temperature"], "with --alpha 1 --only-original-data"
        yield self.guide == "teacher" or pretrained or distilled, guided, "with --guide student"
        yield self.tune_epochs, ["rounding"], "without --tune-epochs"

    def unused(self) -> dict[str, str]:
        """Return the settings that no action reads, and those without effect given the other values."""
        unread = _OF_ACTIONS - reads(self.compression_actions, lambda name: getattr(self, name))
        return super().unused() | {name: f"without {', or '.join(_readers(name))}" for name in unread}


def reads(actions: Iterable[str], is_given: Callable[[str], object] = bool) -> set[str]:
    """Return the settings that some actions read, and not all do. is_given: whether settings add to them; all may."""
    read = set().union(*(READS[action] for action in actions))
    return read.union(*(READS[name] for name in read & READS.keys() if is_given(name)))


def _readers(name: str) -> list[str]:
    actions = [action for action in ORDER if name in READS[action]]
    flags = [flag(other) for other in READS if other not in ORDER and name in READS[other]]
    return [f"--compression-actions {one_of(actions)}", *flags] if actions else flags


def defaults_for(values: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults of the student architecture and task, which YAML and flags override."""
    before: dict[str, Any] = {}
    paths = Workspace(values.get("workspace", default_root()))
    general = _saved(model_folder(paths, GENERAL, values["start_from"])) if values.get("start_from") else None
    if general:
        before = {"student_arch": general.arch, **general.student}
    if "pretrain" in (values.get("compression_actions") or ()):
        before = {"task": GENERAL, "student_arch": "transformer", "embedding_type": "wordpiece"}
    values = {**before, **values}
    arch = values.get("student_arch", "bilstm")
    arch = OLD_NAMES.get(arch, arch)
    if not (CONFIG_DIR / "students" / f"{arch}.yaml").exists():
        return before
    if values.get("task", GENERAL) == GENERAL:
        return _at_batch_size(student_defaults(arch, False), values) | before
    task = load_task(values["task"])
    usual = _at_batch_size(student_defaults(arch, task.pair), values)
    if values.get("recipe") == "thesis" and arch in THESIS_ARCHS:
        usual |= student_defaults(f"thesis/{arch}", task.pair)
    if not task.kind.has_distributions:
        usual["loss"] = "mse"
    if values.get("pair_encoder", "compare") != "compare":
        usual["symmetric"] = task.symmetric
    name = values.get("load_trained_model")
    config = _saved(model_folder(paths, task.models_task, name)) if name else None
    return usual | before | (_recipe(config) if config and config.kind == "student" else {})


def _saved(folder: Path) -> ModelConfig | None:
    """Return the config of a saved student; None for a missing one, which is reported later."""
    try:
        return read_config(folder)
    except UserError:
        return None


def _at_batch_size(usual: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Scale the default learning rate by the square root of the batch size, as Adam needs (Malladi et al., 2022)."""
    size = values.get("batch_size")
    if size is None or not str(size).isdecimal() or "lr" in values:
        return usual
    return {**usual, "lr": round(usual["lr"] * (int(size) / usual["batch_size"]) ** 0.5, 6)}


def _recipe(config: ModelConfig) -> dict[str, Any]:
    """Return the settings of a student's distillation: tuning uses them unless flags override them."""
    others = {name for group in (PruneSettings, StageSettings) for name in group.model_fields}
    recipe = {"student_arch": config.arch, "teacher": config.teacher, **config.distillation}
    recipe = {key: value for key, value in recipe.items() if key in DistillSettings.model_fields.keys() - others}
    return {**recipe, "seed": config.seed}  # which draws the same rows again
