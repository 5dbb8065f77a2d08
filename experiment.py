"""Run several stages as one experiment, recorded, resumable and reported.

    python experiment.py run configs/experiments/quickstart.yaml
    python experiment.py run configs/experiments/distillation-gain.yaml --task sst-2 --name gain-sst-2
    python experiment.py preprocess finetune compress evaluate analyze --name first --task rotten-tomatoes \\
        --only-original-data --alpha 1

Jobs: preprocess, finetune, compress, evaluate, analyze. A flag goes to every job that knows it. Without --model-name,
evaluate and analyze take every model the earlier jobs made. What is finished is reused.
The report is in <workspace>/experiments/<name>.
"""

import sys
from pathlib import Path

from common.cli import run_script
from common.errors import UserError
from compression.experiment import plan_chain, plan_file, run_plan


def main() -> None:
    """Read the plan, run it, print the table and where the report is."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        return
    count = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    if words[0] == "run":
        if count != 2:
            raise UserError("run takes one experiment file: experiment.py run FILE.yaml [flags]")
        plan = plan_file(Path(words[1]), words[2:])
    else:
        plan = plan_chain(words[:count], words[count:])
    rows = run_plan(plan)
    from common.report import terminal_table

    if rows:
        print(terminal_table(rows))
    print(f"report: {plan.workspace.experiment(plan.name) / 'report.html'}")


if __name__ == "__main__":
    run_script(main)
