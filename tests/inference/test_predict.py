"""predict.py: the model's own answers in the order of the input, whatever the format; and errors for bad input."""

import csv
import io
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from random_students import CPU, KINDS, TEXTS, own
from shrunk import compressed

from common.data.split import load_split
from common.data.tasks import load_task
from common.devices import pick_dtype
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.load import load_teacher
from compression.inference.predict import PredictSettings, predict
from compression.packing import pack_student
from compression.runtime import to_probabilities


def csv_text(header, rows, delimiter=","):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerows([header, *rows])
    return text.getvalue().encode()


def check(rows, logits, labels=("negative", "positive")):
    """rows: a label and a list of probabilities each."""
    assert [label for label, _ in rows] == [labels[i] for i in logits.argmax(1)]
    np.testing.assert_allclose([values for _, values in rows], to_probabilities(logits), atol=1e-6)


def parsed(line):
    label, *each = line.split("\t")
    names, values = zip(*(cell.split(" ") for cell in each), strict=True)
    assert names == ("negative", "positive")
    return label, list(map(float, values))


@pytest.mark.parametrize("content", ["\n".join(TEXTS), "\ufeff" + "\r\n".join(TEXTS) + "\r\n"])
def test_every_line_is_answered_in_its_place(models, ask, content):
    rows = [parsed(line) for line in ask(models["single"], content.encode()).splitlines()]
    assert len({label for label, _ in rows}) == 2
    check(rows, own(models["single"], TEXTS))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_csv_gains_columns(models, ask, delimiter):
    texts = [*TEXTS, 'a "quote", ; | and\na line']
    content = csv_text(["id", "review"], enumerate(texts), delimiter)
    answer = ask(models["single"], content, "input.csv", columns=("review",))
    rows = list(csv.DictReader(io.StringIO(answer), delimiter=delimiter))
    assert list(rows[0]) == ["id", "review", "predicted_label", "probability_negative", "probability_positive"]
    assert [(row["id"], row["review"]) for row in rows] == [(str(i), text) for i, text in enumerate(texts)]
    found = [
        (row["predicted_label"], [float(row[f"probability_{x}"]) for x in ("negative", "positive")]) for row in rows
    ]
    check(found, own(models["single"], texts))


def test_a_tsvs_quotes_are_text(models, ask):
    answer = ask(models["single"], b'label\tsentence\n1\t"so" good\n\n0\t"bad\n', "input.tsv")
    header, *rows = [line.split("\t") for line in answer.splitlines()]
    assert header[:3] == ["label", "sentence", "predicted_label"]
    assert [row[:2] for row in rows] == [["1", '"so" good'], ["0", '"bad']]
    check([(row[2], list(map(float, row[3:]))) for row in rows], own(models["single"], ['"so" good', '"bad']))


def test_jsonl_gains_fields(models, ask):
    objects = [{"id": [1, {"x": None}], "sentence": text} for text in TEXTS] + [{"sentence": None, "half": "\ud800"}]
    content = "\n\n".join(map(json.dumps, objects)).encode()
    rows = [json.loads(line) for line in ask(models["single"], content, "input.jsonl").splitlines()]
    assert [{k: v for k, v in row.items() if k in ("id", "sentence", "half")} for row in rows] == objects
    found = [(row["predicted_label"], list(row["probabilities"].values())) for row in rows]
    check(found, own(models["single"], [*TEXTS, ""]))


@pytest.mark.parametrize("written", ["lines", "csv", "tsv", "jsonl"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"so good\nbad\n"),
        ("a.csv", b"sentence\nso good\nbad\n"),
        ("a.tsv", b"sentence\nso good\nbad\n"),
        ("a.jsonl", b'{"sentence": "so good"}\n{"sentence": "bad"}\n'),
    ],
)
def test_any_format_to_any_other(models, ask, name, content, written):
    texts = ["so good", "bad"]
    lines = ask(models["single"], content, name, output_format=written).splitlines()
    if written == "lines":
        rows = [{"sentence": text, "predicted_label": parsed(line)[0]} for text, line in zip(texts, lines, strict=True)]
    elif written == "jsonl":
        rows = list(map(json.loads, lines))
    else:
        rows = list(csv.DictReader(lines, delimiter={"csv": ",", "tsv": "\t"}[written]))
    labels = [KINDS["single"]["labels"][i] for i in own(models["single"], texts).argmax(1)]
    assert [(row["sentence"], row["predicted_label"]) for row in rows] == list(zip(texts, labels, strict=True))


def test_tsv_keeps_line_separators_that_are_not_newlines(models, ask):
    text = "so\u2028good"
    lines = ask(models["single"], f"sentence\n{text}\n".encode(), "a.csv", output_format="tsv").split("\n")
    assert lines[1].split("\t")[0] == text


def test_pairs(models, ask):
    first, second = ["how ?", "why"], ["how so ?", ""]
    lines = ask(models["pair"], "\n".join(map("\t".join, zip(first, second, strict=True))).encode()).splitlines()
    table = csv_text(["b", "a"], zip(second, first, strict=True))
    rows = list(csv.DictReader(io.StringIO(ask(models["pair"], table, "input.csv", columns=("a", "b")))))
    expected = [KINDS["pair"]["labels"][i] for i in own(models["pair"], first, second).argmax(1)]
    assert [line.split("\t")[0] for line in lines] == [row["predicted_label"] for row in rows] == expected


def test_a_regression_gives_scores_in_the_tasks_range(models, ask):
    expected = own(models["score"], ["one"], ["two"])[0, 0] * 5
    assert float(ask(models["score"], b"one\ttwo\n")) == pytest.approx(expected, abs=1e-5)
    answer = json.loads(ask(models["score"], b"one\ttwo\n", json_=True))
    assert answer["predicted_score"] == pytest.approx(expected, abs=1e-5)


@settings(max_examples=8)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n")), max_size=9))
def test_the_size_of_batches_changes_nothing(models, texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("batches")
    (folder / "input").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", newline="\n")
    answers = []
    for size in (1, 2, 1024):
        files = {"input": folder / "input", "output": folder / "output"}
        predict(PredictSettings(model=str(models["single"]), cpu=True, batch_size=size, **files))
        answers.append([parsed(line)[0] for line in (folder / "output").read_text().splitlines()])
    assert len(answers[0]) == len(texts)
    assert answers[0] == answers[1] == answers[2]


def test_a_huge_text_is_answered(models, ask):
    beginning = "good film " * 1000
    lines = ask(models["single"], (beginning + "x" * 10_000_000 + "\nbad\n").encode()).splitlines()
    check([parsed(line) for line in lines], own(models["single"], [beginning, "bad"]))


# The readers' other messages are tested in tests/data.
BAD = {
    "no UTF-8": ("single", "a.txt", b"good\nna\xefve\n", r"a\.txt line 2: not UTF-8 text"),
    "a wrong column": ("single", "a.csv", b"id,sentense\n1,x\n", r"no column 'sentence' .*did you mean sentense"),
    "no header": ("single", "a.csv", b"", r"line 1: no column 'sentence' \(found an empty file\)"),
    "broken JSON": ("single", "a.jsonl", b'{"sentence": "x"}\n{"sentence":\n', r"line 2: not JSON"),
    "not text": ("single", "a.jsonl", b'{"sentence": 3}\n', r"line 1: a sentence is of type int"),
    "no second line": ("pair", "a.txt", b"a\tb\nc\n", r"line 2: a pair is two sentences with a tab"),
    "no second key": ("pair", "a.jsonl", b'{"question1": "x"}\n', r"line 1: no key 'question2'"),
    "there already": ("single", "a.csv", b"sentence,predicted_label\nx,y\n", r"already has 'predicted_label'"),
}


@pytest.mark.parametrize(("kind", "name", "content", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_and_nothing_is_written(models, ask, tmp_path, kind, name, content, message):
    (tmp_path / "output").write_text("old")
    with pytest.raises(UserError, match=message):
        ask(models[kind], content, name)
    assert (tmp_path / "output").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"output", name}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"columns": ("a", "b"), "format": "csv"}, "reads one sentence, but --columns has 2"),
        ({"columns": ("a",)}, "--columns is for"),
        ({"delimiter": ";"}, "--delimiter is for"),
        ({"delimiter": ";;", "format": "csv"}, "delimiter: one character"),
        ({"json_": True, "output_format": "csv"}, "--json contradicts"),
        ({"model": "nonesuch.fwt"}, "nonesuch.fwt: "),
        ({"model": "no/such/folder"}, "no model 'folder'"),
    ],
)
def test_bad_flags_are_refused(models, ask, flags, message):
    with pytest.raises((UserError, OSError), match=message):
        ask(**{"model": models["single"], "content": b"x\n", **flags})


def test_a_teacher_by_name(prepared, ask):
    task = load_task("sst-2")
    split = load_split(Workspace(prepared), task, "test")
    logits = load_teacher(prepared / "models/sst-2/tiny-bert", CPU, pick_dtype("auto", CPU)).logits(split)
    flags = {"workspace": prepared, "task": "sst-2"}
    lines = ask("tiny-bert", "\n".join(split.sentence1).encode(), **flags).splitlines()
    check([parsed(line) for line in lines], logits)
    with pytest.raises(
        UserError, match=r"several tasks \(qqp, sst-2\) have a model named 'tiny-bert'; choose one with --task"
    ):
        ask("tiny-bert", b"x\n", workspace=prepared)
    with pytest.raises(UserError, match=r"no model 'tinybert' in .*; did you mean tiny-bert\?"):
        ask("tinybert", b"x\n", workspace=prepared)


@pytest.fixture(scope="module")
def files(models, tmp_path_factory):
    """The same models packed."""
    paths = {kind: tmp_path_factory.mktemp("packed") / f"{kind}.fwt" for kind in models}
    for kind, path in paths.items():
        path.write_bytes(pack_student(models[kind]))
    return paths


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_file_answers_as_the_student_does(models, files, ask, kind):
    content = "\n".join(f"{text} a\t{text} b" if kind != "single" else text for text in TEXTS if "\t" not in text)
    answers = (ask(paths[kind], content.encode(), json_=True).splitlines() for paths in (models, files))
    first, second = (list(map(json.loads, lines)) for lines in answers)
    assert len(first) == len(TEXTS) - 1
    for one, other in zip(first, second, strict=True):
        if kind == "score":
            assert one["predicted_score"] == pytest.approx(other["predicted_score"], abs=1e-4)
        else:
            assert one["predicted_label"] == other["predicted_label"]
            assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)


def test_a_student_answers_as_its_packed_file_once_it_is_packed(workspace, ask):
    student = {"student_arch": "ffn", "embedding_type": "hash", "model_name": "s", "epochs": 2}
    compressed(workspace, "distill", "pack", **student)
    content, flags = "\n".join(TEXTS).encode(), {"workspace": workspace, "json_": True, "task": "sst-2"}
    rows = [
        [json.loads(line)["probabilities"] for line in ask(model, content, **flags).splitlines()]
        for model in ("s", workspace / "packed/sst-2/s.fwt")
    ]
    for one, other in zip(*rows, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    (workspace / "packed/sst-2/s.fwt").unlink()
    (line, *_) = ask("s", content, **flags).splitlines()
    logits = own(workspace / "models/sst-2/s", TEXTS)
    assert list(json.loads(line)["probabilities"].values()) == pytest.approx(to_probabilities(logits)[0], abs=1e-5)
    assert json.loads(line)["probabilities"] != pytest.approx(rows[0][0], abs=1e-4)


@pytest.mark.slow
def test_a_packed_file_needs_the_libraries_of_its_requirements_alone(files, tmp_path):
    code = (
        "import importlib.metadata as m, runpy, sys; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: names = m.packages_distributions(); "
        "print(*{d for n in sys.modules for d in names.get(n, [])}, file=sys.stderr)"
    )
    words = [sys.executable, "-c", code, tiny.ROOT / "predict.py", "--model", files["single"]]
    environment = {**tiny.environment(), "PYTHONPATH": str(tiny.ROOT)}
    done = subprocess.run(words, input=b"so good\n\n", capture_output=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0
    files_of = (tiny.ROOT / f"requirements-{name}.txt" for name in ("runtime", "predict"))
    lines = [line for file in files_of for line in file.read_text().splitlines()]
    named = {line.lower() for line in lines if line[0] not in "#-"}
    # What pydantic needs, and setuptools, which every environment of these requirements imports at its start.
    others = {"pydantic_core", "typing_extensions", "annotated-types", "typing-inspection", "setuptools"}
    assert {name.lower() for name in done.stderr.decode().split()} - others == named
    assert len(done.stdout.splitlines()) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_closed_stdout_is_not_an_error(files):
    """The input never ends: answers come while it is read, and the end of the pipe ends the work."""
    command = f"yes 'so good' | {sys.executable} {tiny.ROOT / 'predict.py'} --model {files['single']} | head -n 3"
    done = subprocess.run(["bash", "-c", f"{command}; echo ${{PIPESTATUS[1]}}"], capture_output=True, timeout=60)
    lines = done.stdout.decode().splitlines()
    assert (len(lines), lines[-1], done.stderr) == (4, "0", b"")


@pytest.mark.slow
def test_mistakes_are_one_line_and_exit_code_2(files):
    command = [sys.executable, str(tiny.ROOT / "predict.py"), "--model", str(files["single"])]
    done = subprocess.run(command, input=b"good\n\xff\n", capture_output=True, timeout=60, env=tiny.environment())
    message = b"error: stdin line 2: not UTF-8 text (invalid start byte); give its --encoding, or save it as UTF-8\n"
    assert (done.returncode, done.stderr) == (2, message)


def test_input_in_another_encoding(files, ask):
    (line,) = ask(files["single"], "na\u00efve \u201c\n".encode("cp1252"), encoding="windows-1252").splitlines()
    assert line == ask(files["single"], "na\u00efve \u201c\n".encode()).rstrip("\n")


def test_a_damaged_file_is_refused(files, ask, tmp_path):
    damaged = tmp_path / "damaged.fwt"
    damaged.write_bytes(files["single"].read_bytes()[:-9])
    with pytest.raises(UserError, match=f"^{damaged}: "):
        ask(damaged, b"good\n")


@pytest.mark.parametrize(("kind", "typed"), [("single", ["so good"]), ("pair", ["why", "how"])])
def test_a_prompt_answers_each_text_at_once(models, files, capsys, monkeypatch, kind, typed):
    lines = [*typed, "a NUL\0", *["x"] * (len(typed) - 1)]
    shown = []

    def readline():
        shown.append(capsys.readouterr())
        return f"{lines.pop(0)}\n".encode() if lines else b""

    stdin = SimpleNamespace(buffer=SimpleNamespace(readline=readline), isatty=lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    predict(PredictSettings(model=str(files[kind])))
    answer = shown[len(typed)].out  # before the next text is read
    labels = KINDS[kind]["labels"]
    assert answer.split("\t")[0] == labels[own(models[kind], *([text] for text in typed)).argmax()]
    assert "".join(output.out for output in shown) == answer
    prompts = "".join(output.err for output in shown)
    assert prompts.count("> ") == 2 * len(typed) + 1
    assert "contains a NUL byte" in prompts
