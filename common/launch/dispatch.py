"""Giving out parts: the one loop over workers of any kind, for workers that die and for stopping in the middle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, Protocol

from common.errors import UserError
from common.launch.dispatch import PartT
from common.progress import say
from common.stopping import asked

ATTEMPTS = 4
"""Times a part is given out, at most."""
SECONDS_BETWEEN_LOOKS = 0.2
"""How long a crew waits for a part to end before the loop looks whether a stop was asked for."""


class WorkerDied(Exception):
    """A worker ended before its part did. The message says which one and how."""


class Crew(Protocol):
    """Workers of one kind. A handle stands for one part that was given out."""

    at_once: int
    """Parts it takes at a time."""

    def start(self, parts: list[Any]) -> Sequence[Hashable]:
        """Give out parts. Returns a handle for each."""
        ...

    def ended(self, running: list[Any]) -> Iterable[Any]:
        """Handles, of those running, whose parts have ended. Waits a moment where none has, then returns none."""
        ...

    def result(self, handle: Any) -> None:
        """Return if the part was done. Raises what its function raised, or WorkerDied."""
        ...

    def ask_to_stop(self, running: list[Any]) -> None:
        """Let `asked` be true in the workers, so that work in hand ends where it can go on later."""
        ...

    def close(self, running: list[Any]) -> None:
        """Kill what is still running and send the workers home."""
        ...


def give_out(
    crew: Crew, parts: Sequence[PartT], finished: Callable[[PartT], None], lost: Callable[[PartT], None] | None
) -> None:
    """Have every part done, in any order. `finished` hears of each, `lost` of one whose worker died ATTEMPTS times.

    Raises what a part's function raised, KeyboardInterrupt when a stop was asked for, and without `lost` UserError when
    workers keep dying; always after the parts in hand have ended, which are asked to stop.
    """
    giving = _Giving(crew, parts, finished, lost)
    try:
        giving.go_on()
    finally:
        crew.close(list(giving.running))
    if giving.failure:
        raise giving.failure


class _Giving(Generic[PartT]):
    """Parts on their way through a crew. Each is with the number of times it was given out, this one included."""

    def __init__(
        self,
        crew: Crew,
        parts: Sequence[PartT],
        finished: Callable[[PartT], None],
        lost: Callable[[PartT], None] | None,
    ) -> None:
        self.crew, self.finished, self.lost = crew, finished, lost
        self.waiting = deque((part, 1) for part in parts)
        self.running: dict[Hashable, tuple[PartT, int]] = {}
        self.failure: BaseException | None = None

    def go_on(self) -> None:
        """Give out parts until all have ended, or after a failure until those in hand have."""
        while True:
            if asked() and not self.failure:
                self._fail(KeyboardInterrupt())
            if not self.failure:
                self._start()
            if not self.running:
                return
            for handle in self.crew.ended(list(self.running)):
                part, attempt = self.running.pop(handle)
                if not self.failure:
                    self._settle(handle, part, attempt)

    def _start(self) -> None:
        room = min(len(self.waiting), self.crew.at_once - len(self.running))
        given = [self.waiting.popleft() for _ in range(room)]
        if given:
            handles = self.crew.start([part for part, _ in given])
            self.running.update(zip(handles, given, strict=True))

    def _settle(self, handle: Hashable, part: PartT, attempt: int) -> None:
        try:
            self.crew.result(handle)
        except WorkerDied as death:
            self._died(part, attempt, str(death))
        except BaseException as error:
            # What breaks while all are stopping is a consequence of it.
            self._fail(KeyboardInterrupt() if asked() else error)
        else:
            self.finished(part)

    def _died(self, part: PartT, attempt: int, how: str) -> None:
        if attempt < ATTEMPTS:
            say(f"a worker died ({how}); its part is given out again")
            self.waiting.append((part, attempt + 1))
        elif self.lost:
            say(f"a worker died ({how}); its part is given up after {ATTEMPTS} times")
            self.lost(part)
        else:
            again = "out of memory? try fewer --workers"
            self._fail(UserError(f"workers keep dying: {ATTEMPTS} did on the same part, the last by {how} ({again})"))

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self.crew.ask_to_stop(list(self.running))
