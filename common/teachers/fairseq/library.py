"""fairseq, imported only when needed (it is optional), and without its warnings and logs."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from types import ModuleType

from common.errors import UserError
from common.installed import install

INSTALL = f"{install('fairseq')} && pip install --no-deps ve-fairseq==0.12.3"


def load_fairseq(who: str) -> ModuleType:
    """Return the fairseq module. Raises UserError, with the command that installs it for `who`, if it is missing."""
    try:
        with quiet():
            import fairseq
            import fairseq_cli.train  # noqa: F401 - it sets up logging, so it must be imported under `quiet`
    except ImportError as error:
        raise UserError(f"{who} needs fairseq; run: {INSTALL} ({error})") from error
    return fairseq


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress fairseq's output: warnings of old syntax and missing extras, logs at INFO on stdout."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    for name in ("fairseq", "fairseq_cli"):
        logging.getLogger(name).setLevel(logging.WARNING)
    root.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
