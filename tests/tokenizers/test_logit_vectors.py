"""Embeddings that start from a teacher's logits."""

import numpy as np
import pydantic
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.kinds.ragged import EncodedText
from compression.distillation.distill import distill
from compression.students.saved import load_student
from compression.tokenizers.teacher_vectors import logit_vectors


def encoded(texts):
    return EncodedText.from_lists(texts, width=1, empty=(0,), max_tokens=64)


@given(st.integers(0, 2**32 - 1))
def test_a_text_of_one_token_has_the_distances_of_the_logits(seed):
    """Each of many texts is one token, so that vectors are the tokens' logits, turned and scaled."""
    logits = np.random.default_rng(seed).normal(size=(6, 4)).astype(np.float32)
    vectors = logit_vectors(encoded([[token] for token in range(6)]), logits, rows=6, dim=3, seed=0)
    centred = logits - logits.mean(1, keepdims=True)
    ours, theirs = (np.linalg.norm(table[:, None] - table[None], axis=2) for table in (vectors, centred))
    assert np.allclose(ours / ours.max(), theirs / theirs.max(), atol=1e-2)


def test_what_all_logits_of_a_text_share_changes_nothing():
    texts, logits = encoded([[0, 1], [1, 2], [2]]), np.float32([[1, 0, 3], [0, 2, 1], [4, 1, 0]])
    shifted = logits + np.float32([[5], [-3], [100]])
    expected = logit_vectors(texts, logits, rows=3, dim=2, seed=0)
    assert np.allclose(logit_vectors(texts, shifted, rows=3, dim=2, seed=0), expected, atol=1e-3)


@pytest.mark.parametrize("outputs", [1, 2])
def test_columns_beyond_the_logits_are_random_and_small(outputs):
    texts, logits = encoded([[0], [1], [0, 1]] * 20), np.float32([[2, 0], [0, 2], [1, 1]] * 20)[:, :outputs]
    vectors = logit_vectors(texts, logits, rows=200, dim=5, seed=0)
    assert vectors.dtype == np.float32
    assert 0.08 < vectors[:, 1:].std() < 0.12
    assert vectors[2:, 0] == pytest.approx(0)  # of tokens that no text has
    assert vectors[0, 0] * vectors[1, 0] < 0


def student(workspace, **flags):
    flags = tiny.small(**{"student_arch": "ffn", "embedding_init": "logits", **flags})
    return distill(tiny.compress_settings(workspace=workspace, **flags))


@pytest.mark.parametrize("embedding", ["ngrams", "bpe"])
def test_a_student_starts_from_them(workspace, embedding):
    """At a learning rate of next to nothing, the saved vectors are the first ones."""
    folder = student(workspace, task="sst-2", embedding_type=embedding, lr=1e-30)
    vectors = load_student(folder, torch.device("cpu"))[0].embedding.table.weight.dense().detach()
    assert vectors[:, 0].std(correction=0).item() == pytest.approx(0.5, rel=1e-3)
    assert abs(vectors[:, 1:].std().item() - 0.1) < 0.03  # two labels: one column has something to start from
    student(workspace, task="sst-2", embedding_type=embedding, model_name="other")  # reads the tokens from the cache


def test_needs_a_teacher_and_single_texts(workspace):
    with pytest.raises(pydantic.ValidationError, match="--embedding-init logits needs a teacher"):
        student(workspace, task="sst-2", embedding_type="bpe", alpha=1.0, only_original_data=True)
    with pytest.raises(UserError, match="--embedding-init logits is for labels of single texts, but mrpc"):
        student(workspace, task="mrpc", embedding_type="bpe")
    with pytest.raises(pydantic.ValidationError, match="--embedding-init logits is for byte pairs and n-grams"):
        student(workspace, task="sst-2", embedding_type="hash")
