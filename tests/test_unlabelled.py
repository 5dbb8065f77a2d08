"""Where no row has a label, the teacher's choices over validation choose epochs and bits: models depend on them."""

import json

import pytest
import tiny
from own_task import write_yaml
from shrunk import compressed
from stages import score_of

from common.errors import UserError
from common.store.artifact import artifact_at, read_manifest
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from compression.augmentation.preprocess import preprocess

STUDENT = {"student_arch": "ffn", "embedding_type": "hash", "alpha": 0.0, "epochs": 2, "teacher": "teacher"}
ACTIONS = [
    ("distill", {"model_name": "student"}),
    *((action, {"tune_epochs": 1, "guide": "student"}) for action in ("factorize", "prune", "quantize")),
    ("prune", {"tune_epochs": 1}),
    ("quantize", {"max_loss": 50.0}),
    ("quantize", {"max_bytes": 3000}),
]
"""What trains a student, or chooses its bits, with the settings."""


def test_answers_of_any_model_to_all_rows_are_enough(tmp_path):
    """As in docs/guide/teachers.md."""
    lines = tiny.sentences(120)
    (tmp_path / "lines.txt").write_text("".join(f"{text}\n" for text, _ in lines))
    answers = [{"sentence1": text, "label": ("negative", "positive")[label]} for text, label in lines]
    (tmp_path / "answers.jsonl").write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
    task = write_yaml(tmp_path, {"all": "lines.txt"}, name="lines", columns=None, labels=["negative", "positive"])
    workspace = tmp_path / "workspace"
    preprocess(tiny.prepare_settings(workspace, task))
    answered = {"model_name": "gpt", "logits_from": tmp_path / "answers.jsonl"}
    preprocess(tiny.prepare_settings(workspace, task, generate_loss=("processed", "validation", "test"), **answered))
    compressed(workspace, "distill", task=task, **{**STUDENT, "teacher": "gpt"}, model_name="student")
    assert set(score_of(workspace, "student", task)["metrics"]) == {"agreement"}


def logits_of_validation(workspace, task, precision):
    rows = {"generate_loss": ("validation",), "model_name": "teacher", "precision": precision}
    preprocess(tiny.prepare_settings(workspace, task, **rows))


@pytest.fixture
def unlabelled(workspace, tmp_path):
    """(workspace, task file): sentences without labels, a teacher with logits over all rows, another over train."""
    (tmp_path / "lines.txt").write_text("".join(f"{text}\n" for text, _ in tiny.sentences(120)))
    files = {"all": "lines.txt"}
    task = write_yaml(tmp_path, files, name="lines", columns=None, labels=["negative", "positive"])
    preprocess(tiny.prepare_settings(workspace, task))
    for name, rows in (("teacher", ("processed", "test")), ("other", ("processed",))):
        finetune(tiny.finetune_settings(workspace, task, "sst-2/tiny-bert", as_is=True, model_name=name))
        given = {"generate_loss": rows, "model_name": name, "precision": "fp32"}
        preprocess(tiny.prepare_settings(workspace, task, **given))
    logits_of_validation(workspace, task, "fp32")
    return workspace, task


def built(workspace, task, action, given):
    start = {} if action == "distill" else {"load_trained_model": "student"}
    return compressed(workspace, action, task=task, **{**STUDENT, **start, **given})[0]


def test_models_depend_on_the_choices_that_chose_them(unlabelled):
    keys = [artifact_at(built(*unlabelled, *each)).key for each in ACTIONS]
    logits_of_validation(*unlabelled, "bf16")
    for each in ACTIONS:
        with pytest.raises(UserError, match="was built with other settings or inputs"):
            built(*unlabelled, *each)
    logits_of_validation(*unlabelled, "fp32")
    assert [artifact_at(built(*unlabelled, *each)).key for each in ACTIONS] == keys


def test_a_student_that_learns_from_another_teacher_later_is_judged_by_its_first(unlabelled):
    built(*unlabelled, *ACTIONS[0])
    folder = built(*unlabelled, "prune", {"tune_epochs": 1, "teacher": "other", "model_name": "later"})
    paths, inputs = Workspace(unlabelled[0]), read_manifest(folder).inputs
    assert inputs["logits train"] == artifact_at(paths.logits("lines", "other", "train")).key
    assert inputs["logits validation"] == artifact_at(paths.logits("lines", "teacher", "validation")).key


def test_scores_depend_on_the_teachers_choices(unlabelled):
    workspace, task = unlabelled
    compressed(workspace, "distill", task=task, **STUDENT, model_name="student")
    keys = []
    for precision in ("fp32", "bf16"):
        logits_of_validation(workspace, task, precision)
        score_of(workspace, "student", task)
        keys.append(artifact_at(tiny.scores(workspace, "student", "lines")).key)
    assert len(set(keys)) == 2
