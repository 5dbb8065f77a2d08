"""Sentences per second through a teacher, compared with a loop over batches in file order, and the memory needed.

    python benchmarks/teacher_logits.py --text shared/glue/SST-2/train.tsv
    python benchmarks/teacher_logits.py --memory

The loop takes rows in file order, in batches of the same size padded to the longest row. Both ways run in turn in this
process on the same rows. The teacher is the packaged MiniLM with an untrained classifier, since speed does not depend
on weights.
"""

import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("MKL_CBWR", "AUTO")
os.environ.setdefault("MKL_DYNAMIC", "FALSE")
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from shared import make_parser, memory_above, only_memory, rows_of, sentences, write_rows, write_tiny_bert

from common.data.split import Split
from common.kinds.registry import LABELS
from common.progress import show_bars
from common.store.artifact import MANIFEST, Manifest
from common.store.files import write_json
from common.teachers.base import SCORING_BATCH
from common.teachers.huggingface.pretrained import resolve
from common.teachers.huggingface.teacher import HuggingFaceTeacher
from common.teachers.logits import open_teacher

MAX_TOKENS = 128


def plain_logits(teacher: HuggingFaceTeacher, split: Split) -> np.ndarray:
    """Return logits, float32 [n, outputs], computed in file order."""
    encoded = teacher.encode(split)
    teacher.model.eval()
    with torch.inference_mode():
        starts = range(0, len(split), SCORING_BATCH)
        batches = [np.arange(i, min(i + SCORING_BATCH, len(split))) for i in starts]
        return np.concatenate([teacher.forward(encoded, rows).numpy() for rows in batches])


def load_teacher(source: str) -> HuggingFaceTeacher:
    """Return a teacher with a randomly initialised classifier for two labels."""
    torch.manual_seed(1)
    return HuggingFaceTeacher(
        source, LABELS, ("no", "yes"), torch.device("cpu"), torch.float32, MAX_TOKENS, new_head=True
    )


def speed(text: Path | None, rounds: int, rows: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Time both ways in turn on parts of `rows` rows."""
    teacher, texts = load_teacher(resolve("minilm")[0]), sentences(text)
    seconds = {"plain": 0.0, "ours": 0.0}
    difference = 0.0
    for number in range(-1, rounds):  # the first round warms up
        part = rows_of(texts[(number + 1) * rows :], rows if number >= 0 else SCORING_BATCH)
        start = clock()
        plain = plain_logits(teacher, part)
        middle = clock()
        ours = teacher.logits(part)
        if number >= 0:
            seconds["plain"] += middle - start
            seconds["ours"] += clock() - middle
        difference = max(difference, float(np.abs(ours - plain).max()))
        if not np.array_equal(ours.argmax(1), plain.argmax(1)):
            raise SystemExit("error: the two ways choose other labels")
    rates = {name: rounds * rows / value for name, value in seconds.items()}
    return {
        "sentences_per_second": rates,
        "ratio": rates["ours"] / rates["plain"],
        "largest_difference": difference,
        "threads": torch.get_num_threads(),
    }


def memory(text: Path | None, rows: int) -> dict[str, int]:
    """Compute logits of `rows` rows with a tiny teacher. Returns the bytes held above the loaded teacher."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_teacher(folder / "teacher")
        source = write_rows(folder / "rows.parquet", sentences(text), rows)
        work = functools.partial(open_teacher, folder / "teacher", True, "fp32")
        return memory_above(source, folder / "logits.parquet", work)


def _write_teacher(folder: Path) -> None:
    write_tiny_bert(folder)
    load_teacher(str(folder)).save(folder)
    names = {"kind": "teacher", "stage": "teacher", "task": "sst-2", "arch": "tiny", "labels": ("no", "yes")}
    manifest = Manifest(
        kind="finetune",
        version=1,
        key="benchmark",
        settings={"max_tokens": MAX_TOKENS},
        inputs={},
        actions=(),
        facts={**names, "pair": False, "seed": 1},
        files={},
        seconds=0,
        built="",
    )
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))


def main() -> None:
    """Parse, run, print."""
    parser = make_parser(__doc__)
    args = parser.parse_args()
    show_bars(sys.stderr.isatty())
    if only_memory(args, memory):
        return
    result = speed(args.text, args.rounds, args.rows, time.process_time if args.cpu_time else time.perf_counter)
    lines = [f"{name:>5}: {rate:8.1f} sentences/s" for name, rate in result["sentences_per_second"].items()]
    lines += [f"ratio: {result['ratio']:8.1f}", f"largest difference: {result['largest_difference']:.1e}"]
    print(json.dumps(result, indent=2) if args.json else "\n".join(lines))


if __name__ == "__main__":
    main()
