"""Run of a fit: splits, teachers, students, the packed file, its scores, baselines and report, in this order."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from common.data.prepare import make_splits
from common.data.readers.label_cells import label_counts, without_labels
from common.data.readers.tables import read_source
from common.data.split import count_rows, load_split
from common.data.tasks import load_task
from common.devices import threads
from common.kinds.registry import ANSWERS, KINDS, MULTILABEL, TAGS
from common.progress import say, side_task
from common.stopping import at_once
from common.store.files import file_sha256
from common.tables import text_table
from common.teachers.finetune import find_encoder
from common.tracking import record
from compression.augmentation.label_shift import recorded_labels
from compression.evaluation.packed import load_packed
from compression.evaluation.predictions import Predictions, find_scores, read_predictions
from compression.experiments.commands import example
from compression.experiments.fit.analysis import analyse, answered_from
from compression.experiments.fit.baselines import score_baselines
from compression.experiments.fit.contents.answers import ANSWERS_FILE, save_answers
from compression.experiments.fit.contents.detect import FileContents
from compression.experiments.fit.result import Analysis, FitResult, Opening, Packed, write_output
from compression.experiments.fit.search import Search
from compression.experiments.fit.settings import Baseline, FitSettings
from compression.experiments.fit.stages import Stages
from compression.experiments.fit.state import OPENING, Clock, State
from compression.experiments.fit.students import Trained, candidates
from compression.experiments.fit.task import TASK_FILE, draw, whole_texts, write_task
from compression.experiments.fit.teachers import Taught, teach, unsure_of_others
from compression.experiments.report.record import RESULTS_FILE, ExperimentRecord, write_record
from compression.experiments.report.results import Row, write_results
from compression.inference.predict import load_classifier

_ROWS_A_SECOND = {**dict.fromkeys(KINDS, 400), TAGS.name: 60, ANSWERS.name: 10}
"""Rows of the file that are used, for each second of the time limit, by kind of task."""
_MANY_OF_LABEL = 100
"""With more rows of each label, some are left in train whatever is held out."""
_END_SHARE = 0.15
"""Share of the time that packing, scores, baselines and the report have, if it is more than the next two."""
_SIZE_SECONDS, _REPORT_SECONDS = 4.0, 4.0
"""Seconds for packing and scores of each size, and for baselines and the report, on an idle machine."""


def describe_plan(settings: FitSettings, contents: FileContents) -> dict[str, Any]:
    """Return what a fit would do: the file in words, notes, and the students that it would try first."""
    with tempfile.TemporaryDirectory() as folder, at_once():
        opening = _open(settings, contents, Path(folder))
        task = load_task(str(Path(folder) / TASK_FILE))
    tried = [student for max_bytes in settings.max_bytes for student in candidates(task, max_bytes, dropout=0.1)]
    body = [
        [one.student, f"{one.flags['vocab_size']:,}", str(one.flags["embedding_dim"]), f"{one.bytes:,}"]
        for one in tried
    ]
    table = text_table(("student", "tokens", "width", "bytes, about"), body, [False, True, True, True])
    students = [candidate.model_dump(mode="json") for candidate in tried]
    text = "\n".join([opening.task, *opening.notes, "", table])
    return {**opening.model_dump(mode="json"), "students": students, "text": text}


def run_fit(
    settings: FitSettings, contents: FileContents | None, folder: Path, state: State, clock: Clock
) -> FitResult:
    """Run a fit, or the rest of it, as an experiment. contents: of the file; not needed to continue a fit."""
    with at_once():  # it has nothing to save
        opening = state.decide(OPENING, Opening, lambda: _open(settings, contents, folder))
    task = load_task(str(folder / TASK_FILE))
    for line in (opening.task, *opening.notes):
        say(line)
    name = settings.experiment
    sizes = ", ".join(f"{size:,}" for size in settings.max_bytes)
    title = f"{settings.file.name} in {sizes} bytes"
    experiment = ExperimentRecord(name=name, title=title, kind="chain", definition=settings.definition())
    write_record(folder, experiment)
    stages = Stages(settings, task, clock, state)
    recorded = {"fit": settings.effective(), "file": str(settings.file)}
    rows, result = record(name, folder / "sacred", recorded, lambda: _stages(stages, opening, folder))
    labels = recorded_labels(settings.paths, {task.argument: None})
    ended = {"jobs": stages.done.jobs, "labels": labels, "summary": tuple(result.summary())}
    write_record(folder, experiment.model_copy(update=ended))
    write_results(folder / RESULTS_FILE, rows)
    result = result.model_copy(update={"seconds": round(clock.used, 1)})
    state.save("result", result)
    return result


def _open(settings: FitSettings, contents: FileContents, folder: Path) -> Opening:
    """Write the task's rows and YAML file. Returns the opening. Raises UserError if the encoder is missing."""
    find_encoder(settings.encoder, settings.paths.downloads())
    notes = [*contents.notes]
    usable = len(contents.values)
    most = max(1000, int(_ROWS_A_SECOND[contents.kind] * settings.seconds))
    if usable > most:
        notes.append(f"{most:,} of {usable:,} rows are used, drawn at random: more would exceed the time limit.")
        contents = dataclasses.replace(contents, values=draw(contents.values, most, settings.seed))
    contents, rare = learnable(contents, settings)
    notes += rare
    whole = whole_texts(contents)
    if whole is not None:
        notes.append(
            "Many rows are parts of longer ones: whole texts are held out, and their parts are removed from train."
        )
    task = write_task(folder, settings.experiment, contents, whole, settings.symmetric)
    (folder / ANSWERS_FILE).unlink(missing_ok=True)
    if contents.answers:
        notes += save_answers(folder / ANSWERS_FILE, contents, task)
    for max_bytes in settings.max_bytes:
        candidates(task, max_bytes, dropout=0.1)  # a size that nothing fits is an error at once
    agreement = contents.answers is not None and contents.answers.are_labels
    return Opening(task=in_words(contents), notes=tuple(notes), texts=contents.texts, agreement=agreement)


def learnable(contents: FileContents, settings: FitSettings) -> tuple[FileContents, list[str]]:
    """Return the contents without labels of which train keeps no row, and a note on them."""
    if not KINDS[contents.kind].has_classes:
        return contents, []
    counts = label_counts(contents.values)
    if min(counts[name] for name in contents.labels) > _MANY_OF_LABEL:
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


def in_words(contents: FileContents) -> str:
    """Return what a file contains, in words."""
    if contents.kind == ANSWERS.name:
        return "questions and contexts that hold their answers"
    texts = f"pairs of texts ({', '.join(contents.texts)})" if contents.pair else f"texts ({contents.texts[0]})"
    if contents.kind == TAGS.name:
        entities = [tag[2:] for tag in contents.labels if tag.startswith("B-")]
        kinds = f"{len(entities)} kind{'s' * (len(entities) != 1)} of entities"
        return f"{texts}, tags of words ({kinds}: {', '.join(entities)[:200]})"
    if contents.range is not None:
        return f"{texts}, numbers from {contents.range[0]:g} to {contents.range[1]:g} ({contents.label})"
    shown = ", ".join(contents.labels[:8]) + (", ..." if len(contents.labels) > 8 else "")
    number = "any number of " if contents.kind == MULTILABEL.name else ""
    return f"{texts}, {number}{len(contents.labels)} labels ({contents.label}: {shown})"


def _stages(stages: Stages, opening: Opening, folder: Path) -> tuple[list[Row], FitResult]:
    settings, task, clock, state = stages.settings, stages.task, stages.clock, stages.state
    paths = settings.paths
    stages.run("splits", "preprocess")
    train = load_split(paths, task, "train")
    taught = state.decide("taught", Taught, lambda: teach(stages, train, opening.agreement))
    if settings.other:
        taught = state.decide("unsure", Taught, lambda: unsure_of_others(stages, train, taught))
    say(f"[{clock.used:.0f} s] teacher: {taught.why}")
    count = len(settings.max_bytes)
    sizes, rows, tried = [], [], []
    for number, max_bytes in enumerate(settings.max_bytes):
        until = clock.used + (clock.left - _REPORT_SECONDS * clock.slowdown) / (count - number)
        reserve = max((_END_SHARE * settings.seconds - _REPORT_SECONDS) / count, _SIZE_SECONDS * clock.slowdown)
        search = Search(stages, max_bytes, taught, train_until=until - reserve, pack_until=until - reserve / 3)
        with threads(1):  # of small students, each operation is too short for several
            winner = search.run()
        tried += search.trained
        row, size = _tested(stages, max_bytes, winner)
        rows.append(row)
        sizes.append(size)
    best = max(size.validation for size in sizes)
    tolerable = [size for size in sizes if size.validation >= best - settings.tolerable / 100]
    baselines = state.decide("baselines", tuple[Baseline, ...], lambda: score_baselines(stages, train))
    chosen = sizes.index(min(tolerable, key=lambda size: size.bytes))
    test = load_split(paths, task, "test")
    labels = test.labels[test.labelled]
    analysis = Analysis()
    with side_task("the analysis of the answers"):
        model = load_classifier(paths, str(paths.packed(task.name, sizes[chosen].model)), task.argument, cpu=True)
        analysis = analyse(task, test, _predictions(stages, rows[chosen]), model)
    result = FitResult(
        **{**dict(opening), "agreement": opening.agreement and not settings.test},
        name=settings.experiment,
        file=paths.relative(settings.file),
        teacher=taught.why,
        stages=stages.done.seconds,
        tried=tuple(tried),
        sizes=tuple(sizes),
        chosen=chosen,
        metric=task.all_metrics[0],
        rows={name: count_rows(paths.split(task.name, name)) for name in task.splits},
        majority=float(np.bincount(labels).max() / len(labels)) if task.kind.one_class else None,
        baselines=baselines,
        analysis=analysis,
        seconds=round(clock.used, 1),
        minutes=settings.minutes,
        report=paths.relative(folder / "report.html"),
        example=example(paths, task),
        explains=not task.kind.by_word,
        scores_of=None if task.labels else paths.relative(folder / TASK_FILE),
    )
    return rows, result


def _tested(stages: Stages, max_bytes: int, student: Trained) -> tuple[Row, Packed]:
    """Write a student's packed file to --output and score it. Returns its row of results.json and its result."""
    paths = stages.settings.paths
    file = paths.packed(stages.task.name, student.model)
    write_output(file, stages.settings.output_of(max_bytes))  # before scores, baselines and the report, which may fail
    (row,) = stages.run("evaluate", "evaluate", model_name=student.model)
    at_threshold = None
    if stages.settings.reject:
        at_threshold = answered_from(load_packed(file).threshold, _predictions(stages, row))
    return row, Packed(
        max_bytes=max_bytes,
        student=student.in_words,
        model=student.model,
        epochs=student.epochs,
        validation=student.score,
        metrics=row["metrics"],
        at_threshold=at_threshold,
        packed=paths.relative(file),
        output=paths.relative(file),
        bytes=file.stat().st_size,
        sha256=file_sha256(file),
    )


def _predictions(stages: Stages, row: Row) -> Predictions:
    return read_predictions(find_scores(stages.settings.paths.root, row), row)
