"""The thesis's figures as transcribed: against one another, and as reports read them."""

import csv
import math
from collections import Counter
from typing import Any

import pytest

from common.data.tasks import load_task
from common.errors import UserError
from compression.experiments.report import reference
from compression.experiments.report.reference import QuotedFigure, quoted_figures, quoted_rows, quoted_shares

LINES = list(csv.DictReader(reference.FILE.open(encoding="utf-8", newline="")))


def figure(table: str, task: str, metric: str = "accuracy", **fields: Any) -> QuotedFigure:
    figures = [each for each in quoted_figures(table) if (each.task, each.metric) == (task, metric)]
    (found,) = [each for each in figures if fields.items() <= each.fields.items()]
    return found


def test_every_line_of_the_tables_is_there():
    assert Counter(line["table"] for line in LINES) == {
        "7.1": 4 + 22 * 4,
        "7.2": 2 * (4 + 16 * 4),
        "7.3": 4 + 16 * 4,
        "7.5": 4 * 44,
        "7.6": 8 * 4,
        "A.1": 6 * 4,
        "A.2": 6 * 4,
        "B.1": 2 * 7,
    }
    keys = [tuple(value for name, value in line.items() if name not in ("mean", "sd")) for line in LINES]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("table", "task", "metric", "mean", "sd"),
    [
        ("7.1", "sst-2", "accuracy", 7166.5, 56.7),
        ("7.2", "qqp", "accuracy", 5038.1, 14.7),
        ("7.2", "qqp", "f1", 4355.3, 43.8),
        ("7.3", "mnli", "accuracy", 3600.1, 30.3),
    ],
)
def test_sums_of_the_students_columns(table: str, task: str, metric: str, mean: float, sd: float):
    found = [each for each in quoted_figures(table) if each.metric == metric]
    assert {each.task for each in found} == {task}
    assert 100 * math.fsum(each.mean for each in found) == pytest.approx(mean)
    assert 100 * math.fsum(each.sd or 0 for each in found) == pytest.approx(sd)


def test_rows_read_off_the_thesis():
    bilstm = {"student_arch": "bilstm", "embedding_type": "bpe", "embedding_dim": 25, "vocab_size": 5000}
    found = figure("7.1", "sst-2", **bilstm, alpha=0.5, augmented=True)
    assert (found.mean, found.sd, found.text) == (0.891, 0.003, "89.1 ± 0.3")
    assert figure("7.1", "sst-2", student_arch="ffn", vocab_size=2500, alpha=1.0, augmented=False).text == "74.8 ± 1.1"
    assert figure("7.2", "qqp", "f1", **bilstm, alpha=0.0).text == "76.5 ± 0.7"
    rnn_char = {"student_arch": "rnn", "embedding_type": "char"}
    assert figure("7.3", "mnli", **rnn_char, alpha=1.0, augmented=True).text == "44.5 ± 3.5"
    last = {"student_arch": "rnn", "embedding_type": "bpe", "pooling": "last"}
    assert [figure("7.6", "qqp", metric, **last).text for metric in ("accuracy", "f1")] == ["80.3", "72.4"]
    softmax = {"embedding_type": "hash", "alpha": 0.0, "loss": "temperature-softmax"}
    assert figure("A.1", "sst-2", **softmax).text == "81.2"
    # As printed, though table 7.1 has this of BPE 100.
    assert figure("A.2", "sst-2", embedding_type="hash", alpha=0.5, loss="mse").text == "89.4"


def test_rows_of_table_7_5():
    rows = quoted_rows("qqp")
    assert len(rows) == 44
    baselines = ["RoBERTa-large", "TinyBERT-6", "GLUE BiLSTM GloVe", "GLUE BiLSTM ELMo"]
    assert [row["model"] for row in rows if row["stage"] == "baseline"] == baselines
    assert rows[0]["metrics"] == pytest.approx({"accuracy": 0.9215, "f1": 0.8958})
    assert rows[0]["parameters"] == 3.6e8
    for task, size in (("qqp", 42_000), ("sst-2", 27_000)):
        (small,) = [row for row in quoted_rows(task) if row["model"] == "FFN-Hash25*+p+q"]
        assert small["bytes_model"] == pytest.approx(size)
    assert quoted_rows("rotten-tomatoes") == []


def test_stages_of_table_7_5():
    both = figure("7.5", "mnli", student_arch="ffn", embedding_type="hash", vocab_size=2500, stage="+p+q")
    assert (both.mean, both.sd, both.text) == (pytest.approx(0.4947), None, "49.47")
    stages = Counter(each.fields["stage"] for each in quoted_figures("7.5"))
    assert stages == dict.fromkeys(("distilled", "+p", "+q", "+p+q"), 40)


@pytest.mark.parametrize("task", ["sst-2", "qqp", "mnli"])
def test_shares_are_of_the_tasks_labels_and_add_up(task: str):
    for augmented in (False, True):
        shares = quoted_shares(task, augmented)
        assert set(shares) == set(load_task(task).labels)
        assert sum(shares.values()) == pytest.approx(1, abs=0.003)
    assert quoted_shares("qqp", True)["duplicate"] == 0.783
    assert quoted_shares("cola", False) == {}


def test_only_tables_that_are_there_can_be_quoted():
    assert quoted_figures("B.1") == []
    with pytest.raises(
        UserError, match=r"no table '7\.4' of the thesis .*: 7\.1, 7\.2, 7\.3, 7\.5, 7\.6, A\.1, A\.2, B\.1"
    ):
        quoted_figures("7.4")
