"""The C runtime on a big-endian machine, which QEMU runs: the NumPy runtime's labels and probabilities."""

import shutil
import subprocess

import c_runtime
import packed_students as made
import pytest

from compression.runtime import load, zoo_file

TEXTS = ["A wonderful film", "", "caf\u00e9 \u2603 the", "boring !", "the film " * 30]
COMPILER, RUN = "s390x-linux-gnu-gcc", "qemu-s390x"


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("CFLAGS=-static -DFW_COMPACT",)], ids=["usual", "compact"])
def test_answers_of_a_big_endian_machine(tmp_path, more):
    for tool in (COMPILER, RUN):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not found")
    program = c_runtime.built("fwt", f"CC={COMPILER}", *(more or ["CFLAGS=-static"]))
    kinds = [("ffn", "hash", "affine-row"), ("bilstm", "bpe", "codebook"), ("rnn", "wordpiece", "float16")]
    kinds += [
        ("ffn", "ngrams"),
        ("conv", "char"),
        ("transformer", "wordpiece", "affine-row"),
        ("recursive", "hash", "product"),
    ]
    paths = [made.packed(tmp_path / "-".join(kind[:2]), *kind) for kind in kinds]
    for path in [*paths, zoo_file("sst-2-12k")]:
        model = load(path)
        lines = "".join(f"{text}\n" for text in TEXTS).encode()
        done = subprocess.run([RUN, program, "predict-prob", path], input=lines, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        expected = model.probabilities([text.strip() for text in TEXTS])
        for line, row in zip(done.stdout.decode().splitlines(), expected, strict=True):
            label, probability = line.split(" ")
            assert label == model.labels[row.argmax()]
            assert float(probability) == pytest.approx(row.max(), abs=1e-3)
