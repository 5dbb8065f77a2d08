"""Tables of means and deviations: layout, the bold rule, and what is missing."""

import statistics
from typing import Any

import pytest
from pivot_rows import (
    ALPHA_0,
    METHODS,
    NO_DISTIL,
    QQP,
    SEEDS,
    SMALL,
    only,
    record,
    row,
    scored,
    table_of,
    teacher,
    texts,
    thesis_grid,
    values,
)

from common.errors import UserError
from compression.experiments.report.pivot import Score, pivots
from compression.experiments.report.pivot_layout import stage_label
from compression.experiments.report.record import Quote


def test_mean_deviation_and_the_best_of_a_row():
    pivot = only(scored(NO_DISTIL, 0.78, 0.80, 0.78, 0.80) + scored(ALPHA_0, 0.81, 0.82, 0.83, 0.84))
    assert [" · ".join(column.levels) for column in pivot.columns] == ["no distil · accuracy", "alpha 0 · accuracy"]
    assert texts(pivot) == {("bilstm",): ["79.00 ± 1.15", "82.50 ± 1.29*"]}
    assert pivot.title == "sst-2"
    first = pivot.rows[0].scores[0]
    assert (first.sort, first.sd, first.n) == (0.79, statistics.stdev([0.78, 0.80, 0.78, 0.80]), 4)


def test_rows_and_columns_are_in_the_order_of_the_axes():
    grid = thesis_grid(skip=[{"student_arch": "bilstm", "embedding_type": "hash"}])
    late = {"student_arch": "ffn", "embedding_type": "hash", "embedding_dim": "25", "method": "alpha 0"}
    pivot = only(scored(late, 0.8, 0.8, 0.8, 0.8), grid)
    assert pivot.layout.rows == ("student_arch", "embedding_type", "embedding_dim")
    assert texts(pivot) == {
        ("bilstm", "bpe", "25"): ["–", "–"],
        ("ffn", "bpe", "25"): ["–", "–"],
        ("ffn", "hash", "25"): ["–", "80.00 ± 0.00"],
    }


def test_columns_keep_their_order_where_the_first_row_lacks_one():
    grid = record(
        {"student_arch": values("rnn", "ffn", axis="student_arch"), "method": METHODS},
        skip=[{"student_arch": "rnn", "method": "no distil"}],
    )
    assert [column.labels for column in only([], grid).columns] == [("no distil",), ("alpha 0",)]


def test_all_that_show_the_same_number_are_best():
    rows = scored(NO_DISTIL, 0.80001, 0.8, 0.8, 0.8) + scored(ALPHA_0, 0.8, 0.8, 0.8, 0.8)
    assert [score.best for score in only(rows).rows[0].scores] == [True, True]


def test_one_seed_has_no_deviation_and_missing_seeds_are_counted():
    assert table_of(scored(NO_DISTIL, 0.8) + scored(ALPHA_0, 0.7, 0.8, 0.9)) == {
        ("bilstm",): ["80.00 (1/4)*", "80.00 ± 10.00 (3/4)*"]
    }
    one = record({"student_arch": values("bilstm", axis="student_arch"), "method": METHODS}, seeds=[1])
    cell = only(scored(NO_DISTIL, 0.8), one).rows[0].scores[0]
    assert (cell.text, cell.sd) == ("80.00", None)


def test_without_results_a_table_has_dashes_and_without_a_layout_there_is_no_table():
    assert table_of([]) == {("bilstm",): ["–", "–"]}
    assert only([]).rows[0].scores[0] == Score(planned=4)
    assert only([]).rows[0].size is None
    assert pivots([], SMALL.model_copy(update={"table": None})) == []


def test_scores_on_validation_rows_are_not_mixed_in():
    rows = scored(ALPHA_0, 0.8, 0.8, 0.8, 0.8) + scored(ALPHA_0, 0.1, 0.1, 0.1, 0.1, split="validation")
    assert table_of(rows) == {("bilstm",): ["–", "80.00 ± 0.00"]}


MNLI = record({"student_arch": values("bilstm", axis="student_arch"), "method": {"alpha 0": {"task": "mnli"}}})


def mnli(seed: int, matched: float, mismatched: float) -> list[dict[str, Any]]:
    return [
        row(ALPHA_0, seed, {"accuracy": score}, task="mnli", split=f"test_{name}")
        for name, score in (("matched", matched), ("mismatched", mismatched))
    ]


def test_mnli_is_the_mean_of_two_splits_then_over_seeds():
    pivot = only(mnli(1, 0.60, 0.70) + mnli(2, 0.62, 0.66), MNLI)
    assert [column.heading for column in pivot.columns] == ["accuracy (m+mm)/2"]
    cell = pivot.rows[0].scores[0]
    assert cell.sort == pytest.approx(0.645)
    assert cell.sd == pytest.approx(statistics.stdev([0.65, 0.64]))
    assert cell.text == "64.50 ± 0.71 (2/4)"
    without_one = only(mnli(1, 0.60, 0.70) + mnli(2, 0.62, 0.66)[:1], MNLI)
    assert without_one.rows[0].scores[0].text == "65.00 (1/4)"


def test_splits_have_columns_of_their_own_where_they_are_not_averaged():
    assert MNLI.table is not None
    apart = MNLI.model_copy(update={"table": MNLI.table.model_copy(update={"average_splits": False})})
    pivot = only(mnli(1, 0.60, 0.70), apart)
    assert [column.heading for column in pivot.columns] == ["accuracy test_matched", "accuracy test_mismatched"]
    assert texts(pivot) == {("bilstm",): ["60.00 (1/4)", "70.00 (1/4)"]}


def test_two_metrics_are_two_columns_each_with_its_best():
    rows = [
        row(cell, seed, {"accuracy": accuracy, "f1": f1}, task="qqp")
        for cell, accuracy, f1 in ((NO_DISTIL, 0.8, 0.6), (ALPHA_0, 0.7, 0.65))
        for seed in SEEDS
    ]
    pivot = only(rows, QQP)
    assert [" · ".join(column.levels) for column in pivot.columns] == [
        "no distil · accuracy",
        "no distil · f1",
        "alpha 0 · accuracy",
        "alpha 0 · f1",
    ]
    assert texts(pivot) == {("bilstm",): ["80.00 ± 0.00*", "60.00 ± 0.00", "70.00 ± 0.00", "65.00 ± 0.00*"]}


def test_a_task_without_rows_has_the_metrics_of_its_definition():
    assert [column.metric for column in only([], QQP).columns] == ["accuracy", "f1"] * 2


def test_one_table_a_task_unless_the_task_is_laid_out():
    axes = {"task": values("sst-2", "qqp", axis="task"), "student_arch": values("bilstm", axis="student_arch")}
    cells = [{"task": task, "student_arch": "bilstm"} for task in axes["task"]]
    rows = [
        row(cells[1], 1, {"accuracy": 0.8, "f1": 0.7}, task="qqp", parameters=9),
        row(cells[0], 1, {"accuracy": 0.9}),
        teacher({"accuracy": 0.95}),
        teacher({"accuracy": 0.92, "f1": 0.91}, task="qqp"),
    ]
    apart = pivots(rows, record(axes, columns=["student_arch"], seeds=[1]))
    assert [pivot.title for pivot in apart] == ["sst-2", "qqp"]
    assert [[cell.text for cell in pivot.baselines[0].scores] for pivot in apart] == [["95.00"], ["92.00", "91.00"]]
    next_to = only(rows, record(axes, columns=["task"], seeds=[1]))
    headings = [" · ".join(column.levels) for column in next_to.columns]
    assert headings == ["sst-2 · accuracy", "qqp · accuracy", "qqp · f1"]
    assert texts(next_to) == {("bilstm",): ["90.00", "80.00", "70.00"]}
    assert [line.labels for line in next_to.baselines] == [("minilm",)]
    assert [cell.text for cell in next_to.baselines[0].scores] == ["95.00", "92.00", "91.00"]
    assert (next_to.rows[0].parameters, next_to.rows[0].size) == (None, None)
    below = only(rows, record(axes, rows=["task"], columns=["student_arch"], seeds=[1]))
    assert texts(below) == {("sst-2",): ["90.00", "–"], ("qqp",): ["80.00", "70.00"]}
    assert [line.labels for line in below.baselines] == [("minilm, sst-2",), ("minilm, qqp",)]


def test_an_axis_left_out_of_the_layout_makes_tables():
    axes = {"student_arch": values("bilstm", axis="student_arch"), "method": METHODS}
    axes["pooling"] = values("last", "max", axis="pooling")
    rows = scored({**ALPHA_0, "pooling": "max"}, 0.8, 0.8, 0.8, 0.8)
    tables = pivots(rows, record(axes))
    assert [table.title for table in tables] == ["sst-2, pooling last", "sst-2, pooling max"]
    assert [texts(table)["bilstm",] for table in tables] == [["–", "–"], ["–", "80.00 ± 0.00"]]


ACTIONS = {
    "q": {"compression_actions": ["distill", "quantize"]},
    "pq": {"compression_actions": ["distill", "prune", "quantize"]},
}


def compressed(actions: str, **scores: float) -> list[dict[str, Any]]:
    """Rows of one run's models: distilled, p, q, pq -> score."""
    cell = {"student_arch": "bilstm", "actions": actions}
    kinds = {
        "distilled": ("", "distilled"),
        "p": ("+p", "pruned"),
        "q": ("+q", "quantized"),
        "pq": ("+p+q", "quantized"),
    }
    return [
        row(cell, 1, {"accuracy": score}, model=f"bilstm-1f3a9c2e-s1{kinds[kind][0]}", stage=kinds[kind][1])
        for kind, score in scores.items()
    ]


def test_stages_as_rows_though_runs_with_other_actions_make_them():
    grid = record(
        {"student_arch": values("bilstm", axis="student_arch"), "actions": ACTIONS},
        rows=["student_arch", "stage"],
        columns=["task"],
        seeds=[1],
    )
    rows = compressed("q", distilled=0.80, q=0.79) + compressed("pq", distilled=0.80, p=0.78, pq=0.77)
    pivot = only(rows, grid)
    assert texts(pivot) == {
        ("bilstm", "distilled"): ["80.00"],
        ("bilstm", "+p"): ["78.00"],
        ("bilstm", "+q"): ["79.00"],
        ("bilstm", "+p+q"): ["77.00"],
    }
    assert [line.size_field for line in pivot.rows] == ["bytes_model", *["bytes_gzip"] * 3]
    assert [line.size for line in pivot.rows] == [1_600_000, *[1_400_000] * 3]
    assert [line.labels[1] for line in only([], grid).rows] == ["distilled", "+p", "+q", "+p+q"]


def test_without_stages_a_run_stands_for_its_last_model():
    grid = record(
        {"student_arch": values("bilstm", axis="student_arch"), "actions": ACTIONS}, columns=["actions"], seeds=[1]
    )
    rows = compressed("q", distilled=0.80, q=0.79) + compressed("pq", distilled=0.80, p=0.78, pq=0.77)
    for ordered in (rows, rows[::-1]):
        assert table_of(ordered, grid) == {("bilstm",): ["79.00*", "77.00"]}


def test_weights_chosen_on_test_are_marked_and_best_only_among_such():
    cheat = scored(NO_DISTIL, 0.9, 0.9, 0.9, 0.9, select_on="test")
    mixed = only(cheat + scored(ALPHA_0, 0.8, 0.8, 0.8, 0.8))
    assert texts(mixed) == {("bilstm",): ["90.00 ± 0.00 †", "80.00 ± 0.00*"]}
    assert mixed.rows[0].headings == ("bilstm",)
    both = only(cheat + scored(ALPHA_0, 0.8, 0.8, 0.8, 0.8, select_on="test"))
    assert texts(both) == {("bilstm",): ["90.00 ± 0.00*", "80.00 ± 0.00"]}
    assert both.rows[0].headings == ("bilstm †",)
    assert any(note.startswith("†") for note in both.notes)


def test_the_thesis_is_next_to_ours_and_never_best():
    grid = thesis_grid(quote=Quote(table="7.1", task="sst-2"))
    cell = {"student_arch": "bilstm", "embedding_type": "bpe", "embedding_dim": "25"}
    rows = scored({**cell, "method": "no distil"}, 0.5, 0.5, 0.5, 0.5, alpha=1.0, augmented=False)
    rows += scored({**cell, "method": "alpha 0"}, 0.6, 0.6, 0.6, 0.6)
    pivot = only(rows, grid)
    assert [column.levels[-1] for column in pivot.columns] == ["accuracy", "accuracy, thesis, SST-2 (quoted)"] * 2
    assert [column.quoted for column in pivot.columns] == [False, True] * 2
    found = texts(pivot)
    assert found["bilstm", "bpe", "25"] == ["50.00 ± 0.00", "82.9 ± 0.6", "60.00 ± 0.00*", "88.6 ± 0.4"]
    # Not run yet: known from the settings it is to have.
    assert found["ffn", "hash", "25"] == ["–", "75.0 ± 0.7", "–", "81.2 ± 0.5"]
    assert [(line.labels[0], line.quoted) for line in pivot.baselines] == [
        ("RoBERTa-large", True),
        ("TinyBERT-6", True),
        ("GLUE BiLSTM GloVe", True),
        ("GLUE BiLSTM ELMo", True),
    ]
    assert [cell.text for cell in pivot.baselines[0].scores] == ["–", "96.56", "–", "96.56"]


def test_only_the_very_student_is_quoted():
    axes = {"vocab_size": values(2500, 5000, 1000, axis="vocab_size"), "method": METHODS}
    given = {"student_arch": "ffn", "embedding_type": "hash", "embedding_dim": 25}
    axes["method"] = {label: {**settings, **given} for label, settings in METHODS.items()}
    pivot = only([], record(axes, rows=["vocab_size"], quote=Quote(table="7.1")))
    assert {labels: cells[1::2] for labels, cells in texts(pivot).items()} == {
        ("2500",): ["74.8 ± 1.1", "80.2 ± 0.2"],
        ("5000",): ["75.0 ± 0.7", "81.2 ± 0.5"],
        ("1000",): ["–", "–"],
    }


def test_pooling_is_known_from_a_runs_rows():
    axes = {"method": {"alpha 0": {"embedding_type": "hash", "embedding_dim": 100}}}
    grid = record({"student_arch": values("rnn", axis="student_arch"), **axes}, quote=Quote(table="7.6"))
    assert [column.quoted for column in only([], grid).columns] == [False]
    cell = {"student_arch": "rnn", "method": "alpha 0"}
    student = {"student_arch": "rnn", "embedding_type": "hash", "embedding_dim": 100}
    rows = scored(cell, 0.8, 0.8, 0.8, 0.8, **student, settings={"pooling": "max", "loss": "mse"})
    assert table_of(rows, grid) == {("rnn",): ["80.00 ± 0.00", "81.9"]}


def test_a_pruned_student_does_not_get_the_figure_of_the_distilled_one():
    grid = thesis_grid(quote=Quote(table="7.1"))
    grid = grid.model_copy(
        update={
            "runs": tuple(
                run.model_copy(update={"settings": {**run.settings, "compression_actions": ["distill", "prune"]}})
                for run in grid.runs
            )
        }
    )
    assert not any(column.quoted for column in only([], grid).columns)


def test_an_unknown_table_cannot_be_quoted():
    with pytest.raises(UserError, match="no table '9'"):
        pivots([], thesis_grid(quote=Quote(table="9")))


@pytest.mark.parametrize(
    ("name", "stage", "label"),
    [
        ("a-s1", "distilled", "distilled"),
        ("a-s1+p+q", "quantized", "+p+q"),
        ("a-s1+f0.25-t+pu0.5v2-1f3a+qloss1", "quantized", "+f+p+q"),
        ("a-s1+pm", "pruned", "+p"),
        ("named-by-hand", "factorized", "+f"),
    ],
)
def test_stages_are_read_from_the_end_of_a_name(name, stage, label):
    assert stage_label({"model": name, "stage": stage}) == label
