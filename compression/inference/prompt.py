"""A prompt on a terminal: each text is answered at once. What is not an answer goes to stderr."""

from __future__ import annotations

import io
import sys
from typing import BinaryIO

from common.errors import UserError
from compression.evaluation.classifier import Classifier
from compression.inference.readers import Columns, Format, read_texts
from compression.inference.writers import make_writer


def prompt(model: Classifier, stream: BinaryIO, columns: Columns, kind: Format) -> None:
    """Ask and answer until the stream ends (Ctrl-D). A line that is wrong is told, and asked for again."""
    sys.stdout.reconfigure(encoding="utf-8")
    what = "two sentences, a line each" if model.pair else "a sentence"
    _tell(f"{model.name}, {model.task}: type {what}; Ctrl-D ends\n")
    questions = ("first> ", "second> ") if model.pair else ("> ",)
    while True:
        lines = []
        for question in questions:
            _tell(question)
            lines.append(stream.readline())
            if not lines[-1]:
                _tell("\n")
                return
        try:
            print(_answer(model, b"\t".join(line.rstrip(b"\r\n") for line in lines), columns, kind), end="", flush=True)
        except UserError as error:
            _tell(f"error: {error}\n")


def _answer(model: Classifier, line: bytes, columns: Columns, kind: Format) -> str:
    texts = read_texts(io.BytesIO(line + b"\n"), "lines", columns)
    write = make_writer(kind, texts, model.labels, model.tokens)[1]
    row = next(texts.rows)
    return write(row, model.probabilities([row.sentences]).tolist()[0])


def _tell(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
