"""`fit --other`: texts that should get no label, to learn from and to choose the threshold with."""

import own_task
import pytest

from common.data.split import load_split, read_split
from common.data.tasks import load_task
from common.errors import UserError
from common.teachers.logits import load_logits
from compression.experiments.fit.contents.read import read_contents
from compression.experiments.fit.fit import fit
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.state import UNSURE
from compression.runtime import load

OTHERS = [f"quarterly budget number {i} rose sharply" for i in range(100)]


def settings(folder, others=OTHERS, name="others.txt", **changed):
    own_task.write_csv(folder / "reviews.csv", own_task.labelled_rows(200))
    (folder / name).write_text("".join(f"{text}\n" for text in others))
    given = {"reject": 0.9, "other": folder / name, "workspace": folder / "workspace", "cpu": True, "loadbar": False}
    return FitSettings(file=folder / "reviews.csv", **{**given, **changed})


@pytest.mark.parametrize("form", [{}, {"name": "a.csv", "others": ["review,n", *(f"{text},1" for text in OTHERS)]},
                                  {"name": "b.tsv", "others": ["words", *OTHERS]}])  # fmt: skip
def test_texts_are_read_as_the_files_own(tmp_path, form):
    contents = read_contents(settings(tmp_path, **form))
    learned, held_out = contents.others
    assert (len(learned), len(held_out)) == (90, 10)
    assert sorted([*learned, *held_out]) == sorted((text, None) for text in OTHERS)
    assert contents.notes[-1].endswith(": 100 texts that have no label, of which 10 are held out.")


def test_texts_that_the_file_has_are_left_out(tmp_path):
    own = [text for text, _ in own_task.labelled_rows(200)]
    contents = read_contents(settings(tmp_path, [*OTHERS, *OTHERS, "", *own]))
    assert sum(map(len, contents.others)) == len(OTHERS)
    with pytest.raises(UserError, match=r"others\.txt has 19 texts that .*reviews\.csv has not; give 20"):
        read_contents(settings(tmp_path, [*OTHERS[:19], *own]))


def test_it_needs_a_precision(tmp_path):
    with pytest.raises(ValueError, match="--other is for --reject"):
        settings(tmp_path, reject=None)


@pytest.mark.slow
def test_a_teacher_is_unsure_of_them(tmp_path, short_fits, encoder):
    given = settings(tmp_path, encoder=str(encoder), max_bytes=4000, minutes=0.4, output=tmp_path / "reviews.fwt")
    result = fit(given)
    task = load_task(str(given.paths.experiment(given.experiment) / "task.yaml"))
    train = load_split(given.paths, task, "train")
    flat = load_logits(given.paths, task, UNSURE, "train").std(1) < 1e-6
    assert task.name == given.experiment
    assert [text in OTHERS for text in train.sentence1] == flat.tolist()
    assert len(read_split(given.paths.split(task.name, "other"))) == 10
    assert load(tmp_path / "reviews.fwt").threshold == result.best.at_threshold.probability
