"""Common parts of the benchmarks: flags, input texts, and memory measurement."""

import argparse
import functools
import itertools
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from ways import peak_memory

from common.data.prepare import source_files
from common.data.readers.tables import read_source
from common.data.split import ROW_GROUP_ROWS, Split, count_rows, split_table
from common.data.tasks import load_task
from common.errors import UserError
from common.launch.launcher import Launcher
from common.launch.shards import PartFunction, Work, map_parts
from common.store.workspace import Workspace, default_root


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags that every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="TSV of sentences and labels (SST-2's train.tsv)")
    parser.add_argument("--rounds", type=int, default=4, help="turns to average over")
    parser.add_argument("--rows", type=int, default=1024, help="rows of a turn")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds; for a busy machine, with 1 thread")
    parser.add_argument("--memory", type=int, nargs="*", help="measure memory for so many rows (1.5 and 3 million)")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def above_the_models(row: dict[str, float]) -> str:
    """Return a measurement of memory as a line of text."""
    return f"{row['rows']:>10,} rows: {row['bytes'] / 1e6:,.0f} MB above the loaded models"


def only_memory(
    args: argparse.Namespace,
    memory: Callable[[Path | None, int], dict[str, float]],
    line: Callable[[dict[str, float]], str] = above_the_models,
) -> bool:
    """Measure and print memory, in a process per number of rows, if a flag asks for it. Returns whether it does."""
    if args.memory_of:
        print(json.dumps(memory(args.text, args.memory_of)))
    elif args.memory is not None:
        words = ["--text", args.text] if args.text else []
        counts = args.memory or [1_500_000, 3_000_000]
        rows = [json.loads(in_a_process("--memory-of", count, *words)) for count in counts]
        print(json.dumps(rows, indent=2) if args.json else "\n".join(map(line, rows)))
    return args.memory_of is not None or args.memory is not None


def labelled(path: Path | None) -> Split:
    """Return rows of a TSV (header line, sentence, label 0 or 1), or of Rotten Tomatoes, in a fixed random order."""
    if path:
        lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
        labels = np.array([int(line[1]) for line in lines])
        rows = Split([line[0].strip() for line in lines], None, labels, np.arange(len(lines)))
    else:
        task = load_task("rotten-tomatoes")
        (file,) = set(source_files(task.source, None, Workspace(default_root())).values())
        rows = read_source(file, task)
    return rows.take(np.random.default_rng(1).permutation(len(rows)))


def sentences(path: Path | None) -> list[str]:
    """Return the texts of `labelled`."""
    return labelled(path).sentence1


def rows_of(texts: list[str], count: int) -> Split:
    """Return a split of `count` rows that repeats the texts."""
    chosen = list(itertools.islice(itertools.cycle(texts), count))
    return Split(chosen, None, np.zeros(count, np.int64), np.arange(count))


def write_tiny_bert(folder: Path) -> None:
    """Write a masked language model of one small layer, with random weights and MiniLM's tokenizer."""
    from common.teachers.huggingface.pretrained import quiet_transformers, resolve  # loads PyTorch

    transformers, source = quiet_transformers(), resolve("minilm")[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_rows(path: Path, texts: list[str], count: int) -> Path:
    """Write a split file of `count` rows in parts, so that writing adds nothing to the measured memory."""
    with pq.ParquetWriter(path, split_table(rows_of(texts, 1)).schema) as writer:
        for start in range(0, count, ROW_GROUP_ROWS):
            part = rows_of(texts[start % len(texts) :] + texts, min(ROW_GROUP_ROWS, count - start))
            writer.write_table(split_table(part))
    return path


def memory_now() -> int:
    """Return the bytes that this process holds (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def run_command(name: str, command: Sequence[object], **settings: Any) -> str:
    """Return what a command prints. Raises UserError, with its last line, if it fails or takes longer than `timeout`.

    name: the command's in messages; settings: of subprocess.run.
    """
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **settings)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{name} had not ended after {error.timeout:.0f} seconds") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "without a message").splitlines()[-1]
        raise UserError(f"{name} failed: {last}")
    return done.stdout


def in_a_process(*words: object) -> str:
    """Run the same script with other arguments in a separate process. Returns the last printed line."""
    command = [sys.executable, sys.argv[0], *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]


held: list[int] = []
"""Bytes recorded by `measured`."""


def measured(work: Work) -> PartFunction:
    """Load the models of some work and record the memory."""
    function = work()
    held.append(memory_now())
    return function


def memory_above(source: Path, target: Path, work: Work) -> dict[str, int]:
    """Do the work on all of `source`. Returns the rows written and the peak bytes held above the loaded models."""
    map_parts(source, target, functools.partial(measured, work), Launcher(), target.stem, target.with_suffix(".work"))
    return {"rows": count_rows(target), "bytes": peak_memory() - held[0]}
