"""What sacred's observers lack: ids of their own in shared databases, metrics in SQL, and failures that are told.

sacred swallows what an observer raises once a run has begun; so does this, with one line on stderr.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import uuid
import warnings
from typing import Any

from common.errors import UserError


def first_line(error: Exception) -> str:
    """An error's first line, or its kind where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class Watched:
    """One of sacred's observers, told of one thing at a time; once the run has begun, it may fail without harm."""

    priority = 20
    """sacred starts the highest first: the number of the run's folder is its id."""

    def __init__(self, inner: Any, shown: str) -> None:
        self.inner, self.shown = inner, shown
        self.started = self.failed = False
        self.turn = threading.Lock()  # heartbeats come from a thread of their own

    def started_event(self, ex_info: dict[str, Any], **given: Any) -> Any:
        """A copy of ex_info: sacred's files write their own paths into it, which other observers cannot read."""
        identity = self.inner.started_event(ex_info=dict(ex_info), **given)
        self.started = True
        return identity

    def log_metrics(self, metrics_by_name: dict[str, Any], info: dict[str, Any]) -> None:
        """New values of metrics, by name: lists of steps, values and timestamps."""
        self._tell("log_metrics", metrics_by_name=metrics_by_name, info=info)

    def heartbeat_event(self, info: dict[str, Any], **given: Any) -> None:
        """Every ten seconds, and at the end."""
        self._tell("heartbeat_event", info=info, **given)

    def completed_event(self, **given: Any) -> None:
        """The run has ended."""
        self._tell("completed_event", **given)

    def interrupted_event(self, **given: Any) -> None:
        """The run was interrupted."""
        self._tell("interrupted_event", **given)

    def failed_event(self, **given: Any) -> None:
        """The run raised an exception."""
        self._tell("failed_event", **given)

    def join(self) -> None:
        """Nothing more will come."""

    def _tell(self, event: str, **given: Any) -> None:
        if not self.started:
            return  # another observer refused the run before this one heard of it
        with self.turn:
            try:
                getattr(self.inner, event)(**given)
            except Exception as error:
                self._recover()
                if not self.failed:
                    print(f"warning: the record in {self.shown} is not whole: {first_line(error)}", file=sys.stderr)
                self.failed = True

    def _recover(self) -> None:
        """Make ready for the next event."""


class Database(Watched):
    """A database, in which runs of many folders may be."""

    priority = 10

    def started_event(self, ex_info: dict[str, Any], _id: Any = None, **given: Any) -> Any:
        """The run's id here is its folder's number and random digits, at most the 24 that sacred's table holds."""
        try:
            super().started_event(ex_info, _id=f"{_id}-{uuid.uuid4().hex}"[:24], **given)
        except Exception as error:
            raise UserError(f"observer {self.shown}: {first_line(error)}") from error
        return _id


class SqlDatabase(Database):
    """An SQL database. sacred 0.8.7 has no table for metrics: they go into the run's `info`, as in metrics.json."""

    def __init__(self, inner: Any, shown: str) -> None:
        super().__init__(inner, shown)
        self.metrics: dict[str, dict[str, list[Any]]] = {}

    def started_event(self, ex_info: dict[str, Any], _id: Any = None, **given: Any) -> Any:
        """As every database's. SQLAlchemy warns of the order in which sacred adds things; all of them are saved."""
        from sqlalchemy.exc import SAWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)
            return super().started_event(ex_info, _id, **given)

    def log_metrics(self, metrics_by_name: dict[str, Any], info: dict[str, Any]) -> None:
        """Kept until the heartbeat that follows."""
        for name, new in metrics_by_name.items():
            kept = self.metrics.setdefault(name, {"steps": [], "values": [], "timestamps": []})
            kept["steps"] += new["steps"]
            kept["values"] += new["values"]
            kept["timestamps"] += [time.isoformat() for time in new["timestamps"]]

    def heartbeat_event(self, info: dict[str, Any], **given: Any) -> None:
        """Save everything so far."""
        super().heartbeat_event(info={**info, "metrics": self.metrics}, **given)

    def join(self) -> None:
        """Close the connections."""
        with self.turn:
            self.inner.session.close()
            self.inner.engine.dispose()

    def _recover(self) -> None:
        with contextlib.suppress(Exception):  # of a database that is gone for good
            self.inner.session.rollback()


class MongoDatabase(Database):
    """A MongoDB."""

    def join(self) -> None:
        """Close the connections."""
        self.inner.runs.database.client.close()
