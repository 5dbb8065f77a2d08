"""Reader of tagged words: one word and its tag per line, in the IOB2 scheme, and an empty line after each text."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from common.data.readers.records import MAX_CHARACTERS, as_sentence, read_lines
from common.data.split import Split
from common.data.tasks import Task
from common.errors import UserError
from common.kinds.base import index_of
from common.kinds.iob import check_order
from common.kinds.ragged import padded
from common.kinds.registry import TAGS

_DOCUMENT = "-DOCSTART-"
"""CoNLL's line between documents."""


def tagged_split(path: Path, task: Task, labelled: bool = True) -> Split:
    """Return a file's texts as rows, with a space between words; source rows are numbers of texts.

    Raises UserError with path and line for an unknown tag, one that breaks the scheme, a word without a tag, a word
    with a space in it, and a file without words.
    """
    tags = dict(zip(task.values, task.labels, strict=True))  # name in the file -> IOB tag
    index = {name: i for i, name in enumerate(tags)}
    texts: list[str] = []
    labels: list[int] = []
    counts: list[int] = []
    with path.open("rb") as file:
        for lines in lines_of_texts(read_lines(file, str(path), task.source.encoding)):
            words: list[str] = []
            before, characters = "", 0
            for number, line in lines:
                try:
                    word, name = word_and_tag(line)
                    labels.append(index_of(name, index, "tag"))
                    check_order(tags[name], before)
                except (UserError, ValueError) as error:
                    raise UserError(f"{path} line {number}: {error}") from None
                characters += len(word) + 1
                if characters > MAX_CHARACTERS:
                    raise UserError(
                        f"{path} line {number}: a text has more than {MAX_CHARACTERS:,} characters "
                        "(empty lines separate texts)"
                    )
                words.append(word)
                before = tags[name]
            texts.append(" ".join(words))
            counts.append(len(words))
    if not labels:
        raise UserError(f"{path}: no rows of data")
    tags_of_words = padded(np.array(labels, np.int64), np.array(counts), TAGS.unknown)
    return Split(texts, None, tags_of_words, np.arange(len(texts)), TAGS)


def lines_of_texts(lines: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Yield the lines of each text, (number, line) each: the lines between empty ones."""
    text: list[tuple[int, str]] = []
    for number, line in lines:
        if line.strip() and not line.startswith(_DOCUMENT):
            text.append((number, line))
        elif text:
            yield text
            text = []
    if text:
        yield text


def word_and_tag(line: str) -> tuple[str, str]:
    """Return the first column, a word, and the last one, its tag; columns are separated by tabs or spaces.

    Raises UserError for a line without a tag, and for a word that is empty or has a space in it.
    """
    # Other white space counts as part of a word, where it is an error.
    cells = line.rstrip("\r\n").split("\t") if "\t" in line else re.split(" +", line.strip())
    if len(cells) < 2 or not cells[-1].strip():
        raise UserError(f"expected a word and its tag, found {line.strip()[:80]!r}")
    word = as_sentence(cells[0])
    if not word or " " in word:
        raise UserError(f"a word is empty or has a space in it: {cells[0][:80]!r}")
    return word, cells[-1].strip()
