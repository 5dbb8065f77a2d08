"""RoBERTa's tokenizer: GPT-2's byte-level pairs, and the ids of fairseq's dictionary."""

import shutil
from pathlib import Path

import numpy as np
from tokenizers import ByteLevelBPETokenizer

from common.data.split import Split
from common.errors import UserError
from common.kinds.ragged import EncodedText
from common.teachers.base import Pieces
from common.teachers.fairseq.library import load_fairseq

VOCABULARY_FILES = ("dict.txt", "encoder.json", "vocab.bpe")
BEGIN, PAD, END = 0, 1, 2
"""Ids of <s>, <pad> and </s>; fairseq's Dictionary always begins with them."""


class RobertaTokens:
    """Converts text to ids. A sentence is <s> A </s>, a pair <s> A </s></s> B </s>, as in fairseq's GLUE recipe."""

    def __init__(self, folder: Path, pairs: Path | None = None) -> None:
        """Read dict.txt from `folder`, and encoder.json and vocab.bpe from `pairs` if that is another folder.

        Raises UserError when a file is missing or damaged.
        """
        load_fairseq()
        from fairseq.data import Dictionary

        self.files = {name: (folder if name == "dict.txt" else pairs or folder) / name for name in VOCABULARY_FILES}
        for path in self.files.values():
            if not path.exists():
                raise UserError(f"{path}: no such file; a RoBERTa needs {', '.join(VOCABULARY_FILES)}")
        dictionary, *files = map(str, self.files.values())
        try:
            self.pairs = ByteLevelBPETokenizer.from_file(*files)
            self.dictionary = Dictionary.load(dictionary)
        except Exception as error:  # tokenizers raises plain Exceptions, fairseq any kind
            raise UserError(f"{folder}: damaged vocabulary ({error})") from error
        self.mask_id = self.dictionary.add_symbol("<mask>")
        # fairseq's dictionary names pieces by the decimal digits of their ids in encoder.json.
        count = max(self.pairs.get_vocab().values()) + 1
        self._ids = np.array([self.dictionary.index(str(piece)) for piece in range(count)])

    def __len__(self) -> int:
        return len(self.dictionary)

    def save(self, folder: Path) -> None:
        """Copy the vocabulary's files."""
        for name, path in self.files.items():
            shutil.copyfile(path, folder / name)

    def ids(self, text: str) -> list[int]:
        """Return ids of a text, without special tokens."""
        return self._ids[self.pairs.encode(text).ids].tolist()

    def encode(self, split: Split, max_tokens: int) -> EncodedText:
        """Return token ids of every row of a split, cut at max_tokens; a pair is one sequence."""
        seconds = split.sentence2 or [None] * len(split)
        rows = [self.join(one, two, max_tokens) for one, two in zip(split.sentence1, seconds, strict=True)]
        return EncodedText.from_lists(rows, width=1, empty=(PAD,), max_tokens=max_tokens)

    def join(self, sentence1: str, sentence2: str | None, max_tokens: int) -> list[int]:
        """Return ids of a row with special tokens, at most max_tokens; the last one is always </s>.

        A longer row is cut at its end, as fairseq's --shorten-method truncate does.
        """
        row = [BEGIN, *self.ids(sentence1), END]
        if sentence2 is not None:
            row += [END, *self.ids(sentence2), END]
        return row if len(row) <= max_tokens else [*row[: max_tokens - 1], END]

    def pieces(self, sentence: str, max_pieces: int) -> Pieces:
        """Return pieces of a sentence, with a space before it, so that its first word is encoded like any other.

        A piece that holds only some bytes of a character covers the whole character.
        """
        text = " " + sentence
        spans = []
        for start, end in self.pairs.encode(text).offsets[: max_pieces - 2]:
            start += end - start - len(text[start:end].lstrip())
            spans.append((max(start - 1, 0), end - 1))  # without the space before the sentence
        return Pieces([BEGIN, *self.ids(text)[: max_pieces - 2], END], [(0, 0), *spans, (0, 0)])

    def words(self) -> list[str]:
        """Return for each id its word if the piece is a space and letters, else ""."""
        known = self.pairs.get_vocab().values()
        pieces = {str(piece): self.pairs.decode([piece]) for piece in known}
        texts = [pieces.get(symbol, "") for symbol in self.dictionary.symbols]
        return [text[1:] if text.startswith(" ") and text[1:].isalpha() else "" for text in texts]
