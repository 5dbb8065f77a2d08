"""Files that label words: tags of the words of a text (CoNLL), or answers to questions in contexts (SQuAD's JSON).

Both may be columns of a table, too: words and tags, or question, context and answers as on the Hugging Face Hub.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from common.data.readers.any_table import LABEL_PREFIX, MOST_BYTES, Table, has_label, named_columns
from common.data.readers.label_cells import Row
from common.data.readers.questions import answer_spans, questions_split
from common.data.readers.records import MAX_CHARACTERS, as_sentence, is_missing, kind_of, read_lines
from common.data.readers.tables import JOINED_SUFFIXES
from common.data.readers.tagged import lines_of_texts, word_and_tag
from common.data.tasks import Source, Task
from common.errors import UserError
from common.kinds.iob import OUTSIDE, as_iob2
from common.kinds.registry import ANSWERS, TAGS
from common.kinds.spans import NO_ANSWER
from common.reading import regular_file
from common.stopping import at_once
from compression.experiments.fit.contents.detect import FileContents
from compression.experiments.fit.settings import FitSettings

TAGGED_SUFFIXES = (".txt", ".conll", ".iob", ".iob2", ".bio", ".bioes")
"""Suffixes of files that have a word and its tag on each line; .tsv and .csv may be such files, too."""
QUESTION_COLUMNS = ("question", "context", "answers")
_TAG = re.compile(r"O|[BIESLUMW]-\S+")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_EXAMINED = 1000
"""Lines, or rows, that show whether a file has tags."""
_HEAD = 1024 * 1024
"""Bytes that show whether a file has questions."""


def words_in_lines(path: Path, settings: FitSettings) -> FileContents | None:
    """Return the rows of a file with a word and its tag on each line; None if it has another form.

    Raises UserError for a file that must have this form, by its suffix or --kind, and has not.
    """
    regular_file(path)
    suffix = kind_of(path)
    asked = settings.kind == TAGS.name
    if suffix not in (*TAGGED_SUFFIXES, *JOINED_SUFFIXES) or settings.kind not in ("auto", TAGS.name):
        return None
    with at_once(), path.open("rb") as file:
        start = list(itertools.islice(read_lines(file, str(path), settings.encoding), _EXAMINED))
        if suffix in JOINED_SUFFIXES and len(list(lines_of_texts(start))) == 1:
            return None  # lines of a table may end with tags, too
        if not _has_tags(start):
            first = next((line for _, line in start if line.strip()), "")
            if suffix in JOINED_SUFFIXES or has_label(first):
                return None
            form = "a word and its tag (O, B-X or I-X) on each line, and an empty line after each text"
            if suffix == ".txt" and not asked:
                form += (
                    f", or labels and a text on each line ({LABEL_PREFIX}spam you won); a table is named .csv or .tsv"
                )
            raise UserError(f"{path}: no words with tags; a {suffix} file has {form}")
        file.seek(0)
        rows, left_out, notes = [], [], []
        for text in lines_of_texts(read_lines(file, str(path), settings.encoding)):
            try:
                rows.append(tuple(zip(*(word_and_tag(line) for _, line in text), strict=True)))
            except UserError as error:
                left_out.append(f"{path} line {text[0][0]}: {error}")
            if file.tell() > MOST_BYTES:
                notes.append(f"{path.name}: its first {MOST_BYTES:,} bytes are read.")
                break
    return _tagged(rows, "text", left_out, notes)


def _has_tags(lines: Sequence[tuple[int, str]]) -> bool:
    """Return whether almost all lines end with a tag, some with one of an entity, and texts are of several words."""
    texts = list(lines_of_texts(lines))
    cells = [line.split() for text in texts for _, line in text]
    tags = [words[-1] for words in cells if len(words) > 1]
    fits = sum(map(bool, map(_TAG.fullmatch, tags)))
    return len(texts) < len(cells) and fits >= 0.95 * len(cells) and OUTSIDE in tags and len({*tags}) > 1


def words_in_columns(table: Table, settings: FitSettings) -> FileContents | None:
    """Return the rows of a table with columns of words and of their tags, or of questions; None if it has neither.

    Raises UserError if --kind asks for one of them.
    """
    if settings.kind in ("auto", ANSWERS.name) and not (settings.text or settings.label):
        questions = _questions_of(table) if {*QUESTION_COLUMNS} <= {*table.header} else None
        if questions is None and settings.kind == ANSWERS.name:
            columns = ", ".join(QUESTION_COLUMNS)
            raise UserError(f"{table.path}: no questions: give SQuAD's JSON, or its columns {columns}")
        if questions:
            return questions
    if settings.kind not in ("auto", TAGS.name) or len(settings.text) > 1 or len(settings.label) > 1:
        return None
    asked = settings.kind == TAGS.name
    names = [name for name in dict.fromkeys(table.header) if name]
    tags = [name for name in settings.label or names if name in names and _are_tags(table.column(name), asked)]
    columns = {name: [_items(cell) for cell in table.column(name)] for name in names} if tags else {}
    texts = named_columns(table, "--text", settings.text) if tags else ()
    for name, text in itertools.product(tags, texts or columns):
        counts = [(len(words), len(labels)) for words, labels in zip(columns[text], columns[name], strict=True)]
        both = [pair for pair in counts if all(pair)]
        if text != name and both and text not in tags and sum(a == b for a, b in both) >= 0.95 * len(both):
            rows, left_out = [], []
            for number, (words, labels) in enumerate(zip(columns[text], columns[name], strict=True), 1):
                if words and len(words) == len(labels):
                    rows.append((words, labels))
                else:
                    left_out.append(f"row {number}: {len(words)} words and {len(labels)} tags")
            note = f"Column {name!r} has the tags of the words in column {text!r}"
            other = "" if asked else " (--kind labels takes each cell as one label)"
            return _tagged(rows, text, left_out, [f"{note}{other}."])
    if asked:
        forms = "lists, or texts with a space between words, and name the columns with --text and --label"
        raise UserError(f"{table.path}: no column has a tag for each word of another one; give {forms}")
    return None


def _items(cell: Any) -> list[str]:
    """Return the words, or tags, in a cell: a list, a list as text, or a text with spaces between them."""
    if isinstance(cell, list):
        return [str(item) for item in cell]
    if not isinstance(cell, str):
        return []
    if cell.startswith("[") and cell.endswith("]"):
        return [single or double for single, double in _QUOTED.findall(cell)]
    return cell.split()


def _are_tags(cells: Sequence[Any], asked: bool) -> bool:
    """Return whether the first cells hold tags, with some words outside of entities. asked: kinds alone are tags."""
    several = [_items(cell) for cell in cells[:_EXAMINED]]
    tags = set(itertools.chain.from_iterable(several))
    if OUTSIDE not in tags or len(tags) < 2 or all(len(labels) < 2 for labels in several):
        return False
    return asked or all(map(_TAG.fullmatch, tags))


def _tagged(
    rows: Iterable[tuple[Sequence[str], Sequence[str]]], text: str, left_out: list[str], notes: list[str]
) -> FileContents:
    """Return texts and IOB2 tags. rows: words and their tags; text: column of words; left_out: see `_contents`."""
    kept, converted = [], 0
    for number, (words, tags) in enumerate(rows, 1):
        try:
            sentences = [as_sentence(word) for word in words]
        except UserError as error:
            left_out.append(f"text {number}: {error}")
            continue
        if not all(sentences) or any(" " in word for word in sentences):
            left_out.append(f"text {number}: a word is empty or has a space in it")
            continue
        if sum(map(len, sentences)) + len(sentences) > MAX_CHARACTERS:
            left_out.append(f"text {number}: more than {MAX_CHARACTERS:,} characters (empty lines separate texts)")
            continue
        in_scheme = as_iob2(tags)
        converted += in_scheme != list(tags)
        kept.append((" ".join(sentences), tuple(in_scheme)))
    if converted:
        notes.append(f"Rows whose tags are converted to the IOB2 scheme (B-X begins each entity): {converted:,}.")
    return _contents(TAGS.name, (text,), kept, left_out, notes)


def _contents(
    kind: str, texts: tuple[str, ...], rows: list[Row], left_out: list[str], notes: Iterable[str] = ()
) -> FileContents:
    """Return the contents of a file whose words have labels.

    rows: texts, then a tuple of tags, or of answers (start, end) in the context, None if they are unknown; left_out:
    the reason why each unusable row is left out.
    """
    unusable = [f"Rows left out: {len(left_out):,} (the first: {left_out[0]})."] if left_out else []
    labels = tags_of(rows) if kind == TAGS.name else ()
    return FileContents(texts, kind, labels, rows, kind, notes=(*notes, *unusable))


def questions_in_json(path: Path, settings: FitSettings) -> FileContents | None:
    """Return the questions of a file in SQuAD's JSON; None if it has another form. Raises what its reader raises."""
    if settings.kind not in ("auto", ANSWERS.name) or path.suffix.lower() != ".json":
        return None
    with at_once(), regular_file(path).open("rb") as file:
        if b'"paragraphs"' not in file.read(_HEAD):
            return None
        if path.stat().st_size > 4 * MOST_BYTES:
            raise UserError(f"{path}: questions of more than {4 * MOST_BYTES:,} bytes; save a part of them")
        source = Source(files={}, encoding=settings.encoding)
        split = questions_split(path, Task(name="questions", kind=ANSWERS.name, unanswerable=True, source=source))
    spans = [tuple((int(start), int(end)) for start, end in row if start >= 0) for row in split.labels]
    rows = zip(split.sentence1, split.sentence2 or (), spans, strict=True)
    return _with_questions([(question, context, answers or None) for question, context, answers in rows], [])


def _questions_of(table: Table) -> FileContents | None:
    """Return the questions of a table in the form of Hugging Face's SQuAD; None if its answers have another one."""
    cells = [cell for cell in table.column("answers") if not is_missing(cell)]
    if not cells or not all(isinstance(cell, dict) and {"text", "answer_start"} <= cell.keys() for cell in cells):
        return None
    rows, left_out = [], []
    for number, (question, context, cell) in enumerate(zip(*map(table.column, QUESTION_COLUMNS), strict=True), 1):
        try:
            texts = (as_sentence(question), as_sentence(context))
            if not all(texts):
                raise UserError("no question or no context")
            answers = {}
            if not is_missing(cell):
                places = zip(cell["text"], cell["answer_start"], strict=True)
                answers["answers"] = [{"text": text, "answer_start": start} for text, start in places]
            spans = answer_spans(answers, context, texts[1], unanswerable=True)
            rows.append((*texts, tuple(spans) or None))
        except (UserError, TypeError, ValueError) as error:
            left_out.append(f"row {number}: {error}")
    return _with_questions(rows, left_out)


def _with_questions(rows: Iterable[Row], left_out: list[str]) -> FileContents:
    return _contents(ANSWERS.name, QUESTION_COLUMNS[:2], [row for row in rows if all(row[:2])], left_out)


def as_squad(rows: Iterable[Row]) -> dict[str, Any]:
    """Return questions as an object of SQuAD's JSON, those about the same context together."""
    by_context: dict[str, list[dict[str, Any]]] = {}
    for question, context, spans in rows:
        asked = {"question": question}
        if spans is not None:
            spans = [] if NO_ANSWER in spans else spans
            asked["answers"] = [{"text": context[start:end], "answer_start": start} for start, end in spans]
        by_context.setdefault(context, []).append(asked)
    paragraphs = [{"context": context, "qas": asked} for context, asked in by_context.items()]
    return {"data": [{"paragraphs": paragraphs}]}


def tags_of(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return O and the tags in the rows, sorted by the kind of entity."""
    tags = {tag for row in rows for tag in row[-1] or ()} - {OUTSIDE}
    return (OUTSIDE, *sorted(tags, key=lambda tag: (tag[2:], tag)))


def some_unanswerable(rows: Iterable[Row]) -> bool:
    """Return whether a question has no answer in its context."""
    return any(NO_ANSWER in (row[-1] or ()) for row in rows)
