"""Fine-tune a teacher for a task.

    python finetune.py --task rotten-tomatoes
    python finetune.py --task sst-2 --arch bert-base-uncased --batch-size 32 --max-epochs 3 --seed 1
    python finetune.py --task sst-2 --arch roberta_base
    python finetune.py --task sst-2 --arch minilm --teacher mpnet --augmented tinybert --model-name minilm-assistant
    python finetune.py --task my-task.yaml --arch my-fine-tuned-classifier --as-is

The teacher is saved as models/<task>/<name> in the workspace. An interrupted command resumes when it is run again.
"""

from common.cli import run_script
from common.config import parse_flags
from common.progress import show_bars
from common.teachers.settings import FinetuneSettings, defaults_for


def main() -> None:
    """Parse flags, fine-tune, and print where the teacher is."""
    settings = parse_flags(FinetuneSettings, None, __doc__, defaults_for)
    show_bars(settings.loadbar)
    from common.teachers.finetune import finetune  # PyTorch loads here, after the flags are checked

    print(f"teacher saved in {finetune(settings)}")


if __name__ == "__main__":
    run_script(main)
