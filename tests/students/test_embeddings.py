"""Embedding modules, and how many weights the thesis's students have."""

import numpy as np
import pytest
import tiny
import torch

from compression.students.embeddings import make_embedding
from compression.students.settings import StudentSettings, student_defaults
from compression.students.student import Student
from compression.tokenizers.hash import HashTokenizer


def test_a_hash_embedding_is_a_weighted_sum():
    module = make_embedding(StudentSettings(embedding_type="hash", vocab_size=20, embedding_dim=3, hash_ratio=10))
    code = torch.tensor([[[5, 23, 39]]])  # rows 0, 1, 1; importance 5, 3, 19 of their sectors
    with torch.no_grad():
        importance, table = module.importance.weight.dense(), module.table.weight.dense()
        expected = importance[5] * table[0] + importance[20 + 3] * table[1] + importance[40 + 19] * table[1]
        assert torch.allclose(module(code)[0, 0], expected)


def test_a_vocabulary_smaller_than_the_ratio_keeps_one_shared_vector():
    settings = StudentSettings(embedding_type="hash", vocab_size=5, embedding_dim=3)
    encoded = HashTokenizer(5, 10, 8).encode([text for text, _ in tiny.sentences(60)])
    assert make_embedding(settings)(torch.from_numpy(encoded.ids.astype(np.int64))[None]).shape[-1] == 3


@pytest.mark.parametrize(
    ("arch", "embedding", "dim", "parameters"),
    [
        ("ffn", "hash", 25, 30_302),
        ("bilstm", "bpe", 25, 398_002),
        ("bilstm", "hash", 25, 300_502),
        ("rnn", "char", 100, 64_002),
    ],
)
def test_students_have_as_many_weights_as_in_table_7_1(arch, embedding, dim, parameters):
    defaults = student_defaults(arch, pair=False) | {"embedding_type": embedding, "embedding_dim": dim}
    settings = StudentSettings(**{k: v for k, v in defaults.items() if k in StudentSettings.model_fields})
    student = Student(arch, settings, outputs=2, pair=False)
    assert sum(p.numel() for p in student.parameters()) == parameters
