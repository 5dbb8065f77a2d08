"""predict.py: the model's own answers in the order of the input, whatever the format; and errors for bad input."""

import csv
import io
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import packed_students
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.config import build
from common.data.split import load_split
from common.data.tasks import load_task
from common.data.text import normalise
from common.devices import pick_dtype
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.load import load_teacher
from compression.inference.predict import PredictSettings, predict
from compression.packing import pack_student
from compression.runtime import to_probabilities
from compression.shrinking.chain import compress
from compression.students.batch import EncodedRows
from compression.students.embeddings import load_tokenizer
from compression.students.saved import load_student
from compression.students.scoring import student_logits
from compression.students.settings import StudentSettings
from compression.students.student import Student

CPU = torch.device("cpu")
TEXTS = ["a gorgeous , witty film", "", "boring !", "naïve  café\t☃", "the the the " * 300]
KINDS = {
    "single": {"task": "sst-2", "labels": ("negative", "positive"), "pair": False},
    "pair": {"task": "qqp", "labels": ("different", "same"), "pair": True},
    "score": {"task": "sts-b", "labels": (), "pair": True},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of students with random weights, by the keys of KINDS."""
    return {kind: save(tmp_path_factory.mktemp(kind) / kind, **shape) for kind, shape in KINDS.items()}


def save(folder, task, labels, pair):
    settings = StudentSettings(embedding_type="hash", embedding_dim=6, vocab_size=90, cls_hidden_dim=7, max_tokens=50)
    torch.manual_seed(3)
    student = Student("ffn", settings, len(labels) or 1, pair)
    with torch.no_grad():
        student.classifier[3].weight.value *= 40  # far from one half, and not all alike
    shape = {"task": task, "labels": labels, "pair": pair, "student": settings.model_dump(mode="json")}
    return tiny.save_student(folder, student, load_tokenizer(settings, folder), arch="ffn", **shape)


def own(folder, *sentences):
    """The student's own logits over one list of sentences, or two."""
    student, tokenizer, _ = load_student(folder, CPU)
    encoded = (tokenizer.encode([normalise(text) for text in each]) for each in sentences)
    return student_logits(student, EncodedRows(*encoded), CPU)


@pytest.fixture
def ask(tmp_path):
    """A function from a model's folder, the bytes of an input file and flags to the text of the output file."""

    def run(model, content, name="input.txt", **flags):
        (tmp_path / name).write_bytes(content)
        files = {"model": str(model), "input": tmp_path / name, "output": tmp_path / "output"}
        predict(build(PredictSettings, {**files, "cpu": True, **flags}))
        return (tmp_path / "output").read_text(encoding="utf-8")

    return run


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
    "there already": ("single", "a.csv", b"sentence,predicted_label\nx,y\n", r"holds 'predicted_label' already"),
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
        ({"columns": ("a", "b"), "format": "csv"}, "reads one sentence: give as many --columns, not 2"),
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
    with pytest.raises(UserError, match=r"models of qqp, sst-2 are named 'tiny-bert'; choose one with --task"):
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


THREE = ("bad", "good", "so-so")
FORMATS = ("lines", "csv", "tsv", "jsonl")


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A packed file of three labels with a temperature, and its logits of TEXTS."""
    folder = save(tmp_path_factory.mktemp("three") / "three", "sst-2", THREE, False)
    path = folder / "three.fwt"
    path.write_bytes(pack_student(folder, 1.75))
    return path, own(folder, TEXTS)


def test_a_packed_files_probabilities_have_its_temperature(three, ask):
    path, logits = three
    lines = ask(path, "\n".join(TEXTS).encode(), json_=True).splitlines()
    found = [list(json.loads(line)["probabilities"].values()) for line in lines]
    np.testing.assert_allclose(found, to_probabilities(logits, 1.75), atol=1e-5)


@pytest.mark.parametrize("top", [1, 2, 3, 9])
@pytest.mark.parametrize("written", FORMATS)
def test_the_most_probable_labels_come_first(three, ask, written, top):
    path, logits = three
    answer = ask(path, "\n".join(TEXTS).encode(), output_format=written, top=top)
    expected = [
        sorted(zip(THREE, map(float, each), strict=True), key=lambda pair: -pair[1])[:top]
        for each in to_probabilities(logits, 1.75)
    ]
    if written == "lines":
        rows = [line.split("\t") for line in answer.splitlines()]
        found = [(row[0], [each.split(" ") for each in row[1:]]) for row in rows]
    elif written == "jsonl":
        rows = map(json.loads, answer.splitlines())
        found = [(row["predicted_label"], [(e["label"], e["probability"]) for e in row["top"]]) for row in rows]
    else:
        rows = csv.DictReader(io.StringIO(answer), delimiter={"csv": ",", "tsv": "\t"}[written])
        ranks = range(1, min(top, 3) + 1)
        found = [(r["predicted_label"], [(r[f"label_{i}"], r[f"probability_{i}"]) for i in ranks]) for r in rows]
    assert len(found) == len(TEXTS)
    for (label, pairs), best in zip(found, expected, strict=True):
        assert label == best[0][0]
        assert [name for name, _ in pairs] == [name for name, _ in best]
        np.testing.assert_allclose([float(p) for _, p in pairs], [p for _, p in best], atol=1e-5)


@pytest.mark.parametrize("written", FORMATS)
def test_a_label_below_the_least_probability_is_none_of_these(three, ask, written):
    path, logits = three
    highest = to_probabilities(logits, 1.75).max(1)
    least = float(np.median(highest)) + 1e-5
    answer = ask(path, "\n".join(TEXTS).encode(), output_format=written, min_probability=least)
    if written == "jsonl":
        found = [json.loads(line)["predicted_label"] for line in answer.splitlines()]
    elif written == "lines":
        found = [line.split("\t")[0] for line in answer.splitlines()]
    else:
        rows = csv.DictReader(io.StringIO(answer), delimiter={"csv": ",", "tsv": "\t"}[written])
        found = [row["predicted_label"] for row in rows]
    none = None if written == "jsonl" else "none of these"
    assert found == [THREE[row.argmax()] if row.max() >= least else none for row in to_probabilities(logits, 1.75)]
    assert 0 < found.count(none) < len(TEXTS)


def test_explanations_say_how_far_the_answer_falls_without_a_word(three, ask, models):
    path, _ = three
    text = "so good , boring"
    row = json.loads(ask(path, text.encode(), json_=True, explain=True))
    label = THREE.index(row["predicted_label"])
    without = [" ".join(w for j, w in enumerate(text.split()) if i != j) for i in range(4)]
    logits = own(path.parent, [text, *without])
    whole, *others = to_probabilities(logits, 1.75)[:, label]
    assert [word for word, _ in row["explanation"]] == text.split()
    np.testing.assert_allclose([drop for _, drop in row["explanation"]], whole - np.array(others), atol=1e-5)
    first, second = ask(path, text.encode(), explain=True).splitlines()
    assert first.split("\t")[0] == row["predicted_label"]
    largest = max(row["explanation"], key=lambda each: abs(each[1]))
    assert second.startswith(f"\t{largest[0]} {largest[1]:+.4f}  ")
    header, cells = ask(path, text.encode(), explain=True, output_format="tsv").splitlines()
    assert (header.split("\t")[-1], cells.split("\t")[-1]) == ("explanation", second.strip())


def test_scores_and_pairs_are_explained(models, ask):
    row = json.loads(ask(models["score"], b"one two\tthree\n", json_=True, explain=True))
    scores = own(models["score"], ["one two", "two", "one", "one two"], ["three", "three", "three", ""])[:, 0] * 5
    drops = [drop for words in row["explanation"] for _, drop in words]
    np.testing.assert_allclose(drops, scores[0] - scores[1:], atol=1e-4)
    assert [[word for word, _ in words] for words in row["explanation"]] == [["one", "two"], ["three"]]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"top": 0}, "top: should be greater than 0"),
        ({"min_probability": 1.5}, "min_probability: should be less than or equal to 1"),
        ({"min_probability": -0.1}, "min_probability: should be greater than or equal to 0"),
        ({"model": "score", "top": 1}, "--top is for labels with probabilities; score predicts scores"),
        ({"model": "score", "min_probability": 0.0}, "--min-probability is for labels .* score predicts scores"),
    ],
)
def test_flags_of_probabilities_are_refused_where_they_mean_nothing(models, ask, flags, message):
    flags = {**flags, "model": models[flags.get("model", "single")]}
    with pytest.raises(UserError, match=message):
        ask(content=b"a\tb\n", **flags)


@pytest.mark.parametrize("flags", [{"top": 1}, {"min_probability": 0.5}, {"explain": True}])
def test_tags_of_words_have_no_probabilities(tmp_path, ask, flags):
    tagger = packed_students.write_student(
        tmp_path / "tagger", "bilstm", "char", tokens=True, pooling="max", labels=["O", "B-X", "I-X"]
    )
    with pytest.raises(UserError, match=r"tagger predicts tags( of words)?$"):
        ask(packed_students.write_packed(tagger), b"a film\n", **flags)


def test_a_student_answers_as_its_packed_file_once_it_is_packed(workspace, ask):
    values = {"student_arch": "ffn", "embedding_type": "hash", "model_name": "s", "only_original_data": True}
    values = tiny.small(**values, alpha=1.0, compression_actions=("distill", "pack"))
    compress(tiny.compress_settings(task="sst-2", workspace=workspace, **values))
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
def test_the_script_shows_labels_words_and_none_of_these(three):
    path, _ = three
    command = [tiny.ROOT / "predict.py", "--model", path, "--top", "2", "--explain", "--min-probability", "0.99999"]
    words = [sys.executable, *map(str, command)]
    done = subprocess.run(words, input=b"so good\n", capture_output=True, timeout=60, env=tiny.environment())
    assert (done.returncode, done.stderr) == (0, b"")
    answer, explanation = done.stdout.decode().splitlines()
    assert answer.split("\t")[0] == "none of these"
    assert len(answer.split("\t")) == 3
    assert sorted(each.split()[0] for each in explanation.strip().split("  ")) == ["good", "so"]


@pytest.mark.slow
def test_a_packed_file_needs_no_heavy_library(files, tmp_path):
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: print([n for n in ('torch', 'pyarrow', 'scipy') if n in sys.modules], file=sys.stderr)"
    )
    words = [sys.executable, "-c", code, tiny.ROOT / "predict.py", "--model", files["single"]]
    environment = {**tiny.environment(), "PYTHONPATH": str(tiny.ROOT)}
    done = subprocess.run(words, input=b"so good\n\n", capture_output=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, b"[]\n")
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
    assert (done.returncode, done.stderr) == (2, b"error: stdin line 2: not UTF-8 text (invalid start byte)\n")


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
    assert "holds a NUL byte" in prompts
