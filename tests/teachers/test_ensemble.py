"""Ensembles of teachers: the mean of their logits, by name, wherever a teacher can be named."""

import json

import numpy as np
import pytest
import tiny
from stages import score_of

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.logits import load_logits
from common.training.models import read_config
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.preprocess import preprocess
from compression.distillation.distill import distill
from compression.experiments.jobs import Job
from compression.experiments.sweep.work import run_jobs
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary

SST = load_task("sst-2")


def ensemble(workspace, *members, **given):
    return finetune(tiny.finetune_settings(workspace, "sst-2", "minilm", ensemble=members, **given))


def generate_logits(workspace, name, rows="processed"):
    preprocess(tiny.prepare_settings(workspace, "sst-2", model_name=name, generate_loss=(rows,), precision="fp32"))


def logits_of(workspace, name, split="train"):
    return load_logits(Workspace(workspace), SST, name, split)


@pytest.fixture(scope="module")
def combined(prepared, encoder, tmp_path_factory):
    """Workspace with teachers tiny-bert and other, their ensemble, and its logits. To be read, not written."""
    workspace = tiny.copy_workspace(prepared, tmp_path_factory.mktemp("ensemble") / "workspace")
    finetune(tiny.finetune_settings(workspace, "sst-2", encoder, model_name="other", max_epochs=1))
    ensemble(workspace, "tiny-bert", "other")
    for rows in ("processed", "test"):
        generate_logits(workspace, "ensemble", rows)
    return workspace


@pytest.fixture
def own(combined, tmp_path):
    """A copy for a test to write in."""
    return tiny.copy_workspace(combined, tmp_path / "workspace")


def test_logits_are_the_mean_of_the_members(combined):
    mean = (logits_of(combined, "tiny-bert") + logits_of(combined, "other")) / 2
    assert np.allclose(logits_of(combined, "ensemble"), mean, atol=1e-6)
    assert not np.allclose(logits_of(combined, "tiny-bert"), mean, atol=1e-3)


def test_an_ensemble_is_scored_and_as_large_as_its_members(own):
    tiny_bert, other, both = (score_of(own, name) for name in ("tiny-bert", "other", "ensemble"))
    for size in ("parameters", "bytes_model", "bytes_gzip"):
        assert both[size] == tiny_bert[size] + other[size]
    assert sum(both["parts"].values()) == both["parameters"]
    right = logits_of(own, "ensemble", "test").argmax(1) == load_split(Workspace(own), SST, "test").labels
    assert both["metrics"]["accuracy"] == pytest.approx(right.mean())
    assert read_config(own / "models/sst-2/ensemble").members == ("tiny-bert", "other")


def test_an_ensemble_keeps_its_members_but_not_the_logits_of_a_name_that_means_another(own, encoder):
    before = score_of(own, "ensemble")["metrics"]
    finetune(tiny.finetune_settings(own, "sst-2", encoder, model_name="other", max_epochs=1, lr=0.02, force=True))
    with pytest.raises(UserError, match=r"member other has been replaced; run python finetune\.py --ensemble again"):
        logits_of(own, "ensemble")
    assert score_of(own, "ensemble", force=True)["metrics"] == before
    with pytest.raises(UserError, match="--force to replace it"):
        ensemble(own, "tiny-bert", "other")
    ensemble(own, "tiny-bert", "other", force=True)
    with pytest.raises(UserError, match="ensemble changed after these logits were computed"):
        logits_of(own, "ensemble")
    generate_logits(own, "ensemble")
    assert len(logits_of(own, "ensemble"))


def test_a_member_needs_no_name(own):
    (own / "models/sst-2/other").unlink()
    assert score_of(own, "ensemble")


@pytest.mark.parametrize(
    ("members", "given", "message"),
    [
        (["tiny-bert"], {}, "two or more"),
        (["tiny-bert", "tiny-bert"], {}, "two or more"),
        (["tiny-bert", "other"], {"as_is": True}, "exclude each other"),
        (["tiny-bert", "gone"], {"model_name": "more"}, "no model 'gone'"),
        (["tiny-bert", "a/b"], {"model_name": "more"}, "give the names of teachers in this workspace"),
        (["ensemble", "other"], {"model_name": "more"}, "name tiny-bert other instead"),
        ([], {"arch": "sst-2/ensemble", "as_is": True}, "import its members"),
    ],
)
def test_faulty_ensembles_are_refused(combined, members, given, message):
    with pytest.raises((UserError, ValueError), match=message):
        ensemble(combined, *members, **given)


def test_pictures_are_of_one_member(combined):
    with pytest.raises(UserError, match="name one of tiny-bert, other"):
        analyze(AnalyzeSettings(task="sst-2", workspace=combined, model_name="ensemble"))


def test_word_pieces_of_an_ensemble_are_its_members_and_layers_it_has_none(own):
    given = tiny.small(student_arch="transformer", embedding_type="wordpiece", only_original_data=True, epochs=1)
    settings = tiny.compress_settings(task="sst-2", workspace=own, teacher="ensemble", **given)
    vocabulary = json.loads((distill(settings) / "wordpieces.json").read_text())["pieces"]
    assert vocabulary == teacher_vocabulary(own / "models/sst-2/other").tokenizer(9).pieces
    with pytest.raises(UserError, match="learn from one of tiny-bert, other"):
        distill(settings.model_copy(update={"init_from_teacher": ("first",), "model_name": "again"}))


def test_an_experiment_learns_from_the_last_teacher_built(own):
    same = {"task": "sst-2", "workspace": own, "cpu": True}
    jobs = [
        Job("finetune", {**same, "ensemble": ["tiny-bert", "other"], "model_name": "both"}),
        Job("preprocess", {**same, "generate_loss": ["processed"]}),
        Job("compress", {**same, "only_original_data": True, "epochs": 1, **tiny.small(student_arch="ffn")}),
    ]
    run_jobs(jobs)
    (student,) = (own / "models/sst-2").glob("ffn*")
    assert read_config(student).teacher == "both"
