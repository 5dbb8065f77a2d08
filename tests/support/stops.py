"""Training that is asked to stop, as by Ctrl-C."""

import contextlib
import itertools
import signal
from collections.abc import Iterator

import pytest

from common.stopping import graceful
from common.training import loop as training


@contextlib.contextmanager
def stopped_in_step(number: int) -> Iterator[None]:
    """Ask what trains inside to stop in its step of that number, counted from where it goes on; it has to stop."""
    usual, steps = training._step, itertools.count(1)

    def step(run, rows):
        if next(steps) == number:
            signal.raise_signal(signal.SIGINT)
        return usual(run, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_step", step)
        with graceful(), pytest.raises(KeyboardInterrupt):
            yield
