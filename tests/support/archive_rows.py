"""Archived experiments for the tests of pages and of tables by size."""

import pivot_rows

from archive import Archived
from compression.experiments.report.record import ExperimentRecord, RecordedRun


def grid(name: str, cells: dict[str, dict], seeds=(1, 2, 3)) -> Archived:
    """A sweep along one axis: label -> fields of its rows, with a score that grows with the seed."""
    runs, rows = [], []
    for label, own in cells.items():
        for seed in seeds:
            runs.append(RecordedRun(id=f"{label}{seed}", cell={"size": label}, seed=seed, settings={}))
            score = own["score"] + seed / 100
            fields = {"model": f"ffn-{label}-s{seed}+q", "stage": "quantized", "bytes_packed": own["bytes"] + seed}
            fields |= {"run_id": f"{label}{seed}", "parameters": 5000, **own.get("more", {})}
            rows.append(pivot_rows.row({"size": label}, seed, {"accuracy": score}, **fields))
            key = f"{name} {label} {seed}"
            rows[-1] |= {"config_hash": f"{key}+q", "made_from": [key], "actions": ["distill", "quantize"]}
            whole = {"config_hash": key, "made_from": [], "actions": ["distill"], "bytes_packed": 10**6}
            rows.append({**rows[-1], "model": f"ffn-{label}-s{seed}", "stage": "distilled", **whole})
    record = ExperimentRecord(name=name, title=name, kind="sweep", definition=name, runs=tuple(runs))
    return Archived(record, (pivot_rows.teacher({"accuracy": 0.9}), *rows))


def fasttext() -> Archived:
    own = {"stage": "peer", "bytes_packed": 31_000, "parameters": None, "teacher": None, "alpha": None}
    rows = [pivot_rows.row(None, seed, {"accuracy": 0.82}, model=f"fasttext-small-s{seed}", **own) for seed in (1, 2)]
    record = ExperimentRecord(name="peers", title="peers", kind="chain", definition="peers")
    return Archived(record, (*rows, pivot_rows.teacher({"accuracy": 0.9})))


SMALL = {"12k": {"score": 0.79, "bytes": 11_997}, "32k": {"score": 0.79, "bytes": 31_998}}
