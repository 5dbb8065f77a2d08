"""Recording runs with sacred, in files and in databases. The only file that imports sacred.

A run is always recorded in files; observers are further places, given as URLs. Several processes may record in the same
folder and the same database at once: a folder's number is taken by making the folder, and ids in databases are random.
A database that cannot be reached stops a run before its work starts. One that fails later is told of on stderr, once,
and the run goes on: its results and its record in files are whole.
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.observers import MongoDatabase, SqlDatabase, Watched, first_line

MONGO_SECONDS = 3
"""How long a MongoDB may take to answer."""
_SQLITE_SECONDS = 60
"""How long a process waits for others that write to the same SQLite file."""
_ROOT = Path(__file__).resolve().parent.parent
_FILES = "files"
_running: list[Any] = []
"""sacred's runs being recorded in this process, the innermost last."""


def record(
    name: str, folder: Path, settings: dict[str, Any], work: Callable[[], Any], observers: Sequence[str] = ()
) -> Any:
    """Run `work` as one sacred run, recorded in a numbered folder in `folder` and wherever `observers` say.

    Recorded are settings, commit and whether the code was changed since, package versions, machine, times, metrics and
    outcome. observers: 'sqlite:///runs.db' or another URL of SQLAlchemy, 'mongodb://host/database', 'files' (the
    default).
    Returns what `work` returns. What it raises is recorded as the run's failure (or interruption) and raised again.
    Raises UserError, before work starts, as `check_observers` does.
    """
    with _quiet_imports():
        from sacred import SETTINGS, Experiment
        from sacred.observers import FileStorageObserver

    SETTINGS.CAPTURE_MODE = "no"  # our output is bars and one table; the record is in files
    SETTINGS.DISCOVER_DEPENDENCIES = "pkg"  # every package installed: most are imported only once work has begun
    experiment = Experiment(name, save_git_info=_has_git(), interactive=True, base_dir=str(_ROOT))
    experiment.logger = _quiet_logger()
    experiment.observers.append(Watched(FileStorageObserver(str(folder)), str(folder)))
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
    """Note one value of a measure in the run being recorded; does nothing outside one."""
    if _running:
        _running[-1].log_scalar(name, value, step)


def check_observers(observers: Sequence[str]) -> None:
    """Connect to every observer and let go again.

    Raises UserError: an unknown kind of URL, a package that is not installed, a database that cannot be reached.
    """
    for url in observers:
        if url != _FILES:
            _connect(url).join()


def _connect(url: str) -> Watched:
    shown = re.sub(r"://([^:/@]*):.*@", r"://\1:***@", url)  # no password in messages
    if "://" not in url:
        raise UserError(f"unknown observer {shown!r}; give files, sqlite:///FILE or mongodb://HOST/DATABASE")
    try:
        return _mongo(url, shown) if url.startswith("mongodb") else _sql(url, shown)
    except ModuleNotFoundError as error:
        raise UserError(
            f"observer {shown} needs the package {error.name}, which is not installed: "
            "pip install -r requirements-tracking.txt (for SQLite and MongoDB; other databases need their own driver)"
        ) from error


def _sql(url: str, shown: str) -> Watched:
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
    except ValueError as error:  # a port that is no number; the message could hold a piece of a password
        raise UserError(f"observer {shown}: not a URL of a database") from error
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise UserError(f"observer {shown}: {first_line(error)}") from error
    # sacred's own session is one for each thread: what a heartbeat says would not be saved before the run's end.
    return SqlDatabase(SqlObserver.create_from(engine, Session(engine)), shown)


def _create_tables(engine: Any, metadata: Any) -> None:
    """Make sacred's tables where they are missing, though other processes may be making them too."""
    from sqlalchemy import String
    from sqlalchemy.exc import OperationalError, ProgrammingError

    for table in metadata.tables.values():
        for column in table.columns:
            # A path or a version longer than sacred foresaw is refused by databases that hold to a column's length.
            if type(column.type) is String and column.name != "run_id":
                column.type.length = max(column.type.length or 0, 255)
    for _ in metadata.tables:
        with contextlib.suppress(OperationalError, ProgrammingError):
            return metadata.create_all(engine)
    metadata.create_all(engine)


def _mongo(url: str, shown: str) -> Watched:
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
    return MongoDatabase(MongoObserver(client=client, db_name=database), shown)


def _has_git() -> bool:
    """Whether the code's commit can be told: it is a git checkout with a commit, and git is installed."""
    try:
        from git import GitError, Repo
    except ImportError:  # GitPython's way of saying that there is no git
        return False
    try:
        with Repo(_ROOT, search_parent_directories=True) as repository:
            repository.is_dirty()
            return bool(repository.head.commit.hexsha)
    except (GitError, ValueError, OSError):
        return False


@contextlib.contextmanager
def _quiet_imports() -> Iterator[None]:
    """sacred 0.8.7 warns on import, of pkg_resources and of SQLAlchemy 2; nothing here can be done about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _quiet_logger() -> logging.Logger:
    """sacred announces every start and end; the board is ours."""
    logger = logging.getLogger("sacred")
    logger.setLevel(logging.CRITICAL)
    return logger
