"""The work of predict.py: runs any saved model over any amount of text, in order and in constant memory."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pydantic

from common.config import OneOrMore, nearest
from common.data.readers.records import Delimiter
from common.data.tasks import known_tasks, load_task
from common.errors import UserError
from common.reading import UTF_8, Encoding
from common.stopping import at_once
from common.store.files import check_not_read, whole_file
from common.store.settings import QuerySettings
from common.store.workspace import Workspace
from common.training.models import model_folder, saved_models
from compression.evaluation.packed import Runtime, find_packed, is_packed_file, load_packed
from compression.inference.classifier import Classifier, Sentences, classifier_of
from compression.inference.explain import leave_one_out
from compression.inference.texts import Columns, Format, Row, chunks, format_of, read_texts
from compression.inference.writers import Options, Writer, make_writer
from compression.runtime import zoo_file, zoo_names
from compression.runtime.zoo import left_out

CHUNK_CHARACTERS = 1_000_000
"""Number of characters after which a chunk ends early, so that long documents take no more memory than sentences."""


class PredictSettings(QuerySettings):
    """Prediction."""

    most_used = ("model", "task", "input", "columns", "output", "top", "min_probability", "explain")
    most_used += ("format", "output_format", "json_")

    model: str
    """Model: its name in the workspace, its folder, a packed file (.fwt), or a name of the zoo (sst-2-12k)."""
    task: str | None = None
    """Task of the model, needed if several tasks have a model of that name; for a packed regression of your own, the
    YAML file with the range of its scores."""
    input: Path | None = None
    """File to read; - or unset: stdin, with a prompt if that is a terminal."""
    format: Format | None = None
    """Format of the input; unset: by the file's suffix, else lines."""
    columns: OneOrMore[str] = ()
    """Columns or keys of the sentence, or of both sentences of a pair; unset: those of the model's task."""
    delimiter: Delimiter | None = None
    """Delimiter of a CSV; unset: the most frequent of , ; tab | in its first line."""
    encoding: Encoding = UTF_8
    """Encoding of the input, such as windows-1252; the output is in UTF-8."""
    output: Path | None = None
    """File to write, only once it is complete; unset: stdout."""
    output_format: Format | None = None
    """Format of the output; unset: the input's. lines: a label and each label's probability, each word with its tag, or
    the answer to a question with its probability."""
    top: int | None = pydantic.Field(None, gt=0)
    """Show only this many labels, the most probable first."""
    min_probability: float | None = pydantic.Field(None, ge=0, le=1)
    """Answer "none of these" (JSONL: null) if the most probable label has a lower probability than this, 0 for never;
    unset: the threshold of a model packed with --reject. For a multilabel model, the minimum probability of a predicted
    label, 0.5 if unset."""
    explain: bool = False
    """Show how much each of a text's first 256 words contributes: by how much the answer's value falls without it."""
    batch_size: int = pydantic.Field(1024, gt=0)
    """Texts classified and written at a time; with 1 each text is answered at once."""
    runtime: Runtime = "numpy"
    """Runtime that reads a packed file: NumPy, or the C runtime (c), which is faster; build it with
    make -C runtimes/c."""
    cpu: bool = False
    """Run on the CPU even if there is a GPU."""
    json_: bool = False
    """Write JSONL: the same as --output-format jsonl."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> PredictSettings:
        if self.delimiter and self.input_format != "csv":
            raise ValueError("--delimiter is for --format csv")
        if self.columns and self.input_format == "lines":
            raise ValueError("--columns is for --format csv, tsv or jsonl; lines have none")
        if self.json_ and self.output_format not in (None, "jsonl"):
            raise ValueError(f"--json contradicts --output-format {self.output_format}")
        return self

    @property
    def options(self) -> Options:
        """Options of the writer."""
        return Options(self.top, self.min_probability, self.explain)

    @property
    def file(self) -> Path | None:
        """The input's path; None for stdin."""
        return None if self.input is None or str(self.input) == "-" else self.input

    @property
    def input_format(self) -> Format:
        """Format of the input, as given or by the file's suffix."""
        return self.format or format_of(self.file)

    @property
    def written_format(self) -> Format:
        """Format of the output."""
        return "jsonl" if self.json_ else self.output_format or self.input_format


def predict(settings: PredictSettings) -> None:
    """Classify all input, or prompt for it. Ends without an error if the reader of stdout closes it.

    The first request to stop ends the work, because there is nothing to save.
    Raises UserError for an invalid model, or invalid input, with its line; text already written to stdout remains.
    """
    _check_places(settings)
    with contextlib.ExitStack() as stack:
        stack.enter_context(at_once())
        stream = stack.enter_context(settings.file.open("rb")) if settings.file else sys.stdin.buffer
        model = load_classifier(settings.paths, settings.model, settings.task, settings.cpu, settings.runtime)
        _check_answers(settings, model)
        columns = _columns(settings, model)
        if settings.input is None and settings.input_format == "lines" and sys.stdin.isatty():
            _prompt(model, stream, columns, settings)
            return
        texts = read_texts(stream, settings.input_format, columns, settings.delimiter, settings.encoding)
        header, write = make_writer(settings.written_format, texts, model, settings.options)
        _send(header, _answers(model, texts.rows, write, settings.batch_size, settings.explain), settings.output)


def _check_places(settings: PredictSettings) -> None:
    """Raise UserError if --output is a file that is read, and if stdin or stdout is needed but closed."""
    if sys.stdin is None and settings.file is None:
        raise UserError("stdin is closed; give a file with --input")
    if sys.stdout is None and settings.output is None:
        raise UserError("stdout is closed; give a file with --output")
    if settings.output:
        check_not_read(settings.output, "--output", filter(None, (settings.file, Path(settings.model))), "predict")


def load_classifier(
    paths: Workspace, model: str, task: str | None, cpu: bool, runtime: Runtime = "numpy"
) -> Classifier:
    """Load a model, given by a packed file, a model's folder, or a name in the workspace or else in the zoo.

    task: needed if several tasks have a model of that name. Raises UserError if the model is missing or damaged, and
    for the C runtime without a packed file.
    """
    path = Path(model) if is_packed_file(model) else find_model(paths, model, task)
    if not is_packed_file(str(path)):
        if runtime != "numpy":
            raise UserError(f"--runtime {runtime} is for packed files; {model} is a saved model")
        # Imports PyTorch and pyarrow; packed files need neither.
        from compression.inference.saved_model import load_saved

        return load_saved(paths, path, task, cpu)
    packed = load_packed(path, runtime)

    def logits(texts: Sentences) -> np.ndarray:
        return packed.logits(texts if packed.pair else [text for (text,) in texts])

    threshold = packed.threshold if packed.rejects or packed.kind == "answers" else None
    return classifier_of(packed, logits, task or packed.task, packed.temperature, threshold)


def find_model(paths: Workspace, model: str, task: str | None) -> Path:
    """Return a model's folder, given by path or by name in the workspace, or the packed file of a name in the zoo.

    Raises UserError for a name that is in neither, or in several tasks.
    """
    if "/" in model:
        return Path(model)
    if task is not None:
        of_task = load_task(task)
        return find_packed(paths, of_task, model) or model_folder(paths, of_task.models_task, model)
    there = [folder for of_task in sorted((paths.root / "models").glob("*")) for folder in saved_models(of_task)]
    matching = [folder for folder in there if folder.name == model]
    if len(matching) > 1:
        tasks = ", ".join(folder.parent.name for folder in matching)
        raise UserError(f"several tasks ({tasks}) have a model named {model!r}; choose one with --task")
    if matching:
        return matching[0]
    if path := zoo_file(model):
        return Path(path)
    known = {folder.name for folder in there} | set(zoo_names())
    hint = left_out(model) or f"{nearest(model, known)} (zoo: {', '.join(zoo_names())})"
    raise UserError(f"no model {model!r} in {paths.root}{hint}")


def _check_answers(settings: PredictSettings, model: Classifier) -> None:
    """Raise UserError for a flag that does not apply to the model's kind of predictions."""
    for flag, value in (("--top", settings.top), ("--min-probability", settings.min_probability)):
        if value is not None and not model.kind.has_probabilities:
            raise UserError(f"{flag} is for labels with probabilities; {model.name} predicts {model.kind.name}")
    if model.kind.by_word and settings.explain:
        raise UserError(f"--explain is for labels and scores of texts; {model.name} predicts {model.kind.name}")


def _columns(settings: PredictSettings, model: Classifier) -> Columns:
    """Return the given columns, else those of the task. Raises UserError for a wrong number of columns."""
    ours, where = ("sentence1", "sentence2")[: 1 + model.pair], str(settings.file or "stdin")
    if settings.columns and len(settings.columns) != len(ours):
        reads = "two sentences" if model.pair else "one sentence"
        raise UserError(f"{model.name} reads {reads}, but --columns has {len(settings.columns)}")
    if settings.columns:
        return Columns(settings.columns, True, where)
    task = settings.task or model.task
    known = load_task(task).columns if settings.task or task in known_tasks() else {}
    names = tuple(known[name] for name in ours if name in known)
    usual = ("question", "context") if model.kind.always_pairs else ours if model.pair else ("text",)
    return Columns(names if len(names) == len(ours) else usual, False, where)


def _answers(model: Classifier, rows: Iterator[Row], write: Writer, most: int, explain: bool) -> Iterator[str]:
    """Yield the text to write for each chunk of rows."""
    for chunk in chunks(rows, lambda row: row.cells, most, CHUNK_CHARACTERS, padded=model.kind.by_word):
        texts = [row.sentences for row in chunk]
        values = model.probabilities(texts).tolist()
        drops = leave_one_out(model, texts, values) if explain else [None] * len(texts)
        yield "".join(map(write, chunk, values, drops))


def _send(header: str, answers: Iterator[str], path: Path | None) -> None:
    """Write the header and each chunk at once, to stdout, a device, a pipe, or a file that appears when complete."""
    with contextlib.ExitStack() as stack:
        if path is None:
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
            file = sys.stdout
        else:
            is_pipe = path.exists() and not path.is_file()
            target = path if is_pipe else stack.enter_context(whole_file(path))
            file = stack.enter_context(target.open("w", encoding="utf-8", newline="\n"))
        try:
            for text in itertools.chain([header], answers):
                file.write(text)
                file.flush()
        except BrokenPipeError:
            if path is not None:
                raise
            # Otherwise Python would print an error at exit, because it cannot flush stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prompt(model: Classifier, stream: BinaryIO, columns: Columns, settings: PredictSettings) -> None:
    """Prompt for texts on a terminal and answer each one, until Ctrl-D; prompts and errors go to stderr."""
    sys.stdout.reconfigure(encoding="utf-8")
    if model.kind.always_pairs:
        names, expected = ("question", "context"), "a question and its context, a line each"
    elif model.pair:
        names, expected = ("first", "second"), "two sentences, a line each"
    else:
        names, expected = ("",), "a sentence"
    _ask(f"{model.name}, {model.task}: type {expected}; Ctrl-D ends\n")
    while True:
        lines = []
        for name in names:
            _ask(f"{name}> ")
            lines.append(stream.readline())
            if not lines[-1]:
                return _ask("\n")
        try:
            texts = read_texts(io.BytesIO(b"\t".join(line.rstrip(b"\r\n") for line in lines) + b"\n"), "lines", columns)
            write = make_writer(settings.written_format, texts, model, settings.options)[1]
            answers = _answers(model, texts.rows, write, most=1, explain=settings.explain)
            print("".join(answers), end="", flush=True)
        except UserError as error:
            _ask(f"error: {error}\n")


def _ask(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
