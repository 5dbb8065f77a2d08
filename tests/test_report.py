"""Reports from rows written down here: grouping, numbers, the skyline and the files."""

import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.report import terminal_table, write_report
from common.report.families import group_rows, stat
from common.report.skyline import Point, skyline
from common.report.tables import columns, human_bytes, markdown_table, percent, summary, text_table


def row(**changes: Any) -> dict[str, Any]:
    """A student's row of results.json."""
    return {
        "task": "sst-2",
        "split": "test",
        "model": "ffn-s1",
        "stage": "distilled",
        "student_arch": "ffn",
        "embedding_type": "hash",
        "embedding_dim": 25,
        "vocab_size": 5000,
        "alpha": 0.5,
        "augmented": True,
        "seed": 1,
        "teacher": "roberta",
        "select_on": "validation",
        "parameters": 1000,
        "nonzero_parameters": 900,
        "bytes_model": 4000,
        "bytes_gzip": 2000,
        "bytes_packed": None,
        "metrics": {"accuracy": 0.8},
        "rows": 872,
        "seconds": {"train": 10.0, "evaluate": 1.0},
        "run": "somewhere",
        "config_hash": "x",
        **changes,
    }


TEACHER = row(
    model="roberta",
    stage="teacher",
    alpha=None,
    augmented=False,
    teacher=None,
    student_arch=None,
    parameters=1_000_000,
    bytes_model=4_000_000,
    bytes_gzip=3_800_000,
    metrics={"accuracy": 0.95},
)


def test_mean_and_sample_deviation():
    found = stat([0.7, 0.8, None, 0.9])
    assert found is not None
    assert found.mean == pytest.approx(0.8)
    assert found.sd == pytest.approx(statistics.stdev([0.7, 0.8, 0.9])) == pytest.approx(0.1)
    assert percent(found) == "80.00 ± 10.00 (3)"


def test_one_value_has_no_deviation_and_none_no_mean():
    one = stat([0.5])
    assert one is not None
    assert one.sd is None
    assert percent(one) == "50.00 (1)"
    assert stat([None]) is None


def test_seeds_make_one_family_and_nothing_else_does():
    rows = [
        TEACHER,
        row(),
        row(model="ffn-s2", seed=2),
        row(model="ffn-s2+p", seed=2, stage="pruned"),
        row(alpha=0.0),
        row(select_on="test"),
        row(split="validation"),
    ]
    test, validation = group_rows(rows)
    assert [(family.name, len(family.rows)) for family in test.families] == [
        ("roberta", 1),
        ("ffn", 2),
        ("ffn+p", 1),
        ("ffn", 1),
        ("ffn", 1),
    ]
    assert len(validation.families) == 1


def test_a_model_evaluated_twice_counts_once():
    (group,) = group_rows([row(), row(metrics={"accuracy": 0.9})])
    score = group.families[0].metric("accuracy")
    assert score is not None
    assert (score.n, score.mean) == (1, 0.9)


def test_trained_on_in_words():
    rows = [row(), row(alpha=0.0), row(alpha=1.0, augmented=False), row(alpha=None)]
    (group,) = group_rows(rows)
    assert [family.trained_on for family in group.families] == [
        "labels + teacher, α 0.5, augmented",
        "teacher only, augmented",
        "labels only",
        "–",
    ]


def test_ratios_name_their_teacher():
    (group,) = group_rows([row(), TEACHER])
    assert group.families[0].is_teacher
    assert group.times_smaller(group.families[1], "bytes_model") == 1000
    assert group.times_smaller(group.families[1], "bytes_gzip") == 2000
    assert "× smaller than roberta" in [column.heading for column in columns(group)]
    assert "2,000 times as much" in summary(group)


def test_a_student_of_a_teacher_that_is_not_there_gets_no_ratio():
    (group,) = group_rows([row(teacher="bert"), TEACHER])
    assert group.times_smaller(group.families[1], "bytes_model") is None


def test_several_teachers_are_named_in_the_cells():
    other = {**TEACHER, "model": "bert"}
    (group,) = group_rows([TEACHER, other, row(), row(model="b", teacher="bert")])
    assert "1,000 (bert)" in markdown_table(group)
    assert "1,000 (roberta)" in markdown_table(group)


def test_columns_without_values_are_left_out():
    (group,) = group_rows([row()])
    headings = [column.heading for column in columns(group)]
    assert "bytes_packed, KB" not in headings
    assert not [heading for heading in headings if "smaller" in heading]
    (group,) = group_rows([row(metrics={"accuracy": 0.8, "f1": 0.7}, bytes_packed=10)])
    headings = [column.heading for column in columns(group)]
    assert {"F1, %", "Accuracy, %", "bytes_packed, KB"} <= set(headings)


def test_the_best_student_is_bold_and_not_one_selected_on_test():
    rows = [
        TEACHER,
        row(model="good", metrics={"accuracy": 0.8}),
        row(model="cheat", metrics={"accuracy": 0.9}, select_on="test"),
    ]
    (group,) = group_rows(rows)
    table = markdown_table(group)
    assert "| **good** |" in table
    assert "| cheat † |" in table


def test_missing_values_do_no_harm(tmp_path: Path):
    bare = {"task": "mine", "split": "test", "model": "m", "stage": "distilled", "metrics": None, "seconds": None}
    assert write_report(tmp_path, [bare], "bare", {})
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


def test_report_files(tmp_path: Path):
    rows = [TEACHER, row(), row(model="ffn-s2", seed=2, metrics={"accuracy": 0.82})]
    paths = write_report(tmp_path / "new", rows, "A title", {"seeds": [1, 2], "path": Path("there")})
    assert {name: path.read_bytes()[:4] for name, path in paths.items() if "skyline" in name} == {
        "skyline.png": b"\x89PNG",
        "skyline.pdf": b"%PDF",
    }
    text = paths["report.md"].read_text(encoding="utf-8")
    assert "81.00 ± 1.41 (2)" in text
    assert '"path": "there"' in text
    assert text.count("1 KB is 1,000 bytes") == 1


def test_same_rows_same_bytes(tmp_path: Path):
    first, second = (write_report(tmp_path / name, [TEACHER, row()], "title", {}) for name in "ab")
    assert {name: path.read_bytes() for name, path in first.items()} == {
        name: path.read_bytes() for name, path in second.items()
    }


def test_html_escapes_text_and_needs_nothing_beside_it(tmp_path: Path):
    evil = "<script>alert('x')</script>"
    paths = write_report(tmp_path, [row(model=evil)], f"{evil} & more", {"note": evil})
    page = paths["report.html"].read_text(encoding="utf-8")
    assert evil not in page
    assert "&lt;script&gt;" in page
    assert "&amp; more" in page
    assert "data:image/png;base64," in page
    assert "http" not in page
    assert evil not in paths["report.md"].read_text(encoding="utf-8").split("## Settings")[0]


def test_nothing_to_report(tmp_path: Path):
    with pytest.raises(UserError, match="no model was evaluated"):
        write_report(tmp_path, [], "empty", {})


def test_skyline_of_a_known_case():
    small, better, dominated = Point("s", 10, 0.7), Point("b", 30, 0.8), Point("d", 40, 0.75)
    assert skyline([dominated, better, small]) == [small, better]


POINTS = st.lists(
    st.builds(Point, st.just("p"), st.integers(1, 20).map(float), st.integers(0, 10).map(lambda n: n / 10))
)


def dominates(a: Point, b: Point) -> bool:
    return a.size <= b.size and a.score >= b.score and (a.size, a.score) != (b.size, b.score)


@given(POINTS)
def test_skyline_holds_exactly_what_nothing_dominates(found: list[Point]):
    expected = [point for point in found if not any(dominates(other, point) for other in found)]
    assert sorted(skyline(found), key=lambda p: p.size) == sorted(expected, key=lambda p: p.size)
    sizes = [point.size for point in skyline(found)]
    assert sizes == sorted(sizes)
