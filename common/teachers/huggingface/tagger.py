"""Teachers from Hugging Face that label words: any encoder with a token-classification head.

A word's logits are those of its first piece (Devlin et al., 2019, section 5.3).
"""

import dataclasses
from typing import Any, ClassVar

import numpy as np
import torch

from common.data.split import Split
from common.kinds.ragged import EncodedText
from common.teachers.huggingface.teacher import HuggingFaceTeacher


@dataclasses.dataclass(frozen=True)
class TaggedText(EncodedText):
    """Pieces of n texts, and for each word the index of its first piece."""

    first_pieces: EncodedText


class HuggingFaceTagger(HuggingFaceTeacher):
    """A fine-tuned encoder that tags words, with its tokenizer."""

    head = "AutoModelForTokenClassification"
    # Byte-level pieces (RoBERTa's) mark the start of a word by the space before it.
    tokenizer_settings: ClassVar[dict[str, Any]] = {"add_prefix_space": True}

    def encode(self, split: Split) -> TaggedText:
        """Return word pieces and segment ids of every row, and where its words begin.

        A word that was cut off, or has no piece, gets the index of the word before it.
        """
        words = [text.split(" ") for text in split.sentence1]
        tokens = self.tokenizer(words, is_split_into_words=True, truncation=True, max_length=self.max_tokens)
        pieces = [[(piece, 0) for piece in row] for row in tokens["input_ids"]]
        first_pieces = [_first_pieces(tokens.word_ids(row), len(text)) for row, text in enumerate(words)]
        text = EncodedText.from_lists(pieces, width=2, empty=(0, 0), max_tokens=self.max_tokens)
        longest = max(map(len, words), default=1)
        return TaggedText(text.ids, text.offsets, EncodedText.from_lists(first_pieces, 1, (0,), longest))

    def forward(self, encoded: TaggedText, rows: np.ndarray) -> torch.Tensor:
        """Return the logits of all words of a batch, concatenated, float32 [words, outputs]."""
        index, counts = encoded.first_pieces.pad(rows)
        mask = torch.from_numpy(np.arange(index.shape[1]) < counts[:, None]).to(self.device)
        logits = super().forward(encoded, rows)
        index = torch.from_numpy(index).to(self.device).expand(-1, -1, logits.shape[2])
        return logits.gather(1, index)[mask]


def _first_pieces(word_of_piece: list[int | None], count: int) -> list[int]:
    """Return the index of the first piece of each of `count` words. word_of_piece: None for special tokens."""
    first: dict[int, int] = {}
    for piece, word in enumerate(word_of_piece):
        if word is not None:
            first.setdefault(word, piece)
    index = min(1, max(0, len(word_of_piece) - 1))  # after the special token, if there is another piece
    indices = []
    for word in range(count):
        index = first.get(word, index)
        indices.append(index)
    return indices
