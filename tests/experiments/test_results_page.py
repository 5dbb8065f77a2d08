"""The page of archived experiments: the committed one, and small ones written here."""

import shutil
from pathlib import Path

import pytest
import tiny
from archive_rows import SMALL, fasttext, grid
from PIL import Image

from archive import portable, read_finished
from common.errors import UserError
from common.store.files import write_json
from compression.experiments.report.record import write_record
from compression.experiments.report.results import read_results, write_results
from page import TEMPLATE, Page, write_page

RESULTS = tiny.ROOT / "docs" / "results"
ARCHIVES = [path.parent for path in sorted(RESULTS.glob("*/experiment.json"))]


def description(path: Path) -> str:
    with Image.open(path) as image:
        return image.text["Description"]


@pytest.mark.slow
def test_the_committed_page_matches_its_runs(tmp_path):
    copied = shutil.copytree(RESULTS, tmp_path / "results", ignore=shutil.ignore_patterns("*.png"))
    page, *pictures = write_page(copied)
    assert page == tmp_path / "results.md"
    assert page.read_bytes() == (tiny.ROOT / "docs" / "results.md").read_bytes()
    # Pictures are compared by their descriptions: other versions of a font draw other pixels.
    assert {path.name for path in pictures} == {path.name for path in RESULTS.glob("*.png")}
    assert [description(path) for path in pictures] == [description(RESULTS / path.name) for path in pictures]


@pytest.mark.parametrize("folder", ARCHIVES, ids=lambda folder: folder.name)
def test_committed_archives_are_whole_and_name_no_machine(folder):
    one = read_finished(folder)
    fields = one.record.model_dump(mode="json")
    assert portable(fields, Path("/nowhere")) == fields
    assert [portable(row, Path("/nowhere")) for row in one.rows] == list(one.rows)
    source = one.record.definition.split()[0]
    assert not source.endswith(".yaml") or (folder / source).is_file()


@pytest.fixture
def folder(tmp_path):
    """A folder of archived experiments."""
    folder = tmp_path / "results"
    for one in (grid("s", SMALL), fasttext(), grid("twice", {"11k": {"score": 0.7, "bytes": 11_000}})):
        write_record(folder / one.record.name, one.record)
        write_results(folder / one.record.name / "results.json", one.rows)
    return folder


@pytest.mark.slow
def test_a_page_of_prose_tables_and_pictures(folder):
    calls = '{{ by_size("s", "peers", task="sst-2") }}\n\n{{ families("peers", task="sst-2") }}\n\n'
    (folder / TEMPLATE).write_text(f'# Prose\n\n{calls}{{{{ skyline("s", "peers", task="sst-2", picture="sky") }}}}\n')
    paths = [folder.parent / "results.md", folder / "sky.png"]
    assert write_page(folder) == paths
    before = [path.read_bytes() for path in paths]
    write_page(folder)
    assert [path.read_bytes() for path in paths] == before
    page = (folder.parent / "results.md").read_text()
    assert page.startswith("# Prose\n\n| Size class |")
    assert page.endswith("\n\n![Scores on sst-2 against sizes](results/sky.png)\n")
    assert "| fasttext-small |" in page
    assert "fasttext-small 82.00 in 31 KB" in description(folder / "sky.png")


@pytest.mark.slow
def test_an_overview_has_the_students_of_each_size_next_to_their_teacher_and_others(folder):
    call = '{{ overview({"sst-2": ["s", "peers"]}, picture="all") }}'
    (folder / TEMPLATE).write_text(call)
    assert write_page(folder) == [folder.parent / "results.md", folder / "all.png"]
    heads, _, line, *_ = (folder.parent / "results.md").read_text().splitlines()
    cells = dict(zip(heads.split(" | "), line.split(" | "), strict=True))
    assert cells["| Test score"] == "| sst-2, Accuracy, %"
    # One seed of the second student is a byte above 32 KB.
    assert [cells[size] for size in ("12 KB", "32 KB", "100 KB", "400 KB")] == ["81.00 ± 1.00", "–"] * 2
    assert cells["teacher"] == "90.00"
    assert cells["fastText, its best"] == "82.00 ± 0.00 (31 KB)"
    assert cells["thesis's best student (quoted)"].startswith("89.4 (")
    assert cells["BERT-Tiny (quoted)"] == "83.2"
    assert "sst-2 accuracy fastText 31 KB: 82.00 ± 0.00" in description(folder / "all.png")


def test_of_two_students_of_a_size_an_overview_has_the_better_one_on_validation(folder):
    for name, label, test, validation in (("old", "12k", 0.8, 0.7), ("new", "11k", 0.75, 0.72)):
        one = grid(name, {label: SMALL["12k"]}, seeds=(1,))
        scores = {"metrics": {"accuracy": test}, "validation": {"accuracy": validation}}
        rows = [row | (scores if row["stage"] != "teacher" else {}) for row in one.rows]
        write_record(folder / name, one.record)
        write_results(folder / name / "results.json", rows)
    for names in ('"old", "new"', '"new", "old"'):
        page = Page(folder).render(f'{{{{ overview({{"sst-2": [{names}]}}, picture="x") }}}}')
        assert page.splitlines()[2].startswith("| sst-2, Accuracy, % | 75.00 | – |")


def test_f1_of_an_overview_is_at_the_threshold_of_the_packed_file(folder):
    metrics = {"accuracy": 0.8, "f1": 0.6, "f1_at_threshold": 0.7}
    one = grid("qqp", {"12k": SMALL["12k"]}, seeds=(1,))
    rows = [{**row, "task": "qqp"} | ({"metrics": metrics} if row["stage"] != "teacher" else {}) for row in one.rows]
    write_record(folder / "qqp", one.record)
    write_results(folder / "qqp" / "results.json", rows)
    page = Page(folder).render('{{ overview({"qqp": ["qqp"]}, picture="x", metrics={"qqp": ["f1", "accuracy"]}) }}')
    assert page.splitlines()[2].startswith("| qqp, F1, % | 70.00 | – |")
    assert page.splitlines()[3].startswith("| qqp, Accuracy, % | 80.00 | – |")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ('{{ overview({"sst-2": ["s"]}, picture="x", metrics={"sst-2": ["f1"]}) }}', "sst-2 has no metric 'f1'"),
        ('{{ overview({"sst-2": ["s", "twice"]}, picture="x") }}', "12k and 11k are both in 12 KB"),
        ('\n\n{{ tabel("s") }}', "line 3: 'tabel' is undefined"),
        ('{{ by_size("nope", task="sst-2") }}', "line 1: no experiment 'nope'"),
        ('{{ by_size("../s", task="sst-2") }}', "not the name of a folder"),
        ('{{ by_size("s", task="cola") }}', "no model of cola"),
        ('{{ by_size("s", tsk="sst-2") }}', "by_size: task: Missing|by_size: tsk: Unexpected"),
        ('{{ by_size("s", task="sst-2", targets={"12KB": {"accuracy": 0.8}}) }}', "did you mean 12 KB"),
        ('{{ by_size("s", task="sst-2", targets={"12 KB": {"accuracy": 80}}) }}', "less than or equal to 1"),
        ('{{ by_size("s", task="sst-2", targets={"12 KB": {"f1": 0.8}}) }}', "no metric 'f1'"),
        ('{{ by_size("s", task="sst-2", quotes=["FFN-Hash26"]) }}', "did you mean FFN-Hash25"),
        ('{{ table("s") }}', "s has 0 tables"),
        ('{{ skyline("s", task="sst-2", picture="../x") }}', "not the name of a picture"),
        ('{{ "".__class__.__mro__ }}', "unsafe"),
        ('{% include "x" %}', "no loader"),
        ("\n{{ table( }}", "line 2: unexpected"),
    ],
)
def test_errors_of_a_template_name_its_line_and_nothing_is_written(folder, template, words):
    (folder / TEMPLATE).write_text('{{ skyline("s", task="sst-2", picture="sky") }}' + template)
    with pytest.raises(UserError, match=words):
        write_page(folder)
    assert not (folder / "sky.png").exists()
    assert not (folder.parent / "results.md").exists()


def test_edited_rows_make_no_page(folder):
    rows = read_results(folder / "s" / "results.json")
    write_json(folder / "s" / "results.json", [{**rows[0], "metrics": {"accuracy": 0.99}}, *rows[1:]])
    with pytest.raises(UserError, match="was changed after it was written"):
        Page(folder).render('{{ by_size("s", task="sst-2") }}')


def test_models_selected_on_test_are_marked(folder):
    chosen = grid("t", {"12k": {**SMALL["12k"], "more": {"select_on": "test"}}})
    write_record(folder / "t", chosen.record)
    write_results(folder / "t" / "results.json", chosen.rows)
    page = Page(folder).render('{{ by_size("t", task="sst-2") }}')
    assert "| 12k † |" in page
    assert "These weights were selected on the test split" in page
