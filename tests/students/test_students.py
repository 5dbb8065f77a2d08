"""Students of every kind: logits do not depend on a sentence's batch, every weight learns, sizes are the papers'."""

import functools
from typing import get_args

import eight_bits
import numpy as np
import pytest
import tiny
import torch
from any_batch import check_every_weight_learns, check_rows_do_not_depend_on_the_batch, check_shapes

from common.errors import UserError
from common.kinds.ragged import EncodedText
from compression.runtime.shapes import ARCHS
from compression.students.batch import EncodedRows
from compression.students.layers import round_inputs
from compression.students.settings import StudentArch, StudentSettings, student_defaults
from compression.students.spec import StudentSpec
from compression.students.student import Student

SIZES = {"embedding_dim": 5, "vocab_size": 30, "encoder_hidden_dim": 4, "cls_hidden_dim": 6, "dropout": 0.3}
SIZES |= {"heads": 2, "layers": 2, "iterations": 3, "intermediate_dim": 7, "adapters": 3, "max_tokens": 20}
every_kind = pytest.mark.parametrize(("arch", "embedding", "pooling", "pair"), tiny.STUDENT_KINDS)


def build(arch, embedding, pooling, pair, **more):
    torch.manual_seed(3)
    settings = StudentSettings(embedding_type=embedding, pooling=pooling, **SIZES, **more)
    return Student(arch, settings, outputs=3, pair=pair).eval()


def batch_of(embedding, pair, rows):
    """Rows of five texts of random tokens."""
    width, highest = (3, 30 * 3) if embedding == "hash" else (1, 30)
    generator = torch.Generator().manual_seed(1)
    columns = []
    for lengths in ([4, 1, 9, 2, 6], [3, 8, 1, 12, 2])[: 1 + pair]:
        ids = torch.randint(1, highest, (sum(lengths), width), generator=generator).numpy()
        columns.append(EncodedText.from_flat(ids, np.array(lengths), (0,) * width, 99))
    return EncodedRows(*columns).batch(np.array(rows), torch.device("cpu"))


@every_kind
def test_logits_and_gradients_do_not_depend_on_the_batch(arch, embedding, pooling, pair):
    student = build(arch, embedding, pooling, pair)
    check_rows_do_not_depend_on_the_batch(student, functools.partial(batch_of, embedding, pair))


@every_kind
@pytest.mark.parametrize("how", ["dynamic", "static"])
def test_quantized_logits_do_not_depend_on_the_batch(arch, embedding, pooling, pair, how):
    student, batch = build(arch, embedding, pooling, pair), batch_of(embedding, pair, range(5))
    with torch.no_grad():
        exact, calibration = student(batch), student.encode(batch)
        eight_bits.quantize(student)
        round_inputs(student, {"encoder": "dynamic", "classifier": how}, calibration)
        together = student(batch)
        alone = [student(batch_of(embedding, pair, [row]))[0] for row in range(5)]
    torch.testing.assert_close(list(together), alone, atol=1e-4, rtol=1e-4)
    assert (together - exact).abs().max() < 0.1  # eight bits are close to float


@every_kind
def test_every_weight_learns_and_dropout_works_in_training_only(arch, embedding, pooling, pair):
    check_every_weight_learns(build(arch, embedding, pooling, pair), batch_of(embedding, pair, range(5)))


@pytest.mark.parametrize(("arch", "layout"), tiny.LAYOUTS)
@pytest.mark.parametrize("pair", [False, True])
def test_of_every_layout_every_weight_learns_whatever_the_batch(arch, layout, pair):
    student = build(arch, "char", "last", pair, **layout)
    check_rows_do_not_depend_on_the_batch(student, functools.partial(batch_of, "char", pair))
    check_every_weight_learns(student, batch_of("char", pair, range(5)))
    check_shapes(student, StudentSpec(arch, StudentSettings(embedding_type="char", **SIZES, **layout), 3, pair))


@every_kind
def test_the_spec_lists_the_shapes_of_the_torch_model(arch, embedding, pooling, pair):
    spec = StudentSpec(arch, StudentSettings(embedding_type=embedding, pooling=pooling, **SIZES), 3, pair)
    check_shapes(build(arch, embedding, pooling, pair), spec)


def test_all_architectures_are_tested_and_packed():
    assert set(get_args(StudentArch)) == set(tiny.POOLINGS) == set(ARCHS)


def test_an_unknown_architecture_is_refused():
    with pytest.raises(UserError, match="unknown student architecture 'lstm'"):
        Student("lstm", StudentSettings(), 2)


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
    assert sum(p.numel() for p in Student(arch, settings, outputs=2).parameters()) == parameters


@pytest.mark.parametrize(
    ("rank", "adapters", "millions"),
    [(128, 0, 11), (768, 0, 31), (312, 0, 17), (768, 48, 32), (312, 48, 18), (128, 48, 12)],
)
def test_recursive_students_of_berts_shapes_have_minialberts_sizes(rank, adapters, millions):
    """The counts of MiniALBERT's table 1, embeddings and encoder; 0.9 million of them are in the adapters."""
    bert = {"encoder_hidden_dim": 768, "heads": 12, "intermediate_dim": 3072, "vocab_size": 30_522, "max_tokens": 510}
    settings = StudentSettings(embedding_type="wordpiece", embedding_dim=rank, adapters=adapters, iterations=6, **bert)
    with torch.device("meta"):
        student = Student("recursive", settings, outputs=2)

    assert round((count(student.embedding) + count(student.encoder)) / 1e6) == millions
    assert count(student.encoder.adapters) == (6 * 2 * (2 * 768 * 48 + 768 + 48) if adapters else 0)


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("arch", "share", "millions"),
    [
        ("transformer", "none", {64: 87, 128: 89, 256: 93, 768: 108}),
        ("transformer", "attention", {128: 64, 768: 83}),
        ("transformer", "feed-forward", {128: 38, 768: 57}),
        ("recursive", "none", {64: 10, 128: 12, 256: 16, 768: 31}),
    ],
)
def test_students_of_berts_shapes_have_the_sizes_of_alberts_tables(arch, share, millions):
    """Millions of parameters in ALBERT's tables 3 and 4, by the embedding's width; some count a pooler, 0.6 million."""
    bert = {"encoder_hidden_dim": 768, "heads": 12, "intermediate_dim": 3072, "vocab_size": 30_000, "max_tokens": 510}
    for width, expected in millions.items():
        sizes = {"embedding_dim": width, "layers": 12, "iterations": 12, "share": share, **bert}
        with torch.device("meta"):
            student = Student(arch, StudentSettings(embedding_type="wordpiece", **sizes), outputs=2)
        assert (count(student.embedding) + count(student.encoder)) / 1e6 == pytest.approx(expected, abs=0.65), width


def test_layers_that_share_a_part_compute_what_layers_with_equal_parts_do():
    """A student whose layers' attention (then feed-forward) parts are made equal has the logits of one that shares."""
    batch = batch_of("char", True, range(5))
    parts = {"attention": ["attention", "attention_norm"], "feed-forward": ["up", "down", "output_norm"]}
    for share, modules in parts.items():
        whole, sharing = (build("transformer", "char", "last", True, share=each) for each in ("none", share))
        first, *others = whole.encoder.blocks
        for block in others:
            for name in modules:
                block.get_submodule(name).load_state_dict(first.get_submodule(name).state_dict())
        sharing.load_state_dict({name: whole.state_dict()[name] for name in sharing.state_dict()})
        with torch.no_grad():
            assert torch.equal(whole(batch), sharing(batch))


def test_a_student_without_segments_has_the_logits_of_one_whose_segments_are_zero():
    batch = batch_of("char", True, range(5))
    usual, without = (build("transformer", "char", "last", True, segments=each) for each in (True, False))
    without.load_state_dict({name: usual.state_dict()[name] for name in without.state_dict()})
    with torch.no_grad():
        assert not torch.allclose(usual(batch), without(batch))
        usual.encoder.segments.weight.value.zero_()
        assert torch.equal(usual(batch), without(batch))
