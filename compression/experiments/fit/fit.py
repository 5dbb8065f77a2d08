"""`experiment.py fit`: from a file with texts and labels to a packed file in a given time.

This module imports no heavy library, so the result of a finished fit is shown at once.
"""

from pathlib import Path

from common.data.readers.any_table import file_identity
from common.data.split import task_file_of_data
from common.errors import UserError
from common.progress import say, show_bars, side_task
from common.stopping import at_once
from common.store.files import check_not_read, check_output, file_sha256, read_json
from common.store.locks import only_one
from compression.experiments.fit import state
from compression.experiments.fit.contents.read import read_contents
from compression.experiments.fit.page import write_fit_report
from compression.experiments.fit.result import FitResult, Packed, write_output
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.state import Clock, State
from compression.experiments.fit.task import TASK_FILE
from compression.experiments.jobs import Job
from compression.experiments.report.record import RESULTS_FILE, check_name_is_free, read_record
from compression.experiments.report.results import read_results


def fit(settings: FitSettings) -> FitResult:
    """Train the best student that fits the size, within the time. Returns the result; a finished fit is reused.

    A stopped fit continues, and the time it has used counts. If the packed file was removed or changed, it is packed
    again; if its student is gone too, the fit starts from the beginning. Raises UserError, with advice, for a file that
    nothing can be learned from.
    """
    show_bars(settings.loadbar)
    folder = settings.paths.experiment(settings.experiment)
    files = list(filter(None, (settings.file, settings.test, settings.teacher_file, settings.other)))
    identity = "".join(map(file_identity, files))
    for max_bytes in settings.max_bytes:
        if output := settings.output_of(max_bytes):
            check_output(output, "--output")
            check_not_read(output, "--output", files, "fit")
    with only_one(folder.parent / f"{folder.name}.fit", f"experiment {settings.experiment}"):
        check_name_is_free(folder, settings.definition())
        if task_file_of_data(settings.paths, settings.experiment) not in (None, str(folder / TASK_FILE)):
            raise UserError(f"--name {settings.experiment}: the workspace has data of another task of this name")
        if settings.force:
            _start_over(settings, folder)
        kept = State(folder, identity)
        result = kept.get("result", FitResult)
        if result is not None and not all(
            _is_there(size, settings) or _repack(size, settings, folder) for size in result.sizes
        ):
            say(f"{settings.experiment}: its student no longer exists; starting from the beginning")
            _start_over(settings, folder)
            kept, result = State(folder, identity), None
        is_new = result is None
        if is_new:
            result = _run(settings, folder, kept)
        else:
            say(f"{settings.experiment}: up to date")
        if is_new or not (settings.paths.root / result.report).exists():
            with side_task("the report"):
                write_fit_report(folder, read_results(folder / RESULTS_FILE), read_record(folder), result)
        for size in result.sizes:
            write_output(settings.paths.root / size.packed, settings.output_of(size.max_bytes))
        return _located(result, settings)


def plan_fit(settings: FitSettings) -> dict[str, object]:
    """Return the contents of the file and the students that a fit would try, without running it (`--dry-run`)."""
    show_bars(settings.loadbar)
    contents = read_contents(settings)
    from compression.experiments.fit.run import describe_plan  # PyTorch loads here, after the file is checked

    return describe_plan(settings, contents)


def _run(settings: FitSettings, folder: Path, kept: State) -> FitResult:
    """Run a fit, or the rest of one that was stopped, and save the time that it uses."""
    clock = Clock(folder, settings.seconds)
    with clock.running():
        with at_once():
            contents = None if state.OPENING in kept.values else read_contents(settings)
        from compression.experiments.fit.run import run_fit  # PyTorch loads here, after the file is checked

        return run_fit(settings, contents, folder, kept, clock)


def _start_over(settings: FitSettings, folder: Path) -> None:
    """Remove a fit's decisions, its used time and the names of its models, so that it starts from the beginning."""
    try:
        words = [name.partition(" ") for name in read_json(folder / state.FIT_FILE)]
    except (UserError, OSError, TypeError, AttributeError):  # missing or damaged
        words = []
    decided = (model for kind, _, model in words if kind in (state.TRAINED, state.PACKED))
    for name in (*state.TEACHERS, *decided):
        settings.paths.model(settings.experiment, name).unlink(missing_ok=True)
    for file in (state.FIT_FILE, state.CLOCK_FILE):
        (folder / file).unlink(missing_ok=True)


def _repack(size: Packed, settings: FitSettings, folder: Path) -> bool:
    """Pack a finished fit's student again. Returns whether this gave the same file as before."""
    from compression.shrinking.chain import compress  # PyTorch loads here

    packed = settings.paths.root / size.packed
    packed.resolve().unlink(missing_ok=True)  # a changed file of the same length would count as built
    flags = {"task": str(folder / TASK_FILE), "workspace": settings.workspace, "cpu": settings.cpu}
    try:
        compress(Job("compress", {**flags, "load_trained_model": size.model, **settings.packing}).settings())
    except UserError as error:
        say(str(error))
        return False
    return _is_there(size, settings)


def _is_there(size: Packed, settings: FitSettings) -> bool:
    path = settings.paths.root / size.packed
    return path.exists() and file_sha256(path) == size.sha256


def _located(result: FitResult, settings: FitSettings) -> FitResult:
    """Return a result with the paths of this command's workspace and of its --output."""
    root = settings.paths.root
    sizes = []
    for size in result.sizes:
        packed = root / size.packed
        output = settings.output_of(size.max_bytes) or packed
        sizes.append(size.model_copy(update={"packed": str(packed), "output": str(output)}))
    scores_of = None if result.scores_of is None else str(root / result.scores_of)
    paths = {"report": str(root / result.report), "scores_of": scores_of, "file": str(settings.file)}
    return result.model_copy(update={"sizes": tuple(sizes), **paths})
