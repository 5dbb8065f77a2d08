"""Baselines of a fit: fastText, if its program is installed."""

import shutil

import numpy as np
import pytest
import tiny_labels

from common.data.split import Split
from common.data.tasks import load_task
from common.kinds.registry import MULTILABEL
from compression.experiments.fit import baselines
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.stages import Stages
from compression.experiments.fit.state import Clock, State


def lists(rows, skip=0):
    """Texts with any number of labels, the last of which is on one row only."""
    texts = tiny_labels.labelled(rows + skip)[skip:]
    labels = np.array(
        [[name in names for name in tiny_labels.LABELS] + [row == 7] for row, (_, names) in enumerate(texts)]
    )
    return Split([text for text, _ in texts], None, labels.astype(np.float32), np.arange(rows), MULTILABEL)


@pytest.fixture
def topics(tmp_path):
    return load_task(str(tiny_labels.write_task(tmp_path, [], labels=[*tiny_labels.LABELS, "rare"])))


def fasttext(folder, task, train, test, monkeypatch):
    """Return the metrics of the baseline fastText."""
    monkeypatch.setattr(baselines, "load_split", lambda *names: test)
    stages = Stages(FitSettings(file="f.csv", workspace=folder), task, Clock(folder, 60), State(folder, "id"))
    linear, baseline = baselines.score_baselines(stages, train)
    assert (linear.metrics, linear.details) == ({}, "no time was left")  # no linear teacher was built
    assert baseline.name == "fastText"
    return baseline.metrics


@pytest.mark.skipif(shutil.which("fasttext") is None, reason="the program fasttext is not installed")
def test_fasttext_has_a_model_of_each_label_too(topics, tmp_path, monkeypatch):
    metrics = fasttext(tmp_path, topics, lists(500), lists(200, skip=500), monkeypatch)
    assert metrics["f1_micro"] > 0.8


def test_fasttext_may_choose_several_labels_or_none(topics, tmp_path, monkeypatch, capsys):
    """A program that chooses the labels 0 and 2, then none."""
    (tmp_path / "fasttext").write_text(
        "#!/bin/sh\n"
        'if [ "$1" = predict ]; then\n'
        '  [ "$4 $5" = "-1 0.5" ] || exit 1\n'
        "  printf '__label__0 __label__2\\n\\n'\n"
        "else\n"
        '  case "$*" in *"-loss ova"*) cp train.txt model.bin;; *) exit 1;; esac\n'
        f"  cp train.txt {tmp_path}/seen.txt\n"
        "fi\n"
    )
    (tmp_path / "fasttext").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    rows = Split(["One", "two"], None, np.array([[1, 0, 1, 0], [0, 0, 0, 0]], np.float32), np.arange(2), MULTILABEL)
    assert fasttext(tmp_path, topics, rows, rows, monkeypatch)["subset_accuracy"] == 1.0
    assert "subset_accuracy 1.0000" in "".join(capsys.readouterr())
    assert sorted((tmp_path / "seen.txt").read_text().splitlines()) == ["__label__0 __label__2 one", "two"]
