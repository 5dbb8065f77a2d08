"""Teachers from Hugging Face that give every word a label: any encoder with a token-classification head.

A word's logits are those of its first piece (Devlin et al., 2019, section 5.3).
"""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from common.data.ragged import EncodedText, padded
from common.data.split import Split
from common.progress import Advance, nothing
from common.teachers.huggingface.teacher import SCORING_BATCH, HuggingFaceTeacher
from common.training.batching import sorted_batches
from common.training.models import read_config


@dataclasses.dataclass(frozen=True)
class TaggedText(EncodedText):
    """Pieces of n texts, and for each word the place of its first piece."""

    places: EncodedText


class HuggingFaceTagger(HuggingFaceTeacher):
    """A fine-tuned encoder that tags words, with its tokenizer."""

    head = "AutoModelForTokenClassification"
    # Byte-level pieces (RoBERTa's) know the start of a word by the space before it.
    tokenizer_settings: ClassVar[dict[str, Any]] = {"add_prefix_space": True}

    def encode(self, split: Split) -> TaggedText:
        """Word pieces and segment ids of every row, and where its words begin.

        A word that was cut off, or has no piece, has the place of the word before it.
        """
        words = [text.split(" ") for text in split.sentence1]
        tokens = self.tokenizer(words, is_split_into_words=True, truncation=True, max_length=self.max_tokens)
        pieces = [[(piece, 0) for piece in row] for row in tokens["input_ids"]]
        places = [_first_places(tokens.word_ids(row), len(each)) for row, each in enumerate(words)]
        text = EncodedText.from_lists(pieces, width=2, empty=(0, 0), max_tokens=self.max_tokens)
        longest = max(map(len, words), default=1)
        return TaggedText(text.ids, text.offsets, EncodedText.from_lists(places, 1, (0,), longest))

    def forward(self, encoded: TaggedText, rows: np.ndarray) -> torch.Tensor:
        """Logits of all words of a batch in a row, float32 [words, outputs]."""
        places, counts = encoded.places.pad(rows)
        inside = torch.from_numpy(np.arange(places.shape[1]) < counts[:, None]).to(self.device)
        logits = super().forward(encoded, rows)
        places = torch.from_numpy(places).to(self.device).expand(-1, -1, logits.shape[2])
        return logits.gather(1, places)[inside]

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Logits of every word, float32 [n, words, outputs], NaN past a row's last word."""
        encoded = self.encode(split)
        counts = encoded.places.lengths
        flat = np.zeros((counts.sum(), self.model.config.num_labels), np.float32)
        self.model.eval()
        with torch.inference_mode():
            for rows in sorted_batches(encoded.lengths, SCORING_BATCH):
                starts = encoded.places.offsets
                own = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in rows])
                flat[own] = self.forward(encoded, rows).cpu().numpy()
                advance(len(rows))
        return padded(flat, counts)


def _first_places(word_of_piece: list[int | None], count: int) -> list[int]:
    """Of each of `count` words the place of its first piece. word_of_piece: None for the marks around a text."""
    first: dict[int, int] = {}
    for place, word in enumerate(word_of_piece):
        if word is not None:
            first.setdefault(word, place)
    places = []
    place = min(1, max(0, len(word_of_piece) - 1))
    for word in range(count):
        place = first.get(word, place)
        places.append(place)
    return places


def teacher_class(tokens: bool) -> type[HuggingFaceTeacher]:
    """What a task's teacher is: one that labels words, or texts."""
    return HuggingFaceTagger if tokens else HuggingFaceTeacher


def load_teacher_of_either(folder: Path, device: torch.device, dtype: torch.dtype) -> HuggingFaceTeacher:
    """Load a fine-tuned teacher of words or of texts. Raises UserError as `HuggingFaceTeacher.load` does."""
    return teacher_class(read_config(folder).tokens).load(folder, device, dtype)
