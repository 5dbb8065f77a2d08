"""Settings of evaluate.py."""

from pathlib import Path
from typing import Literal

import pydantic

from common.config import Uses
from common.store.settings import StageSettings
from compression.evaluation.packed import Runtime


class EvaluateSettings(StageSettings):
    """Evaluation (the thesis's table C.4, and more)."""

    most_used = ("task", "model_name", "split", "packed", "time", "json_")

    model_name: str
    """Model to score: its name in the workspace, or the path of its folder; with --packed also a packed file (.fwt), or
    a name of the zoo (sst-2-12k)."""
    arch: str | None = None
    """Check that the model has this architecture."""
    split: Literal["test", "validation", "train"] = "test"
    """Rows to score; test: every test split of the task."""
    packed: bool = False
    """Score a packed file by compression.runtime, without PyTorch: the student's, or the one that --model-name is.
    Nothing is saved then."""
    runtime: Runtime = "numpy"
    """Runtime that reads a packed file, with --packed or --time: NumPy, or the C runtime (c), which is faster; build it
    with make -C runtimes/c."""
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
        yield not self.probe, ["split", "time"], "with --probe"
        yield self.packed or self.time, ["runtime"], "without --packed or --time"
        yield self.time, ["watts"], "without --time"
        yield not self.packed, ["cpu"], "with --packed"
