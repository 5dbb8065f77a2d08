"""The picture of scores against sizes: points, their descriptions, and the names of the skyline."""

from typing import Any

import pivot_rows
from hypothesis import given
from hypothesis import strategies as st

from compression.analysis.pictures import svg_markup
from compression.experiments.report.pictures import Point, draw_skylines, panels, skyline
from compression.experiments.report.record import Quote
from compression.experiments.report.reference import quoted_rows
from compression.experiments.report.results import group_rows


def row(model: str, size: int, score: float, **changes: Any) -> dict[str, Any]:
    own = {"model": model, "bytes_model": 2 * size, "bytes_gzip": size}
    return {**pivot_rows.row(None, 1, {"accuracy": score}), **own, **changes}


TEACHER = row("minilm", 50_000_000, 0.95, stage="teacher", teacher=None)


def many() -> list[dict[str, Any]]:
    """A teacher and 90 students in a cloud, of which a dozen close ones are on the skyline."""
    students = [
        row(f"a student of the grid {i}", 10_000 + 700 * i, 0.6 + 0.001 * i - 0.1 * (i % 7 > 0)) for i in range(90)
    ]
    return [TEACHER, *students]


def texts(figure: Any) -> list[Any]:
    return [text for text in figure.axes[0].texts if text.get_text()]


def test_descriptions_of_points():
    (panel,) = panels(group_rows([TEACHER, row("ffn-s1", 20_000, 0.8), row("ffn-s2", 20_000, 0.82, seed=2)]))
    student, teacher = panel.points
    assert student.description.splitlines() == [
        "ffn",
        "Accuracy, %: 81.00 ± 1.41, 2 seeds",
        "20 KB gzipped, 5,000 times smaller than minilm",
    ]
    (panel,) = panels(group_rows([TEACHER, row("ffn-s1", 250_000_000, 0.8)]))
    assert panel.points[1].description.splitlines()[2] == "250 MB gzipped, 2.5 times larger than minilm"
    assert teacher.description.splitlines()[1:] == ["Accuracy, %: 95.00, 1 seed", "50 MB gzipped"]


def test_packed_sizes_are_compared_where_a_student_is_packed():
    packed, unpacked = row("ffn+q", 20_000, 0.8, bytes_packed=25_000), row("ffn", 30_000, 0.81)
    (panel,) = panels(group_rows([TEACHER, unpacked, packed]))
    assert [(point.label, point.cost) for point in panel.points] == [("ffn+q", 25_000), ("minilm", 100_000_000)]
    assert [point.description.splitlines()[2] for point in panel.points] == [
        "25 KB packed, 4,000 times smaller than minilm",
        "100 MB of weights",
    ]


def test_the_thesis_is_drawn_where_quoted_and_never_on_our_skyline():
    splits = group_rows([TEACHER, row("ffn", 20_000, 0.1)])
    (panel,) = panels(splits, Quote(table="7.5"))
    assert len(panel.points_of("quoted", "baseline")) == len(quoted_rows("sst-2")) > len(panel.points_of("quoted"))
    lines = draw_skylines(splits, Quote(table="7.5")).axes[0].lines
    ours, tolerable = (line for line in lines if len(line.get_xdata()) > 1)
    assert list(ours.get_xdata()) == [20_000, 50_000_000]
    assert list(tolerable.get_ydata()) == [87.5, 87.5]
    (panel,) = panels(splits)
    assert panel.points == (*panel.points_of("student", "teacher"),)


def test_the_thesis_has_no_validation_scores_and_no_other_tasks():
    splits = group_rows([row("a", 9, 0.5), row("a", 9, 0.5, split="validation"), row("a", 9, 0.5, task="cola")])
    test, validation, other = panels(splits, Quote(table="7.1"))
    assert [len(panel.points_of("quoted")) > 0 for panel in (test, validation, other)] == [True, False, False]
    assert [panel.tolerable for panel in (test, validation, other)] == [0.875, None, None]
    other = panels(splits, Quote(table="7.1", task="sst-2"))[2]
    assert other.points_of("quoted") == test.points_of("quoted")


def test_only_the_skyline_is_named():
    splits = group_rows(many())
    (panel,), figure = panels(splits), draw_skylines(splits)
    best = {point.label for point in panel.best}
    assert len(best) > 10
    assert {text.get_text() for text in texts(figure)} == best
    assert all(text.get_path_effects() for text in texts(figure))  # white around each label, so that no line crosses it


def test_equal_students_are_named_one_above_the_other():
    figure = draw_skylines(group_rows([TEACHER, *(row(name, 20_000, 0.8) for name in ("ffn", "cnn"))]))
    assert [text.get_text() for text in texts(figure)] == ["ffn\ncnn", "minilm"]


def test_formulas_are_drawn_as_text():
    name = r"$\frac{ and \$x_1$"
    figure = draw_skylines(group_rows([row(name, 20_000, 0.8, task=name)]))
    assert f'class="point"><title>{name}</title>' in svg_markup(figure, "p-", {"point-0-0": name})


POINTS = st.lists(
    st.builds(Point, st.just("p"), st.integers(1, 20).map(float), st.integers(0, 10).map(lambda n: n / 10))
)


def dominates(a: Point, b: Point) -> bool:
    return a.cost <= b.cost and a.score >= b.score and (a.cost, a.score) != (b.cost, b.score)


@given(POINTS)
def test_skyline_has_exactly_the_points_that_nothing_dominates(found: list[Point]):
    expected = [point for point in found if not any(dominates(other, point) for other in found)]
    assert sorted(skyline(found), key=lambda p: p.cost) == sorted(expected, key=lambda p: p.cost)
    sizes = [point.cost for point in skyline(found)]
    assert sizes == sorted(sizes)


def timed(row: dict[str, Any], milliseconds: float) -> dict[str, Any]:
    return {**row, "speed": {"milliseconds_for_one": milliseconds}}


def test_a_panel_of_times_follows_where_students_were_timed():
    small, large = row("small", 20_000, 0.8), row("large", 90_000, 0.85)
    splits = group_rows([timed(TEACHER, 10.0), timed(small, 0.4), timed(large, 0.2), row("untimed", 9, 0.5)])
    by_size, by_time = panels(splits, Quote(table="7.5"))
    assert (by_size.cost, by_time.cost) == ("bytes_gzip", "milliseconds_for_one")
    assert [(point.label, point.cost) for point in by_time.points] == [("large", 0.2), ("small", 0.4), ("minilm", 10.0)]
    assert [point.label for point in by_time.best] == ["large", "minilm"]
    assert by_time.points[0].description.splitlines()[2] == "0.2 ms for one text, 50 times faster than minilm"
    assert by_time.tolerable == by_size.tolerable
    axes = draw_skylines(splits).axes[1]
    assert axes.get_xlabel().startswith("Milliseconds for one text")
    assert list(map(axes.xaxis.get_major_formatter(), (0.03, 300, 1000))) == ["0.03 ms", "300 ms", "1,000 ms"]
    assert len(panels(group_rows([timed(TEACHER, 10.0), small]))) == 1
