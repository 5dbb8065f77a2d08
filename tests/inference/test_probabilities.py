"""Probabilities of predict.py: temperature, the most probable labels, none of these, explanations."""

import csv
import io
import json

import numpy as np
import packed_students
import pytest
from random_students import TEXTS, own, save

from common.errors import UserError
from compression.packing import pack_student
from compression.runtime import to_probabilities

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
        ({"model": "score", "top": 1}, "--top is for labels with probabilities; score predicts numbers"),
        ({"model": "score", "min_probability": 0.0}, "--min-probability is for labels .* score predicts numbers"),
    ],
)
def test_flags_of_probabilities_are_refused_where_they_mean_nothing(models, ask, flags, message):
    flags = {**flags, "model": models[flags.get("model", "single")]}
    with pytest.raises(UserError, match=message):
        ask(content=b"a\tb\n", **flags)


@pytest.mark.parametrize("flags", [{"top": 1}, {"min_probability": 0.5}, {"explain": True}])
def test_tags_of_words_have_no_probabilities(tmp_path, ask, flags):
    tagger = packed_students.write_student(
        tmp_path / "tagger", "bilstm", "char", kind="tags", pooling="max", labels=["O", "B-X", "I-X"]
    )
    with pytest.raises(UserError, match=r"tagger predicts tags( of words)?$"):
        ask(packed_students.write_packed(tagger), b"a film\n", **flags)


def test_labels_words_and_none_of_these_are_shown_together(three, ask):
    flags = {"top": 2, "explain": True, "min_probability": 0.99999}
    answer, explanation = ask(three[0], b"so good\n", **flags).splitlines()
    assert answer.split("\t")[0] == "none of these"
    assert len(answer.split("\t")) == 3
    assert sorted(each.split()[0] for each in explanation.strip().split("  ")) == ["good", "so"]
