"""Packing: every form of weights comes back, bytes are accounted for, and streams hold what was put in."""

import re
import weakref
import zlib

import numpy as np
import packed_students as saved
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from unicode_torture import TORTURE

from common.errors import UserError
from compression.packing import pack, pack_student, packed_sections
from compression.packing.ans import encode_stream, table_bits, table_steps
from compression.packing.arrays import store, store_first
from compression.packing.header import ByteCounts, HeaderWriter
from compression.runtime import PackedError, load
from compression.runtime.alignment import Alignment
from compression.runtime.encoders import Convolution
from compression.runtime.entropy import (
    BY_COLUMN,
    BY_ROW,
    CODE_BITS,
    RAW,
    Array,
    decode_stream,
    frequencies,
    step_weights,
)
from compression.runtime.model import load_bytes
from compression.runtime.reader import Reader
from compression.students.saved import load_student

TEXTS = [
    "the film is truly wonderful , and the cast feels charming !",
    "dreadful",
    "",
    "A plot of 1984: caf\u00e9 na\u00efve \u2603\u2603 " * 7,
    *[text for text in TORTURE if len(text) < 60][::3],
]


def same(folder, texts=TEXTS):
    """Packed and in PyTorch: logits within 1e-4 of each other, and the same choice."""
    expected = saved.torch_logits(folder, texts)
    result = load_bytes(pack_student(folder)).logits(texts)
    assert result.dtype == np.float32
    assert np.abs(result - expected).max() < 1e-4
    assert (result.argmax(1) == expected.argmax(1)).all()
    return result


@pytest.mark.slow
@pytest.mark.parametrize("embedding", saved.EMBEDDINGS)
@pytest.mark.parametrize(("arch", "pooling"), [(a, p) for a, poolings in tiny.POOLINGS.items() for p in poolings])
def test_every_student_answers_as_in_pytorch(tmp_path, arch, embedding, pooling):
    same(saved.write_student(tmp_path / "s", arch, embedding, "affine-row", pooling=pooling))


@pytest.mark.slow
@pytest.mark.parametrize("embedding", saved.EMBEDDINGS)
@pytest.mark.parametrize("arch", saved.ARCHS)
def test_pairs_answer_as_in_pytorch(tmp_path, arch, embedding):
    folder = saved.write_student(tmp_path / "s", arch, embedding, "ternary", pair=True, pooling=tiny.POOLINGS[arch][-1])
    same(folder, [(TEXTS[i], TEXTS[i + 1]) for i in range(8)])


@pytest.mark.parametrize(("arch", "layout"), tiny.LAYOUTS)
@pytest.mark.parametrize("pair", [False, True])
def test_every_layout_of_a_transformer_answers_as_in_pytorch(tmp_path, arch, layout, pair):
    folder = saved.write_student(tmp_path / "s", arch, "char", "affine-row", pair=pair, **layout)
    same(folder, PAIRS if pair else TEXTS[:6])


def test_layers_that_share_a_part_take_less_room(tmp_path):
    sizes = {}
    for share in ("none", "attention", "feed-forward"):
        more = {"transformer": {**saved.TRANSFORMER, "layers": 4}, "share": share}
        sizes[share] = len(pack_student(saved.write_student(tmp_path / share, "transformer", "char", **more)))
    assert 4 * 3 * 4 * 8 * 8 < sizes["none"] - sizes["attention"] < 4 * 3 * (4 * 8 * 8 + 100)
    assert 4 * 3 * 2 * 8 * 9 < sizes["none"] - sizes["feed-forward"] < 4 * 3 * (2 * 8 * 9 + 100)


PAIRS = [(TEXTS[i], TEXTS[j]) for i, j in ((0, 3), (1, 0), (2, 2), (3, 2), (0, 0), (4, 5))]


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "embedding", "symmetric", "how"), tiny.ALIGNED_KINDS)
def test_aligned_pairs_answer_as_in_pytorch(tmp_path, arch, embedding, symmetric, how):
    given = saved.ALIGNED | {"symmetric": symmetric, "pair_encoder": how}
    folder = saved.write_student(tmp_path / "s", arch, embedding, "affine-row", **given)
    there, back = same(folder, PAIRS), same(folder, [(second, first) for first, second in PAIRS])
    assert np.allclose(there, back, atol=1e-5) == symmetric


@pytest.mark.parametrize("arch", ["ffn", "rnn"])
def test_pairs_without_an_order_answer_as_in_pytorch(tmp_path, arch):
    folder = saved.write_student(tmp_path / "s", arch, "hash", pair=True, symmetric=True)
    assert np.allclose(same(folder, PAIRS), same(folder, [(second, first) for first, second in PAIRS]), atol=1e-5)


def test_pairs_are_aligned_in_parts_of_any_size(tmp_path, monkeypatch):
    folder = saved.write_student(tmp_path / "s", "bilstm", "char", **saved.ALIGNED)
    whole = same(folder, PAIRS)
    for values in (1, 300, 3000):  # a token's scores, some tokens of a pair, some pairs
        monkeypatch.setattr(Alignment, "values_at_once", values)
        assert np.abs(same(folder, PAIRS) - whole).max() < 1e-5


def test_the_texts_of_aligned_pairs_have_at_most_4096_tokens(tmp_path):
    given = saved.ALIGNED
    assert pack_student(saved.write_student(tmp_path / "s", "conv", "hash", max_tokens=4096, **given))
    with pytest.raises(UserError, match="cannot be packed: with --pair-encoder align, --max-tokens is at most 4,096"):
        pack_student(saved.write_student(tmp_path / "s", "conv", "hash", max_tokens=4097, **given))


@pytest.mark.parametrize("form", saved.FORMS)
@pytest.mark.parametrize(
    ("arch", "embedding"), [("bilstm", "bpe"), ("gru", "char"), ("rnn", "hash"), ("ffn", "char"), ("conv", "bpe")]
)
def test_every_form_of_matrix_comes_back(tmp_path, form, arch, embedding):
    same(saved.write_student(tmp_path / "s", arch, embedding, form), TEXTS[:6])


@pytest.mark.parametrize("width", [1, 3, 9, 255])
def test_windows_of_any_width_reach_beyond_texts_and_no_further(tmp_path, width):
    together = same(saved.write_student(tmp_path / "s", "conv", "hash", kernel_width=width))
    model = load_bytes(pack_student(tmp_path / "s"))
    assert np.abs(together - np.concatenate([model.logits([text]) for text in TEXTS])).max() < 1e-5


def test_texts_longer_than_what_is_convolved_at_once(tmp_path, monkeypatch):
    folder = saved.write_student(tmp_path / "s", "conv", "char")
    whole = same(folder)
    monkeypatch.setattr(Convolution, "values_at_once", 100)  # five tokens
    assert np.abs(same(folder) - whole).max() < 1e-5


def test_a_regression_gives_its_score(tmp_path):
    folder = saved.write_student(tmp_path / "s", "ffn", "hash", labels=[])
    model = load_bytes(pack_student(folder))
    assert (model.labels, model.outputs) == ((), 1)
    assert np.array_equal(model.logits(TEXTS), same(folder))


@pytest.mark.parametrize(
    ("arch", "embedding"), [("bilstm", "bpe"), ("conv", "hash"), ("bilstm", "char"), ("conv", "wordpiece")]
)
def test_texts_are_cut_where_pytorch_cuts_them(tmp_path, arch, embedding):
    same(saved.write_student(tmp_path / "s", arch, embedding, max_tokens=3))


@pytest.mark.parametrize("form", ["float32", "affine-row"])
def test_matrices_of_nothing_but_zeros_come_back(tmp_path, form):
    def zero(tensors):
        for name in [name for name in tensors if name.startswith(("classifier.0", "encoder"))]:
            tensors[name][:] = 0

    same(saved.write_student(tmp_path / form, "rnn", "hash", form, edit=zero), TEXTS[:3])


@pytest.mark.parametrize("form", ["float32", "affine-row", "pruned"])
def test_students_of_many_matrices_have_few_enough_tables(tmp_path, form):
    """The reader allows 128 tables in a stream."""
    sizes = {**saved.TRANSFORMER, "encoder_hidden_dim": 32, "intermediate_dim": 64, "layers": 24, "adapters": 0}
    same(saved.write_student(tmp_path / "s", "transformer", "hash", form, transformer=sizes), TEXTS[:3])


def test_weights_that_repeat_take_next_to_nothing(tmp_path):
    def flat(tensors):
        for name in [name for name in tensors if name.startswith("embedding")]:
            tensors[name][:] = 1

    full = len(pack_student(saved.write_student(tmp_path / "a", "ffn", "hash", "affine-row")))
    assert len(pack_student(saved.write_student(tmp_path / "b", "ffn", "hash", "affine-row", edit=flat))) < full - 300


@pytest.mark.parametrize(("arch", "embedding"), [("bilstm", "bpe"), ("rnn", "char"), ("ffn", "hash"), ("conv", "hash")])
@pytest.mark.parametrize("form", ["pruned", "affine-row", "codebook-row", "product"])
def test_sections_sum_to_the_file(tmp_path, arch, embedding, form):
    folder = saved.write_student(tmp_path / "s", arch, embedding, form)
    sections = packed_sections(*load_student(folder, torch.device("cpu")))
    assert sum(section.bytes for section in sections) == len(pack_student(folder))
    assert all(section.bytes > 0 for section in sections)
    groups = {section.part for section in sections}
    assert groups >= {"header", "settings", "embedding", "classifier", "checksum"}
    assert ("vocabulary" in groups, "encoder" in groups) == (embedding == "bpe", arch != "ffn")


def test_the_same_student_gives_the_same_bytes_under_its_name(tmp_path):
    path = saved.packed(tmp_path / "tiny-one", "rnn", "bpe", "affine-row")
    assert path.read_bytes() == pack_student(tmp_path / "tiny-one")
    assert (load(path).name, load(path).task, load(path).labels) == ("tiny-one", "films", ("bad", "good", "so-so"))


def test_what_cannot_be_packed_is_refused(tmp_path):
    def breaks(name, value):
        def edit(tensors):
            tensors[name][0] = value

        return edit

    for i, value in enumerate((np.nan, np.inf, 1e9)):
        folder = saved.write_student(tmp_path / f"n{i}", "ffn", "hash", edit=breaks("classifier.0.bias", value))
        with pytest.raises(UserError, match=r"classifier\.0\.bias: a weight is not finite, or larger"):
            pack_student(folder)
    folder = saved.write_student(tmp_path / "m", "ffn", "hash", edit=lambda t: t.pop("classifier.3.weight.value"))
    with pytest.raises(UserError, match=r"classifier\.3\.weight: no matrix is stored as nothing"):
        pack_student(folder)
    bytes_ = saved.pieces(byte_fallback=True, vocab_size=400, grouped=False)
    folder = saved.write_student(tmp_path / "p", "ffn", "bpe", model=bytes_, vocab_size=400)
    with pytest.raises(UserError, match=r"bpe\.model: cannot be used, it falls back to bytes"):
        pack_student(folder)
    (folder / "bpe.model").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"bpe\.model: not a sentencepiece model"):
        pack_student(folder)
    with pytest.raises(UserError, match="no model 'nothing'"):
        pack_student(tmp_path / "nothing")


def example(tensors):
    """Weights of the student in docs/format.md."""
    codes = np.full((33, 1), 2, np.uint8)
    codes[[5, 9, 15, 21], 0] = 3, 1, 4, 0
    own = {
        "embedding.table.weight.codes": codes,
        "embedding.table.weight.scale": np.array([[0.5]], np.float32),
        "embedding.table.weight.zero_point": np.array([[2]], np.uint8),
        "classifier.0.weight.value": np.array([[1]], np.float32),
        "classifier.0.bias": np.array([0.25], np.float32),
        "classifier.3.weight.value": np.array([[-1], [1.5]], np.float32),
        "classifier.3.bias": np.array([0, -0.5], np.float32),
    }
    tensors.clear()
    tensors.update(own)


def dump(data):
    """Lines of sixteen bytes, as the page has them."""
    return "\n".join(f"{i:02x}  {data[i : i + 16].hex(' ')}" for i in range(0, len(data), 16))


def test_the_pages_example_is_a_file(tmp_path):
    sizes = {"labels": ["no", "yes"], "embedding_dim": 1, "cls_hidden_dim": 1}
    folder = saved.write_student(tmp_path / "example", "ffn", "char", edit=example, **sizes)
    data = pack(*load_student(folder, torch.device("cpu")))
    page = (tiny.ROOT / "docs" / "format.md").read_text()
    between = {name: page.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0] for name in ("example", "head")}
    assert between["example"].strip("`\n") == dump(data)
    assert between["head"].strip("`\n") == dump(zlib.decompress(data[10:63], -15))
    # The bytes that the tables explain are all the bytes there are, in order.
    explained = [
        "".join(re.findall(r"`([0-9a-f ]+?)`", line.split("|")[1]))
        for line in page.split("<!-- /head -->")[1].splitlines()
        if "`" in line
    ]
    assert bytes.fromhex("".join(explained)) == zlib.decompress(data[10:63], -15)
    assert load_bytes(data).logits(["d"]).tolist() == [[-0.75, 0.625]]


SYMBOLS = st.lists(st.integers(0, 255), min_size=1, max_size=400)


@given(SYMBOLS, st.binary(max_size=40), st.integers(1, 4))
def test_a_stream_holds_what_was_put_in(symbols, spare, tables):
    symbols = np.array(symbols, np.uint8)
    steps = table_steps(np.bincount(symbols, minlength=256) + (np.arange(256) < 2))
    written, read = (Array(len(symbols), weights=[step_weights(steps)] * tables) for _ in range(2))
    written.tables = read.tables = lambda: (np.arange(len(symbols)) % tables).astype(np.uint16)
    written.values = symbols
    stream, carried = encode_stream([written], spare)
    reader = Reader(stream + b"beyond")
    back = decode_stream(reader, [read], 1 << 20)
    assert np.array_equal(read.values, symbols)
    assert back[:carried] == spare[:carried]
    assert not any(back[carried:])
    assert bytes(reader.rest()) == b"beyond"


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=256).filter(lambda c: sum(x > 0 for x in c) > 1))
def test_frequencies_sum_to_the_whole_and_leave_no_symbol_out(weights):
    weights = np.array(weights, np.int64)
    result = frequencies(weights)
    assert result.sum() == 1 << CODE_BITS
    assert ((result > 0) == (weights > 0)).all()
    assert result.max() <= (1 << CODE_BITS) * 63 // 64


@pytest.mark.slow
@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_arrays_cost_about_what_their_entropy_says(rows, columns, spread, seed):
    rng = np.random.default_rng(seed)
    symbols = np.clip(rng.normal(10, 1 + spread, (rows, columns)), 0, 255).astype(np.uint8)
    for stored in (store(symbols), store_first(symbols)):
        assert np.array_equal(stored.values, symbols.reshape(-1))
        if stored.mode > RAW:
            assert stored.cost < 8 * symbols.size or symbols.size < 3
        if stored.steps:
            assert stored.bits().sum() <= stored.cost + 1e-6


def test_rows_and_columns_of_their_own_kind_get_their_own_tables():
    rng = np.random.default_rng(0)
    quiet, loud = rng.integers(0, 2, (200, 40)), rng.integers(0, 256, (200, 40))
    rows = np.where(np.arange(200)[:, None] % 2, quiet, loud).astype(np.uint8)
    assert store(rows).mode == BY_ROW
    assert store(np.ascontiguousarray(rows.T)).mode == BY_COLUMN
    assert store(rows).cost < 0.85 * store_first(rows).cost


def test_the_cache_does_not_keep_arrays():
    values = np.random.default_rng(0).integers(0, 5, (50, 8), np.uint8)
    kept = weakref.ref(values)
    store(values)
    del values
    assert kept() is None


def test_a_table_is_a_few_quarter_bits_from_the_truth():
    counts = np.array([1000, 500, 20, 0, 1])
    costs = table_bits(table_steps(counts))
    exact = -np.log2(counts[[0, 1, 2]] / counts.sum())
    assert np.abs(costs[[0, 1, 2]] - exact).max() < 0.25
    assert costs[3] == 40


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e6)), max_size=8), st.integers(0, 10_000))
def test_shares_are_whole_and_sum_up(owners, total):
    counts = ByteCounts()
    counts.divide("rans", owners, total)
    assert sum(section.bytes for section in counts.sections()) == total


def test_numbers_of_any_size_are_read_as_written():
    header = HeaderWriter()
    numbers = [0, 1, 127, 128, 300, 16383, 16384, 1 << 24]
    for number in numbers:
        header.number(number)
    reader = Reader(bytes(header.data))
    assert [reader.number() for _ in numbers] == numbers
    with pytest.raises(PackedError, match="too early"):
        reader.byte()
