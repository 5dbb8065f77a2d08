"""Sentences per second in training students, compared with a straightforward PyTorch loop and the hardware's limit.

    python benchmarks/training.py
    python benchmarks/training.py --text shared/glue/SST-2/train.tsv --rows 60000
    python benchmarks/training.py --memory 100000 1100000 2000000

Both ways train the thesis's shapes on the same rows, tokenized beforehand, in this process: ours with compress.py's
own loop and its defaults, the other with packed sequences, batches of 50, a DataLoader and a collate function in
Python, and the same optimizer. Targets are the labels as logits of -1 and 1. The final loss is on rows held out from
both: ours keeps the epoch with the best accuracy on them, the plain loop the last one. The training loss is the mean
over the last epoch. --memory trains an FFN for one epoch on each number of rows, in a separate process, and shows the
seconds per row and the peak memory of the whole process.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("MKL_DYNAMIC", "FALSE")
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from plain_training import BATCH, PlainHash, PlainStudent, mean_loss, rows_of_lists, train_plainly
from shared import labelled, make_parser, only_memory, sentences, write_rows
from torch import nn
from ways import peak_memory

from common.data.split import Split, read_split
from common.data.tasks import load_task
from common.progress import show_bars
from common.store.step import Context
from compression.distillation.dataset import DistillationSet
from compression.distillation.trainer import make_optimizer, train_student
from compression.shrinking.settings import CompressSettings
from compression.students.embeddings import load_tokenizer
from compression.students.scoring import encode_split, student_logits
from compression.students.settings import StudentSettings, student_defaults
from compression.students.student import Student
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.bpe_files import find_files

STUDENTS: dict[str, dict[str, Any]] = {
    "BiLSTM-BPE25": {"student_arch": "bilstm", "embedding_type": "bpe", "embedding_dim": 25},
    "RNN-Char100": {"student_arch": "rnn", "embedding_type": "char", "embedding_dim": 100},
    "FFN-Hash25": {"student_arch": "ffn", "embedding_type": "hash", "embedding_dim": 25},
}
"""The thesis's shapes, which are the defaults of configs/students."""
EPOCHS = 3
HELD_OUT = 1_500


def settings_of(name: str, folder: Path, epochs: int = EPOCHS) -> CompressSettings:
    """Return compress.py's defaults for a student with the settings of both ways: loss, last state, no dropout."""
    arch = STUDENTS[name]["student_arch"]
    alike = {"loss": "mse", "pooling": "last", "dropout": 0.0, "epochs": epochs, "cpu": True, "seed": 1}
    return CompressSettings.model_validate(
        {**student_defaults(arch, False), **STUDENTS[name], **alike, "task": "sst-2", "workspace": folder}
    )


def logits_of(split: Split) -> np.ndarray:
    """Return the labels as logits, float32 [n, 2]."""
    score = np.where(split.labels > 0, 1, -1).astype(np.float32)
    return np.stack([-score, score], 1)


def tokenizer_of(settings: CompressSettings, texts: list[str], folder: Path) -> Any:
    """Return the student's tokenizer; byte pairs are built from the texts."""
    if settings.embedding_type != "bpe":
        return load_tokenizer(settings.part(StudentSettings), folder)
    files = find_files(settings.vocab_size, settings.embedding_dim, "train", texts, folder / "bpe")
    return BpeTokenizer(files[0], settings.max_tokens)


def ours(
    settings: CompressSettings, tokenizer: Any, rows: DistillationSet, held_out: Split, folder: Path
) -> tuple[float, float, float]:
    """Train with the project's loop. Returns training seconds, the last epoch's loss, and the loss on `held_out`."""
    torch.manual_seed(1)
    student = Student(settings.student_arch, settings.part(StudentSettings), 2, False)
    cpu, task = torch.device("cpu"), load_task("sst-2")
    context = Context(work=folder / "student", key="benchmark", name="student", cache=folder / "cache")
    history = train_student(settings, settings, settings.seed, task, student, tokenizer, rows, held_out, context)
    logits = student_logits(student, encode_split(tokenizer, held_out), cpu)
    return history[-1]["seconds"], history[-1]["loss"], float(np.mean((logits - logits_of(held_out)) ** 2))


def plain_student(settings: CompressSettings) -> PlainStudent:
    """Return a student of the same shape built from PyTorch's own layers."""
    torch.manual_seed(1)
    dim, kinds = settings.embedding_dim, {"bilstm": nn.LSTM, "rnn": nn.RNN}
    kind = kinds.get(settings.student_arch)
    encoder = kind(dim, settings.encoder_hidden_dim, batch_first=True, bidirectional=True) if kind else None
    if settings.embedding_type == "hash":
        size = settings.vocab_size
        return PlainStudent(PlainHash(size // settings.hash_ratio, size, dim), dim, encoder, settings.cls_hidden_dim)
    table = nn.Embedding(settings.vocab_size if settings.embedding_type == "bpe" else 33, dim)
    return PlainStudent(table, dim, encoder, settings.cls_hidden_dim)


def compared(name: str, split: Split, held_out: Split, folder: Path) -> dict[str, Any]:
    """Return the rates and losses of both ways on the rows of a split, and the ratio of the rates."""
    settings, seen = settings_of(name, folder), EPOCHS * len(split)
    rows = DistillationSet(split, logits_of(split), False)
    tokenizer = tokenizer_of(settings, split.sentence1, folder)
    seconds, loss, final = ours(settings, tokenizer, rows, held_out, folder / name)
    student = plain_student(settings)
    encoded, others = (encode_split(tokenizer, some).text for some in (split, held_out))
    # compress.py's rule for scaling the learning rate with the batch size.
    slower = settings.model_copy(update={"lr": settings.lr * (BATCH / settings.batch_size) ** 0.5})
    plain = train_plainly(student, rows_of_lists(encoded, rows.logits), make_optimizer(slower, student), EPOCHS)
    plain_final = mean_loss(student, rows_of_lists(others, logits_of(held_out)))
    return {
        "student": name,
        "sentences_per_second": {"ours": seen / seconds, "plain": seen / plain[0]},
        "ratio": plain[0] / seconds,
        "final_loss": {"ours": final, "plain": plain_final},
        "training_loss": {"ours": loss, "plain": plain[1]},
        "tokens_per_sentence": float(encoded.lengths.mean()),
    }


def roofline(name: str, result: dict[str, Any], folder: Path) -> dict[str, float]:
    """Return the GFLOPS of a BiLSTM's training and of a large matrix product, and their ratio.

    A token costs 2 * 4H * (I + H) floating-point operations per direction, plus twice that in the backward pass. The
    embedding and the classifier are not counted.
    """
    settings = settings_of(name, folder)
    hidden, width = settings.encoder_hidden_dim, settings.embedding_dim
    per_token = 3 * 2 * 2 * 4 * hidden * (width + hidden)
    rate = result["sentences_per_second"]["ours"] * result["tokens_per_sentence"] * per_token
    size, rounds = 1024, 30
    a = torch.randn(size, size)
    a @ a
    started = time.perf_counter()
    for _ in range(rounds):
        a @ a
    peak = rounds * 2 * size**3 / (time.perf_counter() - started)
    return {"step_gflops": rate / 1e9, "matmul_gflops": peak / 1e9, "share": rate / peak}


def memory(text: Path | None, count: int) -> dict[str, float]:
    """Train an FFN for an epoch on `count` rows of a file. Returns seconds per million rows and peak bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        split = read_split(write_rows(folder / "rows.parquet", sentences(text), count))
        rows = DistillationSet(split, np.zeros((count, 2), np.float32), True)
        settings = settings_of("FFN-Hash25", folder, epochs=1)
        seconds, *_ = ours(settings, tokenizer_of(settings, [], folder), rows, split.take(np.arange(8)), folder)
    return {"rows": count, "bytes": peak_memory(), "seconds_per_million": 1e6 * seconds / count}


def memory_line(row: dict[str, float]) -> str:
    """Return the result of `memory` as a line of text."""
    took = f"{row['seconds_per_million']:.1f} s a million rows"
    return f"{row['rows']:>10,} rows: {row['bytes'] / 1e6:,.0f} MB at most, PyTorch and all; {took}"


def main() -> None:
    """Parse, run, print."""
    parser = make_parser(__doc__)
    parser.set_defaults(rows=10_000)
    args = parser.parse_args()
    show_bars(sys.stderr.isatty())
    if only_memory(args, memory, memory_line):
        return
    split = labelled(args.text)
    held_out = split.take(np.arange(HELD_OUT))
    split = split.take(np.arange(HELD_OUT, min(len(split), HELD_OUT + args.rows)))
    with tempfile.TemporaryDirectory() as name:
        results = [compared(student, split, held_out, Path(name)) for student in STUDENTS]
        limit = roofline("BiLSTM-BPE25", results[0], Path(name))
    if args.json:
        print(json.dumps({"students": results, "roofline": limit, "threads": torch.get_num_threads()}, indent=2))
        return
    for result in results:
        rates, final, losses = (result[key] for key in ("sentences_per_second", "final_loss", "training_loss"))
        print(
            f"{result['student']:>12}: {rates['ours']:8,.0f} sentences/s, plain {rates['plain']:6,.0f}, "
            f"ratio {result['ratio']:.1f}; final loss {final['ours']:.4f}, plain {final['plain']:.4f}; "
            f"of training {losses['ours']:.4f}, plain {losses['plain']:.4f}"
        )
    print(
        f"BiLSTM step: {limit['step_gflops']:.0f} GFLOP/s of {limit['matmul_gflops']:.0f} (a matrix product's), "
        f"{100 * limit['share']:.0f} %"
    )


if __name__ == "__main__":
    main()
