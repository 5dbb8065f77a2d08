"""Damaged files under AddressSanitizer and UndefinedBehaviorSanitizer: each is refused or answers as in NumPy.

`runtimes/c/fuzz loop` does the same to millions of files, without NumPy.
"""

import collections
import subprocess

import c_runtime
import damage
import numpy as np
import packed_students as made
import pytest

from compression.packing import ans, pack_student
from compression.runtime import PackedError
from compression.runtime.model import load_bytes

FILES = 1_500
TEXT = "A film, 2!"
TRANSFORMER = {"encoder_hidden_dim": 4, "heads": 2, "layers": 2, "iterations": 2, "intermediate_dim": 3, "adapters": 2}
TRANSFORMER = {"transformer": TRANSFORMER, "max_tokens": 20}
MORE = (
    ("rnn", "char", "float32", {"kind": "tags"}),
    ("conv", "bpe", "codebook-row", {"kind": "tags", "vocab_size": 72}),
    ("ffn", "wordpiece", "affine-column", {}),
    ("bilstm", "hash", "float16", {}),
    ("gru", "char", "affine-row", {}),
    ("bilstm", "char", "kronecker", {"embedding_dim": 4}),
    ("conv", "hash", "kronecker", {"pair": True, "encoder_hidden_dim": 4}),
    ("transformer", "hash", "affine-row", {"pair": True, **TRANSFORMER}),
    ("transformer", "char", "pruned", {"max_tokens": 7, "embedding_dim": 4, **TRANSFORMER}),
    ("recursive", "wordpiece", "product", {"kind": "tags", **TRANSFORMER}),
    ("transformer", "char", "affine-row", {"head_dim": 3, "share": "feed-forward", **TRANSFORMER}),
)
"""Kinds that damage.TINY does not have."""
UNREAD = range(17, 24)
"""Statuses of files that this runtime or build does not read; of fuzz.c, of one that wants too much memory."""


@pytest.fixture(scope="module")
def students(honest, tmp_path_factory):
    """Some very small students, taken apart."""
    folder = tmp_path_factory.mktemp("more")
    found = list(honest)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(ans, "_USUAL_STEPS", 16)
        for number, (arch, embedding, form, more) in enumerate(MORE):
            sizes = {**damage.SIZES, "model": made.pieces(vocab_size=72), **more}
            student = made.write_student(folder / str(number), arch, embedding, form, **sizes)
            found.append(damage.take_apart(pack_student(student)))
    return [damage.Honest.of(*parts) for parts in found]


def in_numpy(data):
    """Return a file's logits, or its error."""
    try:
        model = load_bytes(data)
        logits = model.logits([(TEXT, TEXT[2:]) if model.pair else TEXT])
    except PackedError as error:
        return str(error)
    return logits.reshape(-1)


def in_c(files, *settings):
    """Yield each file's status and logits. settings: of make."""
    stream = b"".join(len(data).to_bytes(4, "little") + data for data in files)
    done = subprocess.run(
        [c_runtime.built("fuzz", *settings), "answers"], input=stream, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    for line in done.stdout.decode().splitlines():
        status, *logits = line.split()
        yield int(status), np.array(logits, np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), (c_runtime.COMPACT,)], ids=["usual", "compact"])
def test_damaged_files_are_refused_or_answer_as_in_numpy(students, settings):
    rng = np.random.default_rng(11)
    files = [damage.assemble(each.header, each.rest) for each in students]
    files += [b"", b"FWT", *(damage.mutated(rng, students) for _ in range(FILES))]
    seen = collections.Counter()
    with np.errstate(all="ignore"):
        for number, (data, (status, found)) in enumerate(zip(files, in_c(files, *settings), strict=True)):
            expected = in_numpy(data)
            seen[status] += 1
            if status in UNREAD:
                continue
            assert bool(status) == isinstance(expected, str), (number, status, expected)
            if not status:
                assert found.shape == expected.shape
                # Damaged weights may be as large as 10,000: what is rounded away is in proportion.
                assert np.abs(found - expected).max() < 1e-3 * max(1, np.abs(expected).max()), number
    assert seen[0] > FILES // 30
    assert len(seen) > 10
    assert sum(seen[status] for status in UNREAD) < FILES // 30


@pytest.mark.slow
def test_the_loop_finds_nothing(students, tmp_path):
    for number, each in enumerate(students):
        (tmp_path / f"{number}.fwt").write_bytes(damage.assemble(each.header, each.rest))
    command = [c_runtime.built("fuzz"), "loop", "3", "3", *sorted(tmp_path.glob("*.fwt"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    assert int(lines[0].split()[0]) >= 100
    assert "a model" in done.stdout
    assert len(lines) > 5
