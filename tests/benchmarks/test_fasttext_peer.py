"""benchmarks/fasttext_peer.py: lines, settings tried, winners, records; and fastText itself where there is one."""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(tiny.ROOT / "benchmarks"))

import fasttext_models
import fasttext_peer
from fasttext_models import WIDE, Bench, File, best_within, cuts, peer_row, settings_tried
from fasttext_side import SECOND, texts_of, train_fasttext, write_training

from archive import read_finished
from common.data.split import Split, load_split
from common.data.tasks import load_task
from common.data.text import split_words
from common.errors import UserError
from common.store.files import read_json
from common.store.workspace import Workspace, default_root
from compression.experiments.report.record import write_record
from compression.experiments.report.results import read_results, write_results
from compression.experiments.sweep.runs import experiments, report, show, show_text

PYTHON = os.environ.get("FASTTEXT_PYTHON") or default_root() / "fasttext" / "bin" / "python"
needs_fasttext = pytest.mark.skipif(not Path(PYTHON).exists(), reason="no Python with fastText (FASTTEXT_PYTHON)")
SIZES = [9000]
SMALL = {"dim": 2, "wordNgrams": 2, "minn_maxn": (2, 4), "minCount": 1, "bucket": 10_000, "lr": 0.5, "passes": 20}
SMALL |= {"dsub": 2, "qnorm": False}
"""Settings with features enough to cut, of a corpus with few words."""


def split_of(first, second=None, labels=None):
    labels = np.array(labels if labels is not None else [0] * len(first))
    return Split(first, second, labels, np.arange(len(first)))


def test_a_line_has_the_words_that_the_hash_tokenizer_sees():
    assert texts_of(split_of(["It's FUN,  isn't_it !", ""])) == ["it's fun , isn't _ it !", ""]


@given(st.text(), st.text())
def test_words_of_the_second_sentence_are_told_from_those_of_the_first(first, second):
    (line,) = texts_of(split_of([first], [second]))
    words = line.split(" ") if line else []
    marked = [word for word in words if word.startswith(SECOND)]
    assert [word.removeprefix(SECOND) for word in marked] == split_words(second)
    assert words[: len(words) - len(marked)] == split_words(first)


def test_a_training_file_has_the_labelled_rows_in_an_order_of_the_seed(tmp_path):
    texts, labels = [f"word{i}" for i in range(50)], np.array([*range(2), *[-1] * 8] * 5)
    files = [write_training(tmp_path / f"{n}.txt", texts, labels, seed) for n, seed in enumerate((1, 1, 2))]
    one, same, other = (file.read_text().splitlines() for file in files)
    assert sorted(one) == sorted(f"__label__{i % 10} word{i}" for i in range(50) if i % 10 < 2)
    assert one == same
    assert one != other
    assert sorted(one) == sorted(other)


def test_settings_are_fixed_beforehand_and_more_of_them_begin_with_the_same():
    usual, many = settings_tried(0), settings_tried(100)
    assert len(usual) == 36
    assert many[:43] == settings_tried(7)
    assert many[:36] == usual
    assert {name: {str(draw[name]) for draw in many[36:]} for name in WIDE} == {
        name: set(map(str, values)) for name, values in WIDE.items()
    }


def test_every_size_is_cut_with_and_without_training_on():
    assert cuts([9, 5]) == [(None, 0), (5, 0), (5, 5), (9, 0), (9, 5)]


def file_of(size, count, accuracy, **more):
    scores = {"validation": {"accuracy": accuracy, "f1": 1 - accuracy}}
    return File(SMALL, size, 0, 1, (1, 0), bytes=count, metrics=scores, **more)


def test_a_winner_is_chosen_by_validation_among_the_files_that_fit():
    full, small, larger = file_of(None, 70, 0.9), file_of(100, 100, 0.7), file_of(200, 199, 0.8)
    equal, failed = file_of(200, 150, 0.8), File(SMALL, 100, 0, 1, (1, 0), error="NaN")
    files = [full, small, larger, equal, failed]
    assert best_within(files, 100) is small
    assert best_within(files, 199) is equal
    assert best_within(files, 99) is None
    assert best_within(files, None) is full
    # A file of a smaller size fits a larger one.
    assert best_within([small, file_of(200, 199, 0.6)], 200) is small


def arguments(workspace, **more):
    given = {
        "workspace": workspace,
        "sizes": SIZES,
        "seeds": [1, 2],
        "draws": 2,
        "fasttext_python": str(PYTHON),
        **more,
    }
    return argparse.Namespace(**{**vars(fasttext_peer.make_parser().parse_args([])), **given})


def test_rows_of_a_peer_make_an_experiment_that_is_listed_shown_reported_and_archived(prepared, tmp_path):
    paths, task = Workspace(prepared), load_task("sst-2")
    bench = Bench(paths, task, "", 1, tmp_path)
    rows = fasttext_peer.training_rows(arguments(prepared), task)[0]
    path = tmp_path / "some.ftz"
    path.write_bytes(bytes(4000))
    metrics = {"validation": {"accuracy": 0.75}, "test": {"accuracy": 0.5}}
    files = [
        File(SMALL, 5000, 5, seed, (2, 1), bytes=4000, cutoff=300, metrics=metrics, path=str(path), identity="x")
        for seed in (1, 2)
    ]
    own = Workspace(tmp_path / "workspace")
    folder = own.experiment("fasttext-sst-2")
    write_results(folder / "results.json", [peer_row(bench, rows, "fasttext-5k", file, "test") for file in files])
    write_record(folder, fasttext_peer.record_of(arguments(prepared), task))
    (listed,) = experiments(own)
    assert (listed["name"], listed["results"]) == ("fasttext-sst-2", True)
    assert "sizes" in show_text(show(own, "fasttext-sst-2"))
    _, found = report(own, "fasttext-sst-2")
    text = (folder / "report.md").read_text()
    assert "fasttext-5k" in text
    assert "50.00 ± 0.00 (2)" in text
    assert "labels only" in text
    assert [row["bytes_packed"] for row in found] == [4000, 4000]
    assert found[0]["data"] == load_split(paths, task, "test").fingerprint()
    assert len(read_finished(folder).rows) == 2


def test_tuning_on_a_part_counts_passes_over_that_part(prepared, tmp_path):
    task = load_task("sst-2")
    bench = Bench(Workspace(prepared), task, "", 1, tmp_path)
    (rows,), (part,) = (fasttext_peer.training_rows(arguments(prepared), task, share) for share in (1.0, 0.5))
    assert len(part.split) == pytest.approx(len(rows.split) / 2, abs=1)
    jobs = [bench.job(rows, SMALL, [(None, 0)], 1, ()), bench.on_part(0.5).job(part, SMALL, [(None, 0)], 1, ())]
    assert jobs[0]["settings"] == jobs[1]["settings"]
    assert [len(Path(job["train"]).read_text().splitlines()) for job in jobs] == [len(rows.split), len(part.split)]


def test_a_regression_is_refused(prepared):
    with pytest.raises(UserError, match="sts-b: fastText learns labels"):
        fasttext_peer.record(arguments(prepared, task="sts-b"))


@needs_fasttext
def test_tuning_and_testing_end_in_rows_of_files_that_fit(workspace, monkeypatch):
    monkeypatch.setattr(fasttext_peer, "settings_tried", lambda draws: [SMALL, {**SMALL, "wordNgrams": 1}][:draws])
    given = arguments(workspace, augmented="tinybert", teacher="tiny-bert")
    fasttext_peer.record(given)
    folder = Workspace(workspace).experiment("fasttext-sst-2")
    rows = read_results(folder / "results.json")
    assert {row["model"] for row in rows} >= {"fasttext-full-s1", "fasttext-full-aug-s2", "fasttext-9k-s1"}
    for row in rows:
        size = row["settings"]["size"]
        assert Path(row["run"]).stat().st_size == row["bytes_packed"] <= (size or 10**9)
        assert row["teacher"] == ("tiny-bert" if row["augmented"] else None)
        assert row["metrics"]["accuracy"] > 0.8
    tuning = read_json(folder / fasttext_peer.TUNING_FILE)
    assert [len(one["tried"]) for one in tuning["learned_from"].values()] == [2, 2]
    assert "test" not in str([one["tried"] for one in tuning["learned_from"].values()])
    # Again, nothing is trained.
    monkeypatch.setattr(fasttext_models, "in_fasttext", None)
    fasttext_peer.record(given)
    assert read_results(folder / "results.json") == rows
    with pytest.raises(UserError, match="already exists"):
        fasttext_peer.record(arguments(workspace, draws=1))


@needs_fasttext
@pytest.mark.parametrize("qnorm", [False, True])
@pytest.mark.parametrize("minn_maxn", [(0, 0), (2, 4)])
def test_a_cut_keeps_as_many_features_as_fit(prepared, tmp_path, qnorm, minn_maxn):
    paths, task = Workspace(prepared), load_task("qqp")
    bench = Bench(paths, task, str(PYTHON), 1, tmp_path)
    bench.kept = tmp_path / "kept"
    rows = fasttext_peer.training_rows(arguments(prepared, task="qqp"), task)[0]
    draw = {**SMALL, "qnorm": qnorm, "minn_maxn": minn_maxn}
    wanted = [(3000, 0), (7000, 0), (7000, 5), (8000, 0), (10**6, 0), (10**6, 5)]
    none, one, again, more, all_in, no_more = bench.files(rows, draw, wanted, 1, ("validation",))
    assert "a quantizer needs 256" in none.error
    assert 0 < one.cutoff < more.cutoff
    assert all_in.cutoff == 0
    assert "nothing is cut" in no_more.error
    assert one.bytes == again.bytes
    # No feature takes 40 bytes: one more would not have fitted.
    assert [0 <= size - file.bytes < 40 for size, file in ((7000, one), (8000, more))] == [True, True]


@needs_fasttext
def test_the_same_seed_gives_the_same_file_and_a_job_that_cannot_be_says_why(prepared, tmp_path):
    bench = Bench(Workspace(prepared), load_task("sst-2"), str(PYTHON), 1, tmp_path)
    rows = fasttext_peer.training_rows(arguments(prepared), bench.task)[0]
    contents = []
    for folder in ("a", "b"):
        bench.kept = tmp_path / folder
        (file,) = bench.files(rows, SMALL, [(9000, 5)], 3, ("validation",), keep=True)
        contents.append(Path(file.path).read_bytes())
    assert contents[0] == contents[1]
    (other,) = bench.files(rows, SMALL, [(9000, 5)], 4, ("validation",), keep=True)
    assert Path(other.path).read_bytes() != contents[0]
    with pytest.raises(UserError, match="fastText failed"):
        train_fasttext(str(PYTHON), split_of([], labels=[]), tmp_path)
