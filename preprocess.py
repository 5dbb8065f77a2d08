"""Prepare a task's data: splits, augmented rows, teacher logits.

    python preprocess.py --task rotten-tomatoes
    python preprocess.py --task sst-2 --glue-preprocess --data-dir ../glue
    python preprocess.py --task sst-2 --augment tinybert
    python preprocess.py --task sst-2 --generate-loss processed tinybert

Each action reuses what is up to date, and goes on where a stopped run was.
"""

from common.cli import run_script, start
from common.config import parse_flags
from compression.preprocess import PreprocessSettings, preprocess


def main() -> None:
    """Parse flags, do the actions, say how many rows each gave."""
    settings = parse_flags(PreprocessSettings, None, __doc__)
    start(settings)
    for name, rows in preprocess(settings).items():
        print(f"{name}: {rows:,} rows")


if __name__ == "__main__":
    run_script(main)
