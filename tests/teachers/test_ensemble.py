"""Ensembles of teachers: the mean of their logits, by name, wherever a teacher can be named."""

import json

import numpy as np
import pytest
import tiny

from common.config import build
from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.logits import load_logits
from common.teachers.settings import FinetuneSettings
from common.training.models import read_config
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.preprocess import PreprocessSettings, preprocess
from compression.distillation.distill import distill
from compression.evaluation.evaluate import evaluate
from compression.evaluation.settings import EvaluateSettings
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary

SST = load_task("sst-2")


def ensemble(workspace, *members, **given):
    return finetune(build(FinetuneSettings, {"task": "sst-2", "workspace": workspace, "ensemble": members, **given}))


def logits_of(workspace, name, rows="processed"):
    given = {"task": "sst-2", "workspace": workspace, "model_name": name, "generate_loss": [rows], "cpu": True}
    preprocess(build(PreprocessSettings, given))
    split = "train" if rows == "processed" else rows
    return load_logits(Workspace(workspace), SST, name, split)


@pytest.fixture
def two(workspace, encoder):
    """The workspace with a second teacher, other."""
    train_other(workspace, encoder, seed=5)
    return workspace


def train_other(workspace, encoder, **given):
    values = {"arch": str(encoder), "model_name": "other", "max_epochs": 1, "cpu": True, "lr": 0.01, **given}
    finetune(build(FinetuneSettings, {"task": "sst-2", "workspace": workspace, **values}))


def test_logits_are_the_mean_of_the_members(two):
    ensemble(two, "tiny-bert", "other")
    mean = (logits_of(two, "tiny-bert") + logits_of(two, "other")) / 2
    assert np.allclose(logits_of(two, "ensemble"), mean, atol=1e-6)
    assert not np.allclose(logits_of(two, "tiny-bert"), mean, atol=1e-3)


def test_an_ensemble_is_scored_and_as_large_as_its_members(two):
    folder = ensemble(two, "tiny-bert", "other", model_name="both")
    rows = {
        name: evaluate(EvaluateSettings(task="sst-2", workspace=two, model_name=name, cpu=True))[0]
        for name in ("tiny-bert", "other", "both")
    }
    for size in ("parameters", "bytes_model", "bytes_gzip"):
        assert rows["both"][size] == rows["tiny-bert"][size] + rows["other"][size]
    assert sum(rows["both"]["parts"].values()) == rows["both"]["parameters"]
    test = load_split(Workspace(two), SST, "test")
    right = (logits_of(two, "both", "test").argmax(1) == test.labels).mean()
    assert rows["both"]["metrics"]["accuracy"] == pytest.approx(right)
    assert read_config(folder).members == ("tiny-bert", "other")


def test_an_ensemble_with_a_replaced_member_is_refused(two, encoder):
    ensemble(two, "tiny-bert", "other")
    logits_of(two, "ensemble")
    train_other(two, encoder, seed=6, force=True)
    with pytest.raises(UserError, match=r"member other was replaced since; run finetune\.py --ensemble again"):
        load_logits(Workspace(two), SST, "ensemble", "train")
    with pytest.raises(UserError, match="member other was replaced since"):
        evaluate(EvaluateSettings(task="sst-2", workspace=two, model_name="ensemble", cpu=True))
    with pytest.raises(UserError, match="--force to replace it"):
        ensemble(two, "tiny-bert", "other")
    ensemble(two, "tiny-bert", "other", force=True)
    with pytest.raises(UserError, match="another teacher than ensemble is now"):
        load_logits(Workspace(two), SST, "ensemble", "train")
    assert len(logits_of(two, "ensemble"))


def test_a_missing_member_is_named(two):
    ensemble(two, "tiny-bert", "other")
    (two / "models/sst-2/other").unlink()
    with pytest.raises(UserError, match="no model 'other'"):
        evaluate(EvaluateSettings(task="sst-2", workspace=two, model_name="ensemble", cpu=True))


def test_faulty_ensembles_are_refused(two):
    with pytest.raises(UserError, match="two or more"):
        ensemble(two, "tiny-bert")
    with pytest.raises(UserError, match="two or more"):
        ensemble(two, "tiny-bert", "tiny-bert")
    with pytest.raises(UserError, match="no model 'gone'"):
        ensemble(two, "tiny-bert", "gone")
    ensemble(two, "tiny-bert", "other")
    with pytest.raises(UserError, match="name tiny-bert other instead"):
        ensemble(two, "ensemble", "other", model_name="more")
    with pytest.raises(UserError, match="exclude each other"):
        ensemble(two, "tiny-bert", "other", as_is=True)
    again = {"arch": "sst-2/ensemble", "as_is": True, "model_name": "again"}
    with pytest.raises(UserError, match="adopt its members"):
        finetune(FinetuneSettings(task="sst-2", workspace=two, **again))


def test_pictures_are_of_one_member(two):
    ensemble(two, "tiny-bert", "other")
    with pytest.raises(UserError, match="name one of tiny-bert, other"):
        analyze(AnalyzeSettings(task="sst-2", workspace=two, model_name="ensemble"))


def test_word_pieces_of_an_ensemble_are_its_members_and_layers_it_has_none(two):
    ensemble(two, "tiny-bert", "other")
    logits_of(two, "ensemble")
    given = tiny.small(student_arch="transformer", embedding_type="wordpiece", only_original_data=True, epochs=1)
    settings = tiny.compress_settings(task="sst-2", workspace=two, teacher="ensemble", **given)
    vocabulary = json.loads((distill(settings) / "wordpieces.json").read_text())["pieces"]
    assert vocabulary == teacher_vocabulary(two / "models/sst-2/other").tokenizer(9).pieces
    with pytest.raises(UserError, match="learn from one of tiny-bert, other"):
        distill(settings.model_copy(update={"init_from_teacher": ("first",), "model_name": "again"}))


def test_an_experiment_learns_from_the_last_teacher_made(two, encoder):
    from compression.experiments.jobs import Job
    from compression.experiments.run import run_jobs

    same = {"task": "sst-2", "workspace": two, "cpu": True}
    jobs = [
        Job("finetune", {**same, "ensemble": ["tiny-bert", "other"], "model_name": "both"}),
        Job("preprocess", {**same, "generate_loss": ["processed"]}),
        Job("compress", {**same, "only_original_data": True, "epochs": 1, **tiny.small(student_arch="ffn")}),
    ]
    _, state = run_jobs(jobs)
    assert state.teacher == "both"
    assert read_config(two / "models/sst-2" / state.models[-1]).teacher == "both"
