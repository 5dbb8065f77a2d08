"""Students that align the texts of a pair: what a token reads, which tokens are shared, order, padding, gradients."""

import functools

import numpy as np
import pytest
import tiny
import torch
from any_batch import check_every_weight_learns, check_rows_do_not_depend_on_the_batch, check_shapes
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.kinds.ragged import EncodedText
from compression.shrinking.chain import compress
from compression.students.batch import EncodedRows
from compression.students.pairs import PairAlignment, compare, shared_tokens
from compression.students.settings import StudentSettings
from compression.students.spec import StudentSpec
from compression.students.student import Student

SIZES = {"embedding_dim": 5, "vocab_size": 30, "encoder_hidden_dim": 4, "cls_hidden_dim": 6, "dropout": 0.3}
SIZES |= {"pooling": "max", "kernel_width": 3, "pair_encoder": "align"}
IDS = st.lists(st.integers(0, 5), min_size=1, max_size=6)
every_kind = pytest.mark.parametrize(("arch", "embedding", "symmetric", "how"), tiny.ALIGNED_KINDS)


def build(arch="bilstm", embedding="bpe", symmetric=False, **given):
    torch.manual_seed(3)
    settings = StudentSettings(embedding_type=embedding, symmetric=symmetric, **{**SIZES, **given})
    return Student(arch, settings, outputs=3, pair=True).eval()


def rows_of(*columns, width=1):
    """Rows of the texts with these ids; each id is one of `width` equal ones."""
    lists = ([[[token] * width for token in ids] if width > 1 else ids for ids in column] for column in columns)
    return EncodedRows(*(EncodedText.from_lists(column, width, (0,) * width, 99) for column in lists))


def batch_of(embedding, rows, swapped=False):
    """Pairs of random tokens, some of them in both texts."""
    rng, width = np.random.default_rng(1), 3 if embedding == "hash" else 1
    columns = [[rng.integers(1, 12, n).tolist() for n in lengths] for lengths in ([4, 1, 9, 2, 6], [3, 8, 1, 12, 2])]
    encoded = rows_of(*(columns[::-1] if swapped else columns), width=width)
    return encoded.batch(np.array(rows), torch.device("cpu"))


@every_kind
def test_logits_and_gradients_do_not_depend_on_the_batch(arch, embedding, symmetric, how):
    student = build(arch, embedding, symmetric, pair_encoder=how)
    check_rows_do_not_depend_on_the_batch(student, functools.partial(batch_of, embedding))


@every_kind
def test_the_order_of_texts_makes_a_difference_unless_the_student_is_symmetric(arch, embedding, symmetric, how):
    student = build(arch, embedding, symmetric, pair_encoder=how)
    there, back = (student(batch_of(embedding, range(5), swapped)) for swapped in (False, True))
    assert torch.allclose(there, back, atol=1e-6) == symmetric


@every_kind
def test_every_weight_learns_and_dropout_works_in_training_only(arch, embedding, symmetric, how):
    check_every_weight_learns(build(arch, embedding, symmetric, pair_encoder=how), batch_of(embedding, range(5)))


@every_kind
def test_the_spec_lists_the_shapes_of_the_torch_model(arch, embedding, symmetric, how):
    settings = StudentSettings(embedding_type=embedding, symmetric=symmetric, **SIZES | {"pair_encoder": how})
    check_shapes(build(arch, embedding, symmetric, pair_encoder=how), StudentSpec(arch, settings, 3, pair=True))


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=4), st.sampled_from([1, 3]))
def test_a_token_is_shared_if_the_other_text_has_it(pairs, width):
    batch = rows_of(*(list(column) for column in zip(*pairs, strict=True)), width=width)
    batch = batch.batch(np.arange(len(pairs)), torch.device("cpu"))
    for number, found in enumerate(shared_tokens(*batch.sentences)):
        for row, pair in zip(found.tolist(), pairs, strict=True):
            own, other = pair[number], pair[1 - number]
            assert row == [float(token in other) for token in own] + [0.0] * (found.shape[1] - len(own))


def test_a_hashed_word_is_shared_if_all_of_its_codes_are():
    ids = [EncodedText(np.array(codes, np.int32), np.array([0, len(codes)])) for codes in ([[1, 2, 3]], [[1, 2, 4]])]
    batch = EncodedRows(*ids).batch(np.array([0]), torch.device("cpu"))
    assert [found.tolist() for found in shared_tokens(*batch.sentences)] == [[[0.0]], [[0.0]]]


def test_tokens_are_compared_with_what_they_attend_to():
    torch.manual_seed(2)
    size = StudentSpec("bilstm", StudentSettings(**SIZES), 2, pair=True).encoder
    alignment = PairAlignment(size)
    texts = [torch.randn(1, time, 13) for time in (3, 4)]
    found = alignment(*((text, torch.tensor([text.shape[1]])) for text in texts))
    for own, other, vector in zip(texts, reversed(texts), found, strict=True):
        each = []
        for token in own[0]:
            shares = torch.softmax(torch.stack([alignment.scale[0] * (token @ one) for one in other[0]]), 0)
            read = (shares[:, None] * other[0]).sum(0)
            each.append(alignment.fusion(torch.cat([token, read, token - read, token * read])).relu())
        torch.testing.assert_close(vector[0], torch.stack(each).amax(0))


def test_inputs_of_the_comparison_are_rounded():
    torch.manual_seed(2)
    alignment = PairAlignment(StudentSpec("bilstm", StudentSettings(**SIZES), 2, pair=True).encoder)
    texts = [(torch.randn(1, time, 13), torch.tensor([time])) for time in (3, 4)]
    exact = alignment(*texts)
    alignment.fusion.inputs = "dynamic"
    rounded = alignment(*texts)
    for each, other in zip(exact, rounded, strict=True):
        assert not torch.equal(each, other)
        torch.testing.assert_close(each, other, atol=0.1, rtol=0.1)


def test_a_symmetric_comparison_has_the_sum():
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 4.0]])
    assert compare(u, v, symmetric=True).tolist() == [[4, 2, 2, 6, 3, -8]]


@pytest.mark.parametrize("arch", ["ffn", "rnn", "bilstm", "conv"])
def test_students_that_compare_can_be_symmetric_too(arch):
    student = build(arch, symmetric=True, pair_encoder="compare")
    there, back = (student(batch_of("bpe", range(5), swapped)) for swapped in (False, True))
    torch.testing.assert_close(there, back)


@pytest.mark.parametrize(
    ("pieces", "dim", "units", "parameters"),
    [(16_000, 32, 96, 858_947), (8000, 24, 48, 304_227), (2500, 16, 28, 88_603)],
)
def test_sizes(pieces, dim, units, parameters):
    sizes = {"vocab_size": pieces, "embedding_dim": dim, "encoder_hidden_dim": units, "cls_hidden_dim": 128}
    student = Student("bilstm", StudentSettings(symmetric=True, pair_encoder="align", **sizes), outputs=2, pair=True)
    assert sum(p.numel() for p in student.parameters()) == parameters


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("qqp", {"student_arch": "rnn"}, "--pair-encoder align is for bilstm, gru, conv (got rnn)"),
        ("qqp", {"student_arch": "ffn"}, "--pair-encoder align is for bilstm, gru, conv (got ffn)"),
        ("qqp", {"student_arch": "transformer"}, "--pair-encoder align is for bilstm, gru, conv (got transformer)"),
        ("qqp", {"pooling": "last"}, "--pooling last: --pair-encoder align takes the maximum over tokens; use max"),
        ("sst-2", {}, "--pair-encoder align is for pairs of texts, but sst-2 has single texts"),
        ("sst-2", {"pair_encoder": "compare", "symmetric": True}, "--symmetric is for pairs of texts, but sst-2 has"),
        ("qqp", {"pair_encoder": "compare", "symmetric": True, "student_arch": "transformer"},
         "--symmetric: a transformer reads a pair as one text, in order"),
    ],
)  # fmt: skip
def test_what_cannot_be_aligned_is_refused(tmp_path, task, given, message):
    values = {"student_arch": "bilstm", "pair_encoder": "align", **given}
    with pytest.raises((UserError, ValueError)) as error:
        compress(tiny.compress_settings(task=task, workspace=tmp_path, compression_actions=("distill",), **values))
    assert message in str(error.value)


@pytest.mark.parametrize(("task", "symmetric"), [("qqp", True), ("mrpc", True), ("sts-b", True), ("mnli", False)])
def test_the_task_says_whether_texts_have_an_order(task, symmetric):
    assert tiny.compress_settings(task=task, pair_encoder="align").symmetric == symmetric
    assert not tiny.compress_settings(task=task).symmetric
    assert not tiny.compress_settings(task=task, pair_encoder="align", symmetric=False).symmetric
