"""benchmarks/rival_forms.py: the layers and the product codebook that the program does not have."""

import sys

import tiny
import torch

from compression.students.settings import StudentSettings

sys.path.insert(0, str(tiny.ROOT / "benchmarks"))

import rival_forms as forms

SETTINGS = StudentSettings(embedding_type="bpe", vocab_size=9, embedding_dim=4, encoder_hidden_dim=3, cls_hidden_dim=6)


def test_a_minimal_gru_moves_towards_a_candidate_that_reads_the_token_alone():
    torch.manual_seed(0)
    layer = forms.MinimalGRU("gru", 4, 3)
    vectors = torch.randn(2, 5, 4)
    _, update, candidate = (vectors @ layer.weight_ih.dense().T + layer.bias_ih).chunk(3, 2)
    states, state = layer(vectors), torch.zeros(2, 3)
    for step in range(5):
        share = update[:, step].sigmoid()
        state = share * state + (1 - share) * candidate[:, step].tanh()
        torch.testing.assert_close(states[:, step], state)
    states.sum().backward()
    assert layer.weight_hh.value.grad is None
    assert not layer.weight_ih.value.grad[:3].any()


def test_rows_of_a_fixed_classifier_are_orthogonal_signs_that_are_not_trained():
    last = forms.FixedClassifier("bilstm", SETTINGS, outputs=5).classifier[-1].weight.dense()
    assert last.shape == (5, 6)
    assert not last.requires_grad
    assert len(last.abs().unique()) == 1
    assert len(last.unique(dim=0)) == 5


def test_a_product_codebook_has_the_nearest_of_few_vectors():
    torch.manual_seed(0)
    scheme = forms.ProductCodebook("coded", 3, "tensor", "fitted")
    weight = torch.randn(50, 8)
    ranges = scheme.fit(weight)
    coded = scheme.code(weight, ranges).dense()
    for group, vectors in zip(coded.split(4, 1), ranges["vectors"], strict=True):
        assert len(group.unique(dim=0)) <= len(vectors) == 8
    assert (coded - weight).square().mean() < 0.7 * weight.square().mean()
    # As many vectors as rows: only the vectors' rounding is left.
    few = weight[:8]
    torch.testing.assert_close(scheme.code(few, scheme.fit(few)).dense(), few, atol=0.02, rtol=0.01)
