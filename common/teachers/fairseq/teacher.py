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
from common.teachers.base import States, batched_logits
from common.teachers.fairseq.checkpoint import Architecture, load_into, read_folder
from common.teachers.fairseq.library import load_fairseq
from common.teachers.fairseq.sources import SUBFOLDER
from common.teachers.fairseq.tokens import PAD, RobertaTokens
from common.training.models import read_config

HEAD = "sentence_classification_head"
"""fairseq's own name for the classification head."""


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

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return the logits of every row, float32 [n, outputs]."""
        encoded = self.tokens.encode(split, self.max_tokens)

        def forward(rows: np.ndarray) -> torch.Tensor:
            return self.model(self._pad(encoded, rows), classification_head_name=HEAD)[0]

        with autocast(self.dtype, self.device):
            return batched_logits(forward, encoded.lengths, advance)

    def _pad(self, encoded: EncodedText, rows: np.ndarray) -> torch.Tensor:
        """Return the ids of a batch, int64 [batch, longest], filled with <pad>."""
        ids, lengths = encoded.pad(rows)
        mask = np.arange(ids.shape[1]) < lengths[:, None]
        return torch.from_numpy(np.where(mask, ids[..., 0], PAD)).to(self.device)

    def states(self, split: Split) -> States:
        """Return hidden states and attention maps of all rows of `split`, as one batch.

        fairseq calls PyTorch's self-attention, which averages over heads. So each layer's attention is computed
        twice; with static_kv fairseq uses its own code, the same arithmetic, which returns every head's.
        """
        encoded = self.tokens.encode(split, self.max_tokens)
        maps: list[torch.Tensor] = []

        def record(module: Any, args: tuple, kwargs: dict[str, Any]) -> None:
            _, weights = module.forward(*args, **{**kwargs, "need_head_weights": True, "static_kv": True})
            maps.append(weights.transpose(0, 1).float())  # [heads, batch, length, length] before

        layers = self.model.encoder.sentence_encoder.layers
        hooks = [layer.self_attn.register_forward_pre_hook(record, with_kwargs=True) for layer in layers]
        try:
            with torch.inference_mode():
                ids = self._pad(encoded, np.arange(len(split)))
                _, extra = self.model(ids, features_only=True, return_all_hiddens=True)
        finally:
            for hook in hooks:
                hook.remove()
        hidden = [state.transpose(0, 1).float() for state in extra["inner_states"]]  # fairseq: [length, batch, dim]
        return States(hidden, maps, torch.from_numpy(encoded.lengths))
