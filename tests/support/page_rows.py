"""A small sweep with everything that a report's page shows, and the page of it."""

from typing import Any

from compression.experiments.report import Report
from compression.experiments.report.record import ExperimentRecord, LabelShares, Quote, RecordedRun, TableLayout

SIZES = {"ffn": 100_000, "rnn": 1_000_000}
SCORES = {("ffn", "labels"): 0.7, ("ffn", "teacher"): 0.8, ("rnn", "labels"): 0.75, ("rnn", "teacher"): 0.9}
SEEDS = (1, 2)


def sweep(arch: str = "rnn", title: str = "A sweep", splits: tuple[str, ...] = ("test",)) -> tuple:
    """Two students by two methods by two seeds; the last run has no result. arch: what the larger student is called."""
    rows = [row({"model": "minilm", "stage": "teacher", "bytes_model": 9e7, "bytes_gzip": 8e7}, 1, "test", 0.95)]
    runs = []
    for (student, method), score in SCORES.items():
        for seed in SEEDS:
            cell = {"student_arch": student.replace("rnn", arch), "method": method}
            identity = f"{student}{method}{seed}" if len(runs) < 7 else None
            run = RecordedRun(id=identity, cell=cell, seed=seed, settings={"task": "sst-2"})
            runs.append(run)
            own = {"model": f"{student}-{method}-s{seed}", "stage": "distilled", "cell": cell, "run_id": run.id}
            own |= {"student_arch": cell["student_arch"], "parts": {"embedding": SIZES[student] // 10, "classifier": 7}}
            own |= {"bytes_model": SIZES[student], "bytes_gzip": SIZES[student] // 2, "teacher": "minilm"}
            rows += [row(own, seed, split, score + seed / 100) for split in splits if identity]
    record = ExperimentRecord(
        name="small",
        title=title,
        kind="sweep",
        definition="small.yaml",
        jobs=({"job": "preprocess", "task": "sst-2"},),
        settings={"task": "sst-2", "note": arch},
        axes={"student_arch": ("ffn", arch), "method": ("labels", "teacher")},
        seeds=SEEDS,
        runs=tuple(runs),
        table=TableLayout(rows=("student_arch",), columns=("method",)),
        quote=Quote(table="7.1", task="sst-2"),
        labels=(LabelShares(task="sst-2", rows="train", shares={arch: 0.25, "other": 0.75}, count=400),),
    )
    return record, rows


def row(own: dict[str, Any], seed: int, split: str, score: float) -> dict[str, Any]:
    return {
        **{"task": "sst-2", "split": split, "seed": seed, "rows": 872, "metrics": {"accuracy": score}},
        **{"parameters": 1000, "nonzero_parameters": 1000, "bytes_packed": None, "parts": {}, "student_arch": None},
        **dict.fromkeys(("embedding_type", "embedding_dim", "vocab_size", "alpha", "teacher", "validation", "data")),
        **{"augmented": False, "select_on": "validation", "settings": {"lr": 0.1}, "config_hash": "", **own},
    }


def page(record: ExperimentRecord, rows: list[dict[str, Any]]) -> str:
    return Report(rows, record).page()
