"""The comparison of readers: what it counts as another label, and as a near tie; random texts are of all scripts."""

import sys
import unicodedata

import numpy as np
import pytest
import tiny
from random_texts import LONG, random_text

sys.path.insert(0, str(tiny.ROOT / "benchmarks"))

import reader_texts

from compression.runtime import load, zoo_file

LOGITS = [[0, 1], [1, 0.9985], [2, 1]]


class Fixed:
    """A model with these logits."""

    kind, temperature = "labels", 2.0


@pytest.mark.parametrize("shift", [0, 0.0009])
def test_other_labels_and_near_ties_are_told_apart(shift):
    logits = np.array(LOGITS, np.float32)[:, None]
    found = [np.array([label]) for label in (0, 1, 0)]
    reader = reader_texts.Comparison(Fixed(), lambda texts: (found, list(logits + shift)), logits=True)
    reader.add(["a", "b", "c"], (list(logits.argmax(2)), list(logits)))
    assert (reader.other, reader.ties) == (1, 1)
    assert reader.largest == pytest.approx(shift, abs=1e-6)
    assert [text for text, _ in reader.findings] == ["a"]


def test_other_logits_and_another_number_of_words_are_findings():
    logits = np.array(LOGITS, np.float32)[:, None]
    answers = list(logits.argmax(2)), [logits[0] + 0.002, logits[1], np.zeros((2, 2), np.float32)]
    reader = reader_texts.Comparison(Fixed(), lambda texts: answers, logits=True)
    reader.add(["a", "b", "c"], (list(logits.argmax(2)), list(logits)))
    assert reader.findings == [("a", "differs by 0.002000"), ("c", "another number of words")]


@pytest.mark.parametrize("name", ["sst-2-12k", "qqp-12k", "bc2gm"])
def test_a_reader_agrees_with_itself(name):
    model = load(zoo_file(name))
    texts = [(text, text[::-1]) if model.pair else text for text in map(random_text, range(20))]
    reader = reader_texts.Comparison(model, lambda texts: reader_texts.of_model(model, texts), logits=True)
    reader.add(texts, reader_texts.of_model(model, texts))
    assert (reader.other, reader.ties, reader.largest, reader.findings) == (0, 0, 0, [])


def test_random_texts_are_of_all_scripts():
    texts = list(map(random_text, range(400)))
    letters = set("".join(texts))
    assert texts == list(map(random_text, range(400)))
    assert "".join(texts).encode().decode() == "".join(texts)
    assert {"L", "M", "N", "P", "S", "Z", "C"} <= {unicodedata.category(letter)[0] for letter in letters}
    assert {"R", "AL", "EN", "RLO"} <= {unicodedata.bidirectional(letter) for letter in letters}
    assert {"\ud7ff", "\ue000", "\u200d", "\U0010ffff", "\0"} <= letters
    assert len(random_text(9_999)) == LONG
