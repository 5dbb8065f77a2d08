"""Records of runs in files and databases, from several processes at once, when work or a database fails."""

import json
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_mongo
import tiny
from sqlalchemy.exc import SAWarning

from common import tracking
from common.errors import UserError
from common.tracking import check_observers, log_metric, record


def read(folder, number, name="run.json"):
    return json.loads((folder / str(number) / name).read_text())


def rows(path, table="run"):
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    found = [dict(row) for row in connection.execute(f"select * from {table}")]
    connection.close()
    return found


def work():
    for step in range(3):
        log_metric("loss", 1 / (step + 1), step)
    return "done"


def test_files_have_settings_metrics_packages_machine_and_outcome(tmp_path):
    log_metric("loss", 1.0, 0)  # ignored, as no run is recorded
    assert record("first", tmp_path, {"lr": 0.1, "jobs": ["a"]}, work, ["files"]) == "done"
    log_metric("loss", 1.0, 99)
    run = read(tmp_path, 1)
    assert run["status"] == "COMPLETED"
    assert read(tmp_path, 1, "config.json")["settings"] == {"jobs": ["a"], "lr": 0.1}
    metrics = read(tmp_path, 1, "metrics.json")["loss"]
    assert (metrics["steps"], metrics["values"]) == ([0, 1, 2], [1, 1 / 2, 1 / 3])
    assert "pydantic" in {package.partition("==")[0] for package in run["experiment"]["dependencies"]}
    assert run["host"]["hostname"] == socket.gethostname()
    record("first", tmp_path, {}, work)
    assert read(tmp_path, 2)["status"] == "COMPLETED"


@pytest.mark.slow
@pytest.mark.parametrize(("error", "status"), [(ValueError("no"), "FAILED"), (KeyboardInterrupt(), "INTERRUPTED")])
def test_an_exception_is_recorded_and_raised_again(tmp_path, error, status):
    def fails():
        log_metric("loss", 2.0, 0)
        raise error

    with pytest.raises(type(error)):
        record("first", tmp_path / "runs", {}, fails, [f"sqlite:///{tmp_path}/runs.db"])
    assert read(tmp_path / "runs", 1)["status"] == status
    (row,) = rows(tmp_path / "runs.db")
    assert row["status"] == status
    assert json.loads(row["info"])["metrics"]["loss"]["values"] == [2.0]
    log_metric("loss", 1.0, 0)  # the run is over


@pytest.mark.slow
def test_a_database_has_the_run_and_its_metrics(tmp_path, recwarn):
    url = f"sqlite:///{tmp_path}/runs.db"
    assert record("a name longer than the table's column: 32", tmp_path / "a", {"lr": 0.1}, work, [url]) == "done"
    record("second", tmp_path / "b", {}, work, [url])
    first, second = rows(tmp_path / "runs.db")
    # Both runs have the number 1 in their folders, and different ids in the database.
    assert first["run_id"] != second["run_id"]
    assert {first["run_id"][:2], second["run_id"][:2]} == {"1-"}
    assert (first["status"], json.loads(first["config"])["settings"]) == ("COMPLETED", {"lr": 0.1})
    metrics = json.loads(first["info"])["metrics"]["loss"]
    assert (metrics["steps"], metrics["values"], len(metrics["timestamps"])) == ([0, 1, 2], [1, 1 / 2, 1 / 3], 3)
    assert "sacred" in {row["name"] for row in rows(tmp_path / "runs.db", "dependency")}
    assert [row["hostname"] for row in rows(tmp_path / "runs.db", "host")] == [socket.gethostname()]
    assert not [str(w.message) for w in recwarn if issubclass(w.category, (UserWarning, SAWarning))]


@pytest.mark.slow
def test_processes_record_in_one_folder_and_one_database_at_once(tmp_path):
    """Every run of three processes is recorded, with a different number and all its metrics."""
    script = (
        "import sys; from pathlib import Path; from common.tracking import log_metric, record\n"
        "def work():\n    for step in range(50): log_metric('loss', int(sys.argv[2]) * 1000 + step, step)\n"
        "for turn in range(2): record('p', Path(sys.argv[1]) / 'runs', {'process': int(sys.argv[2])}, work,"
        " [f'sqlite:///{sys.argv[1]}/runs.db'])\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    started = [
        subprocess.Popen([*command, str(i)], cwd=tiny.ROOT, env=tiny.environment(), stderr=subprocess.PIPE)
        for i in range(3)
    ]
    assert [(process.communicate()[1], process.returncode) for process in started] == [(b"", 0)] * 3
    found = rows(tmp_path / "runs.db")
    assert sorted(int(row["run_id"].split("-")[0]) for row in found) == list(range(1, 7))
    assert rows(tmp_path / "runs.db", "experiments_repositories") or not (tiny.ROOT / ".git").exists()
    for row in found:
        number, settings = row["run_id"].split("-")[0], json.loads(row["config"])["settings"]
        expected = [settings["process"] * 1000 + step for step in range(50)]
        assert row["status"] == "COMPLETED"
        assert json.loads(row["info"])["metrics"]["loss"]["values"] == expected
        assert read(tmp_path / "runs", number)["status"] == "COMPLETED"
        assert read(tmp_path / "runs", number, "config.json")["settings"] == settings
        assert read(tmp_path / "runs", number, "metrics.json")["loss"]["values"] == expected


def test_heartbeats_reach_the_database_while_work_goes_on(tmp_path, monkeypatch):
    from sacred import SETTINGS

    monkeypatch.setitem(SETTINGS, "DEFAULT_BEAT_INTERVAL", 0.05)

    def watched():
        log_metric("loss", 0.5, 7)
        for _ in range(200):
            info = json.loads(rows(tmp_path / "runs.db")[0]["info"] or "{}")
            if info.get("metrics"):
                return info["metrics"]["loss"]["steps"]
            time.sleep(0.05)

    assert record("first", tmp_path / "runs", {}, watched, [f"sqlite:///{tmp_path}/runs.db"]) == [7]


@pytest.fixture
def mongo():
    with small_mongo.SmallMongo() as server:
        yield server
        server.shutdown()


@pytest.mark.slow
def test_a_run_goes_to_files_sqlite_and_mongodb_at_once(tmp_path, mongo):
    observers = ["files", f"sqlite:///{tmp_path}/runs.db", mongo.url]
    check_observers(observers)
    assert record("first", tmp_path / "runs", {"lr": 0.1}, work, observers) == "done"
    (row,), (run,), (metric,) = rows(tmp_path / "runs.db"), mongo.collections["runs"], mongo.collections["metrics"]
    assert {read(tmp_path / "runs", 1)["status"], row["status"], run["status"]} == {"COMPLETED"}
    assert run["_id"].startswith("1-")
    assert run["config"]["settings"] == {"lr": 0.1}
    assert (metric["run_id"], metric["name"], metric["steps"]) == (run["_id"], "loss", [0, 1, 2])
    assert metric["values"] == [1, 1 / 2, 1 / 3]


def test_a_database_that_fails_during_the_run_gives_a_warning_only(tmp_path, mongo, capsys):
    def fails():
        (tmp_path / "runs.db").write_text("not a database")
        mongo.fail = True
        return work()

    assert record("first", tmp_path, {}, fails, [f"sqlite:///{tmp_path}/runs.db", mongo.url]) == "done"
    assert read(tmp_path, 1)["status"] == "COMPLETED"
    assert read(tmp_path, 1, "metrics.json")["loss"]["steps"] == [0, 1, 2]
    output = capsys.readouterr().err
    assert output.count("runs.db is incomplete: ") == 1
    assert "is incomplete: the disk is full" in output


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgres", "unknown observer 'postgres'"),
        ("redis://somewhere/x", "unknown kind of observer redis://somewhere/x"),
        ("sqlite:////no/such/folder/runs.db", "unable to open database file"),
        ("sqlite:///HERE/notes.txt", "file is not a database"),
        ("oracle+oracledb://me:secret@host/x", r"oracle\+oracledb://me:\*\*\*@host/x needs the package oracledb"),
        ("mongodb://127.0.0.1", "No default database"),
        ("mongodb://me:p:w@127.0.0.1/x", "RFC 3986"),
    ],
)
def test_a_faulty_observer_is_refused_before_work_starts(tmp_path, url, message):
    (tmp_path / "notes.txt").write_text("something else " * 100)
    url = url.replace("HERE", str(tmp_path))
    with pytest.raises(UserError, match=message) as error:
        check_observers(["files", url])
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=message):
        record("first", tmp_path / "runs", {}, lambda: pytest.fail("work was started"), [url])


def test_a_mongodb_that_does_not_answer_is_refused_soon(monkeypatch):
    monkeypatch.setattr(tracking, "MONGO_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and sends nothing
        started = time.monotonic()
        with pytest.raises(UserError, match=r"no MongoDB answered within 0\.5 seconds"):
            check_observers([f"mongodb://127.0.0.1:{silent.getsockname()[1]}/runs"])
        assert time.monotonic() - started < 5


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    for package, url in (("sqlalchemy", "sqlite:///x.db"), ("pymongo", "mongodb://host/x")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UserError, match=f"needs the package {package}.*requirements-tracking.txt"):
            check_observers([url])


@pytest.mark.slow
def test_the_commit_is_recorded_where_the_code_is_a_git_checkout(tmp_path):
    """In a copy of the code: no checkout, an empty one, one with a commit, a changed one, and without git."""
    copy = tmp_path / "code"
    shutil.copytree(tiny.ROOT / "common", copy / "common", ignore=shutil.ignore_patterns("__pycache__"))
    program = """
import subprocess, sys
from pathlib import Path
from common.tracking import record
for step in ("true", "git init -q", "git add common && git $NAME commit -qm c", "echo >> common/errors.py"):
    subprocess.run(step, shell=True, check=True)
    record("x", Path("../runs"), {}, str)
"""
    name = {"NAME": "-c user.name=n -c user.email=e", "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    environment = tiny.environment(**name)
    subprocess.run([sys.executable, "-c", program], cwd=copy, env=environment, check=True)
    program = "from pathlib import Path; from common.tracking import record; record('x', Path('../runs'), {}, str)"
    environment["PATH"] = str(Path(sys.executable).parent)
    subprocess.run([sys.executable, "-c", program], cwd=copy, env=environment, check=True)
    git = ["git", "-C", str(copy), "rev-parse", "HEAD"]
    head = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()

    def repositories(number):
        found = read(tmp_path / "runs", number)["experiment"]["repositories"][:1]  # one for each source file
        return [(repository["commit"], repository["dirty"]) for repository in found]

    assert [repositories(number) for number in range(1, 6)] == [[], [], [(head, False)], [(head, True)], []]


def test_only_tracking_imports_sacred():
    files = [path for folder in ("common", "compression") for path in (tiny.ROOT / folder).rglob("*.py")]
    assert [path.name for path in files if re.search("(import|from) sacred", path.read_text())] == ["tracking.py"]
