"""Embeddings that start from the teacher's states of each byte pair."""

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.data.split import Split
from common.errors import UserError
from common.teachers.load import load_teacher
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.augmentation.settings import PreprocessSettings
from compression.distillation.distill import distill
from compression.students.saved import load_student
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.teacher_vectors import find_teacher_vectors, principal_components

PIECES = ["<unk>", "\u2581good", "\u2581bad", "ness", "\u2581film", "\u2581"]


def student(workspace, **more):
    given = tiny.small(**{"student_arch": "bilstm", "embedding_type": "bpe", "embedding_init": "teacher", **more})
    return distill(tiny.compress_settings(task="sst-2", workspace=workspace, **given))


def test_vectors_have_the_distances_of_the_teachers_states(workspace):
    """With all components kept, principal components only turn and scale."""
    folder = workspace / "models/sst-2/tiny-bert"
    vectors = find_teacher_vectors(PIECES, folder, len(PIECES), workspace / "bpe", True)
    texts = ["<unk>", "good", "bad", "ness", "film", ""]
    split = Split(texts, None, np.zeros(6, np.int64), np.arange(6))
    states = load_teacher(folder, torch.device("cpu"), torch.float32).states(split).hidden[-1][:, 0].numpy()
    ours, theirs = (np.linalg.norm(table[:, None] - table[None], axis=2) for table in (vectors, states))
    assert np.allclose(ours / ours.max(), theirs / theirs.max(), atol=1e-4)


@given(st.integers(1, 4), st.integers(4, 9), st.integers(0, 2**32 - 1))
def test_components_keep_the_most_of_the_variance(dim, rows, seed):
    states = np.random.default_rng(seed).normal(size=(rows, 4)) * [8, 4, 2, 1]
    found = principal_components(states, dim)
    assert found.shape == (rows, dim)
    assert found.std() == pytest.approx(0.3, rel=1e-4)
    spread = found.var(0)
    assert (np.diff(spread) <= 1e-6).all()


def test_a_student_starts_from_them(workspace):
    """At a learning rate of next to nothing, the saved vectors are the first ones."""
    folder = student(workspace, lr=1e-30)
    model, tokenizer, _ = load_student(folder, torch.device("cpu"))
    teacher = workspace / "models/sst-2/tiny-bert"
    expected = find_teacher_vectors(tokenizer.pieces, teacher, 6, workspace / "elsewhere", True)
    assert np.allclose(model.embedding.table.weight.dense().detach().numpy(), expected, atol=1e-6)
    assert read_config(folder).settings["embedding_init"] == "teacher"
    assert isinstance(tokenizer, BpeTokenizer)
    assert not list((workspace / "data/sst-2/bpe").glob("*.w2v.bin"))


def test_a_student_of_imported_logits_starts_from_another_teacher(workspace, tmp_path):
    rows = {"workspace": workspace, "task": "sst-2", "generate_loss": ("processed",), "cpu": True, "loadbar": False}
    file = tmp_path / "tiny-bert.parquet"
    preprocess(PreprocessSettings(**rows, model_name="tiny-bert", logits_to=file))
    preprocess(PreprocessSettings(**rows, model_name="copy", logits_from=file))
    about = {"teacher": "copy", "only_original_data": True, "lr": 1e-30}
    with pytest.raises(UserError, match=r"^--embedding-init teacher: copy was imported as logits, .* give the name"):
        student(workspace, **about)
    with pytest.raises(UserError, match=r"^--embedding-type wordpiece: copy was imported as logits, and has neither"):
        student(workspace, **about, embedding_type="wordpiece", embedding_init="vectors")
    with pytest.raises(UserError, match="tiny-bart"):
        student(workspace, **about, embedding_init="tiny-bart")
    model, tokenizer, _ = load_student(student(workspace, **about, embedding_init="tiny-bert"), torch.device("cpu"))
    teacher = workspace / "models/sst-2/tiny-bert"
    expected = find_teacher_vectors(tokenizer.pieces, teacher, 6, workspace / "elsewhere", True)
    assert np.allclose(model.embedding.table.weight.dense().detach().numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"alpha": 1, "only_original_data": True}, "--embedding-init teacher needs a teacher, but none"),
        ({"embedding_dim": 61}, "dimensions at most"),
        ({"embedding_type": "hash"}, "for byte pairs"),
    ],
)
def test_impossible_settings_are_refused(workspace, wrong, message):
    with pytest.raises((UserError, ValueError), match=message):
        student(workspace, **wrong)
