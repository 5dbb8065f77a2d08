"""Teachers from Hugging Face: any encoder with a sequence-classification head, by name or folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from common.data.split import Split
from common.devices import autocast
from common.errors import UserError, first_line
from common.kinds.base import Kind
from common.kinds.ragged import EncodedText, padded
from common.progress import Advance, nothing
from common.stopping import check_time
from common.store.workspace import workspace_of
from common.teachers.base import SCORING_BATCH, Attention, States
from common.teachers.huggingface.adapters import insert, load_adapters, read_base, save_adapters
from common.teachers.huggingface.pretrained import (
    SUBFOLDER,
    check_complete,
    files_below,
    in_encoder,
    listed,
    load_pretrained,
    resolve,
    save,
    within_positions,
)
from common.training.batching import sorted_batches
from common.training.models import ADAPTERS_FILE, encoder_path, read_config

MULTI_LABEL = "multi_label_classification"
"""transformers' problem_type, in config.json, of a head whose labels are independent."""


class HuggingFaceTeacher:
    """A fine-tuned encoder with its tokenizer."""

    head = "AutoModelForSequenceClassification"
    """Class of transformers that adds a head to an encoder."""
    tokenizer_settings: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        source: str | Path,
        kind: Kind,
        labels: Sequence[str],
        device: torch.device,
        dtype: torch.dtype,
        max_tokens: int,
        new_head: bool = False,
        settings: Path | None = None,
        attention_dropout: float | None = None,
    ) -> None:
        """Load encoder and tokenizer from a folder or by name.

        new_head: replace a head that is missing or has another width (MNLI's three classes for a task with two) by a
        new one; settings: folder of the tokenizer and config.json, if not `source`; attention_dropout: replaces
        config.json's.
        Raises UserError if something cannot be loaded, or if tensors of the encoder are missing or have another shape.
        """
        changes = head_settings(kind, labels)
        if attention_dropout is not None:
            changes |= dict.fromkeys(("attention_probs_dropout_prob", "attention_dropout"), attention_dropout)
        self.tokenizer, self.model, self._new = load_pretrained(
            source,
            self.head,
            new_head=new_head,
            tokenizer_settings=self.tokenizer_settings,
            settings=settings,
            **changes,
        )
        check_complete(source, self.model, self._new, new_head)
        self.model.to(device)
        self.kind, self.device, self.dtype = kind, device, dtype
        self.max_tokens = within_positions(max_tokens, self.model)
        self.base: str | None = None

    @classmethod
    def load(cls, folder: Path, device: torch.device, dtype: torch.dtype) -> "HuggingFaceTeacher":
        """Return a teacher written by `save`. Raises UserError if the encoder of its adapters is missing."""
        config, file = read_config(folder), folder / SUBFOLDER / ADAPTERS_FILE
        base = read_base(file) if file.exists() else None
        teacher = cls(
            folder / SUBFOLDER if base is None else resolve(encoder_path(workspace_of(folder), base))[0],
            config.task_kind,
            config.labels,
            device,
            dtype,
            config.settings["max_tokens"],
            new_head=base is not None,
            settings=folder / SUBFOLDER,
        )
        if base is not None:
            load_adapters(teacher.model, file)
            teacher.model.to(device)
            teacher.base = base
        if dtype == torch.bfloat16:
            # On a CPU a quarter faster than autocast, and as close to float32: MPNet's logits differ by 0.005 on SST-2.
            teacher.model.to(dtype)
            teacher.dtype = torch.float32  # switches autocast off: nothing is left to cast
        return teacher

    def adapt(self, bottleneck: int, base: str) -> None:
        """Insert adapters into the encoder and freeze all but them and the head. base: the encoder's --arch.

        Raises UserError if the encoder lacks a tensor, which would keep its random initial values.
        """
        insert(self.model, bottleneck)
        if untrained := [name for name in self._new if in_encoder(self.model, name)]:
            raise UserError(f"--adapters do not train the encoder, but {base} lacks {listed(untrained)}")
        self.model.to(self.device)
        self.base = base

    def save(self, folder: Path) -> None:
        """Write weights (safetensors) and tokenizer below a model folder; for adapters only the trained tensors."""
        if self.base is None:
            save(self.model, self.tokenizer, folder)
            return
        with files_below(folder) as files:
            self.tokenizer.save_pretrained(files)
            self.model.config.save_pretrained(files)
            save_adapters(self.model, files / ADAPTERS_FILE, self.base)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of encoder, adapters and head."""
        return self.model.state_dict()

    def encode(self, split: Split) -> EncodedText:
        """Return word pieces and segment ids of every row; a pair is one sequence."""
        return encoded_rows(self.tokenizer, split, self.max_tokens)

    def forward(self, encoded: EncodedText, rows: np.ndarray) -> torch.Tensor:
        """Return the logits of a batch, float32 [batch, outputs], under autocast."""
        with autocast(self.dtype, self.device):
            return self.model(**self._arguments(encoded, rows)).logits.float()

    def _arguments(self, encoded: EncodedText, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """Return the model's arguments, int64 [batch, length] each."""
        ids, lengths = encoded.pad(rows)
        tokens = torch.from_numpy(ids).to(self.device)
        mask = torch.from_numpy(np.arange(ids.shape[1]) < lengths[:, None]).to(self.device)
        arguments = {"input_ids": tokens[..., 0], "attention_mask": mask.long()}
        if self.model.config.to_dict().get("type_vocab_size", 0) > 1:
            arguments["token_type_ids"] = tokens[..., 1]
        return arguments

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return the logits of every row, float32 [n, outputs], or by word, [n, words, outputs], NaN after the last."""
        encoded, words = self.encode(split), self.kind.word_counts(split.sentence1, split.sentence2)
        self.model.eval()
        batches, parts = sorted_batches(encoded.lengths, SCORING_BATCH), []
        with torch.inference_mode():
            for rows in batches:
                check_time()
                logits = self.forward(encoded, rows)
                parts.append((logits if words is None else logits[~logits[..., 0].isnan()]).cpu().numpy())
                advance(len(rows))
        order = np.concatenate(batches)
        values = np.concatenate(parts) if words is None else padded(np.concatenate(parts), words[order])
        return values[np.argsort(order)]

    def pieces(self, split: Split) -> EncodedText:
        """Return the word pieces and segment ids of the positions that `states` returns."""
        return self.encode(split)

    def states(self, split: Split) -> States:
        """Return hidden states and attention maps of the rows of `split`, as one padded batch."""
        arguments = self._arguments(self.pieces(split), np.arange(len(split)))
        self.model.eval()
        with autocast(self.dtype, self.device):
            return hidden_states(self.model, arguments, "probabilities")


def head_settings(kind: Kind, labels: Sequence[str]) -> dict[str, Any]:
    """Return the settings in config.json of the head of a task."""
    names = dict(enumerate(labels or ["score"]))
    return {
        "num_labels": kind.outputs(labels),
        "id2label": names,
        "label2id": {name: i for i, name in names.items()},
        "problem_type": MULTI_LABEL if kind.independent else None,
    }


def encoded_rows(tokenizer: Any, split: Split, max_tokens: int) -> EncodedText:
    """Return word pieces and segment ids of every row, cut at max_tokens; a pair is one sequence."""
    tokens = tokenizer(*split.sentences(), truncation=True, max_length=max_tokens, return_token_type_ids=True)
    return with_segments(tokens, max_tokens)


def with_segments(tokens: Any, max_tokens: int) -> EncodedText:
    """Return the word pieces and segment ids in a tokenizer's output."""
    rows = zip(tokens["input_ids"], tokens["token_type_ids"], strict=True)
    pieces = [list(zip(*row, strict=True)) for row in rows]
    return EncodedText.from_lists(pieces, width=2, empty=(0, 0), max_tokens=max_tokens)


def hidden_states(model: Any, arguments: dict[str, torch.Tensor], attention: Attention | None) -> States:
    """Return hidden states, and attention if requested, of a transformers model called with `arguments`.

    arguments: int64 [batch, length] each; attention_mask, one of them, is 1 up to a text's last token, then 0.
    attention: form to return; None: an empty list. `States` has the shapes of the result.

    The model must be in evaluation mode; no gradients are kept. Raises UserError if it does not return its attention.
    """
    usual = model.config._attn_implementation
    if attention is not None:
        _return_attention(model, attention)
    try:
        with torch.no_grad():
            output = model(**arguments, output_hidden_states=True, output_attentions=attention is not None)
    finally:
        if attention is not None:
            model.set_attn_implementation(usual)
    maps = []
    if attention is not None:
        maps = list(output.attentions or ())
        if not maps or any(tensor is None or tensor.dim() != 4 for tensor in maps):
            raise _no_attention(model, attention, "its layers do not return them")
    lengths = arguments["attention_mask"].sum(1)
    hidden = [tensor.float() for tensor in output.hidden_states]
    return States(hidden, [tensor.float() for tensor in maps], lengths, output.get("logits"))


def _return_attention(model: Any, attention: Attention) -> None:
    """Make a model return its attention: the fast implementations return neither scores nor maps."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(_SCORES, _attention_with_scores)
    AttentionMaskInterface.register(_SCORES, eager_mask)
    implementation = _SCORES if attention == "scores" else "eager"
    try:
        model.set_attn_implementation(implementation)
    except (ValueError, NotImplementedError) as error:
        raise _no_attention(model, attention, first_line(error)) from error
    # Models with their own attention, such as DeBERTa, stay unchanged without an error.
    if attention == "scores" and model.config._attn_implementation != implementation:
        raise _no_attention(model, attention, "it has an implementation of its own")


_SCORES = "featherweight-scores"
"""Name of `_attention_with_scores` among the implementations of transformers."""


def _attention_with_scores(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result of a transformers attention implementation, with scores in place of the attention map.

    query, key, value: [batch, heads, time, width of a head]; attention_mask: added to the scores. Without dropout.
    """
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    masked = scores if attention_mask is None else scores + attention_mask
    return (masked.softmax(-1) @ value).transpose(1, 2).contiguous(), scores


def _no_attention(model: Any, attention: Attention, reason: str) -> UserError:
    names = {"scores": "attention scores", "probabilities": "attention maps"}
    instead = {"scores": "--attention-states probabilities", "probabilities": "--align-attention 0"}[attention]
    kind = model.config.model_type
    return UserError(f"a teacher of type {kind} has no {names[attention]}: {reason} ({instead} does not need them)")
