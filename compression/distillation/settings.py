"""Settings of training a student: the thesis's table C.3, every setting of configs/students, and extensions."""

from typing import Annotated, Any, Literal

import pydantic

from common.config import OLD_NAMES, OneOrMore, Settings, Uses
from common.errors import UserError
from common.seeds import NAMED_SEEDS
from common.store.settings import StageSettings
from common.training.distillation_losses import LOSSES
from common.training.settings import LogitsSettings
from compression.students.settings import ArchSettings, StudentFlags

SentenceTask = Literal["order", "next"]
THESIS_ARCHS = ("bilstm", "rnn", "ffn")
"""The thesis's students, with --recipe thesis."""
_ALIASES = {"hidden_dim": "encoder_hidden_dim", "embedding_rank": "embedding_dim"}


Words = OneOrMore[Annotated[str, pydantic.BeforeValidator(lambda word: str(word) if isinstance(word, int) else word)]]
"""One name or number, or several: YAML may give bare numbers."""


class NameSettings(StageSettings):
    """Actions and names."""

    model_name: str | None = None
    """Name of the student; unset: built from the settings. Factorising adds +f, pruning +p, quantizing +q."""
    seed_name: Literal["bennington", "hadfield", "feynman", "simone"] | None = None
    """The thesis's seeds by name: 3201976, 8291959, 5111918, 2211933."""
    recipe: Literal["thesis"] | None = None
    """thesis: other defaults of optimizer, learning rate, schedule, batch size and pooling, those of the thesis for its
    bilstm, rnn and ffn (configs/students/thesis)."""

    @classmethod
    def translate(cls, layer: dict[str, Any]) -> dict[str, Any]:
        """Replace emb-ffn by ffn, a seed's name by its number, and the papers' names of a transformer's widths."""
        translated = dict(layer)
        for alias, name in _ALIASES.items():
            if translated.get(alias) is not None:
                translated[name] = translated.pop(alias)
        if str(layer.get("student_arch")) in OLD_NAMES:
            translated["student_arch"] = OLD_NAMES[layer["student_arch"]]
        if str(layer.get("seed_name")) in NAMED_SEEDS:
            translated["seed"] = NAMED_SEEDS[translated.pop("seed_name")]
            if layer.get("seed", translated["seed"]) != translated["seed"]:
                raise UserError("--seed and --seed-name exclude each other")
        return translated


class RowsSettings(Settings):
    """Training rows."""

    augmented: Words = ("tinybert",)
    """Names of the augmented rows to train on, in addition to the task's own."""
    only_original_data: bool = False
    """Train on the task's own rows alone, without augmented ones."""
    bootstrap_data_ratio: float = pydantic.Field(1.0, gt=0, le=1)
    """Share of the augmented rows to train on, drawn at random."""
    min_confidence: float = pydantic.Field(0.0, ge=0, lt=1)
    """Train only on augmented rows for which the teacher's choice has at least this probability; of several labels, or
    words, this applies to its least certain choice."""
    downsample_data: float = pydantic.Field(1.0, gt=0, le=1)
    """Share of the task's own rows to train on, drawn at random; augmented rows of the others are left out too."""

    @property
    def augmented_sets(self) -> tuple[str, ...]:
        """Names of the augmented rows to learn from, without duplicates."""
        return () if self.only_original_data else tuple(dict.fromkeys(self.augmented))

    def _uses(self) -> Uses:
        augmented = ("augmented", "bootstrap_data_ratio", "min_confidence")
        yield not self.only_original_data, augmented, "with --only-original-data"


class InitSettings(Settings):
    """Initialisation."""

    embedding_init: str = "vectors"
    """Initial embeddings of byte pairs: vectors (BPEmb's or word2vec's), teacher (the teacher's hidden states of each
    pair), the name of another teacher of the task (for a teacher that was imported as logits), logits (from the
    teacher's logits over the texts with this pair), or random, which takes no time. Those of n-grams are random unless
    they are a teacher's or from logits."""
    start_from: str | None = None
    """General student (from `pretrain`) whose embedding and layers a transformer starts from: its name, or folder."""
    adapter_tuning: bool = False
    """Train only adapters and classifier of a student that starts from a general one; they are saved separately."""
    init_from_teacher: Words = ()
    """Layers of the teacher that a transformer is initialised with: every-other, first, last, or numbers from 0."""

    def _uses(self) -> Uses:
        yield not self.start_from, ["init_from_teacher"], "with --start-from, which replaces the same weights"


class AlignSettings(Settings):
    """Teacher alignment."""

    align_hidden: float = pydantic.Field(0.0, ge=0)
    """Weight of the loss between a transformer's hidden states and its teacher's, layer by layer."""
    align_attention: float = pydantic.Field(0.0, ge=0)
    """Weight of the loss between attention heads, layer by layer."""
    align_last: float = pydantic.Field(0.0, ge=0)
    """Weight of the loss between the last hidden states alone, whatever the number of layers, as in DistilBERT."""
    align_embedding: float = pydantic.Field(0.0, ge=0)
    """Weight of the loss between the embeddings that the first layers read."""
    hidden_loss: Literal["mse", "cosine"] = "mse"
    """Loss between hidden states; where widths differ, a learned projection comes first."""
    attention_loss: Literal["mse", "kl"] = "mse"
    """Loss between attention heads."""
    attention_states: Literal["scores", "probabilities"] | None = None
    """Attention that --attention-loss mse compares: scores before the softmax, as in TinyBERT, or probabilities after
    it; unset: scores. kl compares probabilities."""
    layer_map: Words = ("uniform",)
    """The teacher's layer for each of the student's: uniform, last, or numbers from 0."""

    align_first: int = pydantic.Field(0, ge=0)
    """Number of first epochs that learn from alignment alone; the others then learn from logits and labels alone, as in
    TinyBERT. 0: every epoch learns from all of them."""
    align_throughout: bool = False
    """Keep the alignment loss in the epochs after --align-first."""

    @property
    def aligns(self) -> bool:
        """Whether hidden states, attention heads or embeddings are compared with the teacher's."""
        return self.aligns_states or self.align_attention > 0

    @property
    def aligns_states(self) -> bool:
        """Whether hidden states or embeddings are compared with the teacher's."""
        return self.align_hidden > 0 or self.align_last > 0 or self.align_embedding > 0

    @property
    def compared_attention(self) -> Literal["scores", "probabilities"] | None:
        """Form in which attention heads are compared; None if they are not."""
        if not self.align_attention:
            return None
        if self.attention_loss == "kl":
            return "probabilities"
        return self.attention_states or "scores"

    @pydantic.model_validator(mode="after")
    def _check_alignment(self) -> "AlignSettings":
        if self.attention_loss == "kl" and self.attention_states == "scores":
            raise ValueError("--attention-loss kl compares probabilities, not --attention-states scores")
        if self.align_first and not self.aligns:
            flags = "--align-hidden, --align-last, --align-attention or --align-embedding"
            raise ValueError(f"--align-first needs something to align: give {flags}")
        if self.align_throughout and not self.align_first:
            raise ValueError("--align-throughout has no effect without --align-first: every epoch aligns")
        return self

    def _uses(self) -> Uses:
        yield self.aligns_states, ["hidden_loss"], "without --align-hidden, --align-last or --align-embedding"
        yield self.align_attention, ["attention_loss", "attention_states"], "without --align-attention"
        yield self.align_hidden or self.align_attention, ["layer_map"], "without --align-hidden or --align-attention"

    def throughout(self) -> "AlignSettings":
        """Return the settings with alignment in every epoch."""
        return self.model_copy(update={"align_first": 0, "align_throughout": False})


class TrainSettings(Settings):
    """Training."""

    epochs: int = pydantic.Field(10, gt=0)
    """Passes over the training rows."""
    stop_after: int | None = pydantic.Field(None, gt=0)
    """Stop after this many epochs, while the schedule is that of --epochs; unset: train for all of them."""
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
    accumulate: int = pydantic.Field(1, gt=0)
    """Number of parts into which a batch is divided to save memory; but for what dropout draws, their gradients add up
    to the whole batch's."""
    max_grad_norm: float = pydantic.Field(1.0, ge=0)
    """Norm that gradients are clipped to; 0: no clipping."""
    select_on: Literal["validation", "test"] = "validation"
    """Split that chooses the weights; test only to reproduce the thesis."""
    refit: str | None = None
    """Learn from validation's rows too, for all --epochs: the name of a student of the task that was trained without
    them, by which the settings were chosen. The temperature and the threshold of probabilities are that student's."""
    average_epochs: int = pydantic.Field(1, gt=0)
    """Keep the mean of the weights of this many epochs, those with the best validation scores. 1: the best one's."""
    word_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Share of the tokens of each batch that are replaced by the unknown token, drawn at random; of hashed words, whole
    words. 0: none."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of training: fp32, or bf16, which is faster where the hardware has it."""


class LossSettings(LogitsSettings, ArchSettings):
    """Distillation."""

    prune_aware: bool = False
    """Prune gradually while distilling, to the targets that pruning would use."""

    def effective(self) -> "LossSettings":
        """Return the settings for a key: with the default temperature, if the loss has none."""
        default = LossSettings.model_fields["temperature"].default
        return self if LOSSES[self.loss].distributions else self.model_copy(update={"temperature": default})


OF_UNITS = ("prune_units", "prune_heads", "drop_layers", "prune_vocabulary")
"""Settings of pruning that --prune-aware does not read."""


class PruneSettings(Settings):
    """Pruning."""

    prune_magnitude: bool = False
    """Prune weights whose absolute value is below --prune-threshold."""
    prune_topv: bool = False
    """Prune the smallest weights of all matrices together to a given sparsity, or with --prune-local of each matrix.
    When no way to prune is given, each matrix is pruned to the sparsity of the thesis's table 6.3."""
    prune_local: bool = False
    """Prune each matrix to --prune-threshold by itself, better at high sparsity than all together; without a threshold
    to table 6.3."""
    prune_threshold: float | None = pydantic.Field(None, ge=0, validate_default=True)
    """Top-V: share of weights to prune, in [0, 1); unset: 0.5 for --prune-topv (the thesis's section 6.2.5), else table
    6.3's. Magnitude: absolute value, 0.05 when unset."""
    prune_movement: bool = False
    """Prune by learned scores instead of magnitudes: while distilling with --prune-aware, else while tuning."""
    prune_units: float = pydantic.Field(0.0, ge=0, lt=1)
    """Share of the encoder's units and the classifier's hidden units to remove: the matrices shrink."""
    prune_heads: float = pydantic.Field(0.0, ge=0, lt=1)
    """Share of a transformer's attention heads to remove, the same number in each layer."""
    drop_layers: int = pydantic.Field(0, ge=0)
    """Number of a transformer's last layers, or of a recursive one's iterations, to remove."""
    prune_vocabulary: int = pydantic.Field(0, ge=0)
    """Remove byte pairs (zero hash rows) that occur fewer than this many times in the training text."""

    def of_weights(self) -> "PruneSettings":
        """Return the settings that --prune-aware uses; the others have their defaults."""
        return self.model_copy(update={name: type(self).model_fields[name].default for name in OF_UNITS})

    @pydantic.field_validator("prune_threshold")
    @classmethod
    def _share_of_all(cls, value: float | None, info: pydantic.ValidationInfo) -> float | None:
        """Return the default share for pruning all weights together, if none is given."""
        together = info.data.get("prune_topv") and not info.data.get("prune_local")
        return 0.5 if value is None and together else value

    @pydantic.model_validator(mode="after")
    def _check_pruning(self) -> "PruneSettings":
        if sum([self.prune_magnitude, self.prune_topv, self.prune_movement]) > 1:
            raise ValueError("--prune-magnitude, --prune-topv and --prune-movement exclude each other")
        if not self.prune_magnitude and (self.prune_threshold or 0) >= 1:
            raise ValueError(f"--prune-threshold: a share of weights must be below 1 (got {self.prune_threshold})")
        return self


class PretrainSettings(Settings):
    """Pre-training on plain text."""

    corpus: Words = ()
    """Text to pre-train on: files with one text a line, or tasks (names, or YAML files), for the distinct texts of
    their train rows."""
    window_overlap: int = pydantic.Field(0, ge=0)
    """Number of tokens that consecutive windows of a text share, for texts of more than --max-tokens."""
    max_windows: int = pydantic.Field(0, ge=0)
    """Maximum number of windows per text, from its start; 0: all."""
    join_texts: bool = False
    """Join consecutive windows, of one text or several, while they have at most --max-tokens together (RoBERTa's full
    sentences, without a separator between texts)."""
    masked_lm_weight: float = pydantic.Field(1.0, ge=0)
    """Weight of the masked-language-modelling loss."""
    output_weight: float | None = pydantic.Field(None, ge=0)
    """Weight of the KL divergence from the teacher's predictions; unset: 1 if the teacher has a head for them."""
    sentence_order_weight: float = pydantic.Field(0.0, ge=0)
    """Weight of predicting whether two consecutive parts of a text are in order, as in ALBERT."""
    next_sentence_weight: float = pydantic.Field(0.0, ge=0)
    """Weight of predicting whether the second of two texts follows the first, as in BERT."""
    output_temperature: float = pydantic.Field(1.0, gt=0)
    """Temperature of both predictions in the divergence of --output-weight, which is multiplied by its square."""

    @property
    def sentence_task(self) -> SentenceTask | None:
        """Prediction to learn for pairs of texts; None where single texts are read."""
        if self.sentence_order_weight:
            return "order"
        return "next" if self.next_sentence_weight else None

    @pydantic.model_validator(mode="after")
    def _check_sentences(self) -> "PretrainSettings":
        if self.sentence_order_weight and self.next_sentence_weight:
            raise ValueError("--sentence-order-weight and --next-sentence-weight exclude each other")
        if self.window_overlap and self.join_texts:
            raise ValueError("--window-overlap and --join-texts exclude each other")
        return self

    def _uses(self) -> Uses:
        yield self.output_weight != 0, ["output_temperature"], "with --output-weight 0"


class DistillSettings(
    StudentFlags, LossSettings, RowsSettings, TrainSettings, InitSettings, AlignSettings, PruneSettings, NameSettings
):
    """Distillation."""

    teacher: str | None = None
    """Teacher whose logits to learn from; unset: the task's only one."""

    @pydantic.model_validator(mode="after")
    def _check_distillation(self) -> "DistillSettings":
        if self.recipe and self.student_arch not in THESIS_ARCHS:
            raise ValueError(f"--recipe thesis is for {', '.join(THESIS_ARCHS)} (got {self.student_arch})")
        if self.adapter_tuning and (not self.start_from or not self.adapters):
            raise ValueError("--adapter-tuning needs --start-from (the frozen student) and --adapters (their width)")
        if self.average_epochs > 1 and self.prune_aware:
            raise ValueError("--average-epochs and --prune-aware exclude each other: zeros differ between epochs")
        if self.adapter_tuning and self.prune_aware:
            raise ValueError("--adapter-tuning and --prune-aware exclude each other: adapters leave weights unchanged")
        init = self.embedding_init
        if init != "vectors" and self.embedding_type not in ("bpe", "ngrams"):
            raise ValueError(f"--embedding-init {init} is for byte pairs and n-grams, not {self.embedding_type}")
        if init == "logits" and self.labels_alone:
            raise ValueError("--embedding-init logits needs a teacher, but only labels are learned from")
        return self

    @property
    def labels_alone(self) -> bool:
        """Whether the student learns from labels alone, without a teacher."""
        return self.alpha == 1 and self.only_original_data


class PretrainFlags(DistillSettings, PretrainSettings, StageSettings):
    """Pre-training on plain text."""

    @pydantic.model_validator(mode="after")
    def _check_windows(self) -> "PretrainFlags":
        if self.window_overlap >= self.max_tokens:
            raise ValueError(f"--window-overlap {self.window_overlap} must be less than --max-tokens {self.max_tokens}")
        if self.next_sentence_weight and self.batch_size == 1:
            raise ValueError("--next-sentence-weight takes the other texts from the batch: --batch-size 1 has none")
        return self
