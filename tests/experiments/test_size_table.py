"""Tables of several experiments by size, and their points."""

import pivot_rows
from archive_rows import SMALL, fasttext, grid

from archive import Archived
from compression.experiments.report.pictures import panels
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.results import SplitResults
from merge import merged
from size_table import size_table


def of_task(task: str, *experiments: Archived) -> SplitResults:
    return merged({one.record.name: one.rows for one in experiments}, task)


def test_a_table_of_teachers_students_peers_and_the_thesis():
    targets = {"12 KB": {"accuracy": 0.81}, "32 KB": {"accuracy": 0.82}, "400 KB": {"accuracy": 0.885}}
    table = size_table(of_task("sst-2", grid("s", SMALL), fasttext()), targets, quotes=["FFN-Hash25*+q", "TinyBERT-6"])
    assert table.splitlines() == [
        "| Size class | Model | Packed file | Parameters | Accuracy, % | Target |",
        "|---|---|---:|---:|---:|---|",
        "| teachers | minilm | 90 MB, weights | 22,000,000 | 90.00 (1) |  |",
        "|  | RoBERTa-large (quoted) | 1.43 GB, weights | 360,000,000 | 96.56 |  |",
        "| 12 KB | 12k | 12 KB | 5,000 | 81.00 ± 1.00 (3) | ≥ 81.00: reached |",
        # A seed is one byte larger than 32 KB: the family does not fit.
        "| 32 KB | fasttext-small | 31 KB | – | 82.00 ± 0.00 (2) |  |",
        "|  | FFN-Hash25\\*+q (quoted) | 27 KB, weights | – | 79.99 |  |",
        "|  | – | – | – | – | ≥ 82.00 |",
        "| 100 KB | 32k | 32 KB | 5,000 | 81.00 ± 1.00 (3) |  |",
        "| 400 KB | – | – | – | – | ≥ 88.50 |",
        "| larger | TinyBERT-6 (quoted) | 268 MB, weights | 67,000,000 | 93.00 |  |",
    ]


def test_a_missed_target_has_the_difference_for_each_metric():
    one = grid("s", {"400k": {"score": 0.84, "bytes": 300_000}}, seeds=(1,))
    rows = tuple({**row, "task": "qqp", "metrics": {**row["metrics"], "f1": 0.80}} for row in one.rows)
    group = of_task("qqp", Archived(one.record, rows))
    table = size_table(group, {"400 KB": {"accuracy": 0.85, "f1": 0.82}})
    assert "| 85.00 (1) | 80.00 (1) | accuracy ≥ 85.00: reached; f1 ≥ 82.00: missed by 2.00 |" in table


def test_of_a_chain_of_actions_the_last_model_counts():
    group = of_task("sst-2", grid("s", SMALL))
    assert [one.name for one in group.groups] == ["minilm", "12k", "32k"]
    assert all(row["model"].endswith("+q") for one in group.groups[1:] for row in one.rows)


def test_a_model_counts_although_anothers_name_begins_with_its_own():
    """c was left out where there is c+extra, which was not made from it."""
    fields = {"actions": ["distill"], "made_from": [], "bytes_packed": 9_000}
    rows = [
        pivot_rows.row(None, 1, {"accuracy": 0.6}, model="c", config_hash="0", **fields),
        pivot_rows.row(None, 1, {"accuracy": 0.7}, model="c+extra", config_hash="1", **fields),
        pivot_rows.row(None, 1, {"accuracy": 0.5}, model="d", config_hash="2", **{**fields, "made_from": ["1"]}),
    ]
    record = ExperimentRecord(name="m", title="m", kind="chain", definition="m")
    assert [group.name for group in of_task("sst-2", Archived(record, tuple(rows))).groups] == ["c", "d"]


def test_models_of_one_cell_are_named_by_their_actions():
    one = grid("s", {"12k": SMALL["12k"]}, seeds=(1,))
    pruned = {"model": "ffn-12k-s1+p", "stage": "pruned", "actions": ["distill", "prune"]}
    more = tuple({**row, **pruned} for row in one.rows[1:2])
    names = [group.name for group in of_task("sst-2", Archived(one.record, (*one.rows, *more))).groups]
    assert names == ["minilm", "12k +q", "12k +p"]


def test_scores_of_several_test_splits_are_means_and_a_model_without_one_is_left_out():
    rows = [
        pivot_rows.row(None, seed, {"accuracy": score}, task="mnli", split=split, bytes_packed=9_000)
        for seed, split, score in ((1, "test_matched", 0.6), (1, "test_mismatched", 0.7), (2, "test_matched", 0.9))
    ]
    record = ExperimentRecord(name="m", title="m", kind="chain", definition="m")
    table = size_table(of_task("mnli", Archived(record, tuple(rows))))
    assert "Accuracy, % (m+mm)/2" in table
    assert "| 65.00 (1) |" in table


def test_peers_are_drawn_by_packed_size_and_are_not_on_our_skyline():
    (panel,) = panels([of_task("sst-2", grid("s", SMALL), fasttext())])
    assert [(point.label, point.cost) for point in panel.points_of("peer")] == [("fasttext-small", 31_000)]
    assert [(point.label, point.kind) for point in panel.best] == [("12k", "student"), ("minilm", "teacher")]
    assert panel.points_of("student", "teacher")[-1].description.splitlines()[-1] == "90 MB of weights"
    assert panel.points[0].description.splitlines()[-1] == "12 KB packed, 7,501 times smaller than minilm"


def test_speeds_have_columns_where_models_were_timed():
    one = grid("s", {"12k": SMALL["12k"]}, seeds=(1,))
    speed = {"sentences_per_second": 20_000.0, "milliseconds_for_one": 0.25, "flops": 5_000}
    rows = [{**row, "speed": speed} if row["stage"] != "teacher" else row for row in one.rows]
    table = size_table(of_task("sst-2", Archived(one.record, rows), fasttext()), {"400 KB": {"accuracy": 0.9}})
    assert "| Accuracy, % | Sentences/s | ms for one | MFLOPs for one | Target |" in table
    assert "| 5,000 | 80.00 (1) | 20,000 | 0.250 | 0.0050 |  |" in table
    assert "| 82.00 ± 0.00 (2) | – | – | – |  |" in table
    assert "| 400 KB | – | – | – | – | – | – | – | ≥ 90.00 |" in table
