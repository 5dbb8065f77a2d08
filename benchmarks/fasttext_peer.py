"""The best fastText models of a task within sizes in bytes, as an experiment whose rows are compared with students'.

    python benchmarks/fasttext_peer.py --task sst-2 --sizes 12000 32000 100000 400000 --seeds 3201976 8291959 5111918
    python benchmarks/fasttext_peer.py --task sst-2 --augmented eight --teacher minilm

fastText learns from the same rows as students, split by their hash tokenizer: train rows with their labels and, with
--augmented, in separate models, these and the augmented rows with the teacher's choices. A pair is one line, in which
the words of the second sentence are marked.

Tuning: the settings of fasttext_models.py are tried for every task and set of rows. With each, a model is trained with
the first seed, quantized to every size, with and without training after the cut, and scored on validation.
--tune-share tunes on a part of train, for tasks that would take a day on all of it.
A size's winner is the best file that is not larger. The winners, and the best model that is not quantized, are trained
again with every seed, and only these are scored on test, once. fastText's qout needs 256 labels, so outputs are not
quantized. fastText's autotune is not used: with 60 seconds and 12 KB on SST-2 it had not ended after ten minutes and
held 7 GB.

With one thread a seed gives the same bytes every time; with more threads it does not. A seed also shuffles the rows.
Finished models are cached in <workspace>/fasttext-models. The experiment fasttext-TASK holds results.json and, for
every setting tried, tuning.json; `experiment.py list`, `show`, `report` and `archive` (without tuning.json) support it.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from fasttext_models import USUAL, WIDE, Bench, File, best_within, cuts, peer_row, settings_tried
from fasttext_side import FASTTEXT, fasttext_python

from common.cli import print_json, run_script
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.kinds.registry import LABELS
from common.progress import bar, say
from common.seeds import NAMED_SEEDS
from common.store.artifact import paths_of
from common.store.locks import only_one
from common.store.workspace import Workspace, default_root
from common.teachers.guided import learning_inputs
from compression.distillation.dataset import DistillationSet, distillation_set, find_teacher
from compression.distillation.settings import DistillSettings
from compression.experiments.report import terminal_report, write_report
from compression.experiments.report.record import (
    RESULTS_FILE,
    ExperimentRecord,
    check_name_is_free,
    definition_of,
    write_record,
)
from compression.experiments.report.results import write_lines, write_results

TUNING_FILE = "tuning.json"


def training_rows(args: argparse.Namespace, task: Task, share: float = 1.0) -> list[DistillationSet]:
    """Return the sets of training rows: a share of train with labels and, if requested, one with augmented rows too."""
    settings = DistillSettings(
        task=args.task,
        workspace=args.workspace,
        downsample_data=share,
        alpha=1,  # a train row has its own label and an augmented row the teacher's choice
        only_original_data=True,
    )
    sets = [_learned(settings, task)]
    if args.augmented:
        more = {"only_original_data": False, "augmented": (args.augmented,), "teacher": args.teacher}
        sets.append(_learned(settings.model_copy(update=more), task))
    return sets


def _learned(settings: DistillSettings, task: Task) -> DistillationSet:
    inputs = learning_inputs(settings.paths, task, settings.augmented_sets, find_teacher(settings, task))
    return distillation_set(paths_of(inputs), task, settings, settings.seed)


def tune(bench: Bench, rows: DistillationSet, args: argparse.Namespace) -> list[File]:
    """Return the files of all settings with the first seed, scored on validation."""
    tried = bar(settings_tried(args.draws), f"fastText on {len(rows.split):,} rows")
    files = (bench.files(rows, draw, cuts(args.sizes), args.seeds[0], ("validation",)) for draw in tried)
    return list(itertools.chain.from_iterable(files))


def test(bench: Bench, rows: DistillationSet, chosen: dict[str, File], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Return rows of results.json: the winners, trained with each seed and scored on test. chosen: name -> winner."""
    splits = ("validation", *bench.task.test_splits)
    rows_of_results = []
    for (name, file), seed in bar(list(itertools.product(chosen.items(), seeds)), "winners"):
        (again,) = bench.files(rows, file.draw, [(file.size, file.retrain)], seed, splits, keep=True)
        if again.error:
            say(f"left out: {name} with seed {seed}: {again.error}")
        else:
            rows_of_results += [peer_row(bench, rows, name, again, split) for split in bench.task.test_splits]
    return rows_of_results


def run(args: argparse.Namespace, bench: Bench) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Tune and test with each set of rows. Returns the rows of results.json and the contents of tuning.json."""
    results, learned = [], {}
    share = args.tune_share or 1.0
    parts = training_rows(args, bench.task, share)
    for rows, part in zip(training_rows(args, bench.task), parts, strict=True):
        files = tune(bench.on_part(share), part, args)
        ending = "-aug" if rows.augmented else ""
        winners = {size: best_within(files, size) for size in (*sorted(args.sizes), None)}
        for size in [size for size, file in winners.items() if file is None]:
            say(f"left out: no setting gives a file of {size:,} bytes")
        chosen = {f"fasttext-{short(size)}{ending}": file for size, file in winners.items() if file}
        results += test(bench, rows, chosen, args.seeds)
        learned[args.augmented if rows.augmented else "train"] = {
            "rows": len(rows.split),
            "tuned_on_rows": len(part.split),
            "chosen": {name: {"draw": file.draw, **as_tried(file)} for name, file in chosen.items()},
            "tried": [
                {"draw": draw, "files": list(map(as_tried, of_it))}
                for draw, of_it in itertools.groupby(files, key=lambda file: file.draw)
            ],
        }
    return results, {
        "library": FASTTEXT[0],
        "usual": USUAL,
        "wide": WIDE,
        "seed": args.seeds[0],
        "learned_from": learned,
    }


def as_tried(file: File) -> dict[str, Any]:
    """Return the entry of a file in tuning.json."""
    cut = {"size": file.size, "retrain": file.retrain}
    if file.error:
        return {**cut, "error": file.error}
    return {**cut, "epochs": file.epochs, "bytes": file.bytes, "cutoff": file.cutoff, **file.metrics}


def short(size: int | None) -> str:
    """Return a size as text: 12000 -> '12k'."""
    return "full" if size is None else f"{size // 1000}k" if size % 1000 == 0 else str(size)


def record_of(args: argparse.Namespace, task: Task) -> ExperimentRecord:
    """Return the experiment's record."""
    flags = {key: value for key, value in vars(args).items() if key not in _NOT_ITS_MEANING and value is not None}
    return ExperimentRecord(
        name=args.name or f"fasttext-{task.name}",
        title=f"fastText on {task.name}, quantized to size",
        kind="chain",
        definition=definition_of(Path(__file__).name, flags),
        jobs=({"job": "fasttext_peer", **flags, "library": FASTTEXT[0]},),
    )


_NOT_ITS_MEANING = ("workspace", "fasttext_python", "json", "name")


def record(args: argparse.Namespace) -> None:
    """Run everything and write the experiment's folder. Raises UserError, before anything runs, for an unfit task."""
    task, paths = load_task(args.task), Workspace(args.workspace)
    if task.kind is not LABELS or task.models_of:
        raise UserError(f"{task.name}: fastText learns labels of texts, of a task with rows to learn from")
    experiment = record_of(args, task)
    folder = paths.experiment(experiment.name)
    check_name_is_free(folder, experiment.definition)
    python = fasttext_python(args.fasttext_python, paths)
    if python is None:
        raise UserError("no fastText to train, see above")
    with only_one(folder / "peer", f"experiment {experiment.name}"), tempfile.TemporaryDirectory() as lines:
        rows, tuning = run(args, Bench(paths, task, python, args.threads, Path(lines), args.teacher))
        write_lines(folder / TUNING_FILE, tuning)
        write_results(folder / RESULTS_FILE, rows)
        write_record(folder, experiment)
        write_report(folder, rows, experiment)
    print_json(rows) if args.json else print(terminal_report(rows, experiment))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="sst-2", help="task whose rows are learned")
    parser.add_argument("--sizes", type=int, nargs="+", default=[12_000, 32_000, 100_000, 400_000], help="in bytes")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(NAMED_SEEDS.values())[:3], help="first: tuning's")
    parser.add_argument("--augmented", metavar="NAME", help="augmented rows to learn from too, in separate models")
    parser.add_argument("--teacher", metavar="NAME", help="whose choices are their labels; unset: the only teacher")
    parser.add_argument("--draws", type=int, default=32, help="settings drawn from the wide grid (default: 32)")
    parser.add_argument("--tune-share", type=float, help="part of train to tune on, drawn; unset: all of it")
    parser.add_argument("--threads", type=int, default=1, help="fastText's threads; with 1 results are reproducible")
    parser.add_argument("--name", help="name of the experiment; unset: fasttext-TASK")
    parser.add_argument("--workspace", type=Path, default=default_root(), help="where the data is")
    parser.add_argument("--fasttext-python", metavar="PATH", help="a Python that can import fasttext")
    parser.add_argument("--json", action="store_true", help="print the rows of results.json")
    return parser


if __name__ == "__main__":
    run_script(lambda: record(make_parser().parse_args()))
