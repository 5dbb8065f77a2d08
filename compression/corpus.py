"""Plain text to learn from without labels or a task: a file with a text a line, as tokens."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.progress import bar
from common.tokens import EncodedText
from compression.embeddings.wordpiece import WordPieceTokenizer

_LINES = 20_000
"""Lines made into tokens at a time."""
_NO_LIMIT = 2**31


def corpus_file(path: Path | None) -> Path:
    """The file that --corpus names. Raises UserError where it names none, or none that is there."""
    if path is None:
        raise UserError("pretrain: --corpus FILE says what to read, a text a line")
    if not path.is_file():
        raise UserError(f"--corpus {path}: no such file")
    return path


def read_corpus(path: Path, tokenizer: WordPieceTokenizer) -> EncodedText:
    """The texts of a file, each cut into windows of at most `tokenizer.max_tokens` tokens; empty lines are passed over.

    Raises UserError when it is not UTF-8 (with the line's number), or has no text.
    """
    whole = WordPieceTokenizer(tokenizer.pieces, tokenizer.lowercase, _NO_LIMIT)
    parts = [whole.encode(lines) for lines in bar(_chunks(path), f"reading {path.name}") if lines]
    if not parts:
        raise UserError(f"--corpus {path}: there is no text in it")
    return windows(EncodedText.joined(parts), tokenizer.max_tokens)


def windows(text: EncodedText, size: int) -> EncodedText:
    """Each text as texts of `size` tokens, the last one of what is left."""
    counts = -(-text.lengths // size)
    numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(text.offsets[:-1], counts) + numbers * size
    return EncodedText(text.ids, np.concatenate([starts, text.offsets[-1:]]))


def _chunks(path: Path) -> Iterator[list[str]]:
    """Lines that are not empty, some at a time."""
    with path.open("rb") as file:
        numbered = enumerate(file, 1)
        while some := list(itertools.islice(numbered, _LINES)):
            yield [text for text in (_text(path, number, line) for number, line in some) if text]


def _text(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise UserError(f"--corpus {path}: line {number} is not UTF-8 (byte {error.start + 1} of it)") from error
