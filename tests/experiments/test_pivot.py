"""Tables of means and deviations: layout, the bold rule, what is missing, and their forms and files."""

import csv
import io
import re
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot_rows import (
    ALPHA_0,
    METHODS,
    NO_DISTIL,
    QQP,
    SEEDS,
    SMALL,
    heads,
    labels_of,
    only,
    record,
    row,
    scored,
    scores,
    teacher,
    texts,
    thesis_grid,
    values,
)

from compression.experiments.report import terminal_report
from compression.experiments.report.pivot import pivots, terminal_pivot
from compression.experiments.report.record import Quote
from compression.experiments.report.results import Stat, stage_label
from compression.experiments.report.table import (
    Table,
    csv_table,
    escape_latex,
    latex_table,
    markdown_table,
)

STUDENT = {"student_arch": values("bilstm", axis="student_arch")}
MNLI = record({**STUDENT, "method": {"alpha 0": {"task": "mnli"}}})
ACTIONS = {
    "q": {"compression_actions": ["distill", "quantize"]},
    "pq": {"compression_actions": ["distill", "prune", "quantize"]},
}
STAGES = {
    "distilled": {"stage": "distilled", "actions": ["distill"]},
    "+p": {"stage": "pruned", "actions": ["distill", "prune"]},
    "+q": {"stage": "quantized", "actions": ["distill", "quantize"]},
    "+p+q": {"stage": "quantized", "actions": ["distill", "prune", "quantize"]},
}


def compressed(actions: str, scores: dict[str, float]) -> list[dict[str, Any]]:
    """Rows of one run's models: distilled, +p, +q, +p+q -> score."""
    cell = {"student_arch": "bilstm", "actions": actions}
    return [
        row(cell, 1, {"accuracy": score}, model="bilstm-s1" + kind.removeprefix("distilled"), **STAGES[kind])
        for kind, score in scores.items()
    ]


COMPRESSED = compressed("q", {"distilled": 0.80, "+q": 0.79})
COMPRESSED += compressed("pq", {"distilled": 0.80, "+p": 0.78, "+p+q": 0.77})


def mnli(seed: int, matched: float, mismatched: float) -> list[dict[str, Any]]:
    return [
        row(ALPHA_0, seed, {"accuracy": score}, task="mnli", split=f"test_{name}")
        for name, score in (("matched", matched), ("mismatched", mismatched))
    ]


def shown(table: Table) -> list[str]:
    """Headings in Markdown and LaTeX."""
    return [head.text for head in table.without("csv").heads]


def test_mean_deviation_and_the_best_of_a_row():
    pivot = only(scored(NO_DISTIL, 0.78, 0.80, 0.78, 0.80) + scored(ALPHA_0, 0.81, 0.82, 0.83, 0.84))
    assert heads(pivot) == ["no distil · accuracy", "alpha 0 · accuracy"]
    assert texts(pivot) == {("bilstm",): ["79.00 ± 1.15", "82.50 ± 1.29*"]}
    assert pivot.title == "sst-2"
    first = scores(pivot, pivot.lines[0])[0]
    assert (first.sort, first.value) == (0.79, Stat(0.79, statistics.stdev([0.78, 0.80, 0.78, 0.80]), 4))


@pytest.mark.parametrize(
    ("rows", "grid", "cells"),
    [
        pytest.param(
            scored(NO_DISTIL, 0.80001, 0.8, 0.8, 0.8) + scored(ALPHA_0, 0.8, 0.8, 0.8, 0.8),
            SMALL,
            ["80.00 ± 0.00*", "80.00 ± 0.00*"],
            id="all that show the same number are best",
        ),
        pytest.param(
            scored(NO_DISTIL, 0.8) + scored(ALPHA_0, 0.7, 0.8, 0.9),
            SMALL,
            ["80.00 (1/4)*", "80.00 ± 10.00 (3/4)*"],
            id="missing seeds are counted, and one has no deviation",
        ),
        pytest.param(
            scored(NO_DISTIL, 0.8),
            record({**STUDENT, "method": METHODS}, seeds=[1]),
            ["80.00", "–"],
            id="one planned seed",
        ),
        pytest.param([], SMALL, ["–", "–"], id="without results"),
        pytest.param(
            scored(ALPHA_0, 0.8, 0.8, 0.8, 0.8) + scored(ALPHA_0, 0.1, 0.1, 0.1, 0.1, split="validation"),
            SMALL,
            ["–", "80.00 ± 0.00"],
            id="validation scores are not mixed in",
        ),
        pytest.param(
            mnli(1, 0.60, 0.70) + mnli(2, 0.62, 0.66), MNLI, ["64.50 ± 0.71 (2/4)"], id="the mean of two splits"
        ),
        pytest.param(
            mnli(1, 0.60, 0.70) + mnli(2, 0.62, 0.66)[:1], MNLI, ["65.00 (1/4)"], id="a seed without one of two splits"
        ),
        pytest.param(
            [
                row(cell, seed, {"accuracy": accuracy, "f1": f1}, task="qqp")
                for cell, accuracy, f1 in ((NO_DISTIL, 0.8, 0.6), (ALPHA_0, 0.7, 0.65))
                for seed in SEEDS
            ],
            QQP,
            ["80.00 ± 0.00*", "60.00 ± 0.00", "70.00 ± 0.00", "65.00 ± 0.00*"],
            id="each metric has its best",
        ),
        pytest.param(
            COMPRESSED[::-1],
            record({**STUDENT, "actions": ACTIONS}, columns=["actions"], seeds=[1]),
            ["79.00*", "77.00"],
            id="without stages a run stands for its last model",
        ),
    ],
)
def test_cells_of_a_row(rows, grid, cells):
    assert texts(only(rows, grid)) == {("bilstm",): cells}


def test_rows_and_columns_are_in_the_order_of_the_axes():
    grid = thesis_grid(skip=[{"student_arch": "bilstm", "embedding_type": "hash"}])
    late = {"student_arch": "ffn", "embedding_type": "hash", "embedding_dim": "25", "method": "alpha 0"}
    assert texts(only(scored(late, 0.8, 0.8, 0.8, 0.8), grid)) == {
        ("bilstm", "bpe", "25"): ["–", "–"],
        ("ffn", "bpe", "25"): ["–", "–"],
        ("ffn", "hash", "25"): ["–", "80.00 ± 0.00"],
    }
    grid = record(
        {"student_arch": values("rnn", "ffn", axis="student_arch"), "method": METHODS},
        skip=[{"student_arch": "rnn", "method": "no distil"}],
    )
    assert heads(only([], grid)) == ["no distil · accuracy", "alpha 0 · accuracy"]


def test_without_a_layout_there_is_no_table():
    assert pivots([], SMALL.model_copy(update={"table": None})) == []


def test_a_score_is_the_mean_over_the_splits_of_a_task():
    assert heads(only(mnli(1, 0.60, 0.70), MNLI)) == ["alpha 0 · accuracy (m+mm)/2"]


def test_a_task_without_rows_has_the_metrics_of_its_definition():
    assert [head.split(" · ")[-1] for head in heads(only([], QQP))] == ["accuracy", "f1"] * 2


def test_one_table_a_task_unless_the_task_is_laid_out():
    axes = {"task": values("sst-2", "qqp", axis="task"), **STUDENT}
    cells = [{"task": task, "student_arch": "bilstm"} for task in axes["task"]]
    rows = [
        row(cells[1], 1, {"accuracy": 0.8, "f1": 0.7}, task="qqp", parameters=9),
        row(cells[0], 1, {"accuracy": 0.9}),
        teacher({"accuracy": 0.95}),
        teacher({"accuracy": 0.92, "f1": 0.91}, task="qqp"),
    ]
    apart = pivots(rows, record(axes, columns=["student_arch"], seeds=[1]))
    assert [pivot.title for pivot in apart] == ["sst-2", "qqp"]
    of_teachers = [[entry.text for entry in scores(pivot, pivot.baselines[0])] for pivot in apart]
    assert of_teachers == [["95.00"], ["92.00", "91.00"]]
    side_by_side = only(rows, record(axes, columns=["task"], seeds=[1]))
    assert heads(side_by_side) == ["sst-2 · accuracy", "qqp · accuracy", "qqp · f1"]
    assert texts(side_by_side) == {("bilstm",): ["90.00", "80.00", "70.00"]}
    (baseline,) = side_by_side.baselines
    assert labels_of(side_by_side, baseline) == ("minilm",)
    assert [entry.text for entry in scores(side_by_side, baseline)] == ["95.00", "92.00", "91.00"]
    (line,) = [line for line in csv.DictReader(io.StringIO(csv_table(side_by_side))) if line["kind"] == "student"]
    assert [float(line[f"{kind}_parameters"]) for kind in ("single", "pairs")] == [400_000, 9]
    below = only(rows, record(axes, rows=["task"], columns=["student_arch"], seeds=[1]))
    assert texts(below) == {("sst-2",): ["90.00", "–"], ("qqp",): ["80.00", "70.00"]}
    assert [labels_of(below, line) for line in below.baselines] == [("minilm, sst-2",), ("minilm, qqp",)]


def test_tasks_of_both_kinds_have_a_size_for_single_sentences_and_one_for_pairs():
    axes = {"task": values("sst-2", "qqp", "mnli", axis="task")}
    student = {"student_arch": "bilstm", "embedding_type": "bpe", "embedding_dim": 25, "vocab_size": 5000}
    axes["model"] = {"BiLSTM-BPE25": {**student, "alpha": 0}}
    found = []
    for task, size in (("sst-2", 1_000_000), ("qqp", 3_000_000), ("mnli", 5_000_000)):
        split = "test_matched" if task == "mnli" else "test"
        found.append(teacher({"accuracy": 0.9}, task=task, split=split, bytes_model=80_000_000))
        cell = {"task": task, "model": "BiLSTM-BPE25"}
        found.append(row(cell, 1, {"accuracy": 0.8}, task=task, split=split, bytes_gzip=size, parameters=size // 4))
    grid = record(axes, rows=["model"], columns=["task"], seeds=[1], quote=Quote(table="7.5"))
    pivot = only(found, grid)
    entries = dict(zip(shown(pivot), pivot.without("csv").lines[0].entries, strict=True))
    assert {name: entry.text for name, entry in entries.items() if ", single" in name or ", pairs" in name} == {
        "Parameters, single": "250,000",
        "Size, MB, single": "1.000",
        "× smaller, single": "80",
        "Size, MB, single, thesis (quoted)": "1.479",
        "× smaller, single, thesis (quoted)": "964",
        "Parameters, pairs": "1,000,000",
        "Size, MB, pairs": "4.000",
        "× smaller, pairs": "20",
        "Size, MB, pairs, thesis (quoted)": "6.936",
        "× smaller, pairs, thesis (quoted)": "206",
    }
    no_size = [{**each, "bytes_model": None} if each["model"] == "minilm" else each for each in found]
    ratios = [name for name in entries if "smaller" in name and "thesis" in name]
    assert [head for head in shown(only(no_size, grid)) if "smaller" in head] == ratios
    (line,) = [line for line in csv.DictReader(io.StringIO(csv_table(pivot))) if line["kind"] == "student"]
    sizes = ("single_bytes", "pairs_bytes", "pairs_thesis_bytes")
    assert [float(line[name]) for name in sizes] == [1_000_000, 4_000_000, 6_936_000]
    assert any(note.startswith("single: of tasks of single sentences") for note in pivot.notes)


def test_columns_of_several_tasks_have_an_average_as_glue_has():
    axes = {**STUDENT, "task": values("sst-2", "qqp", axis="task")}
    cells = [{"student_arch": "bilstm", "task": task} for task in axes["task"]]
    metrics = {"accuracy": 0.8, "f1": 0.7, "f1_at_threshold": 0.9}
    rows = [row(cells[0], 1, {"accuracy": 0.9}), row(cells[1], 1, metrics, task="qqp")]
    grid = record(axes, columns=["task"], seeds=[1])
    pivot = only(rows, grid)
    assert (pivot.heads[-1].text, pivot.lines[0].entries[-1].text) == ("average of tasks", "82.50")
    assert any(note.startswith("Average of tasks: the mean over tasks") for note in pivot.notes)
    for table in (only(rows[:1], grid), only(rows[:1])):
        assert "average of tasks" not in [head.text for head in table.heads]


def test_an_axis_left_out_of_the_layout_makes_tables():
    axes = {**STUDENT, "method": METHODS, "pooling": values("last", "max", axis="pooling")}
    tables = pivots(scored({**ALPHA_0, "pooling": "max"}, 0.8, 0.8, 0.8, 0.8), record(axes))
    assert [table.title for table in tables] == ["sst-2, pooling last", "sst-2, pooling max"]
    assert [texts(table)["bilstm",] for table in tables] == [["–", "–"], ["–", "80.00 ± 0.00"]]


def test_stages_as_rows_of_runs_with_different_actions():
    grid = record({**STUDENT, "actions": ACTIONS}, rows=["student_arch", "stage"], columns=["task"], seeds=[1])
    pivot = only(COMPRESSED, grid)
    assert {labels[1]: cells for labels, cells in texts(pivot).items()} == {
        "distilled": ["80.00"],
        "+p": ["78.00"],
        "+q": ["79.00"],
        "+p+q": ["77.00"],
    }
    lines = list(csv.DictReader(io.StringIO(csv_table(pivot))))
    # All gzipped, so that the gain of pruning is a ratio of like sizes; without such students, of the weights file.
    assert [(line["bytes_of"], float(line["bytes"])) for line in lines] == [("bytes_gzip", 1_400_000)] * 4
    distilled = csv.DictReader(io.StringIO(csv_table(only(COMPRESSED[:1], grid))))
    assert [line["bytes_of"] for line in distilled if line["bytes"]] == ["bytes_model"]
    empty = only([], grid)
    assert [labels_of(empty, line)[1] for line in empty.lines] == ["distilled", "+p", "+q", "+p+q"]


def test_weights_chosen_on_test_are_marked_and_best_only_among_such():
    cheat = scored(NO_DISTIL, 0.9, 0.9, 0.9, 0.9, select_on="test")
    mixed = only(cheat + scored(ALPHA_0, 0.8, 0.8, 0.8, 0.8))
    both = only(cheat + scored(ALPHA_0, 0.8, 0.8, 0.8, 0.8, select_on="test"))
    assert [[entry.text for entry in pivot.without("csv").lines[0].entries] for pivot in (mixed, both)] == [
        ["bilstm", "400,000", "1.600", "90.00 ± 0.00 †", "80.00 ± 0.00"],
        ["bilstm †", "400,000", "1.600", "90.00 ± 0.00", "80.00 ± 0.00"],
    ]
    kinds = [[score.kind for score in scores(pivot, pivot.lines[0])] for pivot in (mixed, both)]
    assert kinds == [["", "best"], ["best", ""]]
    assert any(note.startswith("†") for note in both.notes)


@pytest.mark.parametrize(
    ("actions", "label"),
    [
        (["distill"], "distilled"),
        (["distill", "factorize", "prune", "quantize"], "+f+p+q"),
        (["finetune"], "distilled"),
        ([], "distilled"),
    ],
)
def test_stages_are_read_from_actions_and_never_from_a_name(actions, label):
    assert stage_label({"model": "named+p+q", "stage": "quantized", "actions": actions}) == label


def test_the_terminal_shows_the_table_where_it_fits():
    rows = scored(NO_DISTIL, 0.78, 0.80) + scored(ALPHA_0, 0.81, 0.82, 0.83, 0.84)
    text = terminal_report(rows, SMALL)
    assert "82.50 ± 1.29*" in text
    assert max(map(len, text.splitlines())) <= 110
    wide = record({**STUDENT, "method": {f"condition {i} " + "of many words" * 3: {} for i in range(9)}})
    assert "Best student (highest on test): bilstm, alpha 0" in terminal_report(rows, wide)
    unquoted = terminal_report([teacher({"accuracy": 0.93})], thesis_grid(quote=Quote(table="7.1")))
    assert "quoted" not in unquoted.lower()
    assert "minilm" in unquoted


NASTY = st.text(st.sampled_from("\\{}$&#%_^~<>|[]*-\"'`,\n\t aé±†"), min_size=1, max_size=8)
LABELS = st.lists(NASTY, min_size=1, max_size=3, unique=True)


def cells_of(line: str) -> int:
    """Columns that a line of a LaTeX table fills."""
    spans = sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", line))
    return len(re.findall(r"(?<!\\)&", line)) + 1 + spans


@settings(max_examples=60)
@given(LABELS, LABELS, NASTY)
def test_any_labels_make_sound_tables(rows: list[str], columns: list[str], axis: str):
    axes = {axis: {label: {} for label in rows}, "c": {label: {} for label in columns}}
    found = [row({axis: rows[0], "c": label}, 1, {"accuracy": 0.5}) for label in columns]
    pivot = only(found, record(axes, rows=[axis], columns=["c"], seeds=[1]))
    text = latex_table(pivot)
    bare = re.sub(r"\\[\\{}$&#%_]", "", text.split("\n", 1)[1])
    assert bare.count("{") == bare.count("}")
    assert not set('#%^~"|<>') & set(bare)
    assert bare.count("$") % 2 == 0
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    width = 1 + 2 + len(heads(pivot))
    assert {cells_of(re.sub(r"\\\\$", "", line)) for line in body} == {width}
    assert not any(line.startswith(("[", "*")) for line in body)
    lines = markdown_table(pivot).splitlines()
    assert len(lines) == 2 + len(rows)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {width + 1}


def test_latex():
    assert escape_latex("100 % of_x & {y} \\ 5--6\n[a]") == r"100 \% of\_x \& \{y\} \textbackslash{} 5-{}-6 {[}a]"
    assert escape_latex("82.50 ± 1.29 †") == r"82.50 $\pm$ 1.29 $\dagger$"
    text = latex_table(only([], QQP))
    assert r"\multicolumn{2}{c}{no distil} & \multicolumn{2}{c}{alpha 0} \\" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text


CELLS = st.tuples(st.sampled_from(["no distil", "alpha 0"]), st.sampled_from(SEEDS))


@settings(max_examples=50)
@given(st.dictionaries(CELLS, st.floats(0, 1, allow_nan=False)))
def test_every_mean_in_the_csv_is_of_the_rows(scores: dict[tuple[str, int], float]):
    rows = [
        row({"student_arch": "bilstm", "method": method}, seed, {"accuracy": score})
        for (method, seed), score in scores.items()
    ]
    (line,) = csv.DictReader(io.StringIO(csv_table(only(rows))))
    for method in METHODS:
        of_cell = [score for (name, _), score in scores.items() if name == method]
        mean, sd = line[f"{method} · accuracy, mean"], line[f"{method} · accuracy, sd"]
        assert line[f"{method} · accuracy, n"] == str(len(of_cell))
        assert mean == (repr(statistics.fmean(of_cell)) if of_cell else "")
        assert sd == (repr(statistics.stdev(of_cell)) if len(of_cell) > 1 else "")


def test_cells_show_the_size_of_the_packed_file_where_the_layout_asks_for_it():
    rows = scored(NO_DISTIL, 0.78, 0.80, 0.78, 0.80, bytes_packed=21_400)
    rows += scored(ALPHA_0, 0.81, 0.82, 0.83, 0.84, bytes_packed=None)
    pivot = only(rows, record({**STUDENT, "method": METHODS}, sizes=True))
    assert texts(pivot) == {("bilstm",): ["79.00 ± 1.15 · 21.4 KB", "82.50 ± 1.29*"]}
    first = markdown_table(pivot).splitlines()[0]
    assert first == "| student_arch | no distil · accuracy | alpha 0 · accuracy |"
    assert any("packed file" in note for note in pivot.notes)
    assert not any("Size:" in note for note in pivot.notes)
    (line,) = csv.DictReader(io.StringIO(csv_table(pivot)))
    assert line["no distil · accuracy, bytes_packed"] == "21400.0"
    assert "alpha 0 · accuracy, bytes_packed" not in line


def test_a_table_without_columns_of_sizes_has_no_notes_about_them():
    first, *others = scored(ALPHA_0, 0.8, 0.9, 0.8, 0.9)
    rows = [{**first, "parameters": 7}, *others, teacher({"accuracy": 0.95})]
    pivot = only(rows, record({**STUDENT, "method": METHODS}))
    left_out = "Parameters and sizes are left out where a row's models differ in them."
    assert left_out in pivot.notes
    text, notes = terminal_pivot(pivot, 40)
    assert "Size, MB" not in text
    assert notes
    assert left_out not in notes


def test_speeds_follow_sizes_where_models_were_timed():
    speed = {"runtime": "c", "sentences_per_second": 1000.0, "milliseconds_for_one": 0.5, "flops": 2_000_000}
    slow = {"runtime": "pytorch", "sentences_per_second": 50.0, "milliseconds_for_one": 40.0, "flops": 90_000_000}
    timed = [{**one, "speed": speed} for one in scored(ALPHA_0, 0.8, 0.9, 0.8, 0.9)]
    pivot = only([*timed, teacher({"accuracy": 0.95}, speed=slow)], record({**STUDENT, "method": METHODS}))
    table = pivot.without("csv")
    first = shown(pivot).index("Sentences/s")
    assert shown(pivot)[first : first + 4] == ["Sentences/s", "ms for one", "MFLOPs for one", "× faster"]
    assert shown(pivot)[first - 2 : first] == ["Size, MB", "× smaller"]
    speeds = [[entry.text for entry in line.entries[first : first + 4]] for line in table.all_lines]
    assert speeds == [["50.0", "40.0", "90.0", "–"], ["1,000", "0.500", "2.00", "80"]]
    assert "Sentences/s & ms for one & MFLOPs for one & $\\times$ faster" in latex_table(table)
    line = next(line for line in csv.DictReader(io.StringIO(csv_table(pivot))) if line["kind"] == "student")
    names = ("sentences_per_second", "milliseconds_for_one", "flops", "times_faster")
    assert [float(line[name]) for name in names] == [1000.0, 0.5, 2e6, 80.0]
    assert any("(packed files by the C runtime, teachers by PyTorch)" in note for note in pivot.notes)
    text, notes = terminal_pivot(pivot, 60)
    assert "ms for one" not in text
    assert not any("CPU time" in note for note in notes)
    sized = only(timed, record({**STUDENT, "method": METHODS}, sizes=True))
    assert "ms for one" not in shown(sized)
    assert not any("CPU time" in note for note in sized.notes)


def test_speeds_are_left_out_where_the_models_of_a_row_differ():
    speed = {"runtime": "numpy", "sentences_per_second": 1000.0, "milliseconds_for_one": 0.5}
    first, *others = scored(ALPHA_0, 0.8, 0.9, 0.8, 0.9)
    rows = [{**first, "speed": speed, "parameters": 7}, *({**one, "speed": speed} for one in others)]
    assert "Sentences/s" not in shown(only(rows, record({**STUDENT, "method": METHODS})))
