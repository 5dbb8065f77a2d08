"""Files of questions in SQuAD's JSON, 1.1 and 2.0: articles with paragraphs, each with questions and their answers.

    {"data": [{"paragraphs": [{"context": TEXT, "qas": [
        {"question": TEXT, "answers": [{"text": TEXT, "answer_start": CHARACTER}]}]}]}]}

Sources: Rajpurkar et al. (2016, 2018). A question with an empty list of answers has no answer in its context (2.0); a
question without a list is not labelled. Other keys are ignored.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common.data.readers.records import MAX_CHARACTERS, as_sentence, decoded
from common.data.split import Split
from common.data.tasks import Task
from common.data.text import normalise
from common.errors import UserError
from common.kinds.ragged import padded
from common.kinds.registry import ANSWERS
from common.kinds.spans import NO_ANSWER
from common.stopping import check


def questions_split(path: Path, task: Task, labelled: bool = True) -> Split:
    """Return a file's questions as rows: question, context, and the answers as characters [start, end) of the context.

    labelled: whether answers are read. Texts are normalised, and answers moved accordingly. Raises UserError, with the
    place in the file, if the file is not in SQuAD's form or has no questions, or if an answer is not at its place.
    """
    questions: list[str] = []
    contexts: list[str] = []
    answers: list[list[tuple[int, int]]] = []
    for place, context, asked in _paragraphs(path, task.source.encoding):
        check()
        try:
            if len(context) > MAX_CHARACTERS:
                raise UserError(f"{len(context):,} characters; at most {MAX_CHARACTERS:,} are read")
            text = as_sentence(context)
        except UserError as error:
            raise UserError(f"{path} {place}: context: {error}") from None
        for number, question in enumerate(asked):
            try:
                questions.append(as_sentence(_value(question, "question", str)))
                answers.append(answer_spans(question, context, text, task.unanswerable) if labelled else [])
            except UserError as error:
                raise UserError(f"{path} {place}.qas[{number}]: {error}") from None
            contexts.append(text)
    if not questions:
        raise UserError(f"{path}: no questions")
    counts = np.array(list(map(len, answers)), np.int64)
    flat = np.array([answer for row in answers for answer in row], np.int64).reshape(-1, 2)
    # The array is at least one answer wide, even if no question of the file is labelled.
    unlabelled = ANSWERS.unknown_labels(len(questions), ANSWERS.shape(task))
    spans = padded(flat, counts, ANSWERS.unknown) if len(flat) else unlabelled
    return Split(questions, contexts, spans, np.arange(len(questions)), ANSWERS)


def _paragraphs(path: Path, encoding: str) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield the place of each paragraph in a file, its context and its questions."""
    try:
        whole = json.loads(decoded(path.read_bytes(), str(path), encoding=encoding))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error})") from None
    place = ""
    try:
        for i, article in enumerate(_value(whole, "data", list)):
            place = f" data[{i}]"
            for j, paragraph in enumerate(_value(article, "paragraphs", list)):
                place = f" data[{i}].paragraphs[{j}]"
                yield place[1:], _value(paragraph, "context", str), _value(paragraph, "qas", list)
    except UserError as error:
        raise UserError(f"{path}{place}: {error}") from None


def _value(of: Any, key: str, kind: type) -> Any:
    """Return the value of a key. Raises UserError if it is missing or has another type."""
    names = {str: "a text", list: "a list", int: "a number"}
    if not isinstance(of, dict):
        raise UserError(f"expected an object with {key!r}, as in SQuAD's JSON, found {str(of)[:40]!r}")
    if key not in of:
        raise UserError(f"no {key!r} (found {', '.join(map(str, of))[:200] or 'none'})")
    if not isinstance(of[key], kind) or isinstance(of[key], bool):
        raise UserError(f"{key!r} is not {names[kind]} ({str(of[key])[:40]})")
    return of[key]


def answer_spans(question: Any, context: str, text: str, unanswerable: bool) -> list[tuple[int, int]]:
    """Return the characters [start, end) of each answer in `text`, the normalised context; none if not labelled.

    question: an object of `qas`. Raises UserError if an answer is not at its place in the context.
    """
    if "answers" not in question:
        return []
    spans = [_span(answer, context, text) for answer in _value(question, "answers", list)]
    if spans and question.get("is_impossible") is True:
        raise UserError("it has answers, but is_impossible is true")
    if not spans and not unanswerable:
        raise UserError("no answers; with unanswerable: true in the task's YAML file a question may have none")
    return spans or [NO_ANSWER]


def _span(answer: Any, context: str, text: str) -> tuple[int, int]:
    quoted, start = _value(answer, "text", str), _value(answer, "answer_start", int)
    there = context[start : start + len(quoted)] if start >= 0 else ""
    if there != quoted:
        raise UserError(
            f"answer {quoted[:40]!r} is not at character {start} of its context; the context has {there[:40]!r} there"
        )
    answered = normalise(quoted)
    start += len(quoted) - len(quoted.lstrip())
    if not answered:
        raise UserError("an answer is empty; a question without answers has an empty list")
    if text != context:
        # The "x" keeps `normalise` from stripping a space at the end.
        start = len(normalise(f"{context[:start]}x")) - 1
    if text[start : start + len(answered)] != answered:
        raise UserError(f"answer {quoted[:40]!r} starts or ends within a character")
    return start, start + len(answered)
