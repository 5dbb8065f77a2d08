"""Reports from rows written down here: grouping, numbers, the skyline and the files."""

import statistics
from pathlib import Path
from typing import Any

import pivot_rows
import pytest

from common.errors import UserError
from common.tables import human_bytes, text_table
from compression.experiments.report import columns, terminal_report, terminal_table, write_report
from compression.experiments.report.columns import COLUMNS, TERMINAL_WIDTH, Column, models_table, score_text, summary
from compression.experiments.report.record import ExperimentRecord, LabelShares, Quote, RecordedRun, settings_lines
from compression.experiments.report.results import Stat, group_rows, stat
from compression.experiments.report.table import markdown_table


def row(**changes: Any) -> dict[str, Any]:
    """A student's row of results.json."""
    own = {"model": "ffn-s1", "student_arch": "ffn", "embedding_type": "hash", "alpha": 0.5, "teacher": "roberta"}
    own |= {"parameters": 1000, "nonzero_parameters": 900, "bytes_model": 4000, "bytes_gzip": 2000}
    own |= {"bytes_packed": None, "rows": 872, "seconds": {"train": 10.0, "evaluate": 1.0}}
    return {**pivot_rows.row(None, 1, {"accuracy": 0.8}), **own, **changes}


def chain(title: str = "A title", **changes: Any) -> ExperimentRecord:
    """A record of a list of jobs."""
    return ExperimentRecord(**{"name": "chain", "title": title, "kind": "chain", "definition": "x", **changes})


OF_TEACHER = {"model": "roberta", "stage": "teacher", "teacher": None, "student_arch": None, "alpha": None}
OF_TEACHER |= {"augmented": False, "parameters": 1_000_000, "bytes_model": 4_000_000, "bytes_gzip": 3_800_000}
TEACHER = row(**OF_TEACHER, metrics={"accuracy": 0.95})


def headings_of(rows: list[dict[str, Any]]) -> list[str]:
    (results,) = group_rows(rows)
    return [head.levels[0] for head in models_table(results).heads]


def test_mean_and_sample_deviation():
    found = stat([0.7, 0.8, None, 0.9])
    assert (found.mean, found.sd) == (pytest.approx(0.8), pytest.approx(statistics.stdev([0.7, 0.8, 0.9])))
    assert score_text(found) == "80.00 ± 10.00 (3)"
    assert stat([0.5]) == Stat(0.5, None, 1)
    assert score_text(stat([0.5])) == "50.00 (1)"
    assert stat([None]) is None


def test_only_models_that_differ_in_their_seed_make_a_group():
    rows = [
        TEACHER,
        row(),
        row(model="ffn-s2", seed=2),
        row(model="ffn-s2+p", seed=2, stage="pruned", actions=["distill", "prune"]),
        row(alpha=0.0),
        row(select_on="test"),
        row(split="validation"),
    ]
    test, validation = group_rows(rows)
    expected = [("roberta", 1), ("ffn", 2), ("ffn+p", 1), ("ffn", 1), ("ffn", 1)]
    assert [(group.name, len(group.rows)) for group in test.groups] == expected
    assert len(validation.groups) == 1
    (twice,) = group_rows([row(), row(metrics={"accuracy": 0.9})])
    assert twice.groups[0].metric("accuracy") == Stat(0.9, None, 1)


def test_trained_on():
    (results,) = group_rows([row(), row(alpha=0.0), row(alpha=1.0, augmented=False), row(alpha=None)])
    assert [group.trained_on for group in results.groups] == [
        "labels + teacher, α 0.5, augmented",
        "teacher only, augmented",
        "labels only",
        "–",
    ]


def test_ratios_name_their_teacher():
    (results,) = group_rows([row(), TEACHER])
    assert results.groups[0].is_teacher
    teacher, student = results.groups
    assert student.times_smaller(teacher, "bytes_model") == 1000
    assert student.times_smaller(teacher, "bytes_gzip") == 2000
    assert "× smaller than roberta" in headings_of([row(), TEACHER])
    assert summary(results).endswith("in 4 MB: the student is 2,000 times smaller.")
    (large,) = group_rows([row(bytes_gzip=12_000_000), TEACHER])
    assert summary(large).endswith("in 4 MB: the student is 3.0 times larger.")
    (results,) = group_rows([row(teacher="bert"), TEACHER])
    assert results.teacher_of(results.groups[1]) is None
    (results,) = group_rows([TEACHER, {**TEACHER, "model": "bert"}, row(), row(model="b", teacher="bert")])
    assert "1,000 (bert)" in markdown_table(models_table(results))
    assert "1,000 (roberta)" in markdown_table(models_table(results))


def test_columns_without_values_are_left_out():
    headings = headings_of([row()])
    assert not [heading for heading in headings if "smaller" in heading or "packed" in heading]
    headings = headings_of([row(metrics={"accuracy": 0.8, "f1": 0.7}, bytes_packed=10)])
    assert {"F1, %", "Accuracy, %", "bytes_packed, KB"} <= set(headings)


def test_the_best_student_is_bold_and_not_one_selected_on_test():
    rows = [
        TEACHER,
        row(model="good", metrics={"accuracy": 0.8}),
        row(model="cheat", metrics={"accuracy": 0.9}, select_on="test"),
    ]
    (results,) = group_rows(rows)
    table = markdown_table(models_table(results))
    assert "| **good** |" in table
    assert "| cheat † |" in table


def test_the_best_student_is_chosen_on_validation_if_all_have_a_score_there():
    def scores(name: str, test: float, validation: float | None) -> dict[str, Any]:
        known = None if validation is None else {"accuracy": validation}
        return row(model=name, metrics={"accuracy": test}, validation=known)

    rows = [TEACHER, scores("a", 0.9, 0.8), scores("b", 0.7, 0.85)]
    (results,) = group_rows(rows)
    assert results.best_student.name == "b"
    assert "| **b** |" in markdown_table(models_table(results))
    assert summary(results).startswith("Best student: b, accuracy 70.00 %, 2 KB gzipped; its teacher")
    note = "The best student is the one with the highest validation score."
    assert note in terminal_table(rows)
    # One selected on test does not count, and needs no score.
    (results,) = group_rows([*rows, {**scores("cheat", 0.95, None), "select_on": "test"}])
    assert results.best_student.name == "b"
    rows.append(scores("c", 0.8, None))
    (results,) = group_rows(rows)
    assert results.best_student.name == "a"
    assert summary(results).startswith("Best student (highest on test): a, accuracy 90.00 %")
    assert note not in terminal_table(rows)


def test_missing_values_are_allowed_and_names_are_escaped(tmp_path: Path):
    evil = "<script>alert('x')</script>"
    bare = {**dict.fromkeys(row()), "task": evil, "split": "test", "model": evil, "stage": "distilled"}
    bare |= {"seed": 1, "rows": 1, "metrics": {}, "parts": {}, "settings": {}}
    paths = write_report(tmp_path, [bare], chain(evil, jobs=({"job": evil},)))
    assert evil not in paths["report.md"].read_text(encoding="utf-8").split("## Settings")[0]
    assert "No student was scored" in terminal_table([bare])


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (100_000, "100 KB"), (446_370, "446 KB"), (1_593_224, "1.59 MB"), (999_600, "1 MB")],
)
def test_human_bytes(count: int, text: str):
    assert human_bytes(count) == text


def test_terminal_table_is_narrow_and_keeps_both_ends_of_long_names():
    name = "a-name-that-goes-on-and-on-" * 4 + "end"
    text = terminal_table([TEACHER, row(model=name), row(model="x", select_on="test")])
    assert max(map(len, text.splitlines())) <= 110
    assert "…" in text
    assert "on-end" in text
    assert "x †" in text


def test_text_table_aligns():
    assert text_table(["a", "n"], [["x", "1"], ["long", "10"]], [False, True]) == "\n".join(
        ["a      n", "----  --", "x      1", "long  10"]
    )


@pytest.mark.slow
def test_report_files_are_the_same_each_time(tmp_path: Path):
    rows = [TEACHER, row(), row(model="ffn-s2", seed=2, metrics={"accuracy": 0.82})]
    record = chain(jobs=({"job": "compress", "seed": 2},))
    paths = write_report(tmp_path / "new", rows, record)
    assert {name: path.read_bytes()[:4] for name, path in paths.items() if "skyline" in name} == {
        "skyline.png": b"\x89PNG",
        "skyline.pdf": b"%PDF",
    }
    text = paths["report.md"].read_text(encoding="utf-8")
    assert "81.00 ± 1.41 (2)" in text
    assert '{"job": "compress", "seed": 2}' in text
    assert set(paths) == {"report.md", "report.html", "skyline.png", "skyline.pdf"}
    assert text.count("1 KB is 1,000 bytes") == 1
    before = {name: path.read_bytes() for name, path in paths.items()}
    again = write_report(tmp_path / "again", rows, record)
    assert {name: path.read_bytes() for name, path in again.items()} == before


def test_models_of_a_sweep_are_named_by_their_cells():
    cell = {"task": "sst-2", "student_arch": "ffn", "embedding_dim": "25", "method": "alpha 0", "pooling": "max"}
    rows = [
        row(cell=cell, model="ffn-1f3a9c2e-s1"),
        row(cell=cell, model="ffn-1f3a9c2e-s2", seed=2),
        row(cell=cell, model="ffn-1f3a9c2e-s2+p+q", seed=2, actions=["distill", "prune", "quantize"]),
        row(cell={**cell, "method": "no distil"}, model="ffn-1f3a9c2e-s1"),
        row(cell={}, model="ffn-00000000-s1"),
        TEACHER,
    ]
    (results,) = group_rows(rows)
    assert [(group.name, len(group.rows)) for group in results.groups] == [
        ("roberta", 1),
        ("ffn 25, alpha 0, pooling max", 2),
        ("ffn 25, alpha 0, pooling max +p+q", 1),
        ("ffn 25, no distil, pooling max", 1),
        ("the only cell", 1),
    ]
    (results,) = group_rows([row(cell={"a": "x y"}), row(cell={"b": "x y"})])
    assert [group.name for group in results.groups] == ["x y", "x y"]  # the same name, but different cells


def test_settings_are_listed_once_and_then_what_differs():
    runs = [
        RecordedRun(cell={"a": label}, seed=seed, settings={"task": "sst-2", "lr": lr, "seed": seed})
        for label, lr in (("low", 0.1), ("high", 1.0))
        for seed in (1, 2)
    ]
    fixed = {"task": "sst-2"}
    record = chain(kind="sweep", jobs=({"preprocess": {}},), settings=fixed, seeds=(1, 2), runs=tuple(runs[:3]))
    assert settings_lines(record) == [
        '{"preprocess": {}}',
        '{"seeds": [1, 2], "settings": {"task": "sst-2"}}',
        '{"cell": {"a": "low"}, "settings": {"lr": 0.1}}',
        '{"cell": {"a": "high"}, "seeds": [1], "settings": {"lr": 1.0}}',
    ]


def test_labels_alone_make_a_report(tmp_path: Path):
    shares = (
        LabelShares(task="sst-2", rows="train", shares={"negative": 0.4422, "positive": 0.5578}, count=67349),
        LabelShares(task="sst-2", rows="augmented", shares={"negative": 0.25, "positive": 0.75}, count=8),
        LabelShares(task="sst-2", rows="validation", shares={"negative": 0.5, "positive": 0.5}, count=4),
    )
    record = chain(labels=shares, quote=Quote(table="B.1"))
    paths = write_report(tmp_path, [], record)
    assert set(paths) == {"report.md", "report.html"}
    text = paths["report.md"].read_text(encoding="utf-8")
    rows = "| Label | train (67,349 rows), % | augmented (8 rows), % | validation (4 rows), % |"
    assert f"{rows} train, %, thesis (quoted) | augmented, %, thesis (quoted) |\n" in text
    assert "| negative | 44.22 | 25.00 | 50.00 | 55.2 | 57.5 |\n" in text
    assert "| positive | 55.78 | 75.00 | 50.00 | 44.8 | 42.5 |\n" in text
    assert "67,349" in terminal_report([], record)
    unquoted = write_report(tmp_path, [], chain(labels=shares))["report.md"].read_text(encoding="utf-8")
    assert f"{rows}\n" in unquoted
    compared = (shares[0], shares[1].model_copy(update={"agreement": 0.875}))
    agreed = write_report(tmp_path, [], chain(labels=compared))["report.md"].read_text(encoding="utf-8")
    assert "| agreement with source label | – | 87.50 |\n" in agreed


def test_of_very_many_labels_the_first_are_shown():
    shares = LabelShares(task="t", rows="train", shares={f"label {n}": 0.02 for n in range(50)}, count=100)
    lines = terminal_report([], chain(labels=(shares,))).splitlines()
    assert max(map(len, lines)) <= TERMINAL_WIDTH
    assert [line.split() for line in lines[-2:]] == [["label", "19", "2.00"], ["30", "other", "labels", "60.00"]]


def test_nothing_to_report(tmp_path: Path):
    with pytest.raises(UserError, match="no model was evaluated"):
        write_report(tmp_path, [], chain())


OF_STUDENT = {"runtime": "numpy", "sentences_per_second": 20_000.0, "milliseconds_for_one": 0.5}
OF_STUDENT |= {"peak_memory": 2_900_000, "flops": 12_000}
ITS_TEACHER = {"runtime": "pytorch", "sentences_per_second": 100.0, "milliseconds_for_one": 20.0, "flops": 500_000_000}


def test_speed_and_memory_are_columns_where_models_were_timed():
    other = {**OF_STUDENT, "milliseconds_for_one": 0.3, "peak_memory": None}
    rows = [row(speed=OF_STUDENT), row(model="ffn-s2", seed=2, speed=other), {**TEACHER, "speed": ITS_TEACHER}]
    (results,) = group_rows([*rows, row(model="untimed")])
    table = models_table(results)
    shown = [
        dict(zip((h.levels[0] for h in table.heads), (e.text for e in line.entries), strict=True))
        for line in table.lines
    ]
    names = ("Sentences/s", "ms for one", "Peak memory, MB", "MFLOPs for one", "× faster than roberta")
    assert [[line[name] for name in names] for line in shown] == [
        ["100", "20.0", "–", "500", "1.0"],
        ["20,000", "0.400", "2.90", "0.0120", "50"],
        ["–", "–", "–", "–", "–"],
    ]
    text = terminal_table(rows)
    assert "ms for one" in text.splitlines()[1]
    assert "Peak memory, MB" not in text
    assert max(map(len, text.splitlines())) <= 110
    assert "(packed files by the NumPy runtime, teachers by PyTorch)" in " ".join(text.split())


def test_of_two_teachers_each_is_named_in_times_faster():
    (results,) = group_rows([
        {**TEACHER, "speed": ITS_TEACHER},
        {**TEACHER, "model": "bert", "speed": ITS_TEACHER},
        row(speed=OF_STUDENT),
    ])  # fmt: skip
    assert "40 (roberta)" in markdown_table(models_table(results))


def test_a_new_column_is_in_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    words = Column("words", "Words read", lambda group, _: group.mean("words"), lambda value: f"{value:.0f} words")
    monkeypatch.setattr(columns, "COLUMNS", [*COLUMNS, words])
    rows = [{**of_row, "words": 421} for of_row in pivot_rows.scored(pivot_rows.ALPHA_0, 0.8, 0.9)]
    paths = write_report(tmp_path, rows, pivot_rows.SMALL)
    texts = {
        name: path.read_text(encoding="utf-8") for name, path in paths.items() if path.suffix not in (".png", ".pdf")
    }
    assert set(texts) == {"report.md", "report.html", "table.md", "table.csv", "table.tex"}
    for name, text in {**texts, "terminal": terminal_report(rows, pivot_rows.SMALL)}.items():
        assert ("words" if name == "table.csv" else "Words read") in text
        assert "421" in text
    assert "421 words" in terminal_table(rows)
