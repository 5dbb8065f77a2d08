"""RoBERTas by fairseq: fine-tuned classifiers (or regressors), and the pre-trained masked language model."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.data.split import Split
from common.devices import autocast
from common.kinds.ragged import EncodedText
from common.progress import Advance, nothing
from common.teachers.base import Pieces, States, batched_logits
from common.teachers.fairseq.checkpoint import load_into, read_folder
from common.teachers.fairseq.library import load_fairseq
from common.teachers.fairseq.tokens import PAD, RobertaTokens

HEAD = "sentence_classification_head"
"""fairseq's own name for the classification head."""


class Roberta:
    """A RoBERTa with its vocabulary."""

    def __init__(self, folder: Path, pairs: Path, device: torch.device, outputs: int | None) -> None:
        """Load weights, architecture and vocabulary from a folder, byte pairs from `pairs`.

        outputs: width of the classification head; None: the masked-language-modelling head is loaded instead. Raises
        UserError if anything is missing or damaged.
        """
        load_fairseq()
        from fairseq.models.roberta import RobertaModel

        architecture, tensors = read_folder(folder)
        self.tokens = RobertaTokens(folder, pairs)
        task = argparse.Namespace(source_dictionary=self.tokens.dictionary)  # the one attribute that build_model reads
        self.model = RobertaModel.build_model(argparse.Namespace(**architecture.model_dump()), task)
        if outputs is not None:
            self.model.register_classification_head(HEAD, num_classes=outputs)
        load_into(self.model, tensors, ("classification_heads",) if outputs is None else ("lm_head",), folder)
        self.model.to(device).eval()
        self.device, self.max_positions = device, architecture.max_positions


class FairseqTeacher(Roberta):
    """A fine-tuned RoBERTa (common.teachers.base.Teacher)."""

    def __init__(self, folder: Path, outputs: int, device: torch.device, dtype: torch.dtype, max_tokens: int) -> None:
        super().__init__(folder, folder, device, outputs)
        self.dtype, self.max_tokens = dtype, min(max_tokens, self.max_positions)

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return the logits of every row, float32 [n, outputs]."""
        encoded = self.tokens.encode(split, self.max_tokens)

        def forward(rows: np.ndarray) -> torch.Tensor:
            return self.model(self._pad(encoded, rows), classification_head_name=HEAD)[0]

        with autocast(self.dtype, self.device):
            return batched_logits(forward, encoded.lengths, advance)

    def states(self, split: Split) -> States:
        """Return hidden states and attention maps of all rows of `split`, as one batch.

        fairseq calls PyTorch's self-attention, which averages over heads. Each layer's attention is therefore computed
        a second time, with static_kv: fairseq then uses its own code, which does the same arithmetic and returns the
        attention of every head.
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

    def _pad(self, encoded: EncodedText, rows: np.ndarray) -> torch.Tensor:
        """Return the ids of a batch, int64 [batch, longest], filled with <pad>."""
        ids, lengths = encoded.pad(rows)
        mask = np.arange(ids.shape[1]) < lengths[:, None]
        return torch.from_numpy(np.where(mask, ids[..., 0], PAD)).to(self.device)


class FairseqMaskedLM(Roberta):
    """A pre-trained RoBERTa with its output layer (common.teachers.base.MaskedLM)."""

    def __init__(self, folder: Path, pairs: Path, device: torch.device) -> None:
        super().__init__(folder, pairs, device, None)
        self.mask_id = self.tokens.mask_id

    def encode(self, sentences: Sequence[str]) -> list[Pieces]:
        """Return the pieces of each sentence, cut at max_positions, preceded by a space, as GPT-2's words are."""
        return [self.tokens.pieces(sentence, self.max_positions) for sentence in sentences]

    def words(self) -> list[str]:
        """Return for each piece id its word if the piece is a space and letters, else ""."""
        return self.tokens.words()

    def predict(self, ids: np.ndarray, index: np.ndarray) -> torch.Tensor:
        """Return the logits of every piece at one position of each row, float32 [batch, pieces]."""
        with torch.inference_mode():
            features, _ = self.model(torch.from_numpy(ids).to(self.device), features_only=True)  # [batch, length, dim]
            return self.model.encoder.lm_head(features[torch.arange(len(ids)), torch.from_numpy(index).to(self.device)])
