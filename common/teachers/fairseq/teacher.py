"""RoBERTa teachers by fairseq: fine-tuned classifiers (or regressors) with their vocabulary."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.data.ragged import EncodedText
from common.data.split import Split
from common.devices import autocast
from common.progress import Advance, nothing
from common.teachers.base import States
from common.teachers.fairseq.checkpoint import Architecture, load_into, read_folder
from common.teachers.fairseq.library import load_fairseq
from common.teachers.fairseq.sources import SUBFOLDER
from common.teachers.fairseq.tokens import PAD, RobertaTokens
from common.training.batching import sorted_batches
from common.training.models import read_config

HEAD = "sentence_classification_head"
"""fairseq's own name for the classification head."""
_SCORING_BATCH = 64


def build_roberta(architecture: Architecture, tokens: RobertaTokens) -> Any:
    """Return a fairseq RobertaModel with random weights."""
    load_fairseq()
    from fairseq.models.roberta import RobertaModel

    task = argparse.Namespace(source_dictionary=tokens.dictionary)  # the one attribute that build_model reads
    return RobertaModel.build_model(argparse.Namespace(**architecture.model_dump()), task)


class FairseqTeacher:
    """A fine-tuned RoBERTa."""

    def __init__(self, folder: Path, outputs: int, device: torch.device, dtype: torch.dtype, max_tokens: int) -> None:
        """Load weights, architecture and vocabulary from a folder. Raises UserError for anything missing or damaged."""
        architecture, tensors = read_folder(folder)
        self.tokens = RobertaTokens(folder)
        self.model = build_roberta(architecture, self.tokens)
        self.model.register_classification_head(HEAD, num_classes=outputs)
        load_into(self.model, tensors, ("lm_head",), folder)
        self.model.to(device).eval()
        self.device, self.dtype = device, dtype
        self.max_tokens = min(max_tokens, architecture.max_positions)

    @classmethod
    def load(cls, folder: Path, device: torch.device, dtype: torch.dtype) -> "FairseqTeacher":
        """Return the teacher of a model folder."""
        config = read_config(folder)
        return cls(folder / SUBFOLDER, config.outputs, device, dtype, config.settings["max_tokens"])

    def encode(self, split: Split) -> EncodedText:
        """Return token ids of every row; a pair is one sequence."""
        return encode(self.tokens, split, self.max_tokens)

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return the logits of every row, float32 [n, outputs], computed in batches of similar length."""
        encoded = self.encode(split)
        result = np.zeros((len(split), self.model.classification_heads[HEAD].out_proj.out_features), np.float32)
        with torch.inference_mode(), autocast(self.dtype, self.device):
            for rows in sorted_batches(encoded.lengths, _SCORING_BATCH):
                ids, _ = pad(encoded, rows)
                logits, _ = self.model(ids.to(self.device), classification_head_name=HEAD)
                result[rows] = logits.float().cpu().numpy()
                advance(len(rows))
        return result

    def states(self, split: Split) -> States:
        """Return hidden states and attention maps of all rows of `split`, as one batch."""
        encoded = self.encode(split)
        ids, lengths = pad(encoded, np.arange(len(split)))
        encoder = self.model.encoder.sentence_encoder
        maps: list[torch.Tensor] = []
        hooks = [
            layer.self_attn.register_forward_pre_hook(_recorder(maps), with_kwargs=True) for layer in encoder.layers
        ]
        try:
            with torch.inference_mode():
                _, extra = self.model(ids.to(self.device), features_only=True, return_all_hiddens=True)
        finally:
            for hook in hooks:
                hook.remove()
        hidden = [state.transpose(0, 1).float() for state in extra["inner_states"]]  # fairseq: [length, batch, dim]
        return States(hidden, maps, torch.from_numpy(lengths))


def _recorder(maps: list[torch.Tensor]) -> Any:
    """Return a hook that computes a layer's attention again, separately for each head.

    fairseq calls PyTorch's self-attention, which averages over heads; with static_kv it uses its own code, the same
    arithmetic, which returns every head's.
    """

    def record(module: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        wanted = {**kwargs, "need_head_weights": True, "static_kv": True}
        _, weights = module.forward(*args, **wanted)
        maps.append(weights.transpose(0, 1).float())  # [heads, batch, length, length] before

    return record


def encode(tokens: RobertaTokens, split: Split, max_tokens: int) -> EncodedText:
    """Return token ids of every row of a split, cut at max_tokens."""
    seconds = split.sentence2 or [None] * len(split)
    rows = [tokens.join(one, two, max_tokens) for one, two in zip(split.sentence1, seconds, strict=True)]
    return EncodedText.from_lists(rows, width=1, empty=(PAD,), max_tokens=max_tokens)


def pad(encoded: EncodedText, rows: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """Return a batch: ids int64 [batch, longest], filled with <pad>, and lengths int64 [batch]."""
    ids, lengths = encoded.pad(rows)
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    return torch.from_numpy(np.where(mask, ids[..., 0], PAD)), lengths
