"""Linear and frozen teachers as stages: saved, loaded, with out-of-fold logits of train, and with cached vectors."""

import shutil

import numpy as np
import pytest
import tiny
import torch
from stages import score_of

import common.teachers.linear_step
from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.frozen import FrozenEncoder, FrozenVectors
from common.teachers.linear import TfIdf, cross_fitted
from common.teachers.load import load_teacher
from common.teachers.logits import load_logits
from common.teachers.settings import FinetuneSettings
from common.training.models import read_config
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.preprocess import preprocess

CPU = torch.device("cpu")
SST = load_task("sst-2")


@pytest.fixture(scope="module")
def fitted(glue, encoder, tmp_path_factory):
    """Workspace with teachers linear and tiny-bert-frozen, and their ensemble. To be read, not written."""
    workspace = tmp_path_factory.mktemp("linear") / "workspace"
    preprocess(tiny.prepare_settings(workspace, "sst-2", data_dir=glue))
    for given in ({"arch": "linear"}, {"arch": str(encoder), "frozen": True, "precision": "fp32"}):
        build(workspace, **given)
    build(workspace, ensemble=("linear", "tiny-bert-frozen"))
    return workspace


def build(workspace, **given):
    task = given.pop("task", "sst-2")
    return finetune(FinetuneSettings(task=task, workspace=workspace, cpu=True, loadbar=False, **given))


def logits(workspace, teacher, rows="processed", **given):
    settings = {"generate_loss": (rows,), "model_name": teacher, "precision": "fp32", **given}
    preprocess(tiny.prepare_settings(workspace, "sst-2", **settings))
    return load_logits(Workspace(workspace), SST, teacher, "train" if rows == "processed" else rows)


@pytest.mark.parametrize("name", ["linear", "tiny-bert-frozen", "ensemble"])
def test_teachers_are_scored_as_any_other(fitted, name):
    row = score_of(fitted, name)
    assert row["metrics"]["accuracy"] > 0.5
    assert row["parameters"] > 0
    assert row["bytes_model"] > 0


def test_a_frozen_teacher_counts_its_encoder(fitted, encoder):
    row, config = score_of(fitted, "tiny-bert-frozen"), read_config(fitted / "models/sst-2/tiny-bert-frozen")
    assert row["bytes_model"] > (encoder / "model.safetensors").stat().st_size * 0.9
    analysis = analyze(AnalyzeSettings(task="sst-2", workspace=fitted, model_name="tiny-bert-frozen"))
    assert analysis["model_disk_size"]["bytes_model"] == row["bytes_model"]
    assert config.arch == "tiny-bert-frozen"
    assert config.encoder == str(encoder)


def test_logits_of_train_are_out_of_fold(fitted):
    paths = Workspace(fitted)
    train, seed = load_split(paths, SST, "train"), read_config(paths.model("sst-2", "linear")).seed
    expected = cross_fitted(SST, train, TfIdf(), folds=3, seed=seed)
    np.testing.assert_allclose(logits(fitted, "linear", folds=3), expected, atol=1e-5)
    assert np.abs(logits(fitted, "linear") - expected).max() > 1e-3  # four folds
    teacher = load_teacher(paths.model("sst-2", "linear"), CPU, torch.float32)
    validation = load_split(paths, SST, "validation")
    np.testing.assert_array_equal(logits(fitted, "linear", "validation"), teacher.logits(validation))


def test_an_ensemble_has_the_mean_of_the_folds(fitted):
    of_members = [logits(fitted, name) for name in ("linear", "tiny-bert-frozen")]
    np.testing.assert_allclose(logits(fitted, "ensemble", folds=4), np.mean(of_members, 0), atol=1e-6)


def test_vectors_are_computed_once(fitted, encoder, monkeypatch):
    monkeypatch.setattr(common.teachers.linear_step, "FrozenEncoder", None)  # not loaded
    settings = {"arch": str(encoder), "frozen": True, "precision": "fp32", "seed": 7, "model_name": "other-seed"}
    build(fitted, **settings)
    logits(fitted, "other-seed")


def test_a_head_of_a_changed_encoder_is_refused_by_name(prepared, encoder, tmp_path):
    workspace = tiny.copy_workspace(prepared, tmp_path / "workspace")
    changed = shutil.copytree(encoder, tmp_path / "changed")
    build(workspace, arch=str(changed), frozen=True, precision="fp32")
    (changed / "more.txt").write_text("another file")
    with pytest.raises(UserError, match=r"^changed-frozen is a head of .*; run python finetune\.py again$"):
        logits(workspace, "changed-frozen", "test")


def test_a_damaged_cache_is_computed_again(encoder, tmp_path):
    def vectors(texts):
        return FrozenVectors(tmp_path, "name", lambda: FrozenEncoder(encoder, CPU, torch.float32, 16)).of(texts)

    texts = ["a good film", "a bad one", "a good film"]
    first = vectors(texts)
    assert first.dtype == np.float16
    np.testing.assert_array_equal(first[0], first[2])
    np.testing.assert_allclose(np.linalg.norm(first.astype(np.float32), axis=1), 1, atol=1e-2)
    (file,) = tmp_path.rglob("*.npz")
    file.write_bytes(file.read_bytes()[:50])
    np.testing.assert_array_equal(vectors(texts), first)
    assert vectors([]).shape == (0, first.shape[1])


def test_vectors_do_not_depend_on_the_batch(encoder):
    frozen = FrozenEncoder(encoder, CPU, torch.float32, 16)
    texts = ["a good film", "x", "a much longer text about a good film and a bad one"]
    together, alone = frozen.vectors(texts), np.concatenate([frozen.vectors([text]) for text in texts])
    np.testing.assert_allclose(together.astype(np.float32), alone.astype(np.float32), atol=2e-3)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"arch": "roberta_base", "frozen": True},
            "--frozen is for Hugging Face encoders",
        ),
        ({"arch": "linear", "frozen": True}, "not for --arch linear"),
        ({"frozen": True, "adapters": 4}, "--frozen learns from labels alone"),
        ({"arch": "linear", "as_is": True}, "--arch linear learns from labels alone"),
    ],
)
def test_contradictions_are_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        FinetuneSettings(task="sst-2", **flags)


@pytest.mark.parametrize("given", [{"arch": "linear"}, {"frozen": True}])
def test_tags_are_refused(given, encoder, tmp_path):
    with pytest.raises(UserError, match="linear and frozen teachers label whole texts"):
        build(tmp_path, task="bc2gm", **{"arch": str(encoder), **given})


def test_folds_are_refused_for_other_teachers(prepared):
    with pytest.raises(UserError, match="--folds is for linear and frozen teachers; tiny-bert is fine-tuned on all"):
        logits(prepared, "tiny-bert", folds=4)


@pytest.mark.parametrize("name", ["linear", "ensemble"])
def test_cached_vectors_are_not_timed(fitted, name, capsys):
    timed = score_of(fitted, name, time=True)
    assert "speed" not in timed
    assert f"{name}: not timed" in capsys.readouterr().err
