"""fwt, the C runtime's command line: the NumPy runtime's answers, one line for a mistake."""

import subprocess
from pathlib import Path

import c_runtime
import packed_students as made
import pytest
import tiny

from compression.runtime import load, tidy, zoo_file, zoo_names

TEXTS = ["A wonderful  film", "", "caf\u00e9 \u2603 the", "boring !\x00", " the end\r"]
LINES = "".join(f"{text}\n" for text in TEXTS).encode()

pytestmark = pytest.mark.slow
"""Every test starts processes, and the first one compiles."""


def run(*words, lines=LINES, status=0):
    """Run fwt. Returns what it prints, or the error of a mistake."""
    command = [c_runtime.built("fwt"), *map(str, words)]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=60)
    assert done.returncode == status, done.stderr
    if status:
        assert done.stderr.count(b"\n") == 1
        return done.stderr.decode()
    assert done.stderr == b""
    return done.stdout.decode()


def packed(folder, *kind, **more):
    path = made.packed(folder / "s", *kind, **more)
    return path, load(path)


def test_labels_and_probabilities_are_numpys(tmp_path):
    path, model = packed(tmp_path, "bilstm", "bpe", "affine-row")
    expected = model.probabilities(TEXTS)
    assert run("predict", path).splitlines() == [model.labels[i] for i in expected.argmax(1)]
    for line, row in zip(run("predict-prob", path, "-", 9).splitlines(), expected, strict=True):
        cells = line.split(" ")
        order = (-row).argsort(kind="stable")
        assert cells[::2] == [model.labels[i] for i in order]
        assert [float(cell) for cell in cells[1::2]] == pytest.approx(row[order].tolist(), abs=1e-5)
    (tmp_path / "texts.txt").write_bytes(LINES[:-1])
    two = run("predict", path, tmp_path / "texts.txt", 2).splitlines()
    assert two == [" ".join(model.labels[i] for i in (-row).argsort(kind="stable")[:2]) for row in expected]


def test_pairs_scores_and_several_labels(tmp_path):
    path, model = packed(tmp_path / "pairs", "ffn", "hash", pair=True)
    pairs = [("how are you", "how do you do"), ("a", "")]
    lines = "".join("\t".join(pair) + "\n" for pair in pairs).encode()
    assert run("predict", path, lines=lines).splitlines() == model.predict(pairs)
    for line in (b"one\n", b"a\tb\tc\n"):
        message = run("predict", path, lines=lines + line, status=2)
        assert message == "error: line 3: two texts with a tab between them are read\n"
    path, model = packed(tmp_path / "aligned", "bilstm", "hash", pair=True, pooling="max", pair_encoder="align")
    assert run("predict", path, lines=lines).splitlines() == model.predict(pairs)
    path, model = packed(tmp_path / "score", "ffn", "char", labels=[])
    scores = [float(line) for line in run("predict", path).splitlines()]
    assert scores == pytest.approx(model.predict(TEXTS), abs=1e-5)
    path, model = packed(tmp_path / "several", "ffn", "char", kind="multilabel")
    answers = ["|".join(labels) or "none of these" for labels in model.predict(TEXTS)]
    assert run("predict", path).splitlines() == answers


def test_words_are_tagged_as_they_stand_in_the_text(tmp_path):
    path, model = packed(tmp_path, "rnn", "char", kind="tags")
    texts = ["a  wonderful\tcafe\u0301", "", "\u3000why \u2603", " \u3000"]
    expected = [
        "".join(f"{word}\t{tag}\n" for word, tag in zip(text.split(), tags, strict=True)) + "\n"
        for text, tags in zip(texts, model.predict(texts), strict=True)
    ]
    assert run("tag", path, lines="".join(f"{text}\n" for text in texts).encode()) == "".join(expected)
    assert "tag: is for models that label words" in run("tag", zoo_file("sst-2-12k"), status=2)
    for command in ("predict", "predict-prob"):
        assert run(command, path, status=2) == f"error: {command}: is for models that answer whole texts; see fwt tag\n"
    assert run("test", path, status=2) == "error: test: is for models that choose one label a text\n"


def test_it_scores_labelled_lines(tmp_path):
    path, model = packed(tmp_path, "ffn", "hash")
    rows = [(text, "good" if label else "bad") for text, label in tiny.sentences(50)]
    found = model.predict([tidy(text) for text, _ in rows])
    right = sum(label == guess for (_, label), guess in zip(rows, found, strict=True)) / len(rows)
    for line in ("{1}\t{0}\n", "__label__{1} {0}\n"):
        printed = run("test", path, lines="".join(line.format(*row) for row in rows).encode())
        assert printed == f"N\t50\nP@1\t{right:.6f}\n"
    assert "line 1: it does not begin with one of the model's labels" in run("test", path, status=2)


def test_a_mark_before_the_first_line_is_skipped(tmp_path):
    model = str(tiny.ROOT / "zoo" / "sst-2-12k.fwt")
    assert run("test", model, tiny.ROOT / "tests" / "field" / "labelled-bom.txt").startswith("N\t2\n")
    texts = b"a lovely film\nawful film\n"
    for command in ("predict", "predict-prob"):
        assert run(command, model, lines=b"\xef\xbb\xbf" + texts) == run(command, model, lines=texts)
    marked = b"\xef\xbb\xbf__label__positive a lovely film\n"
    assert run("test", model, lines=marked).startswith("N\t1\n")


def test_it_describes_and_times_a_model(tmp_path):
    path = zoo_file("sst-2-12k")
    facts = dict(line.split("\t") for line in run("info", path).splitlines())
    assert (facts["task"], facts["labels"], facts["encoder"]) == ("sst-2", "negative positive", "bilstm")
    assert 11_000 < int(facts["bytes of the file"]) < int(facts["bytes in memory"]) < int(facts["bytes to decode it"])
    assert "threshold" not in facts
    path, model = packed(tmp_path, "ffn", "hash", pair=True, symmetric=True, labels=["no", "yes"], f1=True)
    facts = dict(line.split("\t") for line in run("info", path).splitlines())
    assert float(facts["threshold"]) == model.threshold
    timed = dict(line.split("\t") for line in run("bench", zoo_file("sst-2-12k")).splitlines())
    assert timed["texts"] == str(len(TEXTS))


def test_it_prints_the_file_as_an_array():
    printed = run("embed", zoo_file("sst-2-12k"))
    data = Path(zoo_file("sst-2-12k")).read_bytes()
    assert printed.startswith(f"static const unsigned char featherweight_model[{len(data)}] = {{\n")
    assert bytes(int(number) for number in printed.split("{")[1].split(",")[:-1]) == data


def test_mistakes_are_one_line(tmp_path):
    path = zoo_file("sst-2-12k")
    assert run("predict", path, lines=b"fine\n\xff\n", status=2) == "error: line 2: the text is not UTF-8\n"
    assert "nothing.fwt: cannot be opened" in run("predict", tmp_path / "nothing.fwt", status=2)
    (tmp_path / "x.fwt").write_bytes(b"PK\x03\x04" * 9)
    assert "x.fwt: not a packed student" in run("info", tmp_path / "x.fwt", status=2)
    assert "no such command; fwt --help lists them" in run("classify", path, status=2)
    assert "nowhere: cannot be opened" in run("predict", path, "nowhere", status=2)
    for number in ("x", "0", "-1", "1x", " 1", ""):
        assert run("predict", path, "-", number, status=2).endswith("not a number of labels\n")
    assert "give a packed file" in run("predict", status=2)
    assert run("--help").startswith("usage: fwt COMMAND MODEL")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_output_that_cannot_be_written_is_named():
    with Path("/dev/full").open("wb") as full:
        command = [c_runtime.built("fwt"), "predict", zoo_file("sst-2-12k")]
        done = subprocess.run(command, input=LINES, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (2, b"error: standard output: cannot be written\n")


def test_many_long_lines_grow_the_workspace(tmp_path):
    path, model = packed(tmp_path, "ffn", "bpe")
    texts = ["the film " * 30_000, "wonderful" * 9_000, *(text for text, _ in tiny.sentences(300))]
    assert run("predict", path, lines="".join(f"{text}\n" for text in texts).encode()).splitlines() == model.predict(
        texts
    )


def test_a_name_is_a_model_of_the_zoo(tmp_path, monkeypatch):
    zoo = tiny.ROOT / "zoo"
    monkeypatch.setenv("FEATHERWEIGHT_ZOO", str(zoo))
    assert run("embed", "sst-2-12k") == run("embed", zoo_file("sst-2-12k"))
    message = f"error: sst-2-12: not a file, and not a model of the zoo; {zoo}: {', '.join(zoo_names())}; "
    assert run("info", "sst-2-12", status=2).startswith(message)
    for path in ("sst-2-12k.fwt", "./sst-2-12k"):
        assert run("info", path, status=2) == f"error: {path}: cannot be opened\n"
    monkeypatch.setenv("FEATHERWEIGHT_ZOO", str(tmp_path))
    assert f"not a model of the zoo; {tmp_path}:; " in run("info", "sst-2-12k", status=2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sst-2-12k").write_bytes(b"not packed")
    assert run("info", "sst-2-12k", status=2) == "error: sst-2-12k: not a packed student\n"


@pytest.mark.parametrize(
    ("setting", "lines", "message"),
    [
        ("FW_WINDOW=64", b"", "sst-2-12k.fwt: the header needs a larger FW_WINDOW than that of this build"),
        ("FW_ASCII", b"caf\xc3\xa9\n", "line 1: the text is not ASCII: a build with FW_ASCII reads no other"),
    ],
)
def test_a_small_build_names_the_setting_that_refuses(setting, lines, message):
    command = [c_runtime.built("fwt", f"CFLAGS=-D{setting}"), "predict", zoo_file("sst-2-12k")]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.decode().endswith(f"{message}\n")
