"""`evaluate.py --data`: the scores of a packed file on the rows of any file, as its answers to them give."""

import itertools
import json

import numpy as np
import packed_students as made
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_questions
from seqeval.metrics import f1_score as entity_f1
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

import evaluate as script
from common.errors import UserError
from compression.evaluation.evaluate import evaluate
from compression.evaluation.settings import EvaluateSettings
from compression.runtime import load

TEXTS = ["a wonderful film", "dull and boring", "the cast feels moving !", "an awful , clumsy script", "so-so"]


@pytest.fixture
def packed(tmp_path):
    """A function that packs an untrained student, and returns the file's path and its model."""

    def pack(arch="ffn", embedding="char", **more):
        path = made.packed(tmp_path / "s", arch, embedding, **more)
        return path, load(path)

    return pack


def scored(path, data, **more):
    (row,) = evaluate(EvaluateSettings(model_name=str(path), data=data, **more))
    return row


def write_tsv(path, labels):
    return write(path, "text\tlabel", *map("\t".join, zip(TEXTS, labels, strict=True)))


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_labels_of_texts(packed, tmp_path, monkeypatch, capsys):
    path, model = packed()
    labels = ["good", "bad", "so-so", "bad", "good"]
    rows = [f'"{text}",{label}' for text, label in zip(TEXTS, labels, strict=True)]
    data = write(tmp_path / "new.csv", "review,verdict", *rows, "without a label,")
    row = scored(path, data, text="review", label="verdict")
    chosen = model.predict(TEXTS)
    expected = {"accuracy": accuracy_score(labels, chosen), "f1_macro": f1_score(labels, chosen, average="macro")}
    assert row["metrics"] == pytest.approx(expected)
    assert (row["model"], row["task"], row["split"], row["rows"]) == ("s", "films", "new.csv", 6)
    assert [one["label"] for one in row["per_label"]] == ["bad", "good", "so-so"]
    scores = precision_recall_fscore_support(labels, chosen, labels=list(model.labels), zero_division=0.0)
    found = [[one[name] for one in row["per_label"]] for name in ("precision", "recall", "f1", "rows")]
    np.testing.assert_allclose(found, scores)
    words = ["evaluate.py", "--model-name", path, "--data", data, "--text", "review", "--label", "verdict"]
    monkeypatch.setattr("sys.argv", list(map(str, words)))
    script.main()
    printed = capsys.readouterr()
    assert printed.err.endswith("Rows without a label, not scored: 1.\n")
    first, head, _, *lines = printed.out.splitlines()
    assert first.startswith(f"s on films new.csv (6 rows): accuracy {expected['accuracy']:.4f}, f1_macro ")
    assert head.split() == ["label", "precision", "recall", "f1", "rows"]
    assert [(line.split()[0], line.split()[-1]) for line in lines] == [("bad", "2"), ("good", "2"), ("so-so", "1")]
    monkeypatch.setattr("sys.argv", [*map(str, words), "--json"])
    script.main()
    (printed,) = json.loads(capsys.readouterr().out)
    assert (printed["metrics"], printed["per_label"]) == (row["metrics"], row["per_label"])


def test_the_file_of_a_task_says_how_its_rows_are_written(packed, tmp_path):
    path, model = packed(labels=["bad", "good"])
    write(
        tmp_path / "films.yaml",
        "name: films",
        "labels: [bad, good]",
        'label_values: ["0", "1"]',
        "columns: {sentence1: review, label: stars}",
        "metrics: [accuracy, f1]",
        "source: {files: {train: rows.csv}}",
    )
    data = write(tmp_path / "new.jsonl", *(json.dumps({"review": text, "stars": 1}) for text in TEXTS))
    row = scored(path, data, task=str(tmp_path / "films.yaml"))
    assert row["metrics"]["accuracy"] == model.predict(TEXTS).count("good") / 5
    assert list(row["metrics"]) == ["accuracy", "f1"]


def test_pairs_of_texts(packed, tmp_path):
    path, model = packed(pair=True)
    pairs = list(itertools.pairwise(TEXTS))
    cells = ["\t".join((*pair, "good")) for pair in pairs]
    data = write(tmp_path / "new.tsv", "sentence1\tsentence2\tlabel", *cells)
    assert scored(path, data)["metrics"]["accuracy"] == model.predict(pairs).count("good") / 4
    turned = scored(path, data, text=("sentence2", "sentence1"))["metrics"]["accuracy"]
    assert turned == model.predict([pair[::-1] for pair in pairs]).count("good") / 4


def test_several_labels_of_a_text(packed, tmp_path):
    path, model = packed(kind="multilabel")
    labels = ["bad|good", "so-so", "", "good", "bad"]
    rows = [f'"{text}",{label}' for text, label in zip(TEXTS, labels, strict=True)]
    row = scored(path, write(tmp_path / "new.csv", "text,label", *rows))
    expected = [[name in label.split("|") for name in model.labels] for label in labels]
    chosen = [[name in answer for name in model.labels] for answer in model.predict(TEXTS)]
    assert row["metrics"] == {"f1_micro": pytest.approx(f1_score(expected, chosen, average="micro"))} | {
        "f1_macro": pytest.approx(f1_score(expected, chosen, average="macro", zero_division=0.0)),
        "subset_accuracy": pytest.approx(accuracy_score(expected, chosen)),
    }
    assert [one["rows"] for one in row["per_label"]] == [2, 2, 1]


def test_a_column_for_each_label(packed, tmp_path):
    path, model = packed(kind="multilabel")
    labels = ["bad|good", "so-so", "", "good", "bad"]
    joined = scored(path, write_tsv(tmp_path / "joined.tsv", labels))
    answers = [["yes" if name in label.split("|") else "no" for name in model.labels] for label in labels]
    rows = [f'"{text}",{",".join(row)}' for text, row in zip(TEXTS, answers, strict=True)]
    row = scored(path, write(tmp_path / "new.csv", "text,bad,good,so-so", *rows), label=("so-so", "good", "bad"))
    assert (row["metrics"], row["per_label"]) == (joined["metrics"], joined["per_label"])
    with pytest.raises(UserError, match="--label: the model also answers so-so; give the column of each of its labels"):
        scored(path, tmp_path / "new.csv", label=("good", "bad"))
    with pytest.raises(UserError, match=r"s\.fwt answers with labels: --label takes one column"):
        scored(packed()[0], tmp_path / "new.csv", label=("good", "bad"))


def test_a_file_without_a_header(packed, tmp_path):
    path, model = packed()
    data = write(tmp_path / "new.csv", *(f'7,good,"{text}"' for text in TEXTS))
    row = scored(path, data, text="3", label="2", header=False)
    assert row["rows"] == 5
    assert row["metrics"]["accuracy"] == model.predict(TEXTS).count("good") / 5
    with pytest.raises(UserError, match=r"new\.csv: no column 'text' \(found 1, 2, 3\)"):
        scored(path, data, label="2", header=False)


def test_names_of_the_labels_of_a_dataset(packed, tmp_path):
    path, model = packed()
    for names, labels in (
        (("so-so", "bad", "good"), [2, 1, 0, 1, -1]),
        (("x", "y"), ["good", "bad", "so-so", "bad", ""]),
    ):
        info = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
        table = pa.table({"text": TEXTS, "label": labels}).replace_schema_metadata({"huggingface": json.dumps(info)})
        pq.write_table(table, tmp_path / "a.parquet")
        right = accuracy_score(["good", "bad", "so-so", "bad"], model.predict(TEXTS[:4]))
        assert scored(path, tmp_path / "a.parquet")["metrics"]["accuracy"] == pytest.approx(right)


def test_numbers_with_decimal_commas(packed, tmp_path):
    path, _ = packed(labels=[])
    numbers = ["-3.5", "40", "1250.25", "1e3", "0"]
    points = scored(path, write_tsv(tmp_path / "points.tsv", numbers))
    written = ["-3,5", "40", "1.250,25", "1000", "0"]
    row = scored(path, write_tsv(tmp_path / "commas.tsv", written))
    assert row["metrics"] == points["metrics"]


def test_all_rows_of_a_large_file_are_scored(packed, tmp_path, monkeypatch):
    monkeypatch.setattr("common.data.readers.any_table.MOST_ROWS", 3)
    path, _ = packed()
    assert scored(path, write(tmp_path / "new.csv", "text,label", *["fine,good"] * 5))["rows"] == 5


def test_numbers_of_any_range(packed, tmp_path):
    path, model = packed(labels=[])
    numbers = [-3.5, 40, 2, 1e6, 0]
    rows = [f'"{text}",{number}' for text, number in zip(TEXTS, numbers, strict=True)]
    row = scored(path, write(tmp_path / "new.csv", "text,label", *rows))
    expected = np.corrcoef(numbers, model.predict(TEXTS))[0, 1]
    assert row["metrics"]["pearson"] == pytest.approx(expected, abs=1e-5)
    assert "per_label" not in row


def test_tags_of_words(packed, tmp_path):
    path, model = packed("rnn", kind="tags", labels=["O", "B-X", "I-X"])
    tags = [["B-X", *["I-X"] * (len(text.split()) - 1)] for text in TEXTS]
    texts = zip(TEXTS, tags, strict=True)
    lines = [line for text, of in texts for line in (*map(" ".join, zip(text.split(), of, strict=True)), "")]
    row = scored(path, write(tmp_path / "new.conll", *lines))
    assert row["metrics"]["entity_f1"] == pytest.approx(entity_f1(tags, model.predict(TEXTS)))
    with pytest.raises(UserError, match=r"--label is for tables; .*s\.fwt reads files of tags"):
        scored(path, tmp_path / "new.conll", label="tag")
    with pytest.raises(UserError, match=r"--no-header is for tables"):
        scored(path, tmp_path / "new.conll", header=False)


def test_answers_to_questions(packed, tmp_path):
    path, model = packed("conv", **made.ALIGNED, kind="tags", labels=["start", "end"])
    paragraphs = tiny_questions.paragraphs(3)
    row = scored(path, tiny_questions.write_questions(tmp_path / "new.json", paragraphs))
    asked = [(each, of["context"]) for of in paragraphs for each in of["qas"]]
    answers = model.predict([(question["question"], context) for question, context in asked])
    right = [answer == question["answers"][0]["text"] for answer, (question, _) in zip(answers, asked, strict=True)]
    assert row["metrics"]["exact_match"] == pytest.approx(np.mean(right))


def test_a_file_in_another_encoding(packed, tmp_path):
    path, model = packed()
    (tmp_path / "new.csv").write_bytes("text,label\ncaf\u00e9,good\n".encode("latin-1"))
    row = scored(path, tmp_path / "new.csv", encoding="latin-1")
    assert row["metrics"]["accuracy"] == (model.predict(["caf\u00e9"]) == ["good"])


@pytest.mark.parametrize(
    ("lines", "more", "message"),
    [
        (
            ["text,label", "fine,goood"],
            {},
            "new.csv row 1: unknown label 'goood'; expected bad, good, so-so; did you mean good?",
        ),
        (["review,label", "fine,good"], {}, "new.csv: no column 'text' (found review, label)"),
        (["text,label"], {}, "new.csv: no rows of data"),
        (["text,label", "fine,good"], {"text": ("text", "label")}, "s.fwt reads one text, but --text has 2"),
        (["text,label", "fine,good"], {"model_name": "reviews"}, "--data is for packed files: reviews is not one"),
        (["text,label", "fine,good"], {"task": "sst-2"}, "s.fwt was trained for task films, not sst-2"),
    ],
)
def test_what_cannot_be_scored_is_one_line(packed, tmp_path, lines, more, message):
    data = write(tmp_path / "new.csv", *lines)
    with pytest.raises(UserError) as error:
        evaluate(EvaluateSettings(**{"model_name": str(packed()[0]), "data": data, **more}))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_task_or_rows_are_needed():
    with pytest.raises(ValueError, match="--task is required"):
        EvaluateSettings(model_name="s")
