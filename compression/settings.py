"""Settings of compress.py: the thesis's table C.3, every setting of configs/students, and what goes beyond them."""

from typing import Annotated, Any, Literal, get_args

import pydantic

from common.config import CONFIG_DIR, OLD_NAMES, Settings
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.seeds import NAMED_SEEDS
from common.store.settings import StageSettings
from common.store.workspace import Workspace, default_root
from common.training.models import GENERAL, model_folder, read_config
from compression.students.settings import StudentArch, StudentSettings, student_defaults

Action = Literal["pretrain", "distill", "factorize", "prune", "quantize", "pack", "export"]
ORDER = get_args(Action)
Bits = Annotated[
    Literal[8, 6, 4, 3, 2], pydantic.BeforeValidator(lambda value: int(value) if str(value).isdecimal() else value)
]
LayerNumbers = Annotated[tuple[str, ...], pydantic.BeforeValidator(lambda value: _words(value))]
"""A name of a way to choose layers, or numbers of layers; in YAML these may be bare."""
_ALIASES = {"hidden_dim": "encoder_hidden_dim", "embedding_rank": "embedding_dim"}


def _words(value: Any) -> Any:
    """A word, a number or several of them as texts."""
    several = value if isinstance(value, list | tuple) else (value,)
    return tuple(str(one) if isinstance(one, int) else one for one in several)


class RowsSettings(Settings):
    """Training rows."""

    augmented: str = "tinybert"
    """Name of the augmented rows to train on, in addition to the task's own."""
    only_original_data: bool = False
    """Train on the task's own rows alone, without augmented ones."""
    bootstrap_data_ratio: float = pydantic.Field(1.0, gt=0, le=1)
    """Share of the augmented rows to train on, drawn at random."""
    downsample_data: float = pydantic.Field(1.0, gt=0, le=1)
    """Share of the task's own rows to train on, drawn at random; augmented rows of the others are left out too."""


class InitSettings(Settings):
    """Initialisation."""

    embedding_init: Literal["vectors", "teacher"] = "vectors"
    """Initial embeddings of byte pairs: BPEmb's or word2vec's vectors, or the teacher's embedding of each pair."""
    start_from: str | None = None
    """General student (from `pretrain`) whose embedding and layers a transformer starts from: its name, or folder."""
    adapter_tuning: bool = False
    """Train only adapters and classifier of a student that starts from a general one; they are saved separately."""
    init_from_teacher: LayerNumbers = ()
    """Layers of the teacher that a transformer is initialised with: every-other, first, last, or numbers from 0."""


class AlignSettings(Settings):
    """Teacher alignment."""

    align_hidden: float = pydantic.Field(0.0, ge=0)
    """Weight of the loss between a transformer's hidden states and its teacher's, layer by layer."""
    align_attention: float = pydantic.Field(0.0, ge=0)
    """Weight of the loss between attention maps, layer by layer."""
    align_embedding: float = pydantic.Field(0.0, ge=0)
    """Weight of the loss between the embeddings that the first layers read."""
    hidden_loss: Literal["mse", "cosine"] = "mse"
    """Loss between hidden states; where widths differ, a learned projection comes first."""
    attention_loss: Literal["mse", "kl"] = "mse"
    """Loss between attention maps."""
    layer_map: LayerNumbers = ("uniform",)
    """The teacher's layer for each of the student's: uniform, last, or numbers from 0."""
    align_first: int = pydantic.Field(0, ge=0)
    """Epochs of alignment alone before the others, as in TinyBERT; logits and labels come later."""

    @property
    def aligns(self) -> bool:
        """Whether any hidden states, attention maps or embeddings are compared with the teacher's."""
        return self.align_hidden > 0 or self.align_attention > 0 or self.align_embedding > 0

    @pydantic.model_validator(mode="after")
    def _check_alignment(self) -> "AlignSettings":
        if self.align_first and not self.aligns:
            raise ValueError("--align-first: say what to align: --align-hidden, --align-attention, --align-embedding")
        return self


class TrainSettings(Settings):
    """Training."""

    epochs: int = pydantic.Field(10, gt=0)
    """Passes over the training rows."""
    patience: int = pydantic.Field(5, gt=0)
    """Stop after this many epochs without a better validation score; the best weights are kept."""
    batch_size: int = pydantic.Field(64, gt=0)
    """Rows in a batch."""
    optimizer: Literal["adamw", "adam", "adadelta"] = "adamw"
    """Optimizer; adadelta with rho 0.95 is the thesis's for its BiLSTM."""
    lr: float = pydantic.Field(3e-3, gt=0)
    """Learning rate; with a linear schedule the peak. When unset, the architecture's default is scaled by the square
    root of --batch-size."""
    schedule: Literal["linear", "constant"] = "linear"
    """linear: warm up over 5 % of training, then fall to zero; constant: the thesis's."""
    weight_decay: float = pydantic.Field(0.0, ge=0)
    """Weight decay."""
    max_grad_norm: float = pydantic.Field(1.0, ge=0)
    """Norm that gradients are clipped to; 0: no clipping."""
    select_on: Literal["validation", "test"] = "validation"
    """Split that chooses the weights; test only to reproduce the thesis."""


class LossSettings(Settings):
    """Distillation."""

    student_arch: StudentArch = "bilstm"
    """Student architecture. The thesis's old name emb-ffn means ffn."""
    alpha: float = pydantic.Field(0.0, ge=0, le=1)
    """Weight of the labels: 1 learns from labels only, 0 from the teacher only."""
    loss: Literal["mse", "temperature-softmax", "kl"] = "mse"
    """Distillation loss: mse of logits, mse of softmax with temperature (the thesis's for FFN), or Hinton's T^2 KL."""
    temperature: float = pydantic.Field(3.0, gt=0)
    """Temperature of temperature-softmax and kl."""
    prune_aware: bool = False
    """Prune gradually while distilling, to the targets that pruning would use."""


class DistillSettings(
    StudentSettings, LossSettings, RowsSettings, TrainSettings, InitSettings, AlignSettings, StageSettings
):
    """Distillation."""

    teacher: str | None = None
    """Teacher whose logits to learn from; unset: the task's only one."""

    @pydantic.model_validator(mode="after")
    def _check_pooling(self) -> "DistillSettings":
        if self.student_arch == "conv" and self.pooling == "last":
            raise ValueError("--pooling last: a convolution has no last state; use max")
        return self

    @pydantic.model_validator(mode="after")
    def _check_heads(self) -> "DistillSettings":
        if self.student_arch in ("transformer", "recursive") and self.encoder_hidden_dim % self.heads:
            raise ValueError(f"--heads {self.heads} does not divide the layers' width of {self.encoder_hidden_dim}")
        return self

    @pydantic.model_validator(mode="after")
    def _check_adapters(self) -> "DistillSettings":
        if self.adapter_tuning and (not self.start_from or not self.adapters):
            raise ValueError("--adapter-tuning: --start-from says what stays as it is, --adapters how wide they are")
        if self.adapter_tuning and self.prune_aware:
            raise ValueError("--adapter-tuning and --prune-aware exclude each other: adapters leave weights unchanged")
        return self

    @pydantic.model_validator(mode="after")
    def _check_init(self) -> "DistillSettings":
        if self.embedding_init == "teacher" and self.embedding_type != "bpe":
            raise ValueError(f"--embedding-init teacher is for byte pairs (--embedding-type is {self.embedding_type})")
        return self


class PretrainSettings(Settings):
    """Pre-training on plain text."""

    corpus: str | None = None
    """Text to pre-train on: a file with one text a line, or a task, for its prepared train rows."""
    masked_lm_weight: float = pydantic.Field(1.0, ge=0)
    """Weight of the masked-language-modelling loss."""
    output_weight: float | None = pydantic.Field(None, ge=0)
    """Weight of the KL divergence from the teacher's predictions; unset: 1 if the teacher has a head for them."""


class PruneSettings(Settings):
    """Pruning."""

    prune_magnitude: bool = False
    """Prune weights whose absolute value is below --prune-threshold."""
    prune_topv: bool = False
    """Prune the smallest weights to a given sparsity; the default way to prune."""
    prune_threshold: float | None = pydantic.Field(None, ge=0)
    """Top-V: share of weights to prune, in [0, 1). Magnitude: absolute value, 0.05 when unset."""
    prune_local: bool = False
    """Prune each matrix to --prune-threshold by itself, better at high sparsity than all together; without a threshold
    to table 6.3."""
    prune_movement: bool = False
    """Prune by learned scores instead of magnitudes: while distilling with --prune-aware, else while tuning."""
    prune_units: float = pydantic.Field(0.0, ge=0, lt=1)
    """Share of the encoder's units and the classifier's hidden units to remove: the matrices shrink."""
    prune_vocabulary: int = pydantic.Field(0, ge=0)
    """Remove byte pairs (zero hash rows) that occur fewer than this many times in the training text."""


class FactorizeSettings(Settings):
    """Factorisation."""

    factorize: tuple[Literal["embedding", "encoder", "classifier"], ...] = ("embedding", "encoder", "classifier")
    """Parts whose matrices `factorize` replaces by products of two, where that is smaller."""
    rank: float = pydantic.Field(0.5, gt=0)
    """Rank of these products: a number of dimensions, or below 1 a share of each matrix's full rank."""


class TuneSettings(Settings):
    """Tuning while or after shrinking."""

    tune_epochs: int = pydantic.Field(0, ge=0)
    """Epochs of training after (or while) factorising, pruning and quantizing; quantizing is quantization-aware."""
    tune_lr: float = pydantic.Field(1e-3, gt=0)
    """Learning rate of --tune-epochs (AdamW, linear)."""
    guide: Literal["teacher", "student"] = "teacher"
    """Logits that --tune-epochs learns from: the teacher's, or the student's own before it was shrunk."""


class QuantizeSettings(Settings):
    """Quantization."""

    quantizer: Literal["affine", "ternary", "codebook"] = "affine"
    """How weights become codes: evenly spaced values, three values, or k-means centroids."""
    bits: Bits = 8
    """Bits of a code."""
    bits_embedding: Bits | None = None
    """Bits of the embedding's codes; unset: --bits."""
    bits_encoder: Bits | None = None
    """Bits of the encoder's codes; unset: --bits."""
    bits_classifier: Bits | None = None
    """Bits of the classifier's codes; unset: --bits."""
    granularity: Literal["row", "column", "tensor"] | None = None
    """Unit with a range of its own: row, column or the whole matrix; unset: row at plain 8 bits, else tensor."""
    ranges: Literal["fitted", "minmax"] = "fitted"
    """Ends of the codes' range: those of least error, or the smallest and largest weight."""
    max_bytes: int | None = pydantic.Field(None, gt=0)
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


class Recipe(Settings):
    """How a student learns: everything about it but its own shape, its rows and its teacher."""

    objective: LossSettings
    rows: RowsSettings
    train: TrainSettings
    init: InitSettings
    align: AlignSettings | None
    prune: PruneSettings | None


class CompressSettings(
    DistillSettings, PruneSettings, QuantizeSettings, FactorizeSettings, TuneSettings, PretrainSettings, StageSettings
):
    """Actions and names."""

    most_used = (
        *("task", "compression_actions", "student_arch", "embedding_type", "embedding_dim", "teacher"),
        *("alpha", "epochs", "only_original_data", "load_trained_model", "bits", "max_bytes"),
    )

    compression_actions: tuple[Action, ...] = ("distill",)
    """Actions, in this order: distill, factorize, prune, quantize, pack (a .fwt file), export (ONNX). pretrain stands
    alone: it trains, on plain text, a transformer that students of any task can start from."""
    load_trained_model: str | None = None
    """Start from this student instead of distilling one."""
    model_name: str | None = None
    """Name of the student; unset: built from the settings. Factorising adds +f, pruning +p, quantizing +q."""
    seed_name: Literal["bennington", "hadfield", "feynman", "simone"] | None = None
    """The thesis's seeds by name: 3201976, 8291959, 5111918, 2211933."""
    hidden_dim: int | None = pydantic.Field(None, gt=0)
    """Width of a transformer's layers: another name of --encoder-hidden-dim."""
    embedding_rank: int | None = pydantic.Field(None, gt=0)
    """Width of the embedding, factorised where smaller than the layers' width: another name of --embedding-dim."""

    @classmethod
    def translate(cls, layer: dict[str, Any]) -> dict[str, Any]:
        """emb-ffn is ffn; a seed's name is its number; a transformer's widths have the names of its papers too."""
        translated = dict(layer)
        for alias, name in _ALIASES.items():
            if translated.get(alias) is not None:
                translated[name] = translated.pop(alias)
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
        if list(actions) != sorted(actions, key=ORDER.index):
            raise ValueError(f"--compression-actions: the order is {', '.join(ORDER)}")
        if "pretrain" in actions:
            self._check_pretraining()
            return self
        if "distill" in actions and self.load_trained_model:
            raise ValueError(
                "--load-trained-model starts from a finished student: leave distill out of --compression-actions"
            )
        if "distill" not in actions and not self.load_trained_model:
            raise ValueError("without distill, --load-trained-model must name the student to compress")
        if sum([self.prune_magnitude, self.prune_topv, self.prune_movement]) > 1:
            raise ValueError("--prune-magnitude, --prune-topv and --prune-movement exclude each other")
        if self.max_bytes is not None and self.max_loss is not None:
            raise ValueError("--max-bytes and --max-loss exclude each other")
        if self.bits != 8 and (self.max_bytes or self.max_loss is not None):
            raise ValueError("--max-bytes and --max-loss choose the bits: leave --bits out")
        if self.bits != 8 and self.quantizer == "ternary":
            raise ValueError("--quantizer ternary has three values: leave --bits out")
        if self.dq_classifier and self.ptq_classifier:
            raise ValueError("--dq-classifier and --ptq-classifier exclude each other")
        if not self.prune_magnitude and (self.prune_threshold or 0) >= 1:
            raise ValueError("--prune-threshold: a share of weights is below 1 (got " + str(self.prune_threshold) + ")")
        return self

    def _check_pretraining(self) -> None:
        if len(self.compression_actions) > 1:
            raise ValueError("--compression-actions pretrain stands alone: tasks start from it with --start-from")
        if self.load_trained_model or self.start_from or self.init_from_teacher:
            raise ValueError("pretrain starts afresh: no --load-trained-model, --start-from, --init-from-teacher")
        if self.teacher is None:
            raise ValueError("pretrain: --teacher says from whom: minilm, a Hugging Face model's folder, or its name")

    def recipe(self) -> Recipe:
        """Return how a student learns; groups that are not in use are left out."""
        return Recipe(
            objective=self.part(LossSettings),
            rows=self.part(RowsSettings),
            train=self.part(TrainSettings),
            init=self.part(InitSettings),
            align=self.part(AlignSettings) if self.aligns else None,
            prune=self.part(PruneSettings) if self.prune_aware else None,
        )

    def student(self) -> StudentSettings:
        """The part that builds the student."""
        return self.part(StudentSettings)


def defaults_for(given: dict[str, Any]) -> dict[str, Any]:
    """Defaults of the student architecture and task the user asks for: what lies below YAML and flags."""
    before = _shape_of_start(given)
    if "pretrain" in (given.get("compression_actions") or ()):
        before = {"task": GENERAL, "student_arch": "transformer", "embedding_type": "wordpiece"}
    given = {**before, **given}
    arch = given.get("student_arch", "bilstm")
    arch = OLD_NAMES.get(arch, arch)
    if not (CONFIG_DIR / "students" / f"{arch}.yaml").exists():
        return before
    if given.get("task", GENERAL) == GENERAL:
        return _at_batch_size(student_defaults(arch, False), given) | before
    task = load_task(given["task"])
    usual = _at_batch_size(student_defaults(arch, task.pair), given)
    # The other losses compare distributions over classes.
    return usual | ({"loss": "mse"} if task.regression else {}) | before | _recipe_of(given, task)


def _shape_of_start(given: dict[str, Any]) -> dict[str, Any]:
    """The shape of the general student to start from. A missing one is reported later."""
    if not given.get("start_from"):
        return {}
    try:
        paths = Workspace(given.get("workspace", default_root()))
        config = read_config(model_folder(paths, GENERAL, given["start_from"]))
    except UserError:
        return {}
    return {"student_arch": config.arch, **config.student}


def _at_batch_size(usual: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The usual learning rate changes with the root of the batch size, as Adam wants it (Malladi et al., 2022)."""
    size = given.get("batch_size")
    if size is None or not str(size).isdecimal() or "lr" in given:
        return usual
    return {**usual, "lr": round(usual["lr"] * (int(size) / usual["batch_size"]) ** 0.5, 6)}


def _recipe_of(given: dict[str, Any], task: Task) -> dict[str, Any]:
    """How the student to start from was distilled: tuning goes on in the same way where the flags do not say otherwise.

    A missing student is reported later.
    """
    name = given.get("load_trained_model")
    if not name:
        return {}
    paths = Workspace(given.get("workspace", default_root()))
    try:
        config = read_config(model_folder(paths, task.models_task, name))
    except UserError:
        return {}
    known = set(DistillSettings.model_fields) - set(StageSettings.model_fields)
    recipe = {"student_arch": config.arch, "teacher": config.teacher, **config.distillation}
    return {key: value for key, value in recipe.items() if key in known} if config.kind == "student" else {}
