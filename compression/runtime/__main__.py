"""The command line: answer the texts given, or the lines of standard input."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Sequence

from compression.runtime.model import Model, load
from compression.runtime.reader import PackedError

_PROGRAM = "python -m compression.runtime" if __package__ else f"python {sys.argv[0]}"
_USAGE = f"""usage: {_PROGRAM} FILE.fwt [TEXT ...]   (lines of standard input without TEXT;
       a model of pairs takes two TEXTs a pair, or lines of two texts with a tab between them)"""
_LINES_AT_ONCE, _BYTES_AT_ONCE = 1 << 12, 1 << 20


def main(arguments: Sequence[str]) -> None:
    """Print the answers. Raises PackedError."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return
    model = load(arguments[0])
    sys.stdout.reconfigure(encoding="utf-8")
    texts = [tidy(argument) for argument in arguments[1:]]
    if texts and model.pair and len(texts) % 2:
        raise PackedError(f"{model.name} reads pairs of texts: give an even number of them")
    if texts:
        _print(model, list(zip(texts[::2], texts[1::2], strict=True)) if model.pair else texts)
        return
    batch: list = []
    longest = 0
    for number, line in enumerate(sys.stdin.buffer, 1):
        batch.append(_parse(model, line, number))
        longest = max(longest, len(line))
        # Answers to words are padded to the longest line.
        if len(batch) == _LINES_AT_ONCE or (model.tokens and longest * len(batch) > _BYTES_AT_ONCE):
            _print(model, batch)
            batch, longest = [], 0
    _print(model, batch)


def tidy(text: str) -> str:
    """Return the text in NFC, every run of white space one space, ends stripped: as the project reads all text."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _parse(model: Model, line: bytes, number: int) -> str | tuple[str, ...]:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise PackedError(f"line {number}: not UTF-8") from None
    if not model.pair:
        return tidy(text)
    texts = tuple(tidy(part) for part in text.split("\t"))
    if len(texts) != 2:
        raise PackedError(f"line {number}: {len(texts)} texts; {model.name} reads two with a tab between them")
    return texts


def _print(model: Model, texts: Sequence[str] | Sequence[tuple[str, str]]) -> None:
    """Print a line for each text: the label and all probabilities, or a regression's score.

    Of a model of several labels a text: those with a probability of at least 0.5, joined by |, in place of the label,
    or "none of these". Of a model that labels words: a line for each word with its tag, and an empty one.
    """
    for text, row in zip(texts, model.probabilities(texts).tolist(), strict=True):
        if model.tokens:
            tags = (model.labels[word.index(max(word))] for word in row)
            print("".join(f"{word}\t{tag}\n" for word, tag in zip(text.split(), tags, strict=False)))
        elif model.labels:
            shares = "\t".join(f"{label} {share:.6f}" for label, share in zip(model.labels, row, strict=True))
            chosen = [label for label, share in zip(model.labels, row, strict=True) if share >= 0.5]
            several = "|".join(chosen) or "none of these"
            print(f"{several if model.multilabel else model.labels[row.index(max(row))]}\t{shares}")
        else:
            print(f"{row[0]:.6f}")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except PackedError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader has closed the pipe. Python would complain at exit when it flushes what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
