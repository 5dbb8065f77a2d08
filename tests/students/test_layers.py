"""Encoders and embeddings against PyTorch's own modules, and inputs rounded to 8 bits."""

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from compression.runtime.shapes import GATES
from compression.students.batch import Batch
from compression.students.embeddings import make_embedding
from compression.students.encoders import BidirectionalEncoder, ConvolutionalEncoder
from compression.students.layers import Linear, Recurrent, affine_range, round_by, round_each_vector
from compression.students.pairs import compare
from compression.students.settings import StudentSettings
from compression.students.spec import StudentSpec
from compression.students.student import Student
from compression.tokenizers.unlearned import HashTokenizer

NUMBERS = st.floats(-1000, 1000, width=32)
MATRICES = arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=NUMBERS).map(torch.from_numpy)


def spec(arch="ffn", **given):
    return StudentSpec(arch, StudentSettings(**{"embedding_dim": 5, "encoder_hidden_dim": 4, **given}), 2)


def torch_name(name):
    return f"{name.removesuffix('.value')}_l0"


@pytest.mark.parametrize(("arch", "theirs"), [("bilstm", nn.LSTM), ("rnn", nn.RNN), ("gru", nn.GRU)])
def test_both_last_states_are_those_of_a_packed_bidirectional_rnn(arch, theirs):
    torch.manual_seed(1)
    ours, theirs = BidirectionalEncoder(spec(arch)), theirs(5, 4, batch_first=True, bidirectional=True)
    weights = {torch_name(name): value for name, value in ours.forward_rnn.state_dict().items()}
    weights |= {f"{torch_name(name)}_reverse": value for name, value in ours.backward_rnn.state_dict().items()}
    if arch == "gru":  # has no biases of its state
        weights |= {name: torch.zeros(12) for name in theirs.state_dict() if name.startswith("bias_hh")}
    theirs.load_state_dict(weights)
    vectors, lengths = torch.randn(4, 7, 5), torch.tensor([3, 7, 1, 5])
    state = theirs(pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False))[1]
    last = (state[0] if isinstance(state, tuple) else state).transpose(0, 1).reshape(4, 8)
    torch.testing.assert_close(ours(vectors, lengths), last, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("width", [1, 3, 7])
def test_a_convolution_is_torchs_and_its_gates_the_second_half(width):
    torch.manual_seed(1)
    encoder = ConvolutionalEncoder(spec("conv", pooling="max", kernel_width=width))
    kernels = encoder.convolution.weight.dense().view(8, width, 5).transpose(1, 2)
    vectors, lengths = torch.randn(3, 6, 5), torch.tensor([6, 1, 4])
    for text, length, pooled in zip(vectors, lengths, encoder(vectors, lengths), strict=True):
        both = nn.functional.conv1d(text[:length].T, kernels, encoder.convolution.bias, padding=width // 2)
        torch.testing.assert_close(pooled, (both[:4] * both[4:].sigmoid()).amax(1))


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "both"])
def test_the_ffn_is_a_mean_a_maximum_or_both(pooling):
    """Without states, it has no last one: with the value that files share between students, it is a mean."""
    student = Student("ffn", StudentSettings(embedding_dim=5, vocab_size=30, pooling=pooling), 2).eval()
    texts = [1, 2], [7, 0, 7, 3, 7], [4]  # padded with 0, which is also a token
    ids = torch.tensor([[[token] for token in [*text, 0, 0, 0, 0][:5]] for text in texts])
    with torch.no_grad():
        encoded = student.encode(Batch(ids, torch.tensor(list(map(len, texts)))))
        for text, vector in zip(texts, encoded, strict=True):
            vectors = student.embedding.table.weight.dense()[text]
            most, both = vectors.amax(0), torch.cat([vectors.sum(0) / len(text) ** 0.5, vectors.amax(0)])
            torch.testing.assert_close(vector, {"max": most, "both": both}.get(pooling, vectors.mean(0)))


def test_pairs_are_compared_by_their_difference_and_product():
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 4.0]])
    assert compare(u, v).tolist() == [[1, -2, 3, 4, 2, 6, 3, -8]]


def test_a_hash_embedding_is_a_weighted_sum():
    module = make_embedding(spec(embedding_type="hash", vocab_size=20))
    code = torch.tensor([[[5, 23, 39]]])  # rows 0, 1, 1; importance 5, 3, 19 of their sectors
    with torch.no_grad():
        importance, table = module.importance.weight.dense(), module.table.weight.dense()
        expected = importance[5] * table[0] + importance[20 + 3] * table[1] + importance[40 + 19] * table[1]
        assert torch.allclose(module(code)[0, 0], expected)


def test_a_vocabulary_smaller_than_the_ratio_keeps_one_shared_vector():
    encoded = HashTokenizer(5, 10, 8).encode([text for text, _ in tiny.sentences(60)])
    ids = torch.from_numpy(encoded.ids.astype(np.int64))[None]
    assert make_embedding(spec(embedding_type="hash", vocab_size=5))(ids).shape[-1] == 5


def range_of(x):
    return affine_range(x.amin(1, keepdim=True), x.amax(1, keepdim=True))


@given(MATRICES)
def test_rounding_is_off_by_half_a_step_at_most_and_rounding_again_changes_nothing(x):
    scale, zero_point = range_of(x)
    once = round_by(x, scale, zero_point)
    assert ((once - x).abs() <= 0.5 * scale * 1.001 + 1e-30).all()
    assert (scale > 0).all()
    assert torch.equal(round_by(once, scale, zero_point), once)


@given(MATRICES)
def test_each_vector_is_rounded_by_itself(x):
    together = round_each_vector(x)
    assert torch.equal(together, round_by(x, *range_of(x)))
    for row in range(len(x)):
        assert torch.equal(round_each_vector(x[row]), together[row])


def test_values_outside_a_calibrated_range_are_clamped():
    back = round_by(torch.tensor([-5.0, 5.0]), *affine_range(torch.tensor([-1.0]), torch.tensor([1.0])))
    assert back.abs().max() < 1.01


def test_rounding_to_8_bits_is_as_exact_in_bf16():
    x = torch.randn(9, 30, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert torch.equal(round_each_vector(x), round_each_vector(x.float()).bfloat16())


def test_gradients_pass_through_rounding_unchanged():
    torch.manual_seed(1)
    layer, x = Linear(5, 3), torch.randn(2, 4, 5, requires_grad=True)
    layer.inputs = "dynamic"
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.value.sum(0).expand_as(x))
    rounded = round_each_vector(x).detach()
    assert not torch.equal(rounded, x)
    torch.testing.assert_close(layer.weight.value.grad, rounded.sum((0, 1)).expand(3, 5))


@pytest.mark.parametrize("arch", GATES)
def test_a_recurrent_layer_rounds_only_when_it_is_not_trained(arch):
    torch.manual_seed(1)
    layer, vectors = Recurrent(arch, 5, 4), torch.randn(2, 6, 5)
    exact = layer(vectors)
    layer.inputs = "dynamic"
    assert torch.equal(layer.train()(vectors), exact)
    assert not torch.equal(layer.eval()(vectors), exact)
