"""Thousands of damaged packed files: each is refused in one line, or is a model that answers. None takes long or much
memory."""

import collections
import contextlib
import resource
import signal

import numpy as np
import packed_students as made
import pytest
from damage import SIZES, assemble, damaged

from compression.packing import pack_student
from compression.packing.header import HeaderWriter
from compression.runtime import ARCHS, PackedError
from compression.runtime.header import PAIR
from compression.runtime.model import load_bytes

FILES = 4_000
MEMORY = 256 << 20
SECONDS = 30
TEXT = "A film, 2!"


@contextlib.contextmanager
def limits():
    """Allow no more than MEMORY beyond the process's own, and end what hangs."""

    def too_long(*_):
        raise AssertionError("a damaged file took too long")

    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115, PTH123
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
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
        with pytest.raises(PackedError, match="a convolution whose windows have no middle, or that does not take"):
            load_bytes(assemble(changed, rest))


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


@pytest.mark.parametrize("arch", made.ARCHS)
def test_the_largest_possible_weights_give_finite_logits(tmp_path, arch):
    def enlarge(tensors):
        for name, tensor in tensors.items():
            tensor[:] = 5e3 if name.endswith(("_ih", "_hh")) else 1e4  # two biases are added

    sizes = {"embedding_dim": 100, "encoder_hidden_dim": 50, "cls_hidden_dim": 50, "kernel_width": 9}
    student = made.write_student(tmp_path / "s", arch, "hash", pair=True, edit=enlarge, **sizes)
    logits = load_bytes(pack_student(student)).logits([(TEXT, TEXT)])
    assert np.isfinite(logits).all()
    assert logits.max() > 1e10


@pytest.mark.parametrize("dim", [250_000, 600_000, 1 << 24])
def test_a_small_file_cannot_claim_much(dim):
    """An FFN of characters whose weights are all 1.0, as constants, which take no bytes."""
    header = HeaderWriter()
    header.data += bytes([ARCHS.index("ffn"), 2, 0]) + b"\x03big\x01t" + bytes([0, 5])
    header.size(dim)
    header.size(1)
    ones = bytes([0, 0]) + bytes([1, 0, 1, 0, 1, 0x80, 1, 0x3F])  # float32 0x3f800000, not masked, four constant planes
    data = assemble(bytes(header.data) + 3 * ones + bytes([1, 0] * 4), b"")
    with limits():
        if dim == 250_000:
            assert load_bytes(data).logits([TEXT]).tolist() == [[dim]]
            return
        with pytest.raises(PackedError, match="more than 16,777,216 numbers"):
            load_bytes(data)
