"""Task files: the shipped ones load, and a mistake in one of the user's own is named."""

import pytest

from common.data.tasks import known_tasks, load_task
from common.errors import UserError


@pytest.mark.parametrize("task", known_tasks())
def test_every_shipped_task_loads(task):
    loaded = load_task(task)
    assert loaded.name == task
    assert loaded.pair == ("sentence2" in loaded.columns)


MINE = (
    "name: mine\ncolumns: {sentence1: t, label: l}\n"
    "source: {kind: files, files: {all: x.csv}}\nvalidation: {fraction: 0.1}\n"
)


def test_an_unknown_task_suggests_the_nearest():
    with pytest.raises(UserError, match=r"unknown task 'sst2'; did you mean sst-2\?"):
        load_task("sst2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: mine\nlabls: [a, b]\n", "did you mean labels"),
        (MINE + "labels: [a]\n", "two or more labels"),
        (MINE, "two or more labels, or a range"),
        (MINE + "labels: [a, b]\nrange: [0, 1]\n", "not both"),
        (MINE + "range: [5, 0]\n", "lowest score comes first"),
        (MINE + "labels: [a, b]\nlabel_values: [a]\n", "same length"),
        (MINE + "labels: [a, a]\n", "must not repeat"),
        (MINE.replace("sentence1", "sentence2") + "labels: [a, b]\n", "sentence1"),
        (MINE + "labels: [a, b]\nmetrics: [pearson]\n", "pearson is not one of this kind of task"),
        (MINE + "range: [0, 5]\nmetrics: [accuracy]\n", r"accuracy is not one .* \(pearson, spearman\)"),
        (MINE + "labels: [a, b, c]\nmetrics: [f1]\n", "f1_macro"),
        (MINE + "labels: [a, b]\nmodels_of: mnli\n", "models_of"),
    ],
)
def test_a_task_file_with_a_mistake_is_named(tmp_path, text, message):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        load_task(str(file))
    assert "mine.yaml" in str(error.value)
