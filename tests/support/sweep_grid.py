"""A small grid file, and the settings of a sweep over it."""

import tiny
import yaml

from compression.experiments.sweep.settings import SweepSettings

METHODS = {"labels": {"alpha": 1, "only_original_data": True}, "teacher": {"alpha": 0}}


def write_grid(folder, name="g", **changes):
    settings = {"task": "sst-2", "student_arch": "ffn", "embedding_type": "hash", **tiny.small()}
    table = {"rows": ["embedding_dim"], "columns": ["method"]}
    grid = {"name": name, "settings": settings, "seeds": [1, 2], "table": table}
    axes = {"embedding_dim": [6], "method": METHODS}
    if "axes" in changes:
        del grid["table"]  # which is of these axes
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**grid, "axes": axes, **changes}, sort_keys=False))
    return path


def settings(workspace, **given):
    return SweepSettings(**{"workspace": workspace, "cpu": True, "launcher": "local", "loadbar": False, **given})
