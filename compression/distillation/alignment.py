"""Layer-to-layer distillation: a transformer learns its teacher's hidden states and attention heads.

TinyBERT (Jiao et al., 2020, section 3.1) and MiniALBERT (Nouriborji et al., 2023, section 3.5) compare hidden states,
attention and the output of the embeddings. TinyBERT compares attention scores before the softmax, MiniALBERT the
probabilities after it. DistilBERT (Sanh et al., 2019, section 2) compares the last hidden states only. Student and
teacher read the same word pieces, so positions agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from common.config import flag as flag_of
from common.devices import pick_device
from common.errors import UserError
from common.teachers.base import Attention, States
from common.teachers.huggingface.classes import load_teacher_of_any
from common.teachers.huggingface.pretrained import most_tokens
from common.teachers.huggingface.teacher import hidden_states
from common.training.loop import Callback
from compression.distillation.settings import AlignSettings
from compression.distillation.state_losses import ATTENTION_LOSSES, HIDDEN_LOSSES, attention_score_mse
from compression.students.batch import Batch, EncodedRows
from compression.students.encoders import padding_mask
from compression.students.init import choose_layers
from compression.students.settings import StudentSettings
from compression.students.student import at_indices
from compression.students.transformer import Trace, framed
from compression.tokenizers import Tokenizer
from compression.tokenizers.teacher_vocabulary import TeacherVocabulary, teacher_vocabulary


def alignment_flag(settings: AlignSettings) -> str:
    """Return the first flag that asks for alignment; empty if there is none."""
    weights = [name for name in AlignSettings.model_fields if name.startswith("align_") and getattr(settings, name)]
    return flag_of(weights[0]) if weights else ""


def check_alignment(
    settings: AlignSettings, arch: str, student: StudentSettings, teacher_config: dict[str, Any], teacher: str
) -> None:
    """Raise UserError, with the flag to set, if the student's layers cannot be compared with the teacher's.

    teacher_config: the teacher's config.json; teacher: its name.
    """
    aligned_layers(settings, arch, student, teacher_config["num_hidden_layers"])
    heads = teacher_config["num_attention_heads"]
    if settings.align_attention and heads != student.heads:
        give = f"give --heads {heads} (the student has {student.heads})"
        raise UserError(f"--align-attention needs as many heads as {teacher} has: {give}")


def aligned_layers(settings: AlignSettings, arch: str, student: StudentSettings, teacher_depth: int) -> list[int]:
    """Return the teacher's layer, counted from 0, for each of the student's; empty when no layers are compared."""
    if not settings.align_hidden and not settings.align_attention:
        return []
    depth = student.iterations if arch == "recursive" else student.layers
    return mapped_layers(settings.layer_map, depth, teacher_depth)


def mapped_layers(layer_map: Sequence[str], depth: int, teacher_depth: int) -> list[int]:
    """Return the teacher's layer, counted from 0, for each of a student's `depth` layers. layer_map: --layer-map.

    uniform spreads the student's layers evenly over the teacher's, ending at the last (TinyBERT's mapping function).
    """
    # The last layers of equal shares: with 6 layers and depth 4, the shares end at 1.5, 3, 4.5 and 6, rounded up.
    ends = [math.ceil(layer * teacher_depth / depth) - 1 for layer in range(1, depth + 1)]
    named = {"uniform": ends if depth <= teacher_depth else [], "last": range(teacher_depth - depth, teacher_depth)}
    return choose_layers("--layer-map", layer_map, depth, teacher_depth, named)


class AlignmentTeacher:
    """A teacher that reads its student's word pieces, converted to the teacher's ids."""

    def __init__(self, model: Any, vocabulary: TeacherVocabulary, device: torch.device) -> None:
        """model: a Hugging Face model, with or without a head."""
        self.model = model.to(device).eval()
        self.rows = torch.from_numpy(vocabulary.rows).to(device)
        self.special_tokens = torch.tensor(vocabulary.special_tokens, device=device)
        self.mask, self.separators = vocabulary.mask, vocabulary.separators

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> AlignmentTeacher:
        """Load a fine-tuned teacher from its model folder."""
        return cls(load_teacher_of_any(folder, device, torch.float32).model, teacher_vocabulary(folder), device)

    def check_rows(self, rows: EncodedRows) -> None:
        """Raise UserError if one of the student's rows is longer than what the teacher reads."""
        texts = rows.lengths.reshape(len(rows), -1)
        self._check_length(int(texts.sum(1).max(initial=0)) + 2 + self.separators * (texts.shape[1] - 1))

    def _check_length(self, tokens: int) -> None:
        longest = most_tokens(self.model)
        if longest is not None and tokens > longest:
            raise UserError(f"a row has {tokens} tokens, but the teacher reads at most {longest}: lower --max-tokens")

    def states(self, batch: Batch, attention: Attention | None, masked: Sequence[torch.Tensor] = ()) -> States:
        """Return the states of a batch of the student's pieces.

        A teacher that separates the texts of a pair by two tokens (RoBERTa) reads both. The states of the second are
        then removed, and attention to it is added to that of the first, so that tokens match the student's.

        attention: form of attention to return; masked: the masked pieces of each sentence, bool [batch, time], if any.
        """
        rows = [self.rows[text.ids] for text in batch.sentences]
        if masked:
            rows = [torch.where(hidden[..., None], self.mask, row) for hidden, row in zip(masked, rows, strict=True)]
        lengths = [text.lengths for text in batch.sentences]
        extra = (self.separators - 1) * (len(rows) - 1)
        if extra:
            separators = self.special_tokens[1].expand(len(rows[1]), extra, 1)
            rows[1], lengths[1] = torch.cat([separators, rows[1]], 1), lengths[1] + extra
        # `framed` adds special tokens as it does for the student's vectors; ids below 2 ** 24 are exact as floats.
        vectors = tuple((row.float(), length) for row, length in zip(rows, lengths, strict=True))
        ids, segments, joined = framed(vectors, self.special_tokens[:, None].float())
        self._check_length(ids.shape[1])  # a pair of texts of different rows may be longer than all rows
        mask = padding_mask(ids, joined)[..., 0]
        padding = self.model.config.pad_token_id or 0
        arguments = {"input_ids": ids[..., 0].long().where(mask, padding), "attention_mask": mask.long()}
        if self.model.config.to_dict().get("type_vocab_size", 0) > 1:
            arguments["token_type_ids"] = segments * mask
        states = hidden_states(self.model, arguments, attention)
        for _ in range(extra):
            states = _without(states, 2 + lengths[0], attention)
        return states


def _without(states: States, token: torch.Tensor, attention: Attention | None) -> States:
    """Return states without one token of each text; attention to it is added to that of the token before it.

    token: its position, int64 [batch]. Probabilities are added; scores are combined by logsumexp, which adds the
    probabilities after the softmax.
    """
    steps = torch.arange(states.hidden[0].shape[1] - 1, device=token.device)
    kept = steps + (steps >= token[:, None])  # [batch, length - 1]

    def joined(heads: torch.Tensor) -> torch.Tensor:
        batch, count, length, _ = heads.shape
        columns = [at[:, None, None, None].expand(batch, count, length, 1) for at in (token - 1, token)]
        one, other = (heads.gather(3, column) for column in columns)
        heads = heads.scatter(3, columns[0], torch.logaddexp(one, other) if attention == "scores" else one + other)
        heads = heads.gather(3, kept[:, None, None].expand(-1, count, length, -1))
        return heads.gather(2, kept[:, None, :, None].expand(-1, count, -1, length - 1))

    logits = states.logits
    if logits is not None and logits.dim() == 3:  # of a masked language model
        logits = at_indices(logits, kept)
    hidden = [at_indices(layer, kept) for layer in states.hidden]
    return States(hidden, list(map(joined, states.attention)), states.lengths - 1, logits)


class Aligner(nn.Module, Callback):
    """The losses between a student's and a teacher's hidden states and attention heads.

    Its weights are projections for states of different widths, trained with the student. As a callback it follows
    training's progress, and saves the projections when a run stops.
    """

    def __init__(
        self, settings: AlignSettings, arch: str, student: StudentSettings, teacher: AlignmentTeacher, epochs: int
    ) -> None:
        """settings, arch, student: checked by `check_alignment`; epochs: those after --align-first."""
        super().__init__()
        self.settings, self.teacher = settings, teacher
        config = teacher.model.config
        self.layers: Sequence[int] = aligned_layers(settings, arch, student, config.num_hidden_layers)
        widths = student.encoder_hidden_dim, config.hidden_size
        self.hidden_projection, self.embedding_projection = _projection(*widths), _projection(*widths)
        self.hidden_loss = HIDDEN_LOSSES[settings.hidden_loss]
        self.compared = settings.compared_attention
        of_maps = ATTENTION_LOSSES[settings.attention_loss]
        self.attention_loss = attention_score_mse if self.compared == "scores" else of_maps
        self.first_share = settings.align_first / (settings.align_first + epochs)
        self.progress = 0.0

    @property
    def comes_first(self) -> bool:
        """Whether training is in the --align-first epochs, in which this loss is the only one."""
        return self.progress < self.first_share

    @property
    def is_over(self) -> bool:
        """Whether training is in the epochs after --align-first, which use the loss on logits and labels only."""
        return self.first_share > 0 and not self.comes_first and not self.settings.align_throughout

    def states(self, batch: Batch, masked: Sequence[torch.Tensor] = ()) -> States:
        """Return the teacher's states of a batch; see AlignmentTeacher.states."""
        return self.teacher.states(batch, self.compared, masked)

    def loss(self, trace: Trace, states: States, whole: torch.Tensor | None = None) -> torch.Tensor:
        """Return the weighted sum of the losses of a batch; the losses of layers are averaged.

        whole: if these texts are a part of a batch, the lengths of all of its texts, special tokens included, int64
        [batch]; the parts' losses then add up to the batch's.
        """
        weights = self.settings
        mask = padding_mask(trace.hidden[0], trace.lengths)[..., 0]
        attention = trace.scores if self.compared == "scores" else trace.attention
        tokens = attended = 1.0
        if whole is not None:
            tokens = attended = float(trace.lengths.sum() / whole.sum())
            if self.compared == "scores":  # compared at all pairs of tokens, everything else token by token
                attended = float(trace.lengths.square().sum() / whole.square().sum())
        total = trace.hidden[0].new_zeros(())
        if weights.align_embedding:
            projected = self.embedding_projection(trace.hidden[0])
            total = total + weights.align_embedding * tokens * self.hidden_loss(projected, states.hidden[0], mask)
        if weights.align_last:
            projected = self.hidden_projection(trace.hidden[-1])
            total = total + weights.align_last * tokens * self.hidden_loss(projected, states.hidden[-1], mask)
        for number, layer in enumerate(self.layers):
            if weights.align_hidden:
                projected = self.hidden_projection(trace.hidden[number + 1])
                loss = self.hidden_loss(projected, states.hidden[layer + 1], mask)
                total = total + weights.align_hidden * tokens * loss / len(self.layers)
            if weights.align_attention:
                loss = self.attention_loss(attention[number], states.attention[layer], mask)
                total = total + weights.align_attention * attended * loss / len(self.layers)
        return total

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Restore the projections and progress of a stopped run."""
        if "align_progress" in state:
            self.load_state_dict({name: state[f"align.{name}"] for name in self.state_dict()})
            self.progress = float(state["align_progress"])

    def state(self) -> dict[str, torch.Tensor]:
        """Return projections and progress."""
        projections = {f"align.{name}": parameter for name, parameter in self.state_dict().items()}
        return {**projections, "align_progress": torch.tensor(self.progress, dtype=torch.float64)}

    def step(self, before: float, after: float) -> None:
        """Record the progress."""
        self.progress = after

    def eligible(self, progress: float) -> bool:
        """Return whether training has left the --align-first epochs: until then the classifier is untrained."""
        return progress > self.first_share or not self.first_share


def load_aligner(
    settings: AlignSettings, arch: str, student: StudentSettings, teacher: Path, epochs: int, cpu: bool
) -> Aligner:
    """Return the alignment losses of a teacher that passed `check_alignment`, on the device to train on."""
    device = pick_device(cpu)
    return Aligner(settings, arch, student, AlignmentTeacher.load(teacher, device), epochs).to(device)


def check_pieces(student: str, tokenizer: Tokenizer, teacher: Path, name: str) -> None:
    """Raise UserError if a student reads other word pieces than the teacher. student, name: their names."""
    if teacher_vocabulary(teacher).pieces != tokenizer.pieces:
        raise UserError(f"{student} has other word pieces than {name}, so they cannot be aligned")


def _projection(width: int, teacher_width: int) -> nn.Module:
    return nn.Identity() if width == teacher_width else nn.Linear(width, teacher_width, bias=False)
