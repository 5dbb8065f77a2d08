"""Tasks of the user's own that share sentences: a model of one is not scored on the other, whichever file says so."""

from pathlib import Path

import pytest
import tiny
from own_task import labelled_rows, own_task
from processes import run_script
from shrunk import compressed

from common.data.prepare import prepare
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune


@pytest.fixture
def workspace(tmp_path):
    return tmp_path / "workspace"


def task_of(tmp_path, workspace, name, **changed):
    """A prepared task in a folder of its own."""
    task = own_task(tmp_path / name, labelled_rows(60), name, **changed)
    prepare(Workspace(workspace), task, None, seed=1)
    return task


def trained(workspace, task):
    """A model that learned the task's labels alone."""
    student = {"student_arch": "ffn", "embedding_type": "hash", "model_name": "s"}
    return compressed(workspace, "distill", task=task.file, **student)[0]


@pytest.mark.parametrize("says", ["the scored one", "the trained one", "the scored one by file"])
def test_a_model_of_an_overlapping_task_is_refused(tmp_path, workspace, capsys, says):
    trained_on = {"overlaps": ["second"]} if says == "the trained one" else {}
    scored = {
        "the scored one": {"overlaps": ["first"]},
        "the scored one by file": {"overlaps": ["../first/first.yaml"]},
    }
    first = task_of(tmp_path, workspace, "first", **trained_on)
    second = task_of(tmp_path, workspace, "second", **scored.get(says, {}))
    model = trained(workspace, first)
    place = ["--workspace", workspace, "--cpu", "--no-loadbar", "--model-name", model]
    assert run_script("evaluate.py", "--task", second.file, *place) == 2
    error = capsys.readouterr().err
    assert "refused: the model was trained on first, whose sentences overlap those of second" in error
    assert run_script("evaluate.py", "--task", first.file, *place) == 0
    Path(first.file).unlink()
    assert run_script("evaluate.py", "--task", second.file, *place) == 2  # as it was said at preparation


def test_an_encoder_of_an_overlapping_task_is_not_trained_further(tmp_path, workspace, encoder):
    first, second = (task_of(tmp_path, workspace, name) for name in ("first", "second"))
    teacher = tiny.write_manifest(
        workspace / "models/first/t",
        kind="teacher",
        stage="teacher",
        task="first",
        labels=first.labels,
        pair=False,
        arch="t",
        seed=1,
        trained_on=["first"],
    )
    (teacher / "huggingface").symlink_to(encoder)
    path = own_task(tmp_path / "third", labelled_rows(60), "third", overlaps=["first"]).file
    prepare(Workspace(workspace), load_task(path), None, seed=1)
    with pytest.raises(
        UserError, match="refused: the model was trained on first, whose sentences overlap those of third"
    ):
        finetune(tiny.finetune_settings(workspace, path, teacher / "huggingface", max_epochs=1))
    with pytest.raises(UserError, match="refused: the model was trained on first"):
        finetune(tiny.finetune_settings(workspace, path, teacher, as_is=True))
    assert finetune(tiny.finetune_settings(workspace, second.file, teacher / "huggingface", max_epochs=1)).exists()


def test_a_task_file_that_names_no_task_is_refused(tmp_path):
    (tmp_path / "other.yaml").write_text("labels: [a, b]")
    for other, message in (("other.yaml", "it has no name"), ("none.yaml", "no such file")):
        with pytest.raises(UserError, match=message):
            own_task(tmp_path, labelled_rows(10), overlaps=[other])
