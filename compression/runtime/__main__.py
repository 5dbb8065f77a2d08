"""The command line: answers the given texts, or the lines of standard input (on a terminal, one at a time)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from .model import Model, load
from .reader import PackedError
from .zoo import zoo_names

_PROGRAM = "python -m compression.runtime" if __package__ else f"python {sys.argv[0]}"
_USAGE = """usage: {program} MODEL [TEXT ...]

Print the label of each TEXT, or without TEXT of each line of standard input, and all labels' probabilities.
MODEL is a packed file (.fwt), or the name of a model of the zoo: {names}.
A model of pairs takes two TEXTs a pair, or lines of two texts with a tab between them.
A model that labels words prints a line for each word, and an empty one after each text.
A model that answers questions takes a question and its context as a pair, and prints the answer, empty for none."""
_LINES_AT_ONCE, _BYTES_AT_ONCE = 1 << 12, 1 << 20
_PADDED = ("tags", "answers")


def main(arguments: Sequence[str], load: Callable[[str], Model] = load, program: str = _PROGRAM) -> None:
    """Print the answers. Raises PackedError."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(_USAGE.format(program=program, names=", ".join(zoo_names()) or "none is here"))
        return
    model = load(arguments[0])
    if sys.stdout is None or (sys.stdin is None and not arguments[1:]):
        raise PackedError(f"{'stdin' if sys.stdout else 'stdout'} is closed")
    sys.stdout.reconfigure(encoding="utf-8")
    texts = arguments[1:]
    if file := next(filter(os.path.isfile, texts), None):
        raise PackedError(f"{file} is a file, not a text; its lines are read by: {program} {arguments[0]} < {file}")
    if texts and model.pair and len(texts) % 2:
        raise PackedError(f"{model.name} reads pairs of texts: give an even number of them")
    if texts:
        _print(model, list(zip(texts[::2], texts[1::2])) if model.pair else texts)
        return
    at_once = 1 if sys.stdin.isatty() else _LINES_AT_ONCE
    if at_once == 1:
        expected = "two texts a line, with a tab between them" if model.pair else "a text a line"
        print(f"{model.name}: type {expected}; Ctrl-D ends", file=sys.stderr)
    batch: list = []
    longest = 0
    for number, line in enumerate(sys.stdin.buffer, 1):
        batch.append(_parse(model, line, number))
        longest = max(longest, len(line))
        # Logits of words are padded to the longest line.
        if len(batch) == at_once or (model.kind in _PADDED and longest * len(batch) > _BYTES_AT_ONCE):
            _print(model, batch)
            batch, longest = [], 0
    _print(model, batch)


def _parse(model: Model, line: bytes, number: int) -> str | tuple[str, ...]:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise PackedError(f"line {number}: not UTF-8") from None
    if not model.pair:
        return text
    texts = tuple(text.split("\t"))
    if len(texts) != 2:
        raise PackedError(f"line {number}: {len(texts)} texts; {model.name} reads two with a tab between them")
    return texts


def _print(model: Model, texts: Sequence[str] | Sequence[tuple[str, str]]) -> None:
    print("".join(f"{line}\n" for line in model.lines(texts)), end="", flush=True)


def run_command(run: Callable[[], None]) -> None:
    """Run a command; a PackedError, and an error of the system's, becomes one line and exit code 2."""
    try:
        run()
    except PackedError as error:
        print("error:", str(error).replace("\n", " "), file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader has closed the pipe. Otherwise Python would report an error at exit, when it flushes the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # such as a full disk
        print("error:", error.strerror or error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run_command(lambda: main(sys.argv[1:]))
