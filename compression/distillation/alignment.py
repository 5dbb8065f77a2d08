"""Layer-to-layer distillation: a transformer student's insides are drawn towards its teacher's.

TinyBERT (Jiao et al., 2020, section 3.1) and MiniALBERT (Nouriborji et al., 2023, section 3.5) compare hidden states,
attention maps and what the first layers read. Student and teacher read the same word pieces, so places agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from common.errors import UserError
from common.teachers.huggingface.tagger import load_teacher_of_either
from common.teachers.huggingface.teacher import look_inside
from compression.distillation.losses import ATTENTION_LOSSES, HIDDEN_LOSSES
from compression.students.batch import Batch
from compression.students.teacher_layers import chosen_layers
from compression.students.transformer import Trace, framed
from compression.tokenizers.teacher_vocabulary import TeacherVocabulary, teacher_vocabulary

if TYPE_CHECKING:
    from common.teachers import States
    from compression.settings import DistillSettings

_FLAG = "--layer-map"


def check_alignment(settings: DistillSettings, told: dict[str, Any], teacher: str) -> None:
    """Raises UserError where the student's layers cannot be set beside the teacher's, with what to set.

    told: the teacher's config.json; teacher: its name.
    """
    aligned_layers(settings, told["num_hidden_layers"])
    heads = told["num_attention_heads"]
    if settings.align_attention and heads != settings.heads:
        raise UserError(f"--align-attention compares head with head, and {teacher} has {heads}: --heads {heads}")


def aligned_layers(settings: DistillSettings, there: int) -> list[int]:
    """The teacher's layer, counted from 0, for each of the student's. there: how many the teacher has.

    None where no layers are compared. uniform spreads the student's over the teacher's, the last beside the last
    (TinyBERT's mapping function).
    """
    if not settings.align_hidden and not settings.align_attention:
        return []
    depth = settings.iterations if settings.student_arch == "recursive" else settings.layers
    # The last of each share of the teacher's layers; shares of 6 layers for 4 end at 1.5, 3, 4.5 and 6, rounded up.
    uniform = [-(-(layer + 1) * there // depth) - 1 for layer in range(depth)] if depth <= there else []
    named = {"uniform": uniform, "last": range(there - depth, there)}
    return chosen_layers(_FLAG, settings.layer_map, depth, there, named)


class InsideTeacher:
    """A teacher that reads what its student reads: the student's word pieces, under the teacher's numbers."""

    def __init__(self, model: Any, vocabulary: TeacherVocabulary, device: torch.device) -> None:
        """model: one of transformers', for any kind of answer."""
        self.model = model.to(device).eval()
        self.rows = torch.from_numpy(vocabulary.rows).to(device)
        self.marks = torch.tensor(vocabulary.marks, device=device)
        self.mask = vocabulary.mask

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> InsideTeacher:
        """A fine-tuned teacher from its model folder."""
        model = load_teacher_of_either(folder, device, torch.float32).model
        return cls(model, teacher_vocabulary(folder), device)

    def states(self, batch: Batch, maps: bool, masked: torch.Tensor | None = None) -> States:
        """States of a batch of the student's pieces.

        masked: bool [batch, time] for a single sentence, which pieces a mask stands for.
        """
        rows = [self.rows[each.ids] for each in batch.sentences]
        if masked is not None:
            rows = [torch.where(masked[..., None], self.mask, rows[0])]
        # Numbers are framed as the student's vectors are: below 2 ** 24 they are exact as floats.
        vectors = tuple((row.float(), each.lengths) for row, each in zip(rows, batch.sentences, strict=True))
        numbers, segments, lengths = framed(vectors, self.marks[:, None].float())
        longest = self.model.config.max_position_embeddings
        if numbers.shape[1] > longest:
            raise UserError(f"a row of {numbers.shape[1]} tokens, and the teacher reads {longest}: lower --max-tokens")
        inside = torch.arange(numbers.shape[1], device=lengths.device) < lengths[:, None]
        arguments = {"input_ids": numbers[..., 0].long() * inside, "attention_mask": inside.long()}
        if self.model.config.to_dict().get("type_vocab_size", 0) > 1:
            arguments["token_type_ids"] = segments * inside
        return look_inside(self.model, arguments, maps)


class Aligner(nn.Module):
    """The losses between a student's insides and a teacher's; its own weights are projections, trained along.

    Also a companion of training: it knows how far training is, and keeps its projections when a run stops.
    """

    def __init__(self, settings: DistillSettings, teacher: InsideTeacher) -> None:
        """settings: checked by `check_alignment`."""
        super().__init__()
        self.settings, self.teacher = settings, teacher
        told = teacher.model.config
        self.layers: Sequence[int] = aligned_layers(settings, told.num_hidden_layers)
        widths = settings.encoder_hidden_dim, told.hidden_size
        self.hidden_projection, self.embedding_projection = _projection(*widths), _projection(*widths)
        self.hidden_loss = HIDDEN_LOSSES[settings.hidden_loss]
        self.attention_loss = ATTENTION_LOSSES[settings.attention_loss]
        self.first_share = settings.align_first / (settings.align_first + settings.epochs)
        self.progress = 0.0

    @property
    def comes_first(self) -> bool:
        """Whether training only aligns so far."""
        return self.progress < self.first_share

    def states(self, batch: Batch, masked: torch.Tensor | None = None) -> States:
        """What the teacher makes of a batch; see InsideTeacher.states."""
        return self.teacher.states(batch, self.settings.align_attention > 0, masked)

    def loss(self, trace: Trace, states: States) -> torch.Tensor:
        """Weighted sum of the losses between what student and teacher make of the same batch.

        Those of layers are means over layers.
        """
        weights = self.settings
        inside = torch.arange(int(trace.lengths.max()), device=trace.lengths.device) < trace.lengths[:, None]
        total = trace.hidden[0].new_zeros(())
        if weights.align_embedding:
            read = self.embedding_projection(trace.hidden[0])
            total = total + weights.align_embedding * self.hidden_loss(read, states.hidden[0], inside)
        for number, layer in enumerate(self.layers):
            if weights.align_hidden:
                made = self.hidden_projection(trace.hidden[number + 1])
                loss = self.hidden_loss(made, states.hidden[layer + 1], inside)
                total = total + weights.align_hidden * loss / len(self.layers)
            if weights.align_attention:
                loss = self.attention_loss(trace.attention[number], states.attention[layer], inside)
                total = total + weights.align_attention * loss / len(self.layers)
        return total

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Take projections and progress from the state of a stopped attempt."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if f"align.{name}" in state:
                    parameter.copy_(state[f"align.{name}"])
        self.progress = float(state.get("align_progress", self.progress))

    def state(self) -> dict[str, torch.Tensor]:
        """What `start` needs after a stop."""
        kept = {f"align.{name}": parameter.detach() for name, parameter in self.named_parameters()}
        return {**kept, "align_progress": torch.tensor(self.progress, dtype=torch.float64)}

    def step(self, before: float, after: float) -> None:
        """After an optimizer step between two points of progress."""
        self.progress = after

    def finished(self, progress: float) -> bool:
        """Weights that were only aligned are no classifier yet."""
        return progress > self.first_share or not self.first_share


def _projection(width: int, teachers: int) -> nn.Module:
    return nn.Identity() if width == teachers else nn.Linear(width, teachers, bias=False)
