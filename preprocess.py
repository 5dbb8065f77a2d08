"""Prepare a task's data: splits, augmented rows, teacher logits.

    python preprocess.py --task rotten-tomatoes
    python preprocess.py --task my-task.yaml
    python preprocess.py --task sst-2 --glue-preprocess --data-dir ../glue
    python preprocess.py --task sst-2 --augment tinybert
    python preprocess.py --task qqp --augment neighbours
    python preprocess.py --task sst-2 --generate-loss processed tinybert
    python preprocess.py --task sst-2 --generate-loss processed --logits-from answers.jsonl --model-name any-model

The first two read the task's files, check them and report what is in them; a task of your own is a YAML file next to
its text, such as configs/tasks/own-data/reviews.yaml.
Each action reuses what is up to date, and resumes an interrupted run.
"""

from common.cli import print_json, run_script
from common.config import parse_flags
from common.data.split import read_report
from common.data.tasks import load_task
from common.progress import show_bars
from compression.augmentation.preprocess import preprocess
from compression.augmentation.settings import PreprocessSettings


def main() -> None:
    """Parse flags, run the actions, and print how many rows each one built."""
    settings = parse_flags(PreprocessSettings, None, __doc__)
    show_bars(settings.loadbar)
    done = preprocess(settings)
    if settings.json_:
        print_json({"rows": done, "report": read_report(settings.paths, load_task(settings.task).name)})
        return
    for name, rows in done.items():
        print(f"{name}: {rows:,} rows")


if __name__ == "__main__":
    run_script(main)
