"""The command line of the runtime, of the package and of the joined file."""

import subprocess
import sys

import packed_students as made
import pytest
import tiny

from compression.packing import write_packed
from compression.runtime import load

pytestmark = pytest.mark.slow


@pytest.fixture(params=["package", "joined"])
def command(request, joined):
    return [sys.executable, *(["-m", "compression.runtime"] if request.param == "package" else [str(joined)])]


def run(command, *words, given=None):
    words = [*command, *map(str, words)]
    return subprocess.run(words, cwd=tiny.ROOT, env=tiny.environment(), input=given, capture_output=True, timeout=60)


def test_it_prints_labels_and_probabilities(models, command):
    model, folder = models["bpe"]
    done = run(command, folder / "bpe.fwt", "A wonderful  film", "caf\u00e9")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    for line, row in zip(lines, model.probabilities(["A wonderful film", "caf\u00e9"]), strict=True):
        label, *shares = line.split("\t")
        assert label == model.labels[row.argmax()]
        assert shares == [f"{name} {share:.6f}" for name, share in zip(model.labels, row, strict=True)]
    assert run(command, folder / "bpe.fwt", given="A wonderful film\ncaf\u00e9\n".encode()).stdout == done.stdout


def test_it_reads_pairs(tmp_path, command):
    path = write_packed(made.write_student(tmp_path / "two", "ffn", "hash", pair=True))
    done = run(command, path, "how are you", "how do you do")
    assert done.returncode == 0
    assert run(command, path, given=b"how are you\thow do you do\n").stdout == done.stdout
    for words, lines, message in (
        (["one"], None, b"error: two reads pairs of texts: give an even number of them\n"),
        ([], b"a\tb\nc\n", b"error: line 2: 1 texts; two reads two with a tab between them\n"),
    ):
        done = run(command, path, *words, given=lines)
        assert (done.returncode, done.stderr) == (2, message)


def test_it_prints_a_tag_for_each_word_and_a_score(tmp_path, command):
    tagger = write_packed(made.write_student(tmp_path / "tags", "rnn", "hash", tokens=True))
    lines = run(command, tagger, "a wonderful film").stdout.decode().split("\n")
    assert [line.split("\t")[0] for line in lines] == ["a", "wonderful", "film", "", ""]
    assert {line.split("\t")[1] for line in lines[:3]} <= {"bad", "good", "so-so"}
    scorer = write_packed(made.write_student(tmp_path / "score", "ffn", "hash", labels=[]))
    score = load(scorer).probabilities(["a film"])[0, 0]
    assert run(command, scorer, "a film").stdout == f"{score:.6f}\n".encode()


def test_mistakes_are_one_line_and_exit_code_2(models, tmp_path, command):
    _, folder = models["char"]
    (tmp_path / "cut.fwt").write_bytes((folder / "char.fwt").read_bytes()[:-9])
    done = run(command, tmp_path / "cut.fwt", "x")
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"error: {tmp_path}/cut.fwt: ")
    assert done.stderr.count(b"\n") == 1
    done = run(command, folder / "char.fwt", given=b"fine\n\xff\xfe bad\n")
    assert (done.returncode, done.stderr) == (2, b"error: line 2: not UTF-8\n")
    assert run(command, folder / "char.fwt", given=b"\n\x00\n").stdout.count(b"\n") == 2
    assert run(command, "--help").stdout.startswith(b"usage: python ")


def test_a_closed_pipe_is_not_an_error(models, command):
    _, folder = models["char"]
    process = subprocess.Popen(
        [*command, str(folder / "char.fwt")],
        cwd=tiny.ROOT,
        env=tiny.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    process.stdin.write(b"a good film\n" * 5000)
    process.stdin.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""


def test_numpy_loads_with_one_thread_in_a_command_only(joined, tmp_path):
    """The command sets the variable before numpy loads; importing the package leaves it alone."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'numpy': print(os.environ.get('OPENBLAS_NUM_THREADS'), flush=True)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    environment = tiny.environment(PYTHONPATH=str(tmp_path))
    environment.pop("OPENBLAS_NUM_THREADS", None)
    for words, threads in (
        (["-m", "compression.runtime", "-h"], b"1"),
        ([joined, "-h"], b"1"),
        (["-c", "import compression.runtime"], b"None"),
    ):
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=tiny.ROOT, env=environment, capture_output=True, timeout=60)
        assert done.stdout.split(b"\n")[0] == threads, done.stderr
