"""Texts without a label: the threshold that --reject chooses, the packed files that have it, and their answers."""

import json

import damage
import numpy as np
import packed_students as made
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from shrunk import compressed
from stages import score_of

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.artifact import folder_of, read_manifest
from common.store.workspace import Workspace
from common.training.models import read_config
from compression.inference.predict import PredictSettings, predict
from compression.packing import pack_student
from compression.runtime import PackedError, load
from compression.runtime.__main__ import main
from compression.runtime.header import CALIBRATED, THRESHOLD
from compression.runtime.kinds import BY_WORD, MULTILABEL
from compression.runtime.model import load_bytes
from compression.students.threshold import FEWEST_ANSWERED, fit_packed, fit_rejection

TEXTS = ["the film is truly wonderful , and the cast feels charming !", "dreadful", "", "A plot of 1984: café ☃"]
ROWS = st.lists(st.tuples(st.integers(1, 99), st.booleans()), min_size=1, max_size=60)
"""Probabilities in percent, and whether the answer is right."""


@given(ROWS, st.sampled_from((0.3, 0.6, 0.9, 1.0)))
def test_every_lower_threshold_is_less_precise(rows, precision):
    percents, right = (np.array(column) for column in zip(*rows, strict=True))
    probabilities = np.float32(percents / 100)
    found = np.float32(fit_rejection(probabilities, right, precision))

    def precision_from(threshold):
        return right[probabilities >= threshold].mean()

    assert (probabilities >= found).sum() >= min(FEWEST_ANSWERED, len(rows))
    lower = [precision_from(value) for value in {np.float32(0), *probabilities} if value < found]
    higher = [precision_from(value) for value in probabilities
              if (probabilities >= value).sum() >= min(FEWEST_ANSWERED, len(rows))]  # fmt: skip
    reached = precision_from(found)
    assert reached >= precision or reached == pytest.approx(max(higher))
    assert all(value < min(precision, reached) for value in lower)


def test_known_thresholds(capsys):
    probabilities = np.float32(np.arange(1, 101) / 100)  # 0.01, 0.02, ...
    right = np.arange(100) >= 20
    assert fit_rejection(probabilities, right, 1.0) == np.float32(0.205)
    assert fit_rejection(probabilities, right, 0.8) == 0.0
    assert capsys.readouterr().err == ""
    # The best 19 rows alone are right: too few to say much.
    assert fit_rejection(probabilities, np.arange(100) >= 81, 1.0) == np.float32(0.805)
    assert "no threshold makes 100.0% of the answers right; the best one, 95.0%, is taken" in capsys.readouterr().err


def test_answers_to_other_texts_are_wrong(tmp_path):
    config = read_config(made.write_student(tmp_path / "s", "ffn", "char"))
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 200)
    logits = 8 * np.eye(3, dtype=np.float32)[labels] * rng.uniform(0.5, 1, (200, 1)).astype(np.float32)
    labels[:4] = (labels[:4] + 1) % 3
    alone = fit_packed(config, logits, labels, [], reject=0.95)
    others = fit_packed(config, logits, labels, [], reject=0.95, other_logits=logits[:50] * 0.75)
    assert alone["temperature"] == others["temperature"]
    assert alone["threshold"] == 0 < others["threshold"]


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """Folder and packed file of a student that rejects some of TEXTS, and their probabilities."""
    folder = made.write_student(tmp_path_factory.mktemp("rejects") / "s", "ffn", "hash", seed=7)
    probabilities = load_bytes(pack_student(folder, 2.0)).probabilities(TEXTS)
    path = folder / "s.fwt"
    path.write_bytes(pack_student(folder, 2.0, float(np.median(probabilities.max(1))), rejects=True))
    return folder, path, probabilities


def answers(probabilities, threshold):
    """Return the most probable labels, None below the threshold."""
    labels = ["bad", "good", "so-so"]
    return [labels[row.argmax()] if row.max() >= threshold else None for row in probabilities]


def test_a_packed_file_gives_no_label_below_its_threshold(student, capsys):
    folder, path, probabilities = student
    model, plain = load(path), load_bytes(pack_student(folder))
    assert (model.kind, model.rejects, plain.rejects) == ("labels", True, False)
    assert path.stat().st_size <= len(pack_student(folder)) + 8
    np.testing.assert_array_equal(model.probabilities(TEXTS), probabilities)
    expected = answers(probabilities, model.threshold)
    assert 0 < expected.count(None) < len(TEXTS)
    assert model.predict(TEXTS) == expected
    main([str(path), *TEXTS])
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == [
        label or "none of these" for label in expected
    ]


@pytest.mark.parametrize("least", [None, 0.0, 0.99])
def test_the_threshold_is_predicts_least_probability(student, tmp_path, capsys, least):
    _, path, probabilities = student
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    predict(PredictSettings(model=str(path), input=tmp_path / "in.jsonl", columns=("text",), min_probability=least))
    found = [json.loads(line)["predicted_label"] for line in capsys.readouterr().out.splitlines()]
    assert found == answers(probabilities, load(path).threshold if least is None else least)


def packed(workspace, task, **more):
    """The packed file of a student of a task."""
    student = {"student_arch": "ffn", "embedding_type": "hash", "model_name": "s", "epochs": 4}
    compressed(workspace, "distill", "pack", task=task, **student, **more)
    return workspace / "packed" / task / "s.fwt"


def test_reject_chooses_it_on_validation_in_place_of_that_for_f1(workspace, tmp_path, capsys):
    path = packed(workspace, "qqp", reject=0.9)
    model, validation = load(path), load_split(Workspace(workspace), load_task("qqp"), "validation")
    probabilities = model.probabilities(list(zip(*validation.sentences(), strict=True)))
    right = probabilities.argmax(1) == validation.labels
    assert model.rejects
    assert model.threshold == read_manifest(folder_of(path)).facts["threshold"]
    assert model.threshold == pytest.approx(fit_rejection(probabilities.max(1), right, 0.9), abs=1e-5)
    # The student in the workspace has the threshold of its packed file; scores are those of the most probable label.
    pair = "how are you\thow do you do\n"
    (tmp_path / "in.txt").write_text(pair)
    expected = model.predict([pair[:-1].split("\t")])[0] or "none of these"
    capsys.readouterr()
    for name in (str(path), "s"):
        about = {"model": name, "workspace": workspace, "input": tmp_path / "in.txt", "cpu": True}
        predict(PredictSettings(**about))
        assert capsys.readouterr().out.split("\t")[0] == expected
    test = load_split(Workspace(workspace), load_task("qqp"), "test")
    chosen = model.probabilities(list(zip(*test.sentences(), strict=True))).argmax(1)
    for name in (str(path), "s"):
        row = score_of(workspace, name, "qqp", packed=True)
        assert row["metrics"]["accuracy"] == (chosen == test.labels).mean()
        assert list(row["metrics"]) == ["accuracy", "f1"]


def test_reject_is_for_one_label_a_text(workspace):
    with pytest.raises(UserError, match="sts-b: --reject is for tasks with one label a text, not for numbers"):
        packed(workspace, "sts-b", reject=0.9)
    settings = tiny.compress_settings(task="sst-2", workspace=workspace, reject=0.9)
    assert settings.unused()["reject"] == "without --compression-actions pack"


@pytest.mark.parametrize("missing", [CALIBRATED, THRESHOLD])
def test_a_file_without_its_numbers_is_refused(student, missing):
    header, rest = damage.take_apart(student[1].read_bytes())
    assert (header[2], header[3]) == (BY_WORD | MULTILABEL | CALIBRATED | THRESHOLD, 1)
    forged = header[:2] + bytes([header[2] & ~missing]) + header[3:]
    with pytest.raises(PackedError, match="needs a threshold, a temperature and two labels"):
        load_bytes(damage.assemble(forged, rest[4:]))
