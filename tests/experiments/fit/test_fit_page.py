"""The report of a fit, on made answers."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest
from fit_results import packed, result
from page_rows import row

from common.data.split import Split
from common.kinds.registry import LABELS, MULTILABEL, NUMBERS
from compression.evaluation.label_scores import LabelScore
from compression.evaluation.predictions import Predictions
from compression.experiments.fit.analysis import analyse, words_of_labels
from compression.experiments.fit.page import write_fit_report
from compression.experiments.fit.result import Analysis
from compression.experiments.fit.settings import Baseline
from compression.experiments.fit.students import Candidate, Trained
from compression.experiments.report.record import ExperimentRecord
from compression.inference.classifier import Classifier

NAMES = ("bus", "tram", "<b>boat</b>")


def analysis(labels, choices, probabilities=None, kind=LABELS, texts=None):
    task = SimpleNamespace(kind=kind, labels=NAMES)
    labels = np.array(labels)
    texts = texts or [f"text {i}" for i in range(len(labels))]
    probabilities = None if probabilities is None else np.array(probabilities, np.float32)
    split = Split(texts, None, labels, np.arange(len(labels)), kind)
    return analyse(task, split, Predictions(labels, np.array(choices), kind, probabilities), FINDS_WHEELS)


def probability_of_bus(texts):
    shares = np.array([[0.1 + 0.4 * ("wheels" in text) + 0.2 * ("Four" in text)] for (text,) in texts])
    return np.hstack([shares, 0.6 - shares, np.zeros_like(shares)])


FINDS_WHEELS = Classifier("made", "made", NAMES, False, LABELS, probability_of_bus)


def test_labels_are_counted_and_confident_mistakes_come_first():
    of = analysis([0, 0, 1, 1, -1, 2], [0, 1, 1, 0, 2, 1], [0.9, 0.6, 0.95, 0.75, 1.0, 0.99], texts=["long " * 99] * 6)
    bus, tram, boat = of.per_label
    assert (bus.precision, bus.recall, bus.f1, bus.rows) == (0.5, 0.5, 0.5, 2)
    assert (tram.precision, tram.recall) == (pytest.approx(1 / 3), 0.5)
    assert (boat.precision, boat.f1, boat.rows) == (0, 0, 1)
    assert of.confusion == {"bus": {"bus": 1, "tram": 1}, "tram": {"bus": 1, "tram": 1}, NAMES[2]: {"tram": 1}}
    assert [(one.row, one.label, one.answer) for one in of.mistakes] == [
        (5, NAMES[2], "tram"),
        (3, "tram", "bus"),
        (1, "bus", "tram"),
    ]
    assert {len(one.text) for one in of.mistakes} == {200}
    shares = {one.probability: (one.share, one.accuracy) for one in of.answered}
    assert shares[0.5] == (1, 0.4)
    assert shares[0.8] == (0.6, pytest.approx(2 / 3))
    assert shares[0.95] == (0.4, 0.5)


def test_words_without_which_a_label_is_less_probable_speak_for_it():
    texts = ["Four wheels, (wheels)", "on wheels", "it swims", ""]
    assert [one.words for one in analysis([0, 0, 1, 2], [0] * 4, [1] * 4, texts=texts).per_label] == [
        ("wheels", "four"),
        (),
        (),
    ]
    assert words_of_labels(FINDS_WHEELS, [("on wheels",)]) == {"bus": ("wheels",)}
    assert words_of_labels(FINDS_WHEELS, []) == {}


def test_long_texts_are_not_read_once_for_each_word_beyond_a_limit():
    read = []

    def probabilities(texts):
        read.extend(texts)
        return probability_of_bus(texts)

    words_of_labels(dataclasses.replace(FINDS_WHEELS, probabilities=probabilities), [("wheel " * 300,)] * 300)
    assert read[0] == ("wheel " * 29 + "wheel",)
    assert 500_000 < sum(len(text) for (text,) in read) < 1_100_000


def test_nothing_is_answered_above_every_probability_and_at_most_20_mistakes_are_listed():
    of = analysis([0] * 30, [1] * 30, [0.4] * 30)
    assert {(one.share, one.accuracy) for one in of.answered} == {(0, None)}
    assert len(of.mistakes) == 20


def test_several_labels_have_no_confusion_and_numbers_have_errors():
    of = analysis([[1, 0, 1], [0, 0, 0]], [[1, 1, 0], [0, 0, 0]], [0.8, 0.9], MULTILABEL)
    assert [one.rows for one in of.per_label] == [1, 0, 1]
    assert of.confusion == {}
    assert [(one.label, one.answer) for one in of.mistakes] == [(f"bus|{NAMES[2]}", "bus|tram")]
    of = analysis([1.0, 2.0, np.nan], [1.5, 4.0, 3.0], kind=NUMBERS)
    assert [(one.row, one.label, one.answer, one.probability) for one in of.mistakes] == [
        (1, "2", "4", None),
        (0, "1", "1.5", None),
    ]
    assert (of.per_label, of.answered) == ((), ())
    assert analysis([-1, -1], [0, 1], [0.9, 0.9]) == Analysis()


def fitted(sizes, of):
    candidate = Candidate(student="words", flags={}, bytes=7900)
    tried = Trained(model=f"words-{sizes[0]}", candidate=candidate, change="wider", epochs=3, score=0.81, seconds=4.0)
    baselines = (
        Baseline(name="fastText", metrics={"accuracy": 0.7}, details="1 & 2", seconds=1.0),
        Baseline(name="tf-idf", metrics={}, details="absent", seconds=0.0),
    )
    times = {"splits": 3.0, "students": 20.0}
    return result(*map(packed, sizes), stages=times, tried=(tried,), baselines=baselines, analysis=of)


def report(folder, of_fit):
    """Return the texts of report.html and report.md."""
    own = {"model": of_fit.best.model, "stage": "quantized", "bytes_model": 1e5, "bytes_gzip": 9e4}
    record = ExperimentRecord(name="small", title="Transport", kind="chain", definition="fit transport.csv")
    write_fit_report(folder, [row(own, 1, "test", 0.8)], record, of_fit)
    return [(folder / name).read_text(encoding="utf-8") for name in ("report.html", "report.md")]


def test_the_page_shows_answers_times_and_students(tmp_path):
    of = analysis([0, 1, 1, 2], [0, 1, 0, 1], [0.9, 0.95, 0.8, 0.99], texts=["a", "b", "c", "<script>evil()</script>"])
    page, markdown = report(tmp_path, fitted([8000], of))
    headings = re.findall(r"<h2[^>]*>([^<]*)", page)
    assert headings[:6] == [
        "Scores on the test rows",
        "Each label",
        "Which labels are confused",
        "Answering only when sure",
        "The most confident mistakes",
        "Where the time went",
    ]
    assert "&lt;script&gt;evil()" in page
    assert "<b>boat</b>" not in page
    assert "fastText (1 &amp; 2)" in page
    assert "reading, checks and the rest" in page
    assert "words, wider" in page
    assert "Pictures" in page  # the style of every page
    assert 'class="skyline"' not in page
    assert 'class="curve"' not in page  # of one size
    assert "| bus | 50.0 | 100.0 | 66.7 | 1 |" in markdown
    assert "skyline" not in markdown
    assert not (tmp_path / "skyline.png").exists()


def test_sizes_have_a_curve_and_of_many_labels_the_confused_ones_are_shown(tmp_path):
    many = [f"label {i}" for i in range(40)]
    confusion = {label: {label: 5, many[i - 1]: 1} for i, label in enumerate(many)}
    confusion["label 30"] = {"label 30": 1, "label 7": 2}
    scores = tuple(LabelScore(label=label, precision=1, recall=1, f1=1, rows=5) for label in many)
    page, _ = report(tmp_path, fitted([8000, 32000], Analysis(confusion=confusion, per_label=scores)))
    assert 'class="curve"' in page
    assert "Shown are the 20 of 40 labels with the most frequent confusions." in page
    matrix = page[page.index("<caption>Confusion matrix") : page.index("Where the time went")]
    assert matrix.count('<th scope="row"') == 20
    assert '<th scope="row" title="label 30">' in matrix
    assert '<th scope="row" title="label 7">' in matrix
