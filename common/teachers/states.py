"""A teacher's hidden states and attention maps over a split, written once, for students that learn from the inside.

    data/<task>/states/<teacher>/<split>/states.json       what they were made of; there once all is done
    data/<task>/states/<teacher>/<split>/<first row>.safetensors     BLOCK_ROWS rows, without padding:
        lengths    int64 [rows]                            tokens of each row
        hidden     float16 [tokens, layers + 1, dim]       rows one after another
        attention  float16 [sum of length ** 2, layers, heads]     each row's map, line by line

They are large (a sentence of 20 tokens takes 110 KB of MiniLM, 400 KB of BERT base), so rows are read by themselves.
"""

from __future__ import annotations

import bisect
import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import safetensors
import torch
from safetensors.numpy import save_file

from common.data.data import Split, file_text_fingerprint, read_part
from common.data.tasks import Task
from common.errors import UserError
from common.launch import Launcher
from common.launch.shards import opened, parts_of, run_missing
from common.progress import Advance, nothing, say
from common.store.files import fingerprint, read_json, whole_file, write_json
from common.store.workspace import Workspace
from common.teachers import States
from common.teachers.logits import teacher_fingerprint

BLOCK_ROWS = 256
"""Rows of a file: what a worker holds in memory."""
_BATCH = 16


@dataclasses.dataclass(frozen=True)
class StatesWork:
    """Running a teacher over blocks of rows, in float32."""

    teacher: Path
    """Its model folder."""
    cpu: bool
    seed: int

    def open(self) -> Callable[[Split], States]:
        """Load the teacher."""
        from common.devices import pick_device
        from common.seeds import seed_everything
        from common.teachers import load_teacher

        seed_everything(self.seed)
        return load_teacher(self.teacher, pick_device(self.cpu), torch.float32).states


@dataclasses.dataclass(frozen=True)
class Block:
    """Some rows of one part of a split file."""

    work: StatesWork
    source: Path
    part: int
    start: int
    """First row, counted from the part's first one."""
    rows: int
    identity: str
    file: Path


def generate_states(
    paths: Workspace, task: Task, name: str, source: Path, work: StatesWork, launcher: Launcher, force: bool
) -> int:
    """Write the states of a teacher over the split file `source`, known as `name`; a stopped run goes on.

    Returns the number of rows.
    """
    label = f"states of {work.teacher.name} over {name}"
    folder = _folder(paths, task, work.teacher.name, name)
    made_of = {"text": file_text_fingerprint(source), "teacher": teacher_fingerprint(work.teacher)}
    parts = parts_of(source)
    record = {**made_of, "rows": sum(rows for _, rows in parts)}
    if not force and _record(folder) == record:
        say(f"{label}: up to date")
        return record["rows"]
    identity = fingerprint([record, parts])
    growing = folder.with_name(f"{folder.name}.{identity}")
    if force:
        shutil.rmtree(growing, ignore_errors=True)
    blocks = [
        Block(work, source, part, start, min(BLOCK_ROWS, rows - start), identity, growing / _file_name(first + start))
        for part, (first, rows) in enumerate(parts)
        for start in range(0, rows, BLOCK_ROWS)
    ]
    run_missing(_write_block, blocks, [not block.file.exists() for block in blocks], launcher, label)
    write_json(growing / "states.json", record)
    shutil.rmtree(folder, ignore_errors=True)
    growing.rename(folder)
    return record["rows"]


def load_states(paths: Workspace, task: Task, teacher: str, split_name: str, rows: Sequence[int]) -> States:
    """States of the given rows of a split, padded with zeros to one batch, float32.

    Raises UserError when they have not been made.
    """
    folder = _folder(paths, task, teacher, split_name)
    record = _record(folder)
    if record is None:
        raise UserError(
            f"{folder}: no such folder; run: python preprocess.py --task {task.name} --model-name {teacher} "
            f"--teacher-states {split_name}"
        )
    firsts = sorted(int(file.stem) for file in folder.glob("*.safetensors"))
    found = [firsts[bisect.bisect_right(firsts, row) - 1] for row in rows]
    return _padded([_read_row(folder, first, int(row) - first) for first, row in zip(found, rows, strict=True)])


def _write_block(block: Block, advance: Advance = nothing) -> None:
    """Run the teacher over a block, a few rows at a time, and write its file."""
    states = opened(block.work, block.identity)
    rows = read_part(block.source, block.part).take(np.arange(block.start, block.start + block.rows))
    lengths, hidden, attention = [], [], []
    for start in range(0, block.rows, _BATCH):
        batch = states(rows.take(np.arange(start, min(start + _BATCH, block.rows))))
        layers = torch.stack(batch.hidden, 2).half().cpu().numpy()  # [batch, length, layers + 1, dim]
        maps = torch.stack(batch.attention, 1).permute(0, 3, 4, 1, 2).half().cpu().numpy()
        for row, length in enumerate(batch.lengths.tolist()):
            lengths.append(length)
            hidden.append(layers[row, :length])
            attention.append(maps[row, :length, :length].reshape(length * length, *maps.shape[3:]))
        advance(len(batch.lengths))
    tensors = {
        "lengths": np.array(lengths, np.int64),
        "hidden": np.ascontiguousarray(np.concatenate(hidden)),
        "attention": np.ascontiguousarray(np.concatenate(attention)),
    }
    with whole_file(block.file) as partial:
        save_file(tensors, partial)


def _read_row(folder: Path, first: int, row: int) -> tuple[np.ndarray, np.ndarray]:
    """hidden [length, layers + 1, dim] and attention [length, length, layers, heads] of one row of a file."""
    with safetensors.safe_open(folder / _file_name(first), "np") as file:
        lengths = file.get_tensor("lengths")
        start, square, length = int(lengths[:row].sum()), int((lengths[:row] ** 2).sum()), int(lengths[row])
        hidden = file.get_slice("hidden")[start : start + length]
        attention = file.get_slice("attention")[square : square + length**2]
    return hidden, attention.reshape(length, length, *attention.shape[1:])


def _padded(rows: list[tuple[np.ndarray, np.ndarray]]) -> States:
    lengths = [len(hidden) for hidden, _ in rows]
    longest = max(lengths)
    hidden = np.zeros((len(rows), longest, *rows[0][0].shape[1:]), np.float32)
    attention = np.zeros((len(rows), longest, longest, *rows[0][1].shape[2:]), np.float32)
    for i, (length, (states, maps)) in enumerate(zip(lengths, rows, strict=True)):
        hidden[i, :length] = states
        attention[i, :length, :length] = maps
    return States(
        list(torch.from_numpy(hidden).unbind(2)),
        list(torch.from_numpy(attention).permute(0, 3, 4, 1, 2).unbind(1)),
        torch.tensor(lengths),
    )


def _folder(paths: Workspace, task: Task, teacher: str, name: str) -> Path:
    name = "train" if name == "processed" else name
    return paths.root / "data" / task.name / "states" / teacher / name


def _record(folder: Path) -> dict | None:
    return read_json(folder / "states.json") if (folder / "states.json").exists() else None


def _file_name(first_row: int) -> str:
    return f"{first_row:08d}.safetensors"
