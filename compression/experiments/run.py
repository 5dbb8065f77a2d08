"""Run jobs in order. This is the only module of experiments that imports the scripts' functions.

A job calls the same function as its script and passes only the names of the models it saved to the next job. A chain
therefore saves the same models, byte for byte, as its commands run one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from common.progress import say, show_bars, side_task
from common.store.files import read_json, write_json
from common.teachers.finetune import finetune
from common.tracking import record
from compression.analysis.analyze import analyze, picture_folder, subject
from compression.augmentation.label_shift import recorded_labels
from compression.augmentation.preprocess import preprocess
from compression.evaluation.evaluate import evaluate
from compression.experiments.chain import Plan
from compression.experiments.jobs import Job
from compression.experiments.report import write_report
from compression.experiments.report.record import RESULTS_FILE, ExperimentRecord, check_name_is_free, write_record
from compression.experiments.report.results import Row, write_results
from compression.shrinking.chain import compress


@dataclasses.dataclass
class ChainState:
    """Names of the models that jobs have saved so far, and of the teacher fine-tuned or imported last."""

    models: list[str] = dataclasses.field(default_factory=list)
    teacher: str | None = None


def run_jobs(jobs: Sequence[Job]) -> tuple[list[Row], ChainState]:
    """Run jobs in order. Returns the rows of their evaluations and the final state."""
    state = ChainState()
    rows: list[Row] = []
    for number, job in enumerate(jobs, 1):
        show_bars(bool(job.flags.get("loadbar", True)))
        say(f"[{number}/{len(jobs)}] {job}")
        rows += _run_job(job, state)
    return rows, state


def _run_job(job: Job, state: ChainState) -> list[Row]:
    models = [{"model_name": name} for name in state.models] if job.takes_models else [{}]
    match job.kind:
        case "preprocess":
            settings = job.settings(**{"model_name": state.teacher} if state.teacher else {})
            preprocess(settings)
            if settings.logits_from and settings.model_name:
                state.teacher = settings.model_name
                state.models.append(state.teacher)
        case "finetune":
            state.teacher = finetune(job.settings()).name
            state.models.append(state.teacher)
        case "compress":
            settings = job.settings(**{"teacher": state.teacher} if state.teacher else {})
            folders = compress(settings)
            if "pretrain" not in settings.compression_actions:  # a pretrained student belongs to no task
                state.models += [folder.name for folder in folders]
        case "evaluate":
            return [row for model in models for row in evaluate(job.settings(**model))]
        case "analyze":
            for model in models:
                _analyze(job, model)
    return []


def _analyze(job: Job, model: dict[str, str]) -> None:
    """Analyze a model, unless it was already analyzed with the same settings."""
    settings = job.settings(**model)
    name, identity = subject(settings)
    made_from = [*identity, job.as_record()]
    file = picture_folder(settings, name) / "analysis.json"
    if settings.force or not file.exists() or read_json(file).get("made_from") != made_from:
        write_json(file, {**analyze(settings), "made_from": made_from})


def run_plan(plan: Plan) -> tuple[list[Row], ExperimentRecord]:
    """Run a plan's jobs in order, record them, and write results.json and the report. Returns rows and record."""
    folder = plan.workspace.experiment(plan.name)
    check_name_is_free(folder, plan.definition)
    experiment = ExperimentRecord(
        name=plan.name,
        title=plan.title,
        kind="chain",
        definition=plan.definition,
        files=plan.files,
        jobs=tuple(job.as_record() for job in plan.jobs),
    )
    write_record(folder, experiment)
    settings = experiment.model_dump(mode="json", exclude={"files"})  # sacred takes no keys with dots
    rows, _ = record(plan.name, folder / "sacred", settings, lambda: run_jobs(plan.jobs), plan.flags.observer)
    tasks = {job.flags["task"]: None for job in plan.jobs}
    augmented = dict.fromkeys(job.settings().augmented for job in plan.jobs if job.kind == "preprocess")
    labels = recorded_labels(plan.workspace, tasks, tuple(augmented) or ("tinybert",))
    experiment = experiment.model_copy(update={"labels": labels})
    write_record(folder, experiment)
    write_results(folder / RESULTS_FILE, rows)
    if rows:
        with side_task("the report"):
            write_report(folder, rows, experiment)
    return rows, experiment
