"""Training that is asked to stop, as by Ctrl-C."""

import contextlib
import itertools
import signal
from collections.abc import Iterator

import pytest

from common.stopping import graceful
from common.training import loop


@contextlib.contextmanager
def stopped_in_step(number: int) -> Iterator[None]:
    """Ask the training inside to stop in its step of that number, counted from where it resumes; it has to stop."""
    usual, steps = loop.train_step, itertools.count(1)

    def step(run, rows):
        if next(steps) == number:
            signal.raise_signal(signal.SIGINT)
        return usual(run, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", step)
        with graceful(), pytest.raises(KeyboardInterrupt):
            yield
