"""Run several stages as one experiment: a list of jobs, or a grid of runs. Recorded, resumable and reported.

    python experiment.py run configs/experiments/quickstart.yaml
    python experiment.py run configs/experiments/distillation-gain.yaml --task sst-2 --name gain-sst-2
    python experiment.py preprocess finetune compress evaluate analyze --task rotten-tomatoes --alpha 0 --name first
    python experiment.py sweep configs/experiments/thesis/table_7_1.yaml --set task=rotten-tomatoes --set epochs=2
    python experiment.py report table-7-1
    python experiment.py fit reviews.csv --text review --label verdict --max-bytes 32000 --minutes 15
    python experiment.py list
    python experiment.py show table-7-1
    python experiment.py compare bilstm-bpe25-a1-orig bilstm-bpe25-a0-aug --task rotten-tomatoes
    python experiment.py best --max-bytes 65536 --task rotten-tomatoes
    python experiment.py clean --yes

run: the jobs of a file, each one of preprocess, finetune, compress, evaluate, analyze. A flag goes to every job that
has it (`compress.py --help` and so on explain them); --name, --observer and --dry-run, which prints the jobs, are the
experiment's own. Without --model-name, evaluate and analyze use every model of the earlier jobs. Stages named without
a file are run in the order of what they need: splits, the teacher, augmented rows (with --augment) and the teacher's
logits, students, scores; --model-name names the teacher. Finished work is reused. The report is in
<workspace>/experiments/<name>. `experiment.py sweep --help` and so on explain the other commands.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.cli import print_json, run_script
from common.config import nearest, parse_flags
from common.data.tasks import load_task
from common.errors import UserError
from common.installed import FROM_WHEEL
from common.store.clean import CleanSettings, as_text, clean
from common.store.settings import QuerySettings
from compression.evaluation.rows import Row
from compression.experiments.best import BestSettings, best, best_text
from compression.experiments.commands import commands_to_try
from compression.experiments.compare import CompareSettings, compare
from compression.experiments.comparison_text import comparison_text
from compression.experiments.fit.settings import FitFlags, settings_for_file
from compression.experiments.jobs import JOBS, Plan, plan_chain, plan_file
from compression.experiments.report import terminal_report
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.sweep.grid import SweepSettings, plan_grid
from compression.experiments.sweep.runs import experiments, experiments_text, failures, report, show, show_text


def main() -> None:
    """Run the command named by the first word; the other words before the first flag are its operands."""
    words = sys.argv[1:]
    if not words or (words[0] in ("-h", "--help", "run", *JOBS) and {"-h", "--help", "--help-all"} & set(words)):
        print(__doc__)
        return
    count = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    command, operands, flags = words[0], words[1:count], words[count:]
    if command in COMMANDS:
        settings_class, names, function = COMMANDS[command]
        usage = " ".join(["featherweight" if FROM_WHEEL else "experiment.py", command, *names, "[flags]"])
        settings = parse_flags(settings_class, flags, function.__doc__, usage=usage)
        _check_operands(operands, names, usage)
        function(settings, *operands)
    elif command == "run":
        _check_operands(operands, ["FILE.yaml"], "experiment.py run FILE.yaml [flags]")
        _run(plan_file(Path(operands[0]), flags))
    elif command in JOBS:
        _run(plan_chain(words[:count], flags))
    else:
        known = ["run", *COMMANDS, *JOBS]
        raise UserError(f"unknown command {command!r}{nearest(command, known)} (it is one of: {', '.join(known)})")


def _check_operands(operands: Sequence[str], names: Sequence[str], usage: str) -> None:
    if len(operands) != len(names):
        raise UserError(f"usage: {usage}")


def _run(plan: Plan) -> None:
    if plan.dry_run:
        print(plan)
        return
    from compression.experiments.run import run  # PyTorch loads here, after the flags are checked

    rows, record = run(plan)
    _print_results(rows, record, plan.workspace.experiment(plan.name))
    for task in plan.tasks:
        if commands := commands_to_try(plan.workspace, task, rows):
            print("\n".join([f"try the best packed student of {load_task(task).name}:", *commands]))


def _print_results(rows: Sequence[Row], record: ExperimentRecord, folder: Path) -> None:
    if rows:
        print(terminal_report(rows, record))
    if (page := folder / "report.html").exists():
        print(f"report: {page}")


def _sweep(settings: SweepSettings, file: str) -> None:
    """Run every cell of a grid with every seed.

    Example: python experiment.py sweep configs/experiments/thesis/table_7_1.yaml --set task=rotten-tomatoes --dry-run
    """
    from compression.experiments.run import plan_sweep, plan_text, run  # PyTorch loads here, after checks of the flags

    plan, launcher = plan_grid(Path(file), settings), settings.launch()
    if settings.dry_run:
        numbers = plan_sweep(plan, launcher.at_once())
        print_json(numbers) if settings.json_ else print(plan_text(numbers))
        return
    rows, record = run(plan, launcher, settings.retry_failed, settings.loadbar)
    failed = failures(settings.paths, record)
    if settings.json_:
        print_json({"name": record.name, "runs": len(record.runs), "failed": [run.id for run in failed], "rows": rows})
    else:
        _print_results(rows, record, settings.paths.experiment(record.name))
    if failed:
        print(
            f"error: {len(failed)} of {len(record.runs)} runs failed; {failed[0].id}: {failed[0].error}; "
            f"see: experiment.py show {record.name}; again with: --retry-failed",
            file=sys.stderr,
        )
        raise SystemExit(1)


def _fit(settings: FitFlags, file: str) -> None:
    """Train the best student that fits a size in a given time, from a file with texts and labels to a packed file.

    Example: python experiment.py fit reviews.csv --text review --label verdict --max-bytes 32000 --minutes 15
    """
    from compression.experiments.fit.fit import fit, plan_fit

    for_file = settings_for_file(settings, file)
    if settings.dry_run:
        plan = plan_fit(for_file)
        print_json(plan) if settings.json_ else print(plan["text"])
        return
    result = fit(for_file)
    print_json(result.as_json()) if settings.json_ else print(result.text())
    if settings.strict and result.warnings:
        raise SystemExit(1)


def _report(settings: QuerySettings, name: str) -> None:
    """Write an experiment's report again.

    Example: python experiment.py report table-7-1
    """
    record, rows = report(settings.paths, name)
    print_json(rows) if settings.json_ else _print_results(rows, record, settings.paths.experiment(name))


def _list(settings: QuerySettings) -> None:
    """List the experiments of a workspace.

    Example: python experiment.py list
    """
    listed = experiments(settings.paths)
    print_json(listed) if settings.json_ else print(experiments_text(listed))


def _show(settings: QuerySettings, name: str) -> None:
    """Show an experiment and its runs, or one run.

    Example: python experiment.py show table-7-1
    """
    shown = show(settings.paths, name)
    print_json(shown) if settings.json_ else print(show_text(shown))


def _compare(settings: CompareSettings, a: str, b: str) -> None:
    """Compare two models, families or experiments, seed by seed.

    Example: python experiment.py compare bilstm-bpe25-a1-orig bilstm-bpe25-a0-aug --task rotten-tomatoes
    """
    compared = compare(settings, a, b)
    print_json(dataclasses.asdict(compared)) if settings.json_ else print(comparison_text(compared))


def _best(settings: BestSettings) -> None:
    """Show the best students of a task that fit a size, chosen on validation.

    Example: python experiment.py best --task rotten-tomatoes --max-bytes 65536
    """
    students = best(settings)
    print_json(dataclasses.asdict(students)) if settings.json_ else print(best_text(students))


def _clean(settings: CleanSettings) -> None:
    """Show what nothing in a workspace leads to, and the room that it takes; with --yes remove it.

    These are artifacts without a name that no named artifact or running build was made from, and locks that nobody
    holds. Nothing that a command can find again is removed.

    Example: python experiment.py clean
    """
    unused = clean(settings)
    if settings.json_:
        items = [dataclasses.asdict(item) for item in unused]
        print_json({"removed": settings.yes, "bytes": sum(item.bytes for item in unused), "unused": items})
    else:
        print(as_text(unused, settings.yes))


COMMANDS: dict[str, tuple[Any, list[str], Callable[..., None]]] = {
    "sweep": (SweepSettings, ["FILE.yaml"], _sweep),
    "fit": (FitFlags, ["FILE"], _fit),
    "report": (QuerySettings, ["NAME"], _report),
    "list": (QuerySettings, [], _list),
    "show": (QuerySettings, ["NAME|ID"], _show),
    "compare": (CompareSettings, ["A", "B"], _compare),
    "best": (BestSettings, [], _best),
    "clean": (CleanSettings, [], _clean),
}
"""Command -> settings class, operands, and the function that runs it, whose docstring is the --help text."""

if __name__ == "__main__":
    run_script(main)
