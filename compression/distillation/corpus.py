"""Plain text to pre-train on: a file with a text a line, or a task's rows, as tokens."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from common.data.ragged import EncodedText, offsets_of
from common.data.readers.records import read_lines
from common.data.split import read_row_group
from common.data.tasks import known_tasks
from common.errors import UserError
from common.launch.shards import parts_of
from common.progress import bar
from common.reading import regular_file
from common.store.workspace import Workspace
from compression.tokenizers.bytelevel import ByteLevelTokenizer
from compression.tokenizers.wordpiece import WordPieceTokenizer

_LINES = 20_000
"""Lines encoded at a time."""


def corpus_file(corpus: str | None, paths: Workspace) -> Path:
    """Return the file of --corpus: a text file, or the prepared train rows of a task. Raises UserError if missing."""
    if corpus is None:
        raise UserError("pretrain needs --corpus: a file with one text a line, or a task's name")
    if Path(corpus).exists() and not (Path(corpus).is_dir() and corpus in known_tasks()):
        return regular_file(Path(corpus))
    if corpus not in known_tasks():
        raise UserError(f"--corpus {corpus}: no such file, and no task")
    rows = paths.split(corpus, "train")
    if not rows.exists():
        raise UserError(f"--corpus {corpus}: not prepared yet; run: python preprocess.py --task {corpus}")
    return rows


def read_corpus(path: Path, tokenizer: WordPieceTokenizer | ByteLevelTokenizer) -> EncodedText:
    """Return the texts of a file, split into windows of at most `tokenizer.max_tokens` tokens; empty lines are skipped.

    path: of `corpus_file`. Raises UserError when it is not UTF-8 (with the line's number), or has no text.
    """
    whole = tokenizer.cut_at(2**31)
    chunks = _read_rows(path) if path.suffix == ".parquet" else _read_lines(path)
    parts = [whole.encode(texts) for texts in bar(chunks, f"reading {path.name}") if texts]
    if not parts:
        raise UserError(f"--corpus {path}: there is no text in it")
    text, size = EncodedText.joined(parts), tokenizer.max_tokens
    counts = -(-text.lengths // size)
    numbers = np.arange(counts.sum()) - np.repeat(offsets_of(counts)[:-1], counts)
    starts = np.repeat(text.offsets[:-1], counts) + numbers * size
    return EncodedText(text.ids, np.concatenate([starts, text.offsets[-1:]]))


def _read_rows(path: Path) -> Iterator[list[str]]:
    """Yield the sentences of a split file, a row group at a time."""
    for group in range(len(parts_of(path))):
        yield [text for sentences in read_row_group(path, group).sentences() for text in sentences if text]


def _read_lines(path: Path) -> Iterator[list[str]]:
    """Yield the lines of a text file that are not empty, some at a time."""
    with path.open("rb") as file:
        texts = (text.strip() for _, text in read_lines(file, f"--corpus {path}"))
        while lines := list(itertools.islice(texts, _LINES)):
            yield [text for text in lines if text]
