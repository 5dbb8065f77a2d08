"""RoBERTa's masked language model by fairseq."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from common.teachers.base import Pieces
from common.teachers.fairseq.checkpoint import load_into, read_folder
from common.teachers.fairseq.library import load_fairseq
from common.teachers.fairseq.sources import byte_pairs, resolve
from common.teachers.fairseq.teacher import build_roberta
from common.teachers.fairseq.tokens import RobertaTokens


class FairseqMaskedLM:
    """A pre-trained RoBERTa with its output layer (common.teachers.base.MaskedLM)."""

    def __init__(self, folder: Path, pairs: Path, device: torch.device) -> None:
        """Load from a folder, the byte pairs from `pairs`.

        Raises UserError for anything missing or damaged; a fine-tuned teacher's folder has no output layer.
        """
        architecture, tensors = read_folder(folder)
        self.tokens = RobertaTokens(folder, pairs)
        self.model = build_roberta(architecture, self.tokens)
        load_into(self.model, tensors, ("classification_heads",), folder)
        self.model.to(device).eval()
        self.device = device
        self.mask_id = self.tokens.mask_id
        self.max_pieces = architecture.max_positions

    @classmethod
    def load(cls, arch: str, device: torch.device, downloads: Path) -> "FairseqMaskedLM":
        """Load roberta_base, roberta_large or a folder of fairseq's; archives are fetched to `downloads`."""
        load_fairseq(f"the masked language model {arch}")  # before a large download, not after it
        source = Path(resolve(arch, downloads)[0])
        return cls(source, byte_pairs(source, downloads), device)

    def encode(self, sentences: Sequence[str]) -> list[Pieces]:
        """Return the pieces of each sentence, cut at max_pieces, with a space before it, as GPT-2's words have."""
        return [self.tokens.pieces(sentence, self.max_pieces) for sentence in sentences]

    def words(self) -> list[str]:
        """Return, by piece id, the word of a piece that is a space and letters, or ""."""
        return self.tokens.words()

    def predict(self, ids: np.ndarray, index: np.ndarray) -> torch.Tensor:
        """Return the logits of every piece at one position of each row, float32 [batch, pieces]."""
        with torch.inference_mode():
            features, _ = self.model(torch.from_numpy(ids).to(self.device), features_only=True)  # [batch, length, dim]
            return self.model.encoder.lm_head(features[torch.arange(len(ids)), torch.from_numpy(index).to(self.device)])
