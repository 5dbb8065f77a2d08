"""Settings of evaluate.py."""

from pathlib import Path
from typing import Literal

import pydantic

from common.config import OneOrMore, Uses
from common.reading import UTF_8, Encoding
from common.store.settings import StageSettings
from compression.evaluation.packed import Runtime, file_of, is_packed_file


class EvaluateSettings(StageSettings):
    """Evaluation (the thesis's table C.4, and more)."""

    most_used = ("task", "model_name", "data", "text", "label", "split", "packed", "time", "json_")

    task: str = ""
    """Task: a name in configs/tasks (sst-2, qqp, mnli, rotten-tomatoes, ...), or the YAML file of one of your own. Not
    needed with --data; if it is given, columns, values of labels and metrics are the task's."""
    model_name: str
    """Model to score: its name in the workspace or the path of its folder; a packed file (.fwt), or a name of the zoo
    (sst-2-12k)."""
    data: Path | None = None
    """Score a packed file on the rows of this file: a table (CSV, TSV, JSONL, Parquet), a .txt with fastText's labels
    or, for models of tags and answers, a file of that kind."""
    text: OneOrMore[str] = ()
    """Column of texts of --data, or two columns for pairs; unset: text, or sentence1 and sentence2."""
    label: OneOrMore[str] = ()
    """Column of labels of --data, or a column for each of several labels, with yes or no, as fit reads them; unset:
    label."""
    header: bool = True
    """The first line of a CSV or TSV of --data has the columns' names; else they are called 1, 2, ..."""
    encoding: Encoding = UTF_8
    """Encoding of --data, such as windows-1252."""
    arch: str | None = None
    """Check that the model has this architecture."""
    split: Literal["test", "validation", "train"] = "test"
    """Rows to score; test: every test split of the task."""
    packed: bool = False
    """Score the student's packed file, as those that --model-name names: by compression.runtime, without PyTorch.
    Nothing is saved then."""
    runtime: Runtime = "numpy"
    """Runtime that reads a packed file: NumPy, or the C runtime (c), which is faster; build it with
    make -C runtimes/c."""
    probe: Path | None = None
    """Compare the answers to the templates of a YAML file, filled with the words of different groups, and score no
    rows. configs/probes has examples."""
    time: bool = False
    """Also measure the model on one CPU thread, on rows spread evenly over the split: sentences per second on 1,000
    rows, median milliseconds of 100 rows one by one (both in CPU time), and the mean floating-point operations (FLOPs)
    of these 100 rows: two per multiply-add of matrix products, and nothing else. A student is timed by its packed file,
    in a separate process. Its peak memory is the memory that loading the file and answering 100 rows one by one add to
    a process that has imported the runtime. Where Linux lets this user read how much energy the processors use (RAPL),
    joules are measured too: the mean of the 1,000 rows, what other programs use included."""
    watts: float | None = pydantic.Field(None, gt=0)
    """Power of the machine: joules are CPU seconds times this, and not measured."""
    json_: bool = False
    """Print the rows of results.json to stdout instead of a table."""

    def _uses(self) -> Uses:
        yield False, ["seed"], "on scores, which draw nothing"
        yield self.data, ["text", "label", "header", "encoding"], "without --data"
        yield not self.data, ["split", "probe"], "with --data"
        yield not self.probe, ["split", "time"], "with --probe"
        yield self.packed or self.time or file_of(self.model_name), ["runtime"], "without --packed or --time"
        yield self.time, ["watts"], "without --time"
        yield not (self.packed or is_packed_file(self.model_name)), ["cpu"], "with a packed file"

    @pydantic.model_validator(mode="after")
    def _check(self) -> "EvaluateSettings":
        if not self.task and not self.data:
            raise ValueError("--task is required (or --data, a file with rows for a packed file)")
        return self
