"""Common parts of the scripts: errors in one line, exit codes, JSON on stdout."""

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from common.errors import UserError
from common.installed import install
from common.stopping import graceful

_FOR_PREDICT = ("numpy", "pydantic", "yaml", "tqdm", "filelock")
"""Libraries that predict.py needs for packed files; the other scripts need more."""


def run_script(main: Callable[[], Any]) -> None:
    """Run a script's main function; exceptions become one-line errors with an exit code.

    Exit codes: 0: success, 1: some runs of a sweep failed, 2: a user or system error, 130: interrupted.
    """
    set_environment()
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    try:
        with graceful():
            main()
    except UserError as error:
        _fail(str(error), 2)
    except OSError as error:
        # Such as a full disk or a missing permission: the system's message is the clearest.
        _fail(f"{error.filename or 'system'}: {error.strerror or error}", 2)
    except MemoryError:
        _fail("not enough memory", 2)
    except KeyboardInterrupt:
        _fail("interrupted; run the same command again to resume", 130)


def set_environment() -> None:
    """Set the environment variables that libraries read when they load, unless the user has set them."""
    # Without it tokenizers warns whenever a process forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    # Makes matrix products independent of the machine's load; read when PyTorch loads. See also common/__init__.py.
    os.environ.setdefault("MKL_DYNAMIC", "FALSE")


def _fail(message: str, code: int) -> None:
    # Escaped, so that control characters in a file's name or header cannot break the line.
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)
    print(f"error: {line}", file=sys.stderr)
    raise SystemExit(code)


def _show_missing(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an exception that ends a script; a missing library is one line that says what to install."""
    if not isinstance(error, ModuleNotFoundError):
        sys.__excepthook__(kind, error, trace)
        return
    predicts = Path(sys.argv[0]).stem == "predict" and error.name in _FOR_PREDICT
    _fail(f"{error.name} is not installed; run: {install('predict' if predicts else 'train')}", 2)


# Set when a script's first import is this one: the others need libraries.
if Path(sys.argv[0]).resolve().parent == Path(__file__).resolve().parents[1]:
    sys.excepthook = _show_missing


def print_json(value: Any) -> None:
    """Print the result of `--json` to stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
