"""Answers of a model to the texts of a file: which rows they fit, and what they are used for."""

import json

import numpy as np
import pytest
import tiny
from own_task import NAMES, labelled_rows, write_csv, write_parquet

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.teachers.logits import load_logits
from compression.experiments.fit.fit import fit, plan_fit
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.state import ANSWERS

DOWN, UP = NAMES
AGREEMENT = "No row has a label (--label): the teacher's answers are the labels."


def plan(folder, **flags):
    """The notes of a fit of texts.csv."""
    usual = {"workspace": folder / "workspace", "max_bytes": 4000, "loadbar": False, "cpu": True}
    return plan_fit(FitSettings(file=folder / "texts.csv", **{**usual, **flags}))["notes"]


def write_texts(folder, gold=()):
    """A file of 60 texts with ids, and labels for the first ones. Returns texts and labels."""
    rows = labelled_rows(60)
    cells = [(100 + i, text, gold[i] if i < len(gold) else "") for i, (text, _) in enumerate(rows)]
    write_csv(
        folder / "texts.csv", cells if gold else [row[:2] for row in cells], ("id", "review", "label")[: 2 + bool(gold)]
    )
    return rows


def objects(rows, path, key="id", **more):
    lines = [
        {
            key: 100 + i if key == "id" else text,
            "probabilities": {name: 0.9 if name == label else 0.1 for name in NAMES},
            **more,
        }
        for i, (text, label) in enumerate(rows)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize("key", ["id", "review"])
def test_answers_are_matched_by_id_or_by_text(tmp_path, key):
    rows = write_texts(tmp_path)
    notes = plan(tmp_path, teacher_file=objects(rows[:55], tmp_path / "answers.jsonl", key))
    assert (
        "answers.jsonl: column 'probabilities' has a teacher's answers to 55 of 60 texts (--teacher-column)." in notes
    )
    assert AGREEMENT in notes


def test_answers_may_be_a_table_of_labels_or_of_probabilities(tmp_path):
    rows = write_texts(tmp_path)
    write_parquet(tmp_path / "labels.parquet", rows)  # their column is called verdict, as no other one is new
    assert any(
        "'verdict' has a teacher's answers to 60" in note
        for note in plan(tmp_path, teacher_file=tmp_path / "labels.parquet")
    )
    cells = [(100 + i, 0.25, 0.75) if label == UP else (100 + i, 0.75, 0.25) for i, (_, label) in enumerate(rows)]
    header = ("id", *(f"probability_{name}" for name in NAMES))
    write_csv(tmp_path / "columns.csv", cells, header)
    assert AGREEMENT in plan(tmp_path, teacher_file=tmp_path / "columns.csv")


def test_logits_that_are_all_zero_are_an_answer_and_missing_ones_are_none(tmp_path):
    write_texts(tmp_path)
    path = tmp_path / "answers.jsonl"
    logits = [*[(0.0, 0.0)] * 5, *[(1.5, -1.5), (-1.5, 1.5)] * 25, *[(None, None)] * 5]
    lines = ({"id": 100 + i, f"logit_{DOWN}": down, f"logit_{UP}": up} for i, (down, up) in enumerate(logits))
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    notes = plan(tmp_path, teacher_file=path)
    assert "answers.jsonl: column 'logit_...' has a teacher's answers to 55 of 60 texts (--teacher-column)." in notes
    assert not any("unusable" in note for note in notes)


def test_answers_in_the_file_itself_are_no_labels_if_there_are_labels(tmp_path):
    rows = labelled_rows(60)
    write_csv(tmp_path / "texts.csv", [(*row, UP) for row in rows], ("review", "verdict", "model"))
    notes = plan(tmp_path, teacher_column="model")
    assert AGREEMENT not in notes
    assert "texts.csv: column 'model' has a teacher's answers to 60 of 60 texts (--teacher-column)." in notes
    write_csv(tmp_path / "texts.csv", [(text, "", label) for text, label in rows], ("review", "verdict", "model"))
    assert AGREEMENT in plan(tmp_path, teacher_column="model")
    assert AGREEMENT in plan(tmp_path, teacher_column="model", label=("verdict",))


def test_unusable_answers_are_counted(tmp_path):
    rows = write_texts(tmp_path, gold=[label for _, label in labelled_rows(60)])
    labels = ["maybe", "", *(label for _, label in rows[2:10])]
    write_csv(tmp_path / "answers.csv", [(100 + i, label) for i, label in enumerate(labels)], ("id", "label"))
    notes = plan(tmp_path, teacher_file=tmp_path / "answers.csv")
    assert any("answers to 8 of 60 texts" in note for note in notes)
    assert any("unusable answers left out: 1 (unknown label 'maybe'; expected" in note for note in notes)


def test_probabilities_of_other_labels_are_left_out(tmp_path):
    rows = write_texts(tmp_path, gold=[label for _, label in labelled_rows(60)])
    path = tmp_path / "answers.jsonl"
    answers = [{DOWN: 0.6, UP: 0.2, "unclear": 0.2}, {"unclear": 1}, {UP: 1}, {DOWN: 60, UP: 40}]
    lines = ({"id": 100 + row, "probabilities": answer} for row, answer in enumerate(answers))
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    notes = plan(tmp_path, teacher_file=path)
    assert any(f"answers to 2 of {len(rows)} texts" in note for note in notes)
    assert any("unusable answers left out: 2 (the probabilities sum to 0, not to 1)" in note for note in notes)


@pytest.mark.parametrize(
    ("header", "cells", "message"),
    [
        (
            ("review", "label"),
            ("another text", UP),
            r"answers.csv: no answer is to a row of .*texts.csv \(compared by rev",
        ),
        (("number", "label"), (100, UP), r"answers.csv: needs texts \(review\) or an id that .*texts.csv has"),
        (("id", "label"), (100, "x"), r"answers.csv: column 'label': no answer is usable \(unknown label 'x'"),
        (("id", "a", "b"), (100, UP, UP), "answers.csv: give the column of answers with --teacher-column"),
    ],
)
def test_answers_that_fit_no_row_are_an_error(tmp_path, header, cells, message):
    write_texts(tmp_path, gold=[label for _, label in labelled_rows(60)])
    write_csv(tmp_path / "answers.csv", [cells], header)
    with pytest.raises(UserError, match=message):
        plan(tmp_path, teacher_file=tmp_path / "answers.csv")


@pytest.mark.slow
def test_answers_teach_where_there_are_no_labels(tmp_path, short_fits):
    """Rows without an answer get the linear teacher's; the output has the answers' score on labelled rows."""
    rows = labelled_rows(200)
    cells = [(text, label if i < 100 else "", label if i % 4 else "") for i, (text, label) in enumerate(rows)]
    write_csv(tmp_path / "texts.csv", cells, ("review", "label", "model"))
    settings = FitSettings(
        file=tmp_path / "texts.csv",
        teacher_column="model",
        workspace=tmp_path / "workspace",
        max_bytes=4000,
        minutes=0.4,
        cpu=True,
        loadbar=False,
        seed=tiny.SEED,
        name="mine",
    )
    result = fit(settings)
    assert "labelled ones with an answer: linear and answers " in result.teacher
    assert not result.agreement
    task = load_task(str(settings.paths.experiment("mine") / "task.yaml"))
    train = load_split(settings.paths, task, "train")
    logits = load_logits(settings.paths, task, ANSWERS, "train")
    linear = load_logits(settings.paths, task, "linear", "train")
    answers = {text: model for text, _, model in cells}
    known = np.array([bool(answers[text]) for text in train.sentence1])
    chosen = np.array(task.labels)[logits.argmax(1)]
    assert known.any()
    assert not known.all()
    assert [answers[text] for text, has in zip(train.sentence1, known, strict=True) if has] == chosen[known].tolist()
    assert np.allclose(logits[~known], linear[~known], atol=1e-5)
