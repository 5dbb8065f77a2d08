"""Thresholds of the second of two labels: the best F1 of validation, stored in packed files, used by evaluate."""

import struct

import damage
import numpy as np
import packed_students as saved
import pytest
import tiny
import tiny_questions
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shrunk import compressed
from sklearn.metrics import f1_score
from stages import logits_of, score_of

from common.data.split import load_split
from common.data.tasks import load_task
from common.kinds.answers import answer_scores
from common.kinds.spans import best_spans
from common.store.artifact import folder_of, read_manifest
from common.store.workspace import Workspace
from compression.augmentation.preprocess import preprocess
from compression.packing import pack_student, packed_sections
from compression.runtime import PackedError, load, to_probabilities
from compression.runtime.header import CALIBRATED, THRESHOLD
from compression.runtime.model import load_bytes
from compression.students.saved import load_student
from compression.students.threshold import HALF, fit_answer_threshold, fit_threshold

TWO = {"labels": ["no", "yes"], "f1": True}
ROWS = st.lists(st.tuples(st.integers(1, 99), st.integers(0, 1)), min_size=1, max_size=12)
"""Probabilities in percent, and labels."""


def probabilities_of(second):
    second = np.array(second, np.float32)
    return np.stack([1 - second, second], 1)


@given(ROWS)
def test_no_threshold_has_a_higher_f1(rows):
    second, labels = (np.array(column) for column in zip(*rows, strict=True))
    found = fit_threshold(probabilities_of(second / 100), labels)
    assert 0 < found < 1
    answered = second >= np.arange(101)[:, None]  # from each percent
    f1 = 2 * (answered & (labels == 1)).sum(1) / np.maximum(1, answered.sum(1) + labels.sum())
    assert f1_score(labels, second / 100 >= found, zero_division=0.0) == pytest.approx(f1.max())


def test_a_known_threshold():
    second, labels = [0.1, 0.2, 0.3, 0.4, 0.9], np.array([0, 1, 0, 1, 1])
    # From 0.15: 3 right of 4, F1 6/7; from 0.35: 2 of 2, F1 4/5; from 0.5: 1 of 1.
    assert fit_threshold(probabilities_of(second), labels) == 0.15
    # Where all answers are right from 0.25 to 0.75, a half stays.
    assert fit_threshold(probabilities_of([0.2, 0.8]), np.array([0, 1])) == HALF
    assert fit_threshold(probabilities_of([0.2, 0.8]), np.array([0, 0])) == HALF


def test_a_packed_file_has_it_where_the_task_is_scored_by_f1(tmp_path):
    folder = saved.write_student(tmp_path / "s", "ffn", "hash", **TWO)
    data = pack_student(folder, 2.0, 0.375)
    model, plain = load_bytes(data), load_bytes(pack_student(folder))
    assert (model.temperature, model.threshold, plain.threshold) == (2.0, 0.375, HALF)
    assert len(data) == len(pack_student(folder))
    assert len(data) == sum(part.bytes for part in packed_sections(*load_student(folder, torch.device("cpu"))))
    assert model.predict(["a film"]) == plain.predict(["a film"])
    without = saved.write_student(tmp_path / "w" / "s", "ffn", "hash", labels=TWO["labels"])
    assert load_bytes(pack_student(without, 2.0, 0.375)).threshold is None
    assert len(pack_student(without)) == len(data) - 4


@pytest.mark.parametrize("value", [-0.1, 1.001, float("nan"), float("inf")])
def test_a_threshold_out_of_bounds_is_refused(tmp_path, value):
    header, rest = damage.take_apart(pack_student(saved.write_student(tmp_path / "s", "ffn", "char", **TWO)))
    assert header[2] == CALIBRATED | THRESHOLD
    with pytest.raises(PackedError, match="not between 0 and 1"):
        load_bytes(damage.assemble(header, rest[:4] + struct.pack("<f", value) + rest[8:]))


@pytest.mark.parametrize("shape", [{}, {"labels": []}, {"labels": TWO["labels"], "kind": "multilabel"},
                                   {"labels": TWO["labels"], "kind": "tags", "pooling": "max"}])  # fmt: skip
def test_a_threshold_of_another_kind_of_model_is_refused(tmp_path, shape):
    header, rest = damage.take_apart(pack_student(saved.write_student(tmp_path / "s", "bilstm", "char", **shape)))
    forged = header[:2] + bytes([header[2] | THRESHOLD]) + header[3:]
    with pytest.raises(PackedError, match="a threshold is stored for a model that does not choose between two labels"):
        load_bytes(damage.assemble(forged, rest))


def test_it_is_chosen_on_validation_and_scores_test(workspace):
    student = {"student_arch": "ffn", "embedding_type": "hash", "model_name": "s", "epochs": 4}
    compressed(workspace, "distill", "pack", task="qqp", **student)
    path, task = workspace / "packed/qqp/s.fwt", load_task("qqp")
    facts, model = read_manifest(folder_of(path)).facts, load(path)

    def rows(name):
        split = load_split(Workspace(workspace), task, name)
        logits = logits_of(workspace / "models/qqp/s", split)
        return to_probabilities(logits, facts["temperature"]), split.labels

    assert facts["threshold"] == fit_threshold(*rows("validation")) == pytest.approx(model.threshold, abs=1e-6)
    probabilities, labels = rows("test")
    for name, packed in (("s", False), ("s", True), (str(path), True)):
        row = score_of(workspace, name, "qqp", packed=packed)
        assert row["threshold"] == facts["threshold"]
        assert row["metrics"]["f1"] == f1_score(labels, probabilities.argmax(1))
        assert row["metrics"]["f1_at_threshold"] == f1_score(labels, probabilities[:, 1] >= facts["threshold"])
        assert list(row["metrics"]) == ["accuracy", "f1", "f1_at_threshold"]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(-6, 6), st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_no_threshold_of_answers_has_a_higher_f1(rows):
    """rows: logits of the answer less those of "no answer", whether there is one, and whether it is the right one."""
    contexts = ["fine film"] * len(rows)
    logits = np.array([[[0, 0], [margin, 0], [-99, -99]] for margin, _, _ in rows], np.float32)
    labels = np.array([[[0, 4] if right else [5, 9]] if there else [[0, 0]] for _, there, right in rows])

    def f1(threshold):
        return answer_scores(labels, best_spans(logits, threshold), contexts)[:, 1].mean()

    found = fit_answer_threshold(logits, labels, contexts)
    tried = 1 / (1 + np.exp(-np.arange(-6.5, 7)))  # one between the probabilities of two margins, and beyond the ends
    best = max(map(f1, tried))
    assert f1(found) == pytest.approx(best)
    if f1(HALF) == pytest.approx(best):
        assert found == HALF


def test_answers_of_validation_are_scored_at_it_as_those_of_test_are(tmp_path):
    argument = str(tiny_questions.write_task(tmp_path / "files", unanswerable=True))
    preprocess(tiny.prepare_settings(tmp_path, argument))
    student = {"student_arch": "bilstm", "embedding_type": "hash", "pair_encoder": "align", "model_name": "s"}
    (folder,) = compressed(tmp_path, "distill", task=argument, **student)
    split = load_split(Workspace(tmp_path), load_task(argument), "validation")
    logits = logits_of(folder, split)
    row = score_of(tmp_path, "s", argument)
    fitted, half = (
        answer_scores(split.labels, best_spans(logits, threshold), split.sentence2)[:, 1].mean()
        for threshold in (row["threshold"], HALF)
    )
    assert fitted > half
    assert row["validation"]["answer_f1"] == fitted
    assert read_manifest(tiny.scores(tmp_path, "s", "films")).settings == {"task": "films", "precision": None}


def test_other_tasks_have_none(workspace):
    compressed(workspace, "distill", "pack", student_arch="ffn", embedding_type="hash", model_name="s")
    assert load(workspace / "packed/sst-2/s.fwt").threshold is None
    assert "threshold" not in read_manifest(folder_of(workspace / "packed/sst-2/s.fwt")).facts
    row = score_of(workspace, "s")
    assert "threshold" not in row
    # The key of its scores does not depend on how answers are scored.
    assert read_manifest(tiny.scores(workspace, "s")).settings == {"task": "sst-2", "precision": None}
    assert list(row["metrics"]) == ["accuracy"]
