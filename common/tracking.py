"""Recording runs with sacred, in files and in databases. The only file that imports sacred.

A run is always recorded in files; observers, given as URLs, record it in further places. Several processes may record
in the same folder and the same database at once: a run takes its folder's number by creating the folder, and ids in
databases are random. A database that cannot be reached stops a run before its work starts. One that fails later gives
one warning on stderr, and the run continues: its results and its record in files are complete.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError, first_line
from common.installed import install

MONGO_SECONDS = 3
"""Seconds to wait for a MongoDB's answer."""
_SQLITE_SECONDS = 60
"""Seconds to wait for other processes that write to the same SQLite file."""
_ROOT = Path(__file__).resolve().parent.parent
_FILES = "files"
_running: list[Any] = []
"""The runs of sacred that this process is recording, the innermost last."""


def record(
    name: str, folder: Path, settings: dict[str, Any], work: Callable[[], Any], observers: Sequence[str] = ()
) -> Any:
    """Call `work` as one sacred run, recorded in a numbered folder in `folder` and by `observers`; return its result.

    The record has settings, commit and whether the code was changed since, package versions, machine, times, metrics
    and outcome. observers: 'sqlite:///runs.db' or another URL of SQLAlchemy, 'mongodb://host/database', 'files' (the
    default). An exception of `work` is recorded as the run's failure (or interruption) and raised again.
    Raises UserError, before work starts, as `check_observers` does.
    """
    with _quiet_imports():
        from sacred import SETTINGS, Experiment
        from sacred.observers import FileStorageObserver

    SETTINGS.CAPTURE_MODE = "no"
    SETTINGS.DISCOVER_DEPENDENCIES = "pkg"  # every installed package: most are imported only while work runs
    experiment = Experiment(name, save_git_info=_has_git(), interactive=True, base_dir=str(_ROOT))
    experiment.logger = logging.getLogger("sacred")
    experiment.logger.setLevel(logging.CRITICAL)  # sacred logs every start and end
    experiment.observers.append(_Observer(FileStorageObserver(str(folder)), str(folder)))
    experiment.observers += [_connect(url) for url in observers if url != _FILES]
    experiment.add_config({"settings": settings})
    outcome: dict[str, Any] = {}

    @experiment.main
    def main(_run: Any) -> None:
        _running.append(_run)
        try:
            outcome["value"] = work()
        finally:
            _running.pop()

    experiment.run()
    return outcome["value"]


def log_metric(name: str, value: float, step: int) -> None:
    """Record one value of a metric in the current run; does nothing outside a run."""
    if _running:
        _running[-1].log_scalar(name, value, step)


def check_observers(observers: Sequence[str]) -> None:
    """Connect to every observer and disconnect.

    Raises UserError for an unknown kind of URL, a package that is not installed, or a database that cannot be reached.
    """
    for url in observers:
        if url != _FILES:
            _connect(url).join()


class _Observer:
    """Forwards sacred's events to one of its observers; exceptions after the start become one warning on stderr.

    sacred silently ignores exceptions of observers.
    """

    priority = 20
    """sacred starts the observer of the highest priority first; the number of the run's folder is the run's id."""

    def __init__(self, inner: Any, shown: str) -> None:
        self.inner, self.shown = inner, shown
        self.started = self.failed = False
        self.lock = threading.Lock()  # heartbeats come from another thread

    def started_event(self, ex_info: dict[str, Any], **event: Any) -> Any:
        # A copy of ex_info: sacred's files write their own paths into it, which other observers cannot read.
        identity = self.inner.started_event(ex_info=dict(ex_info), **event)
        self.started = True
        return identity

    def forward(self, event: str, **details: Any) -> None:
        if not self.started:
            return  # another observer refused the run before this one had started
        with self.lock:
            try:
                getattr(self.inner, event)(**details)
            except Exception as error:
                self.recover()
                if not self.failed:
                    print(f"warning: the record in {self.shown} is incomplete: {first_line(error)}", file=sys.stderr)
                self.failed = True

    log_metrics = functools.partialmethod(forward, "log_metrics")
    heartbeat_event = functools.partialmethod(forward, "heartbeat_event")
    completed_event = functools.partialmethod(forward, "completed_event")
    interrupted_event = functools.partialmethod(forward, "interrupted_event")
    failed_event = functools.partialmethod(forward, "failed_event")

    def recover(self) -> None:
        """Prepare for the next event after a failed one."""

    def join(self) -> None:
        """Close connections; sacred calls it last."""


class _Database(_Observer):
    """A database, which may hold runs of many folders."""

    priority = 10

    def started_event(self, ex_info: dict[str, Any], _id: Any = None, **event: Any) -> Any:
        # The folder's number and random digits, at most the 24 characters that sacred's table holds.
        try:
            super().started_event(ex_info, _id=f"{_id}-{uuid.uuid4().hex}"[:24], **event)
        except Exception as error:
            raise UserError(f"observer {self.shown}: {first_line(error)}") from error
        return _id


class _SqlDatabase(_Database):
    """An SQL database. sacred 0.8.7 has no table for metrics: they go into the run's `info`, as in metrics.json."""

    def __init__(self, inner: Any, shown: str) -> None:
        super().__init__(inner, shown)
        self.metrics: dict[str, dict[str, list[Any]]] = {}

    def started_event(self, ex_info: dict[str, Any], _id: Any = None, **event: Any) -> Any:
        from sqlalchemy.exc import SAWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # about the order in which sacred adds objects; all are saved
            return super().started_event(ex_info, _id, **event)

    def log_metrics(self, metrics_by_name: dict[str, Any], info: dict[str, Any]) -> None:
        for name, new in metrics_by_name.items():
            series = self.metrics.setdefault(name, {"steps": [], "values": [], "timestamps": []})
            series["steps"] += new["steps"]
            series["values"] += new["values"]
            series["timestamps"] += [time.isoformat() for time in new["timestamps"]]

    def heartbeat_event(self, info: dict[str, Any], **event: Any) -> None:
        super().heartbeat_event(info={**info, "metrics": self.metrics}, **event)

    def recover(self) -> None:
        with contextlib.suppress(Exception):  # the database may be gone for good
            self.inner.session.rollback()

    def join(self) -> None:
        with self.lock:
            self.inner.session.close()
            self.inner.engine.dispose()


class _MongoDatabase(_Database):
    def join(self) -> None:
        self.inner.runs.database.client.close()


def _connect(url: str) -> _Database:
    shown = re.sub(r"://([^:/@]*):.*@", r"://\1:***@", url)  # no password in messages
    if "://" not in url:
        raise UserError(f"unknown observer {shown!r}; give files, sqlite:///FILE or mongodb://HOST/DATABASE")
    try:
        return _mongo(url, shown) if url.startswith("mongodb") else _sql(url, shown)
    except ModuleNotFoundError as error:
        raise UserError(
            f"observer {shown} needs the package {error.name}, which is not installed: "
            f"{install('tracking')} (for SQLite and MongoDB; other databases need their own driver)"
        ) from error


def _sql(url: str, shown: str) -> _Database:
    with _quiet_imports():
        import sqlalchemy
        from sacred.observers import SqlObserver
        from sacred.observers.sql_bases import Base
        from sqlalchemy.orm import Session

    try:
        waiting = {"timeout": _SQLITE_SECONDS} if url.startswith("sqlite") else {}
        engine = sqlalchemy.create_engine(url, connect_args=waiting)
        _create_tables(engine, Base.metadata)
    except sqlalchemy.exc.NoSuchModuleError as error:
        raise UserError(f"unknown kind of observer {shown}; give sqlite:///FILE or mongodb://HOST/DATABASE") from error
    except ValueError as error:  # the port is not a number; the message could hold a piece of a password
        raise UserError(f"observer {shown}: not a URL of a database") from error
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise UserError(f"observer {shown}: {first_line(error)}") from error
    # sacred's default session is per thread: a heartbeat's writes would not be saved before the run's end.
    return _SqlDatabase(SqlObserver.create_from(engine, Session(engine)), shown)


def _create_tables(engine: Any, metadata: Any) -> None:
    """Create the missing tables of sacred. Other processes may be creating them at the same time."""
    from sqlalchemy import String
    from sqlalchemy.exc import OperationalError, ProgrammingError

    for table in metadata.tables.values():
        for column in table.columns:
            # For databases that enforce a column's length: paths and versions may be longer than sacred's columns.
            if type(column.type) is String and column.name != "run_id":
                column.type.length = max(column.type.length or 0, 255)
    for _ in metadata.tables:
        with contextlib.suppress(OperationalError, ProgrammingError):
            return metadata.create_all(engine)
    metadata.create_all(engine)


def _mongo(url: str, shown: str) -> _Database:
    import pymongo
    from pymongo.errors import PyMongoError, ServerSelectionTimeoutError

    with _quiet_imports():
        from sacred.observers import MongoObserver

    try:
        milliseconds = 1000 * MONGO_SECONDS
        client: Any = pymongo.MongoClient(url, serverSelectionTimeoutMS=milliseconds, socketTimeoutMS=milliseconds)
        database = client.get_default_database().name
        client.admin.command("ping")
    except ServerSelectionTimeoutError as error:
        raise UserError(f"observer {shown}: no MongoDB answered within {MONGO_SECONDS} seconds") from error
    except (PyMongoError, ValueError) as error:
        raise UserError(f"observer {shown}: {first_line(error)} (mongodb://HOST[:PORT]/DATABASE)") from error
    return _MongoDatabase(MongoObserver(client=client, db_name=database), shown)


def _has_git() -> bool:
    """Return whether sacred can record the code's commit: git is installed, and the code is a checkout with one."""
    try:
        from git import GitError, Repo
    except ImportError:  # raised by GitPython if git itself is missing
        return False
    try:
        with Repo(_ROOT, search_parent_directories=True) as repository:
            repository.is_dirty()
            return bool(repository.head.commit.hexsha)
    except (GitError, ValueError, OSError):
        return False


@contextlib.contextmanager
def _quiet_imports() -> Iterator[None]:
    """Silence sacred 0.8.7, which warns on import about pkg_resources and SQLAlchemy 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
