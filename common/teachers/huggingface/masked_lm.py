"""Masked language models from Hugging Face: BERT, RoBERTa, DistilBERT, ELECTRA and others, by folder or name."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.errors import UserError, first_line
from common.teachers.huggingface.pretrained import check_complete, load_pretrained, most_tokens

_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
"""Settings, vocabulary and weights of a model; pickled weights are not read."""


@dataclasses.dataclass(frozen=True)
class Pieces:
    """A sentence as a masked language model reads it, special tokens included.

    ids: piece ids; spans: for each piece the characters [start, end) of the sentence it covers without white space
    around it, (0, 0) for special tokens.
    """

    ids: list[int]
    spans: list[tuple[int, int]]


class HuggingFaceMaskedLM:
    """An encoder with its masked-language-modelling head: a model that predicts masked words."""

    def __init__(self, model: Any, tokenizer: Any, device: torch.device) -> None:
        """model: one of transformers' ...ForMaskedLM; tokenizer: a fast one, with a mask."""
        self.model, self.tokenizer, self.device = model.to(device).eval(), tokenizer, device
        self.mask_id = int(tokenizer.mask_token_id)
        """Id of the mask."""
        self.max_pieces = min(tokenizer.model_max_length, most_tokens(model) or tokenizer.model_max_length)
        self._special = set(tokenizer.all_special_ids)

    @classmethod
    def load(cls, source: str, device: torch.device) -> "HuggingFaceMaskedLM":
        """Return the model of a folder or name.

        Raises UserError when it does not exist, or has no trained head, no mask, or no fast tokenizer (only those map
        pieces to characters).
        """
        folder = _folder(source)
        tokenizer, model, missing = load_pretrained(folder, "AutoModelForMaskedLM", "masked language model")
        check_complete(source, model, missing)
        if missing:
            raise UserError(f"{source} has no trained head for masked language modelling (it lacks {missing[0]})")
        if not tokenizer.is_fast or tokenizer.mask_token_id is None:
            raise UserError(f"{source}: its tokenizer has no mask token, or does not map pieces to characters")
        return cls(model, tokenizer, device)

    def encode(self, sentences: Sequence[str]) -> list[Pieces]:
        """Return the pieces of each sentence, cut at max_pieces. Unknown pieces count as special tokens."""
        if not sentences:
            return []
        tokens = self.tokenizer(
            list(sentences), truncation=True, max_length=self.max_pieces, return_offsets_mapping=True
        )
        encoded = []
        for text, ids, offsets in zip(sentences, tokens["input_ids"], tokens["offset_mapping"], strict=True):
            spans = [
                (0, 0) if piece in self._special else _trimmed(text, *span)
                for piece, span in zip(ids, offsets, strict=True)
            ]
            encoded.append(Pieces(ids, spans))
        return encoded

    def words(self) -> list[str]:
        """Return for each piece id its word if the piece begins a word and is letters only, else ""."""
        pieces = self.tokenizer.convert_ids_to_tokens(range(self.model.config.vocab_size))
        if type(self.tokenizer.backend_tokenizer.model).__name__ == "WordPiece":
            words = [piece or "" for piece in pieces]  # parts of words begin with ##, which are not letters
        else:
            # Byte pairs and sentencepiece mark pieces that begin a word.
            marks = {mark: sum(piece.startswith(mark) for piece in pieces if piece) for mark in "Ġ▁"}
            space = max(marks, key=marks.get)
            plain = self.tokenizer.convert_tokens_to_string
            words = [plain([piece]).strip() if piece and piece.startswith(space) else "" for piece in pieces]
        return [word if word.isalpha() and i not in self._special else "" for i, word in enumerate(words)]

    def predict(self, ids: np.ndarray, index: np.ndarray) -> torch.Tensor:
        """Return the logits of every piece at one position of each row, float32 [batch, pieces].

        ids: int64 [batch, length]; index: int64 [batch]. The head and, in models with layers like BERT's, the last
        layer after its attention are computed at these positions only: [batch, length, dim] becomes [batch, 1, dim].
        """
        rows = torch.arange(len(ids), device=self.device)
        positions = torch.from_numpy(index).to(self.device)

        def pick(_module: torch.nn.Module, _arguments: Any, output: Any) -> Any:
            hidden = output[0]
            if hidden.shape[1] == 1:
                return output  # already picked
            picked = hidden[rows, positions][:, None]
            if isinstance(output, tuple):
                return picked, *output[1:]
            output.last_hidden_state = picked
            return output

        modules = [self.model.base_model, *_last_attention(self.model.base_model)]
        hooks = [module.register_forward_hook(pick) for module in modules]
        try:
            with torch.inference_mode():
                return self.model(input_ids=torch.from_numpy(ids).to(self.device)).logits[:, 0].float()
        finally:
            for hook in hooks:
                hook.remove()


def _last_attention(encoder: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the last layer's attention if the rest of the layer treats each position independently, else nothing."""
    layers = getattr(getattr(encoder, "encoder", None), "layer", None)
    if not layers or not {"attention", "intermediate", "output"} <= {name for name, _ in layers[-1].named_children()}:
        return []
    return [layers[-1].attention]


def masked_lm_files(source: str) -> list[Path]:
    """Return the files of a model, sorted by name. Raises UserError when there is no such model."""
    return sorted(path for pattern in _FILES for path in _folder(source).glob(pattern))


def _folder(source: str) -> Path:
    """Return the folder of a model; a model of the hub is downloaded, or found in the hub's cache. Raises UserError."""
    if Path(source).is_dir():
        return Path(source)
    if source in ("minilm", "mpnet"):
        raise UserError(
            f"--masked-lm {source}: the package has no masked-language-model head; "
            "without this flag, GloVe neighbours are used"
        )
    if source.startswith((".", "/", "~")):
        raise UserError(f"--masked-lm {source}: no such folder")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=list(_FILES)))
    except Exception as error:  # HTTP errors, bad names, no network: no common class
        raise UserError(f"no masked language model could be downloaded from {source}: {first_line(error)}") from error


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without white space at its ends: some tokenizers include the space before a word."""
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return start, max(start, end - len(piece) + len(piece.rstrip()))
