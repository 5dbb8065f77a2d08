"""Twenty thousand damaged packed files: each is refused in one line, or is a model that answers. None takes long or
much memory. Most have the length and the checksum of an honest file, so that what reads behind them is tried."""

import collections
import contextlib
import resource
import signal
import zlib

import numpy as np
import packed_students as made
import pytest

from compression.packing import ans, pack_student
from compression.runtime import ARCHS, MAGIC, PAIR, VERSION, PackedError, Reader, load_bytes

FILES = 20_000
MEMORY = 256 << 20
SECONDS = 30
SIZES = {"embedding_dim": 3, "encoder_hidden_dim": 2, "cls_hidden_dim": 2, "vocab_size": 20, "labels": ["a", "b"]}
STUDENTS = (
    ("ffn", "char", "affine-row", {}),
    ("ffn", "hash", "pruned", {}),
    ("ffn", "bpe", "codebook", {"vocab_size": 72}),
    ("rnn", "hash", "product", {"pair": True}),
    ("bilstm", "char", "ternary", {"pooling": "max"}),
    ("conv", "hash", "affine-row", {"pair": True}),
)
TEXT = "A film, 2!"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """(head, what follows it) of a few packed students."""
    folder = tmp_path_factory.mktemp("honest")
    found = []
    # Many lanes: files of this size are decoded in a few steps of numpy, and damage meets states as often as words.
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(ans, "_USUAL_STEPS", 16)
    for place, (arch, embedding, form, more) in enumerate(STUDENTS):
        model = made.pieces(vocab_size=72) if embedding == "bpe" else None
        student = made.write_student(folder / str(place), arch, embedding, form, model=model, **{**SIZES, **more})
        data = pack_student(student)
        assert load_bytes(data).logits([(TEXT, TEXT) if more.get("pair") else TEXT]).shape == (1, 2)
        found.append(taken_apart(data))
        assert load_bytes(joined(*found[-1])).outputs == 2
    monkeypatch.undo()
    return found


def taken_apart(data):
    reader = Reader(memoryview(data)[8:-4])
    stored, size = reader.number(), reader.number()
    head = bytes(reader.take(stored))
    return head if stored == size else zlib.decompress(head, -15), bytes(reader.rest())


def joined(head, rest, version=VERSION):
    """A file with this head and the right length and checksum."""
    number = lambda n: bytes([n & 127 | 128, n >> 7 & 127 | 128, n >> 14])  # noqa: E731
    body = number(len(head)) + number(len(head)) + head + rest
    data = MAGIC + bytes([version]) + (len(body) + 12).to_bytes(4, "little") + body
    return data + zlib.crc32(data).to_bytes(4, "little")


def flip(rng, data):
    """One to four bits changed."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 5) if data else 0):
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    return bytes(data)


def cut(rng, data):
    return data[: rng.integers(len(data) + 1)]


def grow(rng, data):
    place = rng.integers(len(data) + 1)
    return data[:place] + rng.bytes(rng.integers(1, 40)) + data[place:]


def splice(rng, data):
    """A stretch copied over another one."""
    a, b, n = rng.integers(len(data) + 1, size=3)
    return data[:a] + data[b : b + n % 50] + data[a + n % 50 :]


def huge(rng, data):
    """A byte replaced by a number far too large, or by one just within bounds."""
    place = rng.integers(len(data) + 1)
    numbers = (
        b"\xff" * 9,
        b"\xff\xff\xff\x07",
        b"\x80\x80\x80\x08",
        b"\xff\xff\x03",
        b"\xff\x7f",
        b"\x80\x80\x04",
        b"\x00",
    )
    return data[:place] + numbers[rng.integers(len(numbers))] + data[place + 1 :]


def extreme(rng, data):
    """A few bytes all zero or all one."""
    place, n = rng.integers(len(data) + 1), rng.integers(1, 9)
    return data[:place] + bytes([255 * rng.integers(2)]) * n + data[place + n :]


CHANGES = (flip, cut, grow, splice, huge, extreme)


def damaged(rng, honest):
    """A damaged file."""
    head, rest = honest[rng.integers(len(honest))]
    change = CHANGES[rng.integers(len(CHANGES))]
    where = rng.integers(10)
    if where < 5:
        return joined(change(rng, head), rest)
    if where < 8:
        return joined(head, change(rng, rest))
    if where < 9:
        return joined(head, honest[rng.integers(len(honest))][1])
    return change(rng, joined(head, rest))


@contextlib.contextmanager
def limits():
    """No more than MEMORY beyond what the process has, and an end to what hangs."""

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
    """What becomes of a file: the first words of its error, or "a model"."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        model = load_bytes(data)
        logits = model.logits([(TEXT, TEXT) if model.pair else TEXT])
    except PackedError as refusal:
        said = str(refusal)
    else:
        assert logits.shape == (1, model.outputs)
        assert np.isfinite(logits).all()
        return "a model"
    assert said
    assert "\n" not in said
    return said[:16]


def test_damaged_files_are_refused_or_are_models(honest):
    rng = np.random.default_rng(2024)
    seen = collections.Counter()
    with limits(), np.errstate(all="raise", under="ignore"):
        for _ in range(FILES):
            seen[outcome(damaged(rng, honest))] += 1
    assert sum(seen.values()) == FILES
    # Both ends are met often, and many kinds of refusal: what is damaged gets past the first checks.
    assert seen["a model"] > FILES // 50
    assert seen["its checksum is "] < FILES // 10
    assert len(seen) > 25, seen


def test_a_convolution_has_a_middle_and_takes_the_maximum(honest):
    """Settings that nothing trains: what they would mean is not said."""
    head, rest = next(each for each in honest if each[0][0] == ARCHS.index("conv"))
    width = head.index(bytes([SIZES["encoder_hidden_dim"], made.KERNEL]), 6) + 1
    for place, value in ((2, PAIR), (width, 0), (width, 2), (width, 4)):
        changed = head[:place] + bytes([value]) + head[place + 1 :]
        with pytest.raises(PackedError, match="a convolution whose windows have no middle, or that does not take"):
            load_bytes(joined(changed, rest))


def test_every_truncation_and_every_flipped_bit_is_refused(honest):
    data = joined(*honest[0])
    for length in range(len(data)):
        with pytest.raises(PackedError):
            load_bytes(data[:length])
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PackedError):
            load_bytes(bytes(changed))


@pytest.mark.parametrize("arch", made.ARCHS)
def test_the_largest_weights_there_may_be_give_finite_logits(tmp_path, arch):
    def enlarge(tensors):
        for name, tensor in tensors.items():
            tensor[:] = 5e3 if name.endswith(("_ih", "_hh")) else 1e4  # two biases are added

    sizes = {"embedding_dim": 100, "encoder_hidden_dim": 50, "cls_hidden_dim": 50, "kernel_width": 9}
    student = made.write_student(tmp_path / "s", arch, "hash", pair=True, edit=enlarge, **sizes)
    logits = load_bytes(pack_student(student)).logits([(TEXT, TEXT)])
    assert np.isfinite(logits).all()
    assert logits.max() > 1e10


def test_a_small_file_cannot_claim_much(honest):
    """The largest a head may ask for, in constants, which take no bytes: it is allowed, and is within the memory."""
    from compression.packing.head import HeadWriter

    head = HeadWriter()
    for byte in (0, 2, 0):
        head.byte(byte)
    head.text("big"), head.text("t")
    for number in (0, 5, 250_000, 1):
        head.number(number)
    for rows in (33, 1, 1):
        head.byte(0), head.byte(0)
        for _ in range(4):
            head.byte(1), head.byte(0 if rows else 1)
    for _ in range(4):
        head.byte(1), head.byte(0)
    with limits():
        assert load_bytes(joined(head.data, b"")).logits([TEXT]).shape == (1, 1)
        for number in (1 << 24, 600_000):
            body = head.data.replace(
                b"\x90\xa1\x0f",
                bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14 & 127 | 128, number >> 21]),
                1,
            )
            with pytest.raises(PackedError, match="more than 16,777,216 numbers"):
                load_bytes(joined(body, b""))
