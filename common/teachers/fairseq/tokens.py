"""RoBERTa's tokenizer by fairseq: GPT-2's byte-level pairs, and the ids of fairseq's dictionary."""

import functools
import json
import shutil
from pathlib import Path

from common.errors import UserError
from common.teachers.base import Pieces
from common.teachers.fairseq.library import load_fairseq

VOCABULARY_FILES = ("dict.txt", "encoder.json", "vocab.bpe")
BEGIN, PAD, END = 0, 1, 2
"""Ids of <s>, <pad> and </s>; fairseq's Dictionary always begins with them."""


class RobertaTokens:
    """Text to ids. A sentence is <s> A </s>, a pair <s> A </s></s> B </s>, as in fairseq's GLUE recipe."""

    def __init__(self, folder: Path, pairs: Path | None = None) -> None:
        """Read dict.txt from `folder`, and encoder.json and vocab.bpe from `pairs` where that is another one.

        Raises UserError when a file is missing or damaged.
        """
        load_fairseq()
        from fairseq.data import Dictionary
        from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

        self.files = {name: (folder if name == "dict.txt" else pairs or folder) / name for name in VOCABULARY_FILES}
        for path in self.files.values():
            if not path.exists():
                raise UserError(f"{path}: no such file; a RoBERTa needs {', '.join(VOCABULARY_FILES)}")
        try:
            self.pairs = get_encoder(self.files["encoder.json"], self.files["vocab.bpe"])
            self.dictionary = Dictionary.load(str(self.files["dict.txt"]))
        except (ValueError, KeyError, AttributeError, RuntimeError, json.JSONDecodeError) as error:
            raise UserError(f"{folder}: damaged vocabulary ({error})") from error
        self.mask_id = self.dictionary.add_symbol("<mask>")
        self._word_ids = functools.lru_cache(maxsize=1 << 16)(self._encode_word)

    def __len__(self) -> int:
        return len(self.dictionary)

    def save(self, folder: Path) -> None:
        """Copy the vocabulary's files."""
        for name, path in self.files.items():
            shutil.copyfile(path, folder / name)

    def ids(self, text: str) -> list[int]:
        """Return ids of a text, without special tokens."""
        return [number for word in self.pairs.pat.findall(text) for number in self._word_ids(word)]

    def join(self, sentence1: str, sentence2: str | None, max_tokens: int) -> list[int]:
        """Return ids of a row with special tokens, at most max_tokens; the last one is always </s>.

        A longer row is cut at its end, as fairseq's --shorten-method truncate does.
        """
        row = [BEGIN, *self.ids(sentence1), END]
        if sentence2 is not None:
            row += [END, *self.ids(sentence2), END]
        return row if len(row) <= max_tokens else [*row[: max_tokens - 1], END]

    def pieces(self, sentence: str, max_pieces: int) -> Pieces:
        """Return pieces of a sentence, with a space before it, so that its first word is a word like any other.

        A piece of some bytes of a character covers the whole character.
        """
        text = " " + sentence
        ids, spans, at = [], [], 0
        character = [i for i, letter in enumerate(text) for _ in letter.encode()]  # of each byte
        for word in self.pairs.pat.findall(text):
            for number, symbol in zip(self._word_ids(word), self._symbols(word), strict=True):
                start, end = character[at], character[at + len(symbol) - 1] + 1
                start += end - start - len(text[start:end].lstrip())
                ids.append(number)
                spans.append((max(start - 1, 0), end - 1))  # without the space before the sentence
                at += len(symbol)
        keep = max_pieces - 2
        return Pieces([BEGIN, *ids[:keep], END], [(0, 0), *spans[:keep], (0, 0)])

    def words(self) -> list[str]:
        """Return, by id, the word of a piece that is a space and letters, or ""."""
        found = []
        for symbol in self.dictionary.symbols:
            text = self.pairs.decode([int(symbol)]) if symbol.isdecimal() and int(symbol) in self.pairs.decoder else ""
            found.append(text[1:] if text.startswith(" ") and text[1:].isalpha() else "")
        return found

    def _symbols(self, word: str) -> list[str]:
        """Return the pairs of a word, as strings with one character a byte."""
        return self.pairs.bpe("".join(self.pairs.byte_encoder[byte] for byte in word.encode())).split(" ")

    def _encode_word(self, word: str) -> tuple[int, ...]:
        return tuple(self.dictionary.index(str(self.pairs.encoder[symbol])) for symbol in self._symbols(word))
