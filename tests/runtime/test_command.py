"""The command line of the runtime, of the package and of the joined file."""

import errno
import io
import subprocess
import sys
from types import SimpleNamespace

import packed_students as made
import pytest
import tiny

from compression.runtime import PackedError, load
from compression.runtime.__main__ import main, run_command


@pytest.fixture
def run(capsys, monkeypatch):
    """A function that runs the command in this process and returns what it prints."""

    def run(*words, lines=b""):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines), isatty=lambda: False))
        main([*map(str, words)])
        return capsys.readouterr().out

    return run


def test_it_prints_labels_and_probabilities(models, run):
    model, folder = models["bpe"]
    printed = run(folder / "bpe.fwt", "A wonderful  film", "caf\u00e9")
    for line, row in zip(printed.splitlines(), model.probabilities(["A wonderful film", "caf\u00e9"]), strict=True):
        label, *shares = line.split("\t")
        assert label == model.labels[row.argmax()]
        assert shares == [f"{name} {share:.6f}" for name, share in zip(model.labels, row, strict=True)]
    assert run(folder / "bpe.fwt", lines="A wonderful film\ncaf\u00e9\n".encode()) == printed
    assert run(folder / "bpe.fwt", lines="\ufeffA wonderful film\ncaf\u00e9\n".encode()) == printed
    assert run(folder / "bpe.fwt", lines=b"\n\x00\n").count("\n") == 2
    assert run("--help").startswith("usage: python ")
    assert run(folder / "bpe.fwt", "--help") == run("--help")


def test_a_file_is_not_a_text(models, run, tmp_path):
    (tmp_path / "texts.txt").write_text("a film")
    with pytest.raises(PackedError, match=r"texts\.txt is a file, not a text; .*: python .* < "):
        run(models["bpe"][1] / "bpe.fwt", tmp_path / "texts.txt")


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_a_closed_stream_is_one_line(models, monkeypatch, stream):
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(PackedError, match=f"{stream} is closed"):
        main([str(models["bpe"][1] / "bpe.fwt"), *(["a film"] if stream == "stdout" else [])])


def test_a_full_disk_is_one_line(capsys):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SystemExit) as stop:
        run_command(full)
    assert (stop.value.code, capsys.readouterr().err) == (2, "error: No space left on device\n")


def test_it_reads_pairs(tmp_path, run):
    path = made.packed(tmp_path / "two", "ffn", "hash", pair=True)
    printed = run(path, "how are you", "how do you do")
    assert run(path, lines=b"how are you\thow do you do\n") == printed
    with pytest.raises(PackedError, match="two reads pairs of texts: give an even number of them"):
        run(path, "one")
    with pytest.raises(PackedError, match="line 2: 1 texts; two reads two with a tab between them"):
        run(path, lines=b"a\tb\nc\n")


def test_it_prints_a_tag_for_each_word_and_a_score(tmp_path, run):
    tagger = made.packed(tmp_path / "tags", "rnn", "hash", kind="tags")
    lines = run(tagger, "a wonderful film").split("\n")
    assert [line.split("\t")[0] for line in lines] == ["a", "wonderful", "film", "", ""]
    assert {line.split("\t")[1] for line in lines[:3]} <= {"bad", "good", "so-so"}
    scorer = made.packed(tmp_path / "score", "ffn", "hash", labels=[])
    score = load(scorer).probabilities(["a film"])[0, 0]
    assert run(scorer, "a film") == f"{score:.6f}\n"


@pytest.mark.parametrize("pair", [False, True])
def test_a_terminal_gets_each_answer_at_once(tmp_path, monkeypatch, capsys, pair):
    path = made.packed(tmp_path / "s", "ffn", "hash", pair=pair)
    line = b"how are you\thow do you do\n" if pair else b"a film\n"
    printed = []

    def lines():
        for _ in range(3):
            yield line
            printed.append(capsys.readouterr())

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=lines(), isatty=lambda: True))
    main([str(path)])
    assert [len(one.out.splitlines()) for one in printed] == [1, 1, 1]
    expected = "two texts a line, with a tab between them" if pair else "a text a line"
    assert printed[0].err == f"s: type {expected}; Ctrl-D ends\n"


@pytest.fixture(params=["package", "joined"])
def command(request, joined):
    return [sys.executable, *(["-m", "compression.runtime"] if request.param == "package" else [str(joined)])]


def start(command, *words, **options):
    words = [*command, *map(str, words)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(words, cwd=tiny.ROOT, env=tiny.environment(), **pipes, **options)


@pytest.mark.slow
def test_mistakes_are_one_line_and_exit_code_2(models, command, run):
    path = models["char"][1] / "char.fwt"
    with start(command, path) as process:
        printed, error = process.communicate(b"fine\n\xff\xfe bad\n", 60)
    assert (process.returncode, printed, error) == (2, b"", b"error: line 2: not UTF-8\n")
    with start(command, path, "fine") as process:
        printed, error = process.communicate(timeout=60)
    assert (process.returncode, printed.decode(), error) == (0, run(path, "fine"), b"")


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error(models, command):
    with start(command, models["char"][1] / "char.fwt") as process:
        process.stdout.close()
        process.stdin.write(b"a good film\n" * 5000)
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


@pytest.mark.slow
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
