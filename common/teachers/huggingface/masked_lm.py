"""Masked language models from Hugging Face: BERT, RoBERTa, DistilBERT, ELECTRA and their kin, by folder or name."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.errors import UserError
from common.teachers.base import Pieces
from common.teachers.huggingface.teacher import quiet_transformers, untrained

_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
"""What a model is: settings, vocabulary, weights. Pickled weights are left alone."""


class HuggingFaceMaskedLM:
    """An encoder with its masked-language-modelling head (common.teachers.base.MaskedLM)."""

    def __init__(self, model: Any, tokenizer: Any, device: torch.device) -> None:
        """model: one of transformers' ...ForMaskedLM; tokenizer: a fast one, with a mask."""
        self.model, self.tokenizer, self.device = model.to(device).eval(), tokenizer, device
        self.mask_id = int(tokenizer.mask_token_id)
        self.max_pieces = _longest(tokenizer, model)
        self._marks = set(tokenizer.all_special_ids)

    @classmethod
    def load(cls, source: str, device: torch.device) -> "HuggingFaceMaskedLM":
        """Load from a folder or by name.

        Raises UserError when there is no such model, it has no trained head (its guesses would be noise), no mask, or
        no fast tokenizer, the only kind that says which characters a piece covers.
        """
        folder = masked_lm_folder(source)
        transformers = quiet_transformers()
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            model, loaded = transformers.AutoModelForMaskedLM.from_pretrained(
                folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True
            )
        except Exception as error:  # transformers raises OSError, ValueError, KeyError and more for bad folders
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(f"no masked language model could be loaded from {source}: {reason}") from error
        if missing := untrained(model, loaded):
            raise UserError(f"{source} has no trained head for masked language modelling (it lacks {missing[0]})")
        if not tokenizer.is_fast or tokenizer.mask_token_id is None:
            raise UserError(f"{source}: its tokenizer has no mask, or does not say which characters a piece covers")
        return cls(model, tokenizer, device)

    def encode(self, sentences: Sequence[str]) -> list[Pieces]:
        """Pieces of each sentence, cut at max_pieces. Unknown pieces count as marks."""
        if not sentences:
            return []
        tokens = self.tokenizer(
            list(sentences), truncation=True, max_length=self.max_pieces, return_offsets_mapping=True
        )
        return [
            Pieces(
                ids, [(0, 0) if i in self._marks else _trimmed(text, *span) for i, span in zip(ids, spans, strict=True)]
            )
            for text, ids, spans in zip(sentences, tokens["input_ids"], tokens["offset_mapping"], strict=True)
        ]

    def words(self) -> list[str]:
        """By piece id: the word of a piece that begins one and is letters only, or ""."""
        pieces = self.tokenizer.convert_ids_to_tokens(range(self.model.config.vocab_size))
        if type(self.tokenizer.backend_tokenizer.model).__name__ == "WordPiece":
            words = [piece or "" for piece in pieces]  # parts of words begin with ##, which are no letters
        else:
            # Byte pairs and sentencepiece mark pieces that begin a word.
            mark = max("Ġ▁", key=lambda mark: sum(piece.startswith(mark) for piece in pieces if piece))
            plain = self.tokenizer.convert_tokens_to_string
            words = [plain([piece]).strip() if piece and piece.startswith(mark) else "" for piece in pieces]
        return [word if word.isalpha() and i not in self._marks else "" for i, word in enumerate(words)]

    def predict(self, ids: np.ndarray, lengths: np.ndarray, places: np.ndarray) -> torch.Tensor:
        """Logits of every piece at one place of each row, float32 [batch, pieces], on the model's device."""
        inside = np.arange(ids.shape[1]) < lengths[:, None]
        tokens = {"input_ids": torch.from_numpy(np.where(inside, ids, 0)).to(self.device)}
        if not inside.all():  # attention without a mask is faster
            tokens["attention_mask"] = torch.from_numpy(inside.astype(np.int64)).to(self.device)
        with torch.inference_mode(), self._only(torch.from_numpy(places).to(self.device)):
            return self.model(**tokens).logits[:, 0].float()

    @contextlib.contextmanager
    def _only(self, places: torch.Tensor) -> Iterator[None]:
        """Let what comes last see one place of each row: [batch, length, dim] becomes [batch, 1, dim].

        That is the head, whatever it is, and in layers built like BERT's all of the last layer beyond its attention.
        """

        def pick(_module: torch.nn.Module, _arguments: Any, output: Any) -> Any:
            hidden = output[0]
            if hidden.shape[1] == 1:
                return output  # picked before
            picked = hidden[torch.arange(len(hidden), device=hidden.device), places][:, None]
            if isinstance(output, tuple):
                return picked, *output[1:]
            output.last_hidden_state = picked
            return output

        modules = [self.model.base_model, *_last_attention(self.model.base_model)]
        hooks = [module.register_forward_hook(pick) for module in modules]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _last_attention(encoder: torch.nn.Module) -> list[torch.nn.Module]:
    """The last layer's attention where all that follows it in the layer looks at each place by itself."""
    layers = getattr(getattr(encoder, "encoder", None), "layer", None)
    if not layers or not {"attention", "intermediate", "output"} <= {name for name, _ in layers[-1].named_children()}:
        return []
    return [layers[-1].attention]


def masked_lm_folder(source: str) -> Path:
    """The folder of a model; one named as on the hub is fetched, or taken from the hub's cache. Raises UserError."""
    if Path(source).is_dir():
        return Path(source)
    if source == "minilm":
        raise UserError("--masked-lm minilm: the package holds no masked-language-model head; GloVe does without one")
    if source.startswith((".", "/", "~")):
        raise UserError(f"--masked-lm {source}: no such folder")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=list(_FILES)))
    except Exception as error:  # HTTP errors, names that are none, no network: no common class
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"no masked language model could be had from {source}: {reason}") from error


def masked_lm_files(source: str) -> list[Path]:
    """The files that a model is made of, sorted by name. Raises UserError as `masked_lm_folder` does."""
    folder = masked_lm_folder(source)
    return sorted(path for pattern in _FILES for path in folder.glob(pattern))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without white space at its ends: some tokenizers count the space before a word to it."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _longest(tokenizer: Any, model: torch.nn.Module) -> int:
    """Pieces the model has positions for; RoBERTa's count from one past the padding id."""
    longest = getattr(model.config, "max_position_embeddings", tokenizer.model_max_length)
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return min(tokenizer.model_max_length, longest - (0 if padding is None else padding + 1))
