"""Run of a fit: measures, plans and runs the stages, and saves each decision for a resumed run."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from common.config import Settings
from common.data.prepare import make_splits
from common.data.readers.tables import read_source
from common.data.split import Split, count_rows, load_split
from common.data.tasks import load_task
from common.progress import say, side_task
from common.stopping import OutOfTime, at_once
from common.store.files import file_sha256
from common.tracking import record
from compression.augmentation.label_shift import recorded_labels
from compression.experiments.commands import example
from compression.experiments.fit.baselines import fasttext, quick_score, tf_idf
from compression.experiments.fit.data import (
    MOST_TEST,
    MOST_VALIDATION,
    TASK_FILE,
    draw,
    held_out_rows,
    whole_texts,
    write_task,
)
from compression.experiments.fit.detect import FileContents, labels_of, without_labels
from compression.experiments.fit.plan import (
    LEAST_SECONDS,
    STUDENTS_SHARE,
    VARIANTS,
    Plan,
    Speeds,
    make_plan,
    reserve_of,
)
from compression.experiments.fit.result import FitResult, plan_lines, write_output
from compression.experiments.fit.selection import Selection
from compression.experiments.fit.settings import Baseline, FitSettings
from compression.experiments.fit.speeds import measure
from compression.experiments.fit.stages import AUGMENTED, Stages
from compression.experiments.fit.state import OPENING, TEACHER, Clock, State
from compression.experiments.report import write_report
from compression.experiments.report.record import RESULTS_FILE, ExperimentRecord, write_record
from compression.experiments.report.results import Row, write_results

_ROOM = 0.96
"""Share of the time that is planned; the rest is a margin in case the machine becomes busier."""
_MEASURED_ROWS = 1000
_MANY_OF_LABEL = 100
"""With more rows of each label, some are left in train whatever is held out."""
_MOST_AUGMENTED = 60_000
"""Maximum number of augmented rows: with more, students have time for too few epochs."""


class Opening(Settings):
    """Contents of the file, measurements and the plan, as known before the first stage."""

    task: str
    """Contents of the file, in words."""
    notes: tuple[str, ...]
    texts: tuple[str, ...]
    speeds: Speeds
    plan: Plan


class Taught(Settings):
    """Result of the teacher's stages."""

    teacher: bool
    variants: int
    """Number of variants of each row that have logits."""
    why: str


def describe_plan(settings: FitSettings, contents: FileContents, start: float) -> dict[str, Any]:
    """Return the plan of a fit. start: seconds that the libraries took to load."""
    with tempfile.TemporaryDirectory() as folder, at_once():
        clock = Clock(Path(folder), settings.seconds)
        opening = _open(settings, contents, Path(folder), clock, start)
    lines = [opening.task, *opening.notes, f"Teacher: {opening.plan.why}.", plan_lines(opening.plan.seconds)]
    return {**opening.model_dump(mode="json"), "text": "\n".join(lines)}


def run_fit(
    settings: FitSettings, contents: FileContents | None, folder: Path, state: State, clock: Clock, start: float
) -> FitResult:
    """Run a fit, or the rest of it, as an experiment.

    contents: of the file; not needed to continue a fit. start: seconds that the libraries took to load.
    """
    with at_once():  # measures, and has nothing to save
        opening = state.decide(OPENING, Opening, lambda: _open(settings, contents, folder, clock, start))
    task = load_task(str(folder / TASK_FILE))
    for line in (opening.task, *opening.notes, f"teacher: {opening.plan.why}"):
        say(line)
    experiment = ExperimentRecord(
        name=settings.experiment,
        title=f"{settings.file.name} in {settings.max_bytes:,} bytes",
        kind="chain",
        definition=settings.definition(),
    )
    write_record(folder, experiment)
    stages = Stages(settings, task, clock, state)
    recorded = {"fit": settings.meaning(), "file": str(settings.file)}
    rows, result = record(settings.experiment, folder / "sacred", recorded, lambda: _stages(stages, opening, folder))
    labels = {task.argument: None} if task.kind.has_classes else {}
    experiment = experiment.model_copy(
        update={
            "jobs": stages.done.jobs,
            "labels": recorded_labels(settings.paths, labels),
            "summary": tuple(result.summary()),
        }
    )
    write_record(folder, experiment)
    write_results(folder / RESULTS_FILE, rows)
    result = result.model_copy(update={"seconds": round(clock.used, 1)})
    state.save("result", result)
    with side_task("the report"):
        write_report(folder, rows, experiment)
    return result


def _open(settings: FitSettings, contents: FileContents, folder: Path, clock: Clock, start: float) -> Opening:
    """Measure, plan and write the task's files. Returns the opening."""
    usable = len(contents.values)
    some = dataclasses.replace(contents, values=draw(contents.values, _MEASURED_ROWS, settings.seed), test=None)
    speeds = measure(settings, write_task(folder, settings.experiment, some), start, _ROOM * clock.left)
    held_out = held_out_rows(usable, MOST_VALIDATION) + (0 if contents.test else held_out_rows(usable, MOST_TEST))
    plan = make_plan(speeds, usable, held_out, _ROOM * clock.left)
    notes = [*contents.notes]
    if plan.rows < usable:
        notes.append(f"{plan.rows:,} of {usable:,} rows are used, drawn at random: more would exceed the time limit.")
        contents = dataclasses.replace(contents, values=draw(contents.values, plan.rows, settings.seed))
    contents, rare = learnable(contents, settings)
    notes += rare
    whole = whole_texts(contents)
    if whole is not None:
        notes.append(
            "Many rows are parts of longer ones: whole texts are held out, and their parts are removed from train."
        )
    write_task(folder, settings.experiment, contents, whole, settings.symmetric)
    return Opening(task=_in_words(contents), notes=tuple(notes), texts=contents.texts, speeds=speeds, plan=plan)


def learnable(contents: FileContents, settings: FitSettings) -> tuple[FileContents, list[str]]:
    """Return the contents without labels of which train keeps no row, and a note on them."""
    counts = Counter(itertools.chain.from_iterable(map(labels_of, contents.values)))
    if not contents.labels or min(counts[name] for name in contents.labels) > _MANY_OF_LABEL:
        return contents, []
    notes = []
    with tempfile.TemporaryDirectory() as folder:
        while True:
            task = write_task(Path(folder), settings.experiment, contents, whole_texts(contents), settings.symmetric)
            read = {name: read_source(Path(folder) / file, task) for name, file in task.source.files.items()}
            left_out = make_splits(read, task, settings.seed)[2]
            if not left_out:
                return contents, notes
            shown = ", ".join(f"{name!r} ({rows} rows)" for name, rows in left_out.items())
            notes.append(f"Labels are left out whose rows repeat others or are parts of held-out texts: {shown}.")
            contents = dataclasses.replace(
                contents,
                labels=tuple(name for name in contents.labels if name not in left_out),
                values=without_labels(contents.values, left_out),
                test=contents.test and without_labels(contents.test, left_out),
            )


def _in_words(contents: FileContents) -> str:
    texts = f"pairs of texts ({', '.join(contents.texts)})" if contents.pair else f"texts ({contents.texts[0]})"
    if contents.range is not None:
        return f"{texts}, numbers from {contents.range[0]:g} to {contents.range[1]:g} ({contents.label})"
    shown = ", ".join(contents.labels[:8]) + (", ..." if len(contents.labels) > 8 else "")
    number = f"any number of {len(contents.labels)} labels" if contents.multilabel else f"{len(contents.labels)} labels"
    return f"{texts}, {number} ({contents.label}: {shown})"


def _stages(stages: Stages, opening: Opening, folder: Path) -> tuple[list[Row], FitResult]:
    settings, task, clock, state = stages.settings, stages.task, stages.clock, stages.state
    paths = settings.paths
    stages.run("splits", "preprocess")
    train = load_split(paths, task, "train")
    taught = state.decide("taught", Taught, lambda: _teach(stages, opening, train))
    say(f"[{clock.used:.0f} s] teacher: {taught.why}")
    selection = Selection(stages, opening.speeds, train, taught.teacher, taught.variants)
    winner = selection.run()
    packed = paths.packed(task.name, winner.model)
    write_output(packed, settings.output)  # before scores, baselines and the report, which may fail
    rows = stages.run("evaluate", "evaluate", model_name=winner.model)
    baselines = state.decide("baselines", tuple[Baseline, ...], lambda: _baselines(stages, train))
    result = FitResult(
        name=settings.experiment,
        file=paths.relative(settings.file),
        task=opening.task,
        notes=opening.notes,
        teacher=taught.why,
        plan=opening.plan.seconds,
        stages=stages.done.seconds,
        tried=tuple(selection.trained.values()),
        model=winner.model,
        metric=task.all_metrics[0],
        validation=winner.score,
        rows={name: count_rows(paths.split(task.name, name)) for name in task.splits},
        metrics=rows[0]["metrics"],
        baselines=baselines,
        packed=paths.relative(packed),
        output=paths.relative(packed),
        bytes=packed.stat().st_size,
        sha256=file_sha256(packed),
        seconds=round(clock.used, 1),
        minutes=settings.minutes,
        report=paths.relative(folder / "report.html"),
        texts=opening.texts,
        example=example(paths, task),
        scores_of=None if task.labels else paths.relative(folder / TASK_FILE),
    )
    return rows, result


def _teach(stages: Stages, opening: Opening, train: Split) -> Taught:
    """Fine-tune the teacher and write its logits, as far as time allows. Returns what was done."""
    settings, clock = stages.settings, stages.clock
    plan, speeds = opening.plan.teacher, opening.speeds
    if plan is None:
        return Taught(teacher=False, variants=0, why=f"none: {opening.plan.why}")

    def left() -> float:
        """Return the seconds left for the teacher; the rest is for the students and the final stages."""
        return (1 - STUDENTS_SHARE / 2) * _ROOM * clock.left - reserve_of(speeds, clock.left)

    def write_logits(rows: str) -> None:
        stages.run(
            f"logits of {rows}",
            "preprocess",
            left(),
            generate_loss=(rows,),
            augmented=AUGMENTED,
            model_name=TEACHER,
        )

    if clock.left < LEAST_SECONDS / 2:
        return Taught(teacher=False, variants=0, why="none: the time was used before")
    try:
        stages.run(
            "teacher",
            "finetune",
            left(),
            arch=settings.encoder,
            model_name=TEACHER,
            max_epochs=plan.epochs,
            patience=plan.epochs,
            batch_size=plan.batch_size,
            max_tokens=plan.max_tokens,
            downsample_data=plan.share(len(train)),
        )
        with at_once():
            worse = _worse_than_linear(stages, train)
        if worse:
            return Taught(teacher=False, variants=0, why=f"none: {worse}")
        began = time.perf_counter()
        write_logits("processed")
        pieces = speeds.mean_pieces(plan.max_tokens)
        seconds = max(time.perf_counter() - began, len(train) * pieces / speeds.infer * 0.5)
    except OutOfTime:
        return Taught(teacher=False, variants=0, why="none: it took longer than estimated and was stopped")
    variants = stages.state.decide("variants", int, lambda: _variants(len(train), seconds, clock, speeds))
    if variants:
        try:
            stages.run(
                "augment",
                "preprocess",
                left(),
                augment="tinybert",
                augmented=AUGMENTED,
                variants=variants,
                **({"glove": settings.glove} if settings.glove else {}),
            )
            write_logits(AUGMENTED)
        except OutOfTime:
            variants = 0
    why = opening.plan.why.partition(", inputs")[0]
    why += f", inputs cut at {plan.max_tokens} word pieces, {variants or 'no'} variants of each row"
    return Taught(teacher=True, variants=variants, why=why)


def _worse_than_linear(stages: Stages, train: Split) -> str:
    """Return a phrase that compares teacher and linear model if the latter is better on validation, else ''."""
    task, paths = stages.task, stages.settings.paths
    history = (paths.model(task.name, TEACHER) / "history.jsonl").read_text(encoding="utf-8").splitlines()
    teacher = max(json.loads(line)["score"] for line in history)
    labelled = [split.take(np.flatnonzero(split.labelled)) for split in (train, load_split(paths, task, "validation"))]
    linear = quick_score(task, *labelled)
    if teacher + 1 / np.sqrt(4 * len(labelled[1])) >= linear:  # within one standard error of a proportion
        return ""
    return f"it scored {100 * teacher:.1f} on validation, tf-idf with a linear model {100 * linear:.1f}"


def _variants(rows: int, seconds: float, clock: Clock, speeds: Speeds) -> int:
    """Return the number of variants there is time for. rows: train rows; seconds: the time that their logits took."""
    available = (1 - STUDENTS_SHARE) * _ROOM * clock.left - reserve_of(speeds, clock.left) - 2 * speeds.start
    possible = [number for number in VARIANTS if number * rows <= _MOST_AUGMENTED]
    return next((number for number in possible if 1.3 * number * seconds <= available), 0)


def _baselines(stages: Stages, train: Split) -> tuple[Baseline, ...]:
    """Score tf-idf and fastText on the same rows."""
    settings, task, clock = stages.settings, stages.task, stages.clock
    validation, test = (load_split(settings.paths, task, name) for name in ("validation", "test"))
    labelled = [split.take(np.flatnonzero(split.labelled)) for split in (train, validation, test)]
    left = max(3.0, 0.5 * clock.left)
    methods: dict[str, Callable[[], Baseline | None]] = {
        "tf-idf": lambda: tf_idf(task, *labelled, left),
        "fastText": lambda: fasttext(task, *labelled, left, settings.seed),
    }
    baselines = []
    for name, method in methods.items():
        try:
            with at_once():
                baseline = method()
        except Exception as error:  # the student is finished, and a comparison may fail for any reason
            baseline = Baseline(name=name, metrics={}, details=f"{type(error).__name__}: {error}"[:200], seconds=0.0)
        if baseline is not None:
            say(f"[{clock.used:.0f} s] {baseline.name}: {baseline.metrics or 'absent'} ({baseline.details})")
            baselines.append(baseline)
    return tuple(baselines)
