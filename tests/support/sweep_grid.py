"""A small grid file, the settings of a sweep over it, and the files that a sweep writes."""

import tiny
import yaml

from common.store.files import read_json
from compression.experiments.report.results import read_results
from compression.experiments.run import run
from compression.experiments.sweep.grid import SweepSettings, plan_grid

METHODS = {"labels": {"alpha": 1, "only_original_data": True}, "teacher": {"alpha": 0}}


def write_grid(folder, name="g", settings=None, **changes):
    """Write a grid file. settings: in addition to those of a tiny student; changes: other keys of the file."""
    sizes = {"task": "sst-2", "student_arch": "ffn", "embedding_type": "hash", **tiny.small(), **(settings or {})}
    table = {"rows": ["embedding_dim"], "columns": ["method"]}
    grid = {"name": name, "settings": sizes, "seeds": [1, 2], "table": table}
    axes = {"embedding_dim": [6], "method": METHODS}
    if "axes" in changes:
        del grid["table"]  # which is of these axes
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**grid, "axes": axes, **changes}, sort_keys=False))
    return path


def settings(workspace, **given):
    """Settings of a sweep in this process."""
    return SweepSettings(**{"workspace": workspace, "cpu": True, "launcher": "local", "loadbar": False, **given})


def planned(path, assignments=()):
    """The plan of a grid file. assignments: those of --set."""
    return plan_grid(path, SweepSettings(set_=tuple(assignments)))


def sweep(path, asked):
    """Run a grid file as the command does. Returns the experiment's record."""
    return run(plan_grid(path, asked), asked.launch(), asked.retry_failed, asked.loadbar)[1]


def words(path, workspace, *flags):
    """Arguments of a sweep in one process."""
    common = ["--workspace", workspace, "--cpu", "--no-loadbar", "--launcher", "local"]
    return ["sweep", *map(str, [path, *common, *flags])]


def results(workspace, name="g"):
    """Rows of an experiment."""
    return read_results(workspace / "experiments" / name / "results.json")


def runs(workspace):
    """Identity -> time at which the record of a run that has ended was written."""
    records = (workspace / "runs").glob("*/run.json")
    ended = [path for path in records if read_json(path)["status"] != "running"]
    return {path.parent.name: path.stat().st_mtime_ns for path in ended}


def model_bytes(workspace):
    """Name -> weights of every student."""
    return {path.parent.name: path.read_bytes() for path in (workspace / "models").rglob("ffn*/model.safetensors")}
