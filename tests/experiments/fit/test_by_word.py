"""`fit` on files that label words: tags in lines and columns, questions in SQuAD's JSON and in columns."""

import csv
import dataclasses
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_tags
from own_task import write_csv
from tiny_questions import paragraphs, write_questions

from common.data.readers.tables import read_source
from common.errors import UserError
from common.kinds.iob import as_iob, as_iob2
from compression.evaluation.packed import load_packed
from compression.experiments.fit import search
from compression.experiments.fit.contents.read import read_contents
from compression.experiments.fit.fit import fit
from compression.experiments.fit.run import in_words
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.task import write_task

TEXTS = tiny_tags.tagged(60)
EXPECTED = [(" ".join(words), tuple(tags)) for words, tags in TEXTS]
TAGS = ("O", "B-PART", "B-VERDICT", "I-VERDICT")


def contents(path, **flags):
    return read_contents(FitSettings(file=path, **flags))


def as_bilou(tags):
    after = [*tags[1:], "O"]
    ends = [following[0] != "I" for following in after]
    prefixes = {("B", True): "U", ("B", False): "B", ("I", True): "L", ("I", False): "I"}
    return [tag if tag == "O" else prefixes[tag[0], end] + tag[1:] for tag, end in zip(tags, ends, strict=True)]


def as_bioes(tags):
    return [{"U": "S", "L": "E"}.get(tag[0], tag[0]) + tag[1:] for tag in as_bilou(tags)]


def as_iob1(tags):
    """B- begins an entity only where another one of its kind ends just before it."""
    before = ["O", *tags]
    return [
        "I" + tag[1:] if tag[0] == "B" and last[1:] != tag[1:] else tag for last, tag in zip(before, tags, strict=False)
    ]


@pytest.mark.parametrize("convert", [as_bilou, as_bioes, as_iob1])
def test_other_schemes_are_converted(convert):
    tags = ["B-A", "I-A", "I-A", "B-A", "O", "B-B", "B-B", "I-B", "O", "O", "B-A"]
    assert convert(tags) != tags
    assert as_iob2(convert(tags)) == tags
    assert as_iob2(tags) == tags


def test_kinds_alone_are_entities():
    assert as_iob2(["PER", "PER", "O", "LOC"]) == ["B-PER", "I-PER", "O", "B-LOC"]


@pytest.mark.parametrize("suffix", [".txt", ".conll", ".tsv", ".csv"])
def test_a_file_of_words_with_tags(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_text("-DOCSTART- O\n\n" + "".join(as_iob(*text) for text in TEXTS))
    read = contents(path)
    assert (read.kind, read.values, read.labels, read.notes) == ("tags", EXPECTED, TAGS, ())
    assert in_words(read) == "texts (text), tags of words (2 kinds of entities: PART, VERDICT)"
    one = dataclasses.replace(read, labels=("O", "B-PART"))
    assert in_words(one) == "texts (text), tags of words (1 kind of entities: PART)"
    task = write_task(tmp_path, "mine", read)
    split = read_source(tmp_path / "rows.conll", task)
    assert (split.sentence1, len(split)) == ([text for text, _ in EXPECTED], 60)


def test_a_file_with_other_columns_in_between(tmp_path):
    """CoNLL-2003: word, part of speech, phrase, entity."""
    lines = ["".join(f"{word} NN I-NP {tag}\n" for word, tag in zip(*text, strict=True)) for text in TEXTS]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    assert contents(tmp_path / "a.txt").values == EXPECTED


@pytest.mark.parametrize("convert", [as_bilou, as_bioes, as_iob1])
def test_a_conversion_is_noted(tmp_path, convert):
    (tmp_path / "a.txt").write_text("".join(as_iob(words, convert(tags)) for words, tags in TEXTS))
    read = contents(tmp_path / "a.txt")
    changed = sum(convert(tags) != tags for _, tags in TEXTS)
    assert read.values == EXPECTED
    assert read.notes == (f"Rows whose tags are converted to the IOB2 scheme (B-X begins each entity): {changed}.",)


def test_a_line_without_a_tag_costs_its_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(as_iob(*text) for text in TEXTS) + "alone\n\n")
    read = contents(path)
    assert read.values == EXPECTED
    assert "Rows left out: 1 (the first: " in read.notes[0]
    assert "expected a word and its tag, found 'alone'" in read.notes[0]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
@pytest.mark.parametrize("form", [list, " ".join, str])
def test_columns_of_words_and_tags(tmp_path, suffix, form):
    path = tmp_path / f"a{suffix}"
    rows = [{"id": i, "tokens": form(words), "ner": form(tags)} for i, (words, tags) in enumerate(TEXTS)]
    if suffix == ".csv":
        write_csv(path, [tuple(row.values()) for row in rows], ("id", "tokens", "ner"))
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    read = contents(path)
    assert (read.kind, read.values) == ("tags", EXPECTED)
    note = "Column 'ner' has the tags of the words in column 'tokens' (--kind labels takes each cell as one label)."
    assert read.notes == (note,)
    assert contents(path, kind="tags", text=("tokens",), label=("ner",)).values == EXPECTED


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t")])
def test_a_table_whose_lines_end_with_tags_is_a_table(tmp_path, name, delimiter):
    rows = [("a fine part", ("O", "O", "B-PART")), *EXPECTED]
    with (tmp_path / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerows([("words", "tags"), *((text, " ".join(tags)) for text, tags in rows), ()])
    assert contents(tmp_path / name).values == rows
    for kind in ("auto", "tags"):
        with pytest.raises(UserError, match=r"--text: .*: no column 'word' .*did you mean words"):
            contents(tmp_path / name, kind=kind, text=("word",))


def test_a_row_with_other_numbers_of_words_and_tags_is_left_out(tmp_path):
    rows = [{"tokens": words, "ner": tags} for words, tags in TEXTS]
    rows.insert(0, {"tokens": ["one", "two"], "ner": ["O"]})
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = contents(tmp_path / "a.jsonl")
    assert read.values == EXPECTED
    assert "Rows left out: 1 (the first: row 1: 2 words and 1 tags)." in read.notes


def test_the_test_file_has_the_same_tags(tmp_path):
    (tmp_path / "a.txt").write_text("".join(as_iob(*text) for text in TEXTS))
    (tmp_path / "b.txt").write_text("a O\nfilm B-THING\n\n")
    with pytest.raises(UserError, match=r"b\.txt: tag B-THING is not one of O, B-PART"):
        contents(tmp_path / "a.txt", test=tmp_path / "b.txt")
    (tmp_path / "b.txt").write_text("a O\nfilm I-VERDICT\n\n")
    assert contents(tmp_path / "a.txt", test=tmp_path / "b.txt").test == [("a film", ("O", "B-VERDICT"))]
    (tmp_path / "b.txt").write_text("film B-PART\nfilm I-PART\na O\n\n")  # train has no part of two words
    longer = contents(tmp_path / "a.txt", test=tmp_path / "b.txt")
    assert longer.labels == ("O", "B-PART", "I-PART", "B-VERDICT", "I-VERDICT")
    assert contents(tmp_path / "a.txt").labels == TAGS
    write_csv(tmp_path / "c.csv", [("a film", "good")])
    with pytest.raises(UserError, match=r"c\.csv: not tags, which .*a\.txt has"):
        contents(tmp_path / "a.txt", test=tmp_path / "c.csv")


@pytest.mark.parametrize(
    ("name", "text", "flags", "message"),
    [
        (
            "a.txt",
            "just a text\n" * 60,
            {},
            r"a word and its tag .* or labels and a text on each line .*; a table is named \.csv",
        ),
        (
            "a.conll",
            "just a text\n" * 60,
            {},
            r"no words with tags; a \.conll file has a word and its tag .* each text$",
        ),
        ("a.csv", "text,label\n" + "a text,b\n" * 60, {"kind": "tags"}, "no column has a tag for each word"),
        ("a.txt", "a O\nfilm B-PART\n\n" * 20, {}, "20 usable rows with tags; fit needs 50"),
        ("a.txt", "a O\nfilm B-PART\n\n" * 60, {"separator": ";"}, "--separator is for labels of texts; .* has tags"),
        ("a.csv", "text,label\n" + "a text,b\n" * 60, {"kind": "answers"}, "no questions: give SQuAD's JSON"),
    ],
)
def test_files_without_usable_tags(tmp_path, name, text, flags, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        contents(tmp_path / name, **flags)


@pytest.mark.parametrize("unanswerable", [False, True])
def test_questions_in_json_and_in_columns(tmp_path, unanswerable):
    asked = paragraphs(40, unanswerable)
    write_questions(tmp_path / "a.json", asked)
    rows = []
    for paragraph in asked:
        for question in paragraph["qas"]:
            answers = question["answers"]
            columns = {key: [answer[key] for answer in answers] for key in ("text", "answer_start")}
            rows.append({"question": question["question"], "context": paragraph["context"], "answers": columns})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "indented.json").write_text(json.dumps(json.loads((tmp_path / "a.json").read_text()), indent=1))
    read = contents(tmp_path / "a.json")
    assert (read.kind, read.texts, len(read.values)) == ("answers", ("question", "context"), len(rows))
    for name in ("a.parquet", "a.jsonl", "indented.json"):
        assert contents(tmp_path / name).values == read.values
    task = write_task(tmp_path, "mine", read)
    assert task.unanswerable == unanswerable
    split = read_source(tmp_path / "rows.json", task)
    answers = {(row["question"], text) for row in rows for text in row["answers"]["text"]}
    assert {
        (question, context[start:end])
        for question, context, (start, end) in zip(split.sentence1, split.sentence2, split.labels[:, 0], strict=True)
        if end
    } == answers


def test_a_row_without_a_context_is_left_out_with_the_reason(tmp_path):
    answers = {"text": ["me"], "answer_start": [7]}
    rows = [{"question": f"who is {i} ?", "context": "it was me", "answers": answers} for i in range(60)]
    rows[1]["context"] = None
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = contents(tmp_path / "a.jsonl")
    assert len(read.values) == 59
    assert read.notes == ("Rows left out: 1 (the first: row 2: no question or no context).",)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tags", "answers"])
def test_a_file_becomes_a_packed_file(tmp_path, monkeypatch, kind):
    """Without an encoder: less than a minute leaves no time for one."""
    monkeypatch.setattr(search, "_STEPS", 100)
    monkeypatch.setattr(search, "VARIATIONS", search.VARIATIONS[:1])
    path = tmp_path / ("a.conll" if kind == "tags" else "a.json")
    if kind == "tags":
        path.write_text("".join(as_iob(*text) for text in tiny_tags.tagged(300)))
    else:
        write_questions(path, paragraphs(100))
    flags = {"max_bytes": 12000, "minutes": 0.5, "cpu": True, "loadbar": False, "workspace": tmp_path / "workspace"}
    result = fit(FitSettings(file=path, output=tmp_path / "a.fwt", **flags))
    assert not any("--explain" in command for command in result.commands)
    assert result.bytes == (tmp_path / "a.fwt").stat().st_size <= 12000
    assert load_packed(tmp_path / "a.fwt").kind == kind
    assert result.metric == {"tags": "entity_f1", "answers": "answer_f1"}[kind]
    assert result.metrics[result.metric] > 0.3
    assert f"{result.metric} on test" in result.text()
