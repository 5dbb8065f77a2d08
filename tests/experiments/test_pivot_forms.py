"""Tables of means and deviations as Markdown, LaTeX, CSV and text, and their files."""

import csv
import io
import re
import statistics
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
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
    teacher,
    texts,
    thesis_grid,
    values,
)

from compression.experiments.report import terminal_report, write_report
from compression.experiments.report.pivot import csv_pivot
from compression.experiments.report.record import Quote
from compression.experiments.report.table import escape_latex, latex_table, markdown_table


def test_files(tmp_path: Path):
    rows = [teacher({"accuracy": 0.93}), *scored(NO_DISTIL, 0.78, 0.80), *scored(ALPHA_0, 0.81, 0.82, 0.83, 0.84)]
    paths = write_report(tmp_path, rows, SMALL)
    assert {"table.md", "table.csv", "table.tex", "report.md", "report.html", "skyline.png"} <= set(paths)
    line = "| bilstm | 400,000 | 1.600 | 79.00 ± 1.41 (2/4) | **82.50 ± 1.29** |"
    assert line in paths["table.md"].read_text(encoding="utf-8")
    report = paths["report.md"].read_text(encoding="utf-8")
    assert report.index(line) < report.index("| **bilstm, alpha 0** |")
    first, second = csv.DictReader(paths["table.csv"].open(encoding="utf-8", newline=""))
    assert (first["kind"], first["student_arch"], first["bytes"]) == ("teacher", "minilm", "90000000.0")
    assert second["no distil · accuracy, mean"] == repr(statistics.fmean([0.78, 0.80]))
    assert second["no distil · accuracy, n"] == "2"
    assert r"\textbf{82.50 $\pm$ 1.29}" in paths["table.tex"].read_text(encoding="utf-8")


def test_several_tables_are_files_of_their_own(tmp_path: Path):
    axes = {"task": values("sst-2", "qqp", axis="task"), "student_arch": values("bilstm", axis="student_arch")}
    paths = write_report(tmp_path, [], record(axes, columns=["student_arch"]))
    assert sorted(name for name in paths if "table" in name) == [
        f"table-{task}.{kind}" for task in ("qqp", "sst-2") for kind in ("csv", "md", "tex")
    ]
    assert "skyline.png" not in paths


def test_the_terminal_shows_the_table_where_it_fits():
    rows = scored(NO_DISTIL, 0.78, 0.80) + scored(ALPHA_0, 0.81, 0.82, 0.83, 0.84)
    text = terminal_report(rows, SMALL)
    assert "82.50 ± 1.29*" in text
    assert max(map(len, text.splitlines())) <= 110
    methods = {f"a condition {number} " + "of many words" * 3: {} for number in range(9)}
    wide = record({"student_arch": values("bilstm", axis="student_arch"), "method": methods})
    assert "Best student: bilstm, alpha 0" in terminal_report(rows, wide)


def test_quotations_give_way_on_a_terminal():
    grid = thesis_grid(quote=Quote(table="7.1"))
    text = terminal_report([teacher({"accuracy": 0.93})], grid)
    assert "quoted" not in text
    assert "Quoted" not in text
    assert "minilm" in text


NASTY = st.text(st.sampled_from("\\{}$&#%_^~<>|[]*-\"'`,\n\t aé±†"), min_size=1, max_size=8)


def cells_of(line: str) -> int:
    """Columns that a line of a LaTeX table fills."""
    spans = sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", line))
    return len(re.findall(r"(?<!\\)&", line)) + 1 + spans


@settings(max_examples=60, deadline=None)
@given(
    st.lists(NASTY, min_size=1, max_size=3, unique=True), st.lists(NASTY, min_size=1, max_size=3, unique=True), NASTY
)
def test_any_labels_make_sound_tables(rows: list[str], columns: list[str], axis: str):
    grid = record(
        {axis: {label: {} for label in rows}, "c": {label: {} for label in columns}},
        rows=[axis],
        columns=["c"],
        seeds=[1],
    )
    found = [row({axis: rows[0], "c": label}, 1, {"accuracy": 0.5}) for label in columns]
    pivot = only(found, grid)
    text = latex_table(pivot.table())
    bare = re.sub(r"\\[\\{}$&#%_]", "", text.split("\n", 1)[1])
    assert bare.count("{") == bare.count("}")
    assert not set('#%^~"|<>') & set(bare)
    assert bare.count("$") % 2 == 0
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    width = 1 + 2 + len(pivot.columns)
    assert {cells_of(re.sub(r"\\\\$", "", line)) for line in body} == {width}
    assert not any(line.startswith(("[", "*")) for line in body)
    lines = markdown_table(pivot.table()).splitlines()
    assert len(lines) == 2 + len(rows)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {width + 1}


def test_escaping_for_latex():
    assert escape_latex("100 % of_x & {y} \\ 5--6\n[a]") == (r"100 \% of\_x \& \{y\} \textbackslash{} 5-{}-6 {[}a]")
    assert escape_latex("82.50 ± 1.29 †") == r"82.50 $\pm$ 1.29 $\dagger$"


def test_neighbours_share_a_head_in_latex():
    text = latex_table(only([], QQP).table())
    assert r"\multicolumn{2}{c}{no distil} & \multicolumn{2}{c}{alpha 0} \\" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["no distil", "alpha 0"]), st.sampled_from(SEEDS)),
        st.floats(0, 1, allow_nan=False),
    )
)
def test_every_mean_in_the_csv_is_of_the_rows(scores: dict[tuple[str, int], float]):
    rows = [
        row({"student_arch": "bilstm", "method": method}, seed, {"accuracy": score})
        for (method, seed), score in scores.items()
    ]
    (line,) = csv.DictReader(io.StringIO(csv_pivot(only(rows))))
    for method in METHODS:
        of_cell = [score for (name, _), score in scores.items() if name == method]
        mean, sd = line[f"{method} · accuracy, mean"], line[f"{method} · accuracy, sd"]
        assert line[f"{method} · accuracy, n"] == str(len(of_cell))
        assert mean == (repr(statistics.fmean(of_cell)) if of_cell else "")
        assert sd == (repr(statistics.stdev(of_cell)) if len(of_cell) > 1 else "")


def test_cells_show_the_size_of_the_packed_file_where_the_layout_asks_for_it():
    grid = record({"student_arch": values("bilstm", axis="student_arch"), "method": METHODS}, sizes=True)
    pivot = only(
        scored(NO_DISTIL, 0.78, 0.80, 0.78, 0.80, bytes_packed=21_400)
        + scored(ALPHA_0, 0.81, 0.82, 0.83, 0.84, bytes_packed=None),
        grid,
    )
    assert texts(pivot) == {("bilstm",): ["79.00 ± 1.15 · 21.4 KB", "82.50 ± 1.29*"]}
    first = markdown_table(pivot.table()).splitlines()[0]
    assert first == "| student_arch | no distil · accuracy | alpha 0 · accuracy |"
    assert any("packed file" in note for note in pivot.notes)
    assert not any("P:" in note for note in pivot.notes)
    (line,) = csv.DictReader(io.StringIO(csv_pivot(pivot)))
    assert line["no distil · accuracy, bytes_packed"] == "21400.0"
    assert line["alpha 0 · accuracy, bytes_packed"] == ""
