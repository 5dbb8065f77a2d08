"""Plain text to pre-train on: files with one text per line, or tasks' rows, stored as tokens in a file.

Text is read and tokens are written in chunks. Only the lengths of the texts are in memory, and a hash of each text of a
task, so that a text of several rows (the context of several questions) is read once.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from common.data.readers.records import kind_of, read_lines
from common.data.readers.tables import TABLES
from common.data.split import find_splits, read_row_group
from common.data.task_use import check_trains
from common.data.tasks import TASK_SUFFIXES, Task, known_tasks, load_task
from common.errors import UserError
from common.kinds.ragged import EncodedText, offsets_of
from common.launch.shards import parts_of
from common.progress import bar
from common.reading import regular_file
from common.store.artifact import read_manifest
from common.store.workspace import Workspace
from compression.tokenizers import UNCUT, TeacherTokenizer

_HELD_OUT_EVERY, _HELD_OUT_MOST = 50, 1000
"""Every fiftieth window of text is held out to select the epoch, a thousand at most."""
_LINES = 20_000
"""Lines encoded at a time."""


def corpus_files(corpus: Sequence[str], paths: Workspace) -> list[Path]:
    """Return the files of --corpus: text files, and the prepared train rows of tasks. Raises UserError if missing."""
    if not corpus:
        raise UserError("pretrain needs --corpus: files with one text a line, or names of tasks")
    return [_file(name, paths) for name in corpus]


def corpus_tasks(files: Sequence[Path]) -> list[str]:
    """Return the names of the tasks whose rows are files of a corpus."""
    return [read_manifest(file.parent).facts["task"] for file in files if file.suffix == ".parquet"]


def _file(corpus: str, paths: Workspace) -> Path:
    """Return the text file of an entry of --corpus, or the prepared train rows of its task, a Parquet file."""
    path = Path(corpus)
    if path.suffix in TASK_SUFFIXES:
        task = load_task(corpus)
        check_trains(task)
        if paths.splits(task.name).exists():
            find_splits(paths, task)  # they may be those of another task with this name
        return _rows_of(task, paths)
    if path.exists() and not (path.is_dir() and corpus in known_tasks()):
        if kind_of(path) in TABLES:  # their lines are not texts
            raise UserError(
                f"--corpus {corpus}: give a text file with one text a line, or a task, by its name or YAML file"
            )
        return regular_file(path)
    if corpus not in known_tasks():
        raise UserError(f"--corpus {corpus}: no such file or task")
    return _rows_of(load_task(corpus), paths)


def _rows_of(task: Task, paths: Workspace) -> Path:
    rows = paths.split(task.name, "train")
    if not rows.exists():
        raise UserError(f"--corpus {task.argument}: not prepared yet; run: {task.prepare_command}")
    return rows


def read_corpus(
    files: Sequence[Path],
    tokenizer: TeacherTokenizer,
    tokens: Path,
    overlap: int = 0,
    most: int = 0,
    join: bool = False,
) -> EncodedText:
    """Return the texts of files in `windows` of at most `tokenizer.max_tokens` tokens; empty lines are skipped.

    files: as `corpus_files` returns them; tokens: the file to write, which must exist as long as the result is used;
    join: whether consecutive windows become one, up to that many tokens. Raises UserError if the text is not UTF-8
    (with the line's number), or if a file has none that those before it lack.
    """
    whole = tokenizer.cut_at(UNCUT)
    lengths, seen = [], set[int]()
    tokens.parent.mkdir(parents=True, exist_ok=True)
    with tokens.open("wb") as file:
        for path in files:
            before = len(lengths)
            chunks = _read_rows(path, seen) if path.suffix == ".parquet" else _read_lines(path)
            for texts in bar(chunks, f"reading {path.name}"):
                if texts:
                    part = windows(whole.encode(texts), tokenizer.max_tokens, overlap, most)
                    file.write(part.ids.tobytes())
                    lengths.append(joined_lengths(part.lengths, tokenizer.max_tokens) if join else part.lengths)
            if len(lengths) == before:
                raise UserError(f"--corpus {path}: no text" + (" that is not in those before it" if before else ""))
    return EncodedText(np.memmap(tokens, np.int32, "r").reshape(-1, 1), offsets_of(np.concatenate(lengths)))


def windows(text: EncodedText, size: int, overlap: int, most: int) -> EncodedText:
    """Return each text's windows of `size` tokens; the last one may be shorter, and a short text is one window.

    overlap: tokens that consecutive windows share, below size; most: windows per text at most, from its start; 0: all.
    """
    step = size - overlap
    counts = np.maximum(-(-(text.lengths - overlap) // step), 1)
    counts = np.minimum(counts, most) if most else counts
    row = np.repeat(np.arange(len(text)), counts)
    starts = text.offsets[row] + (np.arange(len(row)) - offsets_of(counts)[row]) * step
    lengths = np.minimum(size, text.offsets[row + 1] - starts)
    offsets = offsets_of(lengths)
    return EncodedText(text.ids[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)], offsets)


def joined_lengths(lengths: np.ndarray, size: int) -> np.ndarray:
    """Return the lengths of windows after consecutive ones are joined, as long as they have at most `size` tokens."""
    joined = [0]
    for length in lengths.tolist():
        if joined[-1] + length > size:
            joined.append(0)
        joined[-1] += length
    return np.array(joined, np.int64)


def learned_and_held_out(count: int, size: int, overlap: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to learn from and those that select the epoch, out of `count` windows of `windows`.

    They share no tokens: windows that may overlap with a held-out one are in neither. As an exception, all windows are
    learned from if there are at most fifty, or if all may overlap with held-out ones.
    """
    rows = np.arange(count)
    near = (size - 1) // (size - overlap)  # windows after a window that may share tokens with it
    # With an overlap there are more windows of the same text. One in fifty would leave out several in fifty.
    held_out = rows[:: _HELD_OUT_EVERY * (near + 1)][:_HELD_OUT_MOST]
    left_out = np.unique(held_out[:, None] + np.arange(-near, near + 1))
    learned = np.setdiff1d(rows, left_out)
    return learned if count > _HELD_OUT_EVERY and len(learned) else rows, held_out


def _read_rows(path: Path, seen: set[int]) -> Iterator[list[str]]:
    """Yield the distinct sentences of a split file, a row group at a time; `seen` has the hashes of those before."""
    for group in range(len(parts_of(path))):
        texts = dict.fromkeys(read_row_group(path, group).texts())
        new = [text for text in texts if text and hash(text) not in seen]
        seen.update(map(hash, new))
        yield new


def _read_lines(path: Path) -> Iterator[list[str]]:
    """Yield the non-empty lines of a text file, in chunks."""
    with path.open("rb") as file:
        texts = (text.strip() for _, text in read_lines(file, f"--corpus {path}"))
        while lines := list(itertools.islice(texts, _LINES)):
            yield [text for text in lines if text]
