"""Fine-tune a teacher for a task.

    python finetune.py --task rotten-tomatoes
    python finetune.py --task sst-2 --arch bert-base-uncased --batch-size 32 --max-epochs 3 --seed 1

The teacher is saved as models/<task>/<name> in the workspace. Run again after a stop, it goes on where it was.
"""

from common.cli import run_script, start
from common.config import parse_flags
from common.teachers.settings import FinetuneSettings


def main() -> None:
    """Parse flags, fine-tune, say where the teacher is."""
    settings = parse_flags(FinetuneSettings, None, __doc__)
    start(settings)
    from common.teachers.finetune import finetune  # PyTorch and transformers load here, after the flags are checked

    print(f"teacher saved in {finetune(settings)}")


if __name__ == "__main__":
    run_script(main)
