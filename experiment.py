"""Run several stages as one experiment: a list of jobs, or a grid of runs. Recorded, resumable and reported.

    python experiment.py run configs/experiments/quickstart.yaml
    python experiment.py run configs/experiments/distillation-gain.yaml --task sst-2 --name gain-sst-2
    python experiment.py preprocess finetune compress evaluate analyze --name first --task rotten-tomatoes \\
        --only-original-data --alpha 1
    python experiment.py sweep configs/experiments/thesis/table_7_1.yaml --set task=rotten-tomatoes --set epochs=2
    python experiment.py report table-7-1
    python experiment.py list
    python experiment.py show table-7-1
    python experiment.py compare bilstm-bpe25-a1-orig bilstm-bpe25-a0-aug --task rotten-tomatoes
    python experiment.py best --max-bytes 65536 --task rotten-tomatoes
    python experiment.py archive packed --to docs/results
    python experiment.py report docs/results

run: jobs of preprocess, finetune, compress, evaluate, analyze. A flag goes to every job that knows it. Without
--model-name, evaluate and analyze take every model the earlier jobs made. sweep: every cell of a grid with every seed.
What is finished is reused. The report is in <workspace>/experiments/<name>. archive: copies finished experiments,
without what belongs to a machine, to a folder that can be committed. report of such a folder writes the page that its
template, page.md.jinja, makes of them: docs/results.md of docs/results. `experiment.py sweep --help` and so on explain
the flags of each.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.cli import print_json, run_script
from common.config import nearest, parse_flags
from common.errors import UserError
from common.store.settings import QuerySettings
from compression.experiments.jobs import JOBS


def main() -> None:
    """Find what the first word asks for, and do it."""
    words = sys.argv[1:]
    if not words or (words[0] in ("-h", "--help", "run", *JOBS) and {"-h", "--help"} & set(words)):
        print(__doc__)
        return
    count = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    verb, operands, flags = words[0], words[1:count], words[count:]
    if verb in VERBS:
        VERBS[verb](operands, flags)
    elif verb in JOBS:
        _chain(words[:count], flags)
    else:
        known = [*VERBS, *JOBS]
        raise UserError(f"unknown word {verb!r}{nearest(verb, known)} (it is one of: {', '.join(known)})")


def _take(operands: Sequence[str], verb: str, *names: str) -> list[str]:
    """The words a verb needs. Raises UserError when there are more or fewer."""
    if len(operands) != len(names):
        raise UserError(f"usage: experiment.py {verb} {' '.join(names)} [flags]".replace("  ", " "))
    return list(operands)


def _run(operands: Sequence[str], flags: Sequence[str]) -> None:
    from compression.experiments.chain import plan_file

    (file,) = _take(operands, "run", "FILE.yaml")
    _do(plan_file(Path(file), flags))


def _chain(kinds: Sequence[str], flags: Sequence[str]) -> None:
    from compression.experiments.chain import plan_chain

    _do(plan_chain(kinds, flags))


def _do(plan: Any) -> None:
    from compression.experiments.chain import run_plan

    rows, record = run_plan(plan)
    _show_results(rows, record, plan.workspace.experiment(plan.name))


def _show_results(rows: list[dict[str, Any]], record: Any, folder: Path) -> None:
    from compression.experiments.report import terminal_report

    if rows:
        print(terminal_report(rows, record))
    print(f"report: {folder / 'report.html'}")


def _sweep(operands: Sequence[str], flags: Sequence[str]) -> None:
    from compression.experiments.sweep.settings import SweepSettings

    settings = parse_flags(SweepSettings, flags, "Run every cell of a grid with every seed: sweep FILE.yaml [flags].")
    (file,) = _take(operands, "sweep", "FILE.yaml")
    from compression.experiments.sweep.sweep import failures, plan_sweep, report, sweep

    if settings.dry_run:
        from compression.experiments.sweep.plan import plan_text

        plan = plan_sweep(Path(file), settings)
        print_json(plan) if settings.json_ else print(plan_text(plan))
        return
    record = sweep(Path(file), settings)
    record, rows = report(settings.paths, record.name)
    failed = failures(settings.paths, record)
    if settings.json_:
        print_json({"name": record.name, "runs": len(record.runs), "failed": [run.id for run in failed], "rows": rows})
    else:
        _show_results(rows, record, settings.paths.experiment(record.name))
    if failed:
        print(
            f"error: {len(failed)} of {len(record.runs)} runs failed; {failed[0].id}: {failed[0].error}; "
            f"see: experiment.py show {record.name}; again with: --retry-failed",
            file=sys.stderr,
        )
        raise SystemExit(1)


def _report(operands: Sequence[str], flags: Sequence[str]) -> None:
    help_text = (
        "Write an experiment's report again, or the page of a folder of archived ones: report NAME|FOLDER [flags]."
    )
    settings = parse_flags(QuerySettings, flags, help_text)
    (name,) = _take(operands, "report", "NAME|FOLDER")
    from compression.experiments.report.results_page import has_page, write_page

    if has_page(Path(name)):
        paths = list(map(str, write_page(Path(name))))
        print_json(paths) if settings.json_ else print(f"page: {paths[0]}")
        return
    from compression.experiments.sweep.sweep import report

    record, rows = report(settings.paths, name)
    print_json(rows) if settings.json_ else _show_results(rows, record, settings.paths.experiment(name))


def _archive(operands: Sequence[str], flags: Sequence[str]) -> None:
    from compression.experiments.archive import ArchiveSettings, archive

    help_text = "Copy finished experiments to a folder that can be committed: archive NAME [NAME ...] [flags]."
    settings = parse_flags(ArchiveSettings, flags, help_text)
    if not operands:
        _take(operands, "archive", "NAME")
    for folder in archive(settings, operands):
        print(f"archived: {folder}")


def _list(operands: Sequence[str], flags: Sequence[str]) -> None:
    from compression.experiments.sweep.listing import experiments, experiments_text

    settings = parse_flags(QuerySettings, flags, "List the experiments of a workspace.")
    _take(operands, "list")
    found = experiments(settings.paths)
    print_json(found) if settings.json_ else print(experiments_text(found))


def _show(operands: Sequence[str], flags: Sequence[str]) -> None:
    from compression.experiments.sweep.listing import show, show_text

    settings = parse_flags(QuerySettings, flags, "Show an experiment and its runs, or one run: show NAME|ID [flags].")
    (name,) = _take(operands, "show", "NAME|ID")
    told = show(settings.paths, name)
    print_json(told) if settings.json_ else print(show_text(told))


def _compare(operands: Sequence[str], flags: Sequence[str]) -> None:
    from compression.experiments.compare.comparison import CompareSettings

    settings = parse_flags(CompareSettings, flags, "Compare two models, families or experiments: compare A B [flags].")
    a, b = _take(operands, "compare", "A", "B")
    from compression.experiments.compare.compare import compare
    from compression.experiments.compare.text import comparison_text

    found = compare(settings, a, b)
    print_json(found.as_json()) if settings.json_ else print(comparison_text(found))


def _best(operands: Sequence[str], flags: Sequence[str]) -> None:
    from compression.experiments.best import BestSettings, best, best_text

    settings = parse_flags(BestSettings, flags, "The best students of a task that fit a size, chosen on validation.")
    _take(operands, "best")
    found = best(settings)
    print_json(found.as_json()) if settings.json_ else print(best_text(found))


VERBS: dict[str, Callable[[Sequence[str], Sequence[str]], None]] = {
    "run": _run,
    "sweep": _sweep,
    "report": _report,
    "archive": _archive,
    "list": _list,
    "show": _show,
    "compare": _compare,
    "best": _best,
}

if __name__ == "__main__":
    run_script(main)
