"""Students: a sentence's logits and gradients do not depend on its batch, whatever the student, float or quantized."""

from typing import get_args

import eight_bits
import numpy as np
import pytest
import tiny
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from common.data.ragged import EncodedText
from common.errors import UserError
from compression import runtime
from compression.students.batch import Batch, EncodedRows
from compression.students.encoders import BidirectionalEncoder, ConvolutionalEncoder, max_pool, reverse
from compression.students.layers import round_inputs
from compression.students.settings import StudentArch, StudentSettings
from compression.students.spec import StudentSpec
from compression.students.student import Student, compare

WIDTH = {"bpe": 1, "hash": 3, "char": 1}
KINDS = tiny.STUDENT_KINDS
TRANSFORMER = {"heads": 2, "layers": 2, "iterations": 3, "intermediate_dim": 7, "adapters": 3, "max_tokens": 20}


def build(arch, embedding, pooling, pair):
    torch.manual_seed(3)
    settings = StudentSettings(
        embedding_type=embedding,
        embedding_dim=5,
        vocab_size=30,
        encoder_hidden_dim=4,
        cls_hidden_dim=6,
        pooling=pooling,
        dropout=0.3,
        **TRANSFORMER,
    )
    return Student(arch, settings, outputs=3, pair=pair).eval()


def texts(embedding, lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    most = {"bpe": 30, "hash": 30 * 3, "char": 33}[embedding]
    width = WIDTH[embedding]
    rows = [torch.randint(1, most, (n, width), generator=generator).tolist() for n in lengths]
    if width == 1:
        rows = [[token[0] for token in row] for row in rows]
    return EncodedText.from_lists(rows, width=width, empty=(0,) * width, max_tokens=99)


def batch(encoded, rows):
    return EncodedRows(*encoded).batch(np.array(rows), torch.device("cpu"))


def inputs(embedding, pair):
    first = texts(embedding, [4, 1, 9, 2, 6], 1)
    return [first, texts(embedding, [3, 8, 1, 12, 2], 2)] if pair else [first]


@pytest.mark.parametrize(("arch", "embedding", "pooling", "pair"), KINDS)
def test_logits_and_gradients_do_not_depend_on_the_batch(arch, embedding, pooling, pair):
    student, encoded = build(arch, embedding, pooling, pair), inputs(embedding, pair)

    def both(rows, index):
        student.zero_grad()
        logits = student(batch(encoded, rows))[index]
        (logits * torch.tensor([1.0, -2.0, 0.5])).sum().backward()
        return logits.detach(), [p.grad.clone() for p in student.parameters()]

    for row in range(5):
        alone = both([row], 0)
        for rows in ([0, 1, 2, 3, 4], [row, 2], [row, row, 3]):
            together = both(rows, rows.index(row))
            torch.testing.assert_close(together[0], alone[0], atol=1e-5, rtol=1e-4)
            for one, other in zip(together[1], alone[1], strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("arch", "embedding", "pooling", "pair"), KINDS)
@pytest.mark.parametrize("how", ["dynamic", "static"])
def test_quantized_logits_do_not_depend_on_the_batch(arch, embedding, pooling, pair, how):
    student, encoded = build(arch, embedding, pooling, pair), inputs(embedding, pair)
    with torch.no_grad():
        exact = student(batch(encoded, range(5)))
        calibration = student.encode(batch(encoded, range(5)))
        eight_bits.quantize(student)
        round_inputs(student, {"encoder": "dynamic", "classifier": how}, calibration)
        together = student(batch(encoded, range(5)))
        for row in range(5):
            alone = student(batch(encoded, [row]))[0]
            torch.testing.assert_close(together[row], alone, atol=1e-4, rtol=1e-4)
    assert (together - exact).abs().max() < 0.1  # eight bits are close to float


def torch_name(name):
    return f"{name.removesuffix('.value')}_l0"


@pytest.mark.parametrize(("arch", "theirs"), [("bilstm", nn.LSTM), ("rnn", nn.RNN)])
def test_both_last_states_are_those_of_a_packed_bidirectional_rnn(arch, theirs):
    torch.manual_seed(1)
    ours = BidirectionalEncoder(StudentSpec(arch, StudentSettings(embedding_dim=5, encoder_hidden_dim=4), 2))
    theirs = theirs(5, 4, batch_first=True, bidirectional=True)
    weights = {torch_name(name): value for name, value in ours.forward_rnn.state_dict().items()}
    weights |= {f"{torch_name(name)}_reverse": value for name, value in ours.backward_rnn.state_dict().items()}
    theirs.load_state_dict(weights)
    lengths = torch.tensor([3, 7, 1, 5])
    vectors = torch.randn(4, 7, 5)
    packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
    state = theirs(packed)[1]
    last = (state[0] if isinstance(state, tuple) else state).transpose(0, 1).reshape(4, 8)
    torch.testing.assert_close(ours(vectors, lengths), last, atol=1e-6, rtol=1e-5)


def test_max_pooling_leaves_padding_out():
    states = torch.full((1, 4, 2), 9.0)
    states[0, :2] = torch.tensor([[-1.0, 0.0], [-2.0, -3.0]])
    assert max_pool(states, torch.tensor([2])).tolist() == [[-1.0, 0.0]]


def test_reversal_stays_within_each_sentence():
    vectors = torch.arange(8.0).view(2, 4, 1)
    assert reverse(vectors, torch.tensor([3, 1]))[..., 0].tolist() == [[2, 1, 0, 3], [4, 5, 6, 7]]


def test_pairs_are_compared_by_their_difference_and_product():
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 4.0]])
    assert compare(u, v).tolist() == [[1, -2, 3, 4, 2, 6, 3, -8]]


def test_the_ffn_is_a_mean():
    student = build("ffn", "bpe", "last", False)
    ids = torch.tensor([[[1], [2], [0]]])
    with torch.no_grad():
        expected = student.embedding.table.weight.dense()[[1, 2]].mean(0)
        torch.testing.assert_close(student.encode(Batch(ids, torch.tensor([2])))[0], expected)


@pytest.mark.parametrize("width", [1, 3, 7])
def test_a_convolution_is_torchs_and_its_gates_the_second_half(width):
    torch.manual_seed(1)
    settings = StudentSettings(embedding_dim=5, encoder_hidden_dim=4, pooling="max", kernel_width=width)
    encoder = ConvolutionalEncoder(StudentSpec("conv", settings, 2))
    kernels = encoder.convolution.weight.dense().view(8, width, 5).transpose(1, 2)
    vectors, lengths = torch.randn(3, 6, 5), torch.tensor([6, 1, 4])
    for text, length, pooled in zip(vectors, lengths, encoder(vectors, lengths), strict=True):
        both = nn.functional.conv1d(text[:length].T, kernels, encoder.convolution.bias, padding=width // 2)
        torch.testing.assert_close(pooled, (both[:4] * both[4:].sigmoid()).amax(1))


def test_a_convolution_has_no_last_state():
    with pytest.raises(UserError, match="--pooling last: a convolution has no last state; take max"):
        Student("conv", StudentSettings(), 2, False)


def test_all_architectures_are_tested_and_packed():
    assert set(get_args(StudentArch)) == set(tiny.POOLINGS) == set(runtime.ARCHS)


@pytest.mark.parametrize(("arch", "pooling"), [(arch, poolings[0]) for arch, poolings in tiny.POOLINGS.items()])
def test_dropout_works_in_training_only(arch, pooling):
    student, encoded = build(arch, "bpe", pooling, False), inputs("bpe", False)
    with torch.no_grad():
        assert torch.equal(student(batch(encoded, [0])), student(batch(encoded, [0])))
        student.train()
        assert not torch.equal(student(batch(encoded, [0])), student(batch(encoded, [0])))


@pytest.mark.parametrize(("arch", "embedding", "pooling", "pair"), KINDS)
def test_every_weight_learns(arch, embedding, pooling, pair):
    student, encoded = build(arch, embedding, pooling, pair), inputs(embedding, pair)
    student(batch(encoded, range(5))).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in student.parameters())


def test_an_unknown_architecture_is_refused():
    with pytest.raises(UserError, match="unknown student architecture 'gru'"):
        Student("gru", StudentSettings(), 2, False)


@pytest.mark.parametrize(
    ("rank", "adapters", "millions"),
    [(128, 0, 11), (768, 0, 31), (312, 0, 17), (768, 48, 32), (312, 48, 18), (128, 48, 12)],
)
def test_recursive_students_of_berts_shapes_have_minialberts_sizes(rank, adapters, millions):
    """The counts of MiniALBERT's table 2, embeddings and encoder; 0.9 million of them are in the adapters."""
    bert = {"encoder_hidden_dim": 768, "heads": 12, "intermediate_dim": 3072, "vocab_size": 30_522, "max_tokens": 510}
    settings = StudentSettings(embedding_type="wordpiece", embedding_dim=rank, adapters=adapters, iterations=6, **bert)
    student = Student("recursive", settings, outputs=2, pair=False)
    count = lambda module: sum(p.numel() for p in module.parameters())  # noqa: E731
    assert round((count(student.embedding) + count(student.encoder)) / 1e6) == millions
    assert round(count(student.encoder.adapters) / 1e6, 1) == (0.9 if adapters else 0)
