"""Thousands of damaged packed files: each is refused in one line, or is a model that answers. None takes long or much
memory."""

import collections
import contextlib
import resource
import signal
import time

import numpy as np
import packed_students as made
import pytest
from attacks import ONES, ZEROS, forged
from damage import SIZES, assemble, damaged, take_apart

from compression.packing import pack_student
from compression.packing.header import HeaderWriter
from compression.runtime import KRONECKER, NFKC, PRODUCT, TRANSFORMERS, Normaliser, PackedError
from compression.runtime.entropy import BY_ROW, CONSTANT
from compression.runtime.header import ALIGN, PAIR, POOL_MAX, SYMMETRIC
from compression.runtime.model import load_bytes
from compression.runtime.shapes import ARCHS

FILES = 4_000
MEMORY = 256 << 20
SECONDS = 30
TEXT = "A film, 2!"


@contextlib.contextmanager
def limits(memory=MEMORY):
    """Allow no more memory than this beyond the process's own, and end what hangs."""

    def too_long(*_):
        raise AssertionError("a damaged file took too long")

    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115, PTH123
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def outcome(data):
    """Return the first words of a file's error, or "a model"."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        model = load_bytes(data)
        logits = model.logits([(TEXT, TEXT) if model.pair else TEXT])
    except PackedError as error:
        message = str(error)
    else:
        message = "a model"
        assert logits.shape == (1, model.outputs)
        assert np.isfinite(logits).all()
    assert message
    assert "\n" not in message
    return message[:16]


@pytest.mark.slow
def test_damaged_files_are_refused_or_are_models(honest):
    rng = np.random.default_rng(2024)
    assert {outcome(assemble(*parts)) for parts in honest} == {"a model"}
    with limits(), np.errstate(all="raise", under="ignore"):
        seen = collections.Counter(outcome(damaged(rng, honest)) for _ in range(FILES))
    # Both ends are met often, and many kinds of refusal: what is damaged gets past the first checks.
    assert seen["a model"] > FILES // 50
    assert seen["its checksum is "] < FILES // 10
    assert len(seen) > 25, seen


def test_a_convolution_has_a_middle_and_takes_the_maximum(honest):
    """Settings that training refuses."""
    header, rest = next(each for each in honest if each[0][0] == ARCHS.index("conv"))
    width = header.index(bytes([SIZES["encoder_hidden_dim"], made.KERNEL]), 6) + 1
    for index, value in ((2, PAIR), (width, 0), (width, 2), (width, 4)):
        changed = header[:index] + bytes([value]) + header[index + 1 :]
        with pytest.raises(PackedError, match="a convolution needs an odd window and max pooling"):
            load_bytes(assemble(changed, rest))


FLAGS = {
    PAIR | ALIGN: "only a BiLSTM, GRU or convolution that reads pairs, with max pooling, can align texts",
    POOL_MAX | ALIGN: "only a BiLSTM, GRU or convolution that reads pairs, with max pooling, can align texts",
    POOL_MAX | SYMMETRIC: "only a model of pairs that is not a transformer can be symmetric",
}


@pytest.mark.parametrize("flags", FLAGS)
def test_only_pairs_are_aligned_or_without_an_order(honest, flags):
    header, rest = next(each for each in honest if each[0][0] == ARCHS.index("bilstm") and each[0][2] & PAIR)
    with pytest.raises(PackedError, match=FLAGS[flags]):
        load_bytes(assemble(header[:2] + bytes([flags]) + header[3:], rest))


@pytest.mark.parametrize("arch", ["ffn", "rnn", "transformer", "recursive"])
def test_only_a_bilstm_and_a_convolution_align(tmp_path, arch):
    header, rest = take_apart(pack_student(made.write_student(tmp_path / "s", arch, "char", pair=True, pooling="max")))
    with pytest.raises(
        PackedError, match="only a BiLSTM, GRU or convolution that reads pairs, with max pooling, can align texts"
    ):
        load_bytes(assemble(header[:2] + bytes([header[2] | ALIGN]) + header[3:], rest))
    if arch in TRANSFORMERS:
        with pytest.raises(PackedError, match="only a model of pairs that is not a transformer can be symmetric"):
            load_bytes(assemble(header[:2] + bytes([header[2] | SYMMETRIC]) + header[3:], rest))


@pytest.mark.parametrize("arch", ARCHS)
def test_only_transformers_share_parts_or_have_no_segments(tmp_path, arch):
    """What is added to the number of an architecture: 16 and 32 what its layers share, or how an FFN pools, 64 no
    segments."""
    header, rest = take_apart(pack_student(made.write_student(tmp_path / "s", arch, "char")))
    assert header[0] == ARCHS.index(arch)
    refused = {48: "a field has the unknown value", 15 - header[0]: "a field has the unknown value"}
    shares = "takes a maximum" if arch == "ffn" else "can share a part of its layers"
    refused |= {} if arch == "transformer" else dict.fromkeys((16, 32), shares)
    refused |= {} if arch in TRANSFORMERS else {64: "can leave out segment embeddings"}
    for added, message in refused.items():
        with pytest.raises(PackedError, match=message):
            load_bytes(assemble(bytes([header[0] + added]) + header[1:], rest))


@pytest.mark.parametrize("arch", [arch for arch in ARCHS if arch not in TRANSFORMERS])
def test_only_transformers_have_heads_of_a_width(tmp_path, arch):
    """128 is added to the number of an architecture; the width, 3, follows the sizes of the encoder."""
    header, rest = take_apart(pack_student(made.write_student(tmp_path / "s", arch, "char")))
    messages = set()
    for at in range(3, len(header) + 1):
        with pytest.raises(PackedError) as refused:
            load_bytes(assemble(bytes([header[0] + 128]) + header[1:at] + b"\x03" + header[at:], rest))
        messages.add(str(refused.value).partition(",")[0])
    assert "a head width is stored for a model without heads" in messages


def test_every_truncation_and_every_flipped_bit_is_refused(honest):
    data = assemble(*honest[0])
    for length in range(len(data)):
        with pytest.raises(PackedError):
            load_bytes(data[:length])
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PackedError):
            load_bytes(bytes(changed))


@pytest.mark.parametrize(
    ("arch", "more"), [*((arch, {}) for arch in made.ARCHS), ("bilstm", made.ALIGNED), ("conv", made.ALIGNED)]
)
def test_the_largest_possible_weights_give_finite_logits(tmp_path, arch, more):
    def enlarge(tensors):
        for name, tensor in tensors.items():
            tensor[:] = 5e3 if name.endswith(("_ih", "_hh")) else 1e4  # two biases are added

    sizes = {"embedding_dim": 100, "encoder_hidden_dim": 50, "cls_hidden_dim": 50, "kernel_width": 9}
    student = made.write_student(tmp_path / "s", arch, "hash", edit=enlarge, **{"pair": True, **sizes, **more})
    logits = load_bytes(pack_student(student)).logits([(TEXT, TEXT)])
    assert np.isfinite(logits).all()
    assert logits.max() > 1e9


@pytest.mark.parametrize(("dim", "units"), [(16_384, 1_900), (16_384, 2_100), (16_385, 1), (1 << 25, 1)])
def test_a_small_file_cannot_claim_much(dim, units):
    """An FFN of characters whose weights are all 1.0."""
    data = assemble(forged("ffn", "char", dim, units) + 3 * ONES + ZEROS, b"")
    with limits(2 * MEMORY):
        if units == 1_900:
            assert load_bytes(data).logits([TEXT]).tolist() == [[dim * units]]
            return
        error = "more than 33,554,432 numbers" if units == 2_100 else "a number in the file is larger than 16,384"
        with pytest.raises(PackedError, match=error):
            load_bytes(data)


@pytest.mark.parametrize("depth", [1, 2, 30_000])
def test_a_factor_of_a_product_is_no_product(depth):
    """98 bytes were enough for a RecursionError."""
    nested = bytes([PRODUCT, 1]) * depth + ONES * (depth + 1)
    data = assemble(forged("ffn", "char") + nested + 2 * ONES + ZEROS, b"")
    if depth == 1:
        assert load_bytes(data).logits([TEXT]).tolist() == [[1.0]]
        return
    with pytest.raises(PackedError, match="a factor of a product is itself a product"):
        load_bytes(data)


@pytest.mark.parametrize("sides", [(2, 1), (1, 2)])
def test_blocks_that_do_not_fill_a_matrix_are_refused(sides):
    matrix = bytes([KRONECKER, 1, *sides]) + 2 * ONES
    with pytest.raises(PackedError, match="the blocks of a Kronecker product do not fit its matrix"):
        load_bytes(assemble(forged("ffn", "char") + matrix + 2 * ONES + ZEROS, b""))


def test_an_array_without_tables_is_refused():
    array = bytes([BY_ROW, 0, CONSTANT, 0])
    with pytest.raises(PackedError, match="an array has no tables"):
        load_bytes(assemble(forged("ffn", "char") + bytes([0, 0]) + 4 * array + 2 * ONES + ZEROS, bytes(40)))


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("a", "b" * 1_000_000, "the replacement of a normalisation rule is too long"),
        ("a" * 513, "b", "matches an empty text, or too long a text"),
    ],
)
def test_rules_of_normalisation_have_bounds(key, value, error):
    """A rule for a letter made a text of ten letters one of megabytes."""
    rules = HeaderWriter()
    rules.data += bytes([0, 0, 1])
    rules.text(key)
    rules.byte(1)
    rules.text(value)
    with pytest.raises(PackedError, match=error):
        load_bytes(assemble(forged("ffn", "bpe", vocabulary=bytes(rules.data)), b""))


def test_a_long_rule_does_not_make_others_slow():
    """Every window of 512 characters was decomposed once for each of its beginnings."""
    normalise = Normaliser(NFKC, {"\u00e9" * 512: "x", "\u00fc\u00e9": "y"})
    started = time.process_time()
    assert normalise("\u00fc" + "\u00e9" * 600 + "e\u0301", False) == "yx" + "\u00e9" * 88
    assert time.process_time() - started < 2


@pytest.mark.slow
def test_the_memory_of_long_aligned_texts_is_bounded(tmp_path):
    model = load_bytes(
        pack_student(made.write_student(tmp_path / "s", "conv", "char", max_tokens=4096, **made.ALIGNED))
    )
    texts = [("a film " * (100 + number), "b" * 4096) for number in range(8)]
    with limits(64 << 20):
        together = model.logits(texts)
        alone = np.concatenate([model.logits([text]) for text in texts[::3]])
    assert np.abs(together[::3] - alone).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("pair", [False, True])
def test_the_memory_of_long_texts_is_bounded_and_answers_do_not_depend_on_the_batch(tmp_path, pair):
    """64 texts of 512 tokens, whatever the number of heads, took 800 MB for attention alone."""
    sizes = {"embedding_dim": 24, "encoder_hidden_dim": 24, "heads": 12, "layers": 1, "intermediate_dim": 9}
    student = made.write_student(tmp_path / "s", "transformer", "char", pair=pair, transformer=sizes)
    model = load_bytes(pack_student(student))
    texts = ["a film " * (10 + number) for number in range(64)]
    texts = [(text, text) if pair else text for text in texts]
    with limits(64 << 20):
        together = model.logits(texts)
        alone = np.concatenate([model.logits([text]) for text in texts[::9]])
    assert np.abs(together[::9] - alone).max() < 1e-5
    assert np.abs(alone - made.torch_logits(student, texts[::9])).max() < 1e-4
