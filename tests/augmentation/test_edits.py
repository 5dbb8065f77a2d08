"""Edited rows: --augment edits."""

from collections import Counter

import numpy as np
import pytest
import tiny
from few_pairs import augmented, pairs_of, splits, texts_of
from hypothesis import given
from hypothesis import strategies as st

from common.data.split import Split, read_split
from common.data.text import near_key, split_words
from common.errors import UserError
from common.store.workspace import Workspace
from compression.augmentation.edits import Editor, edited_rows
from compression.augmentation.preprocess import preprocess

TEXTS = ["The dogs bark at the cat.", "The dog barks, and the cat barked.", "A cat is not a dog"]
VOCABULARY = {word for text in TEXTS for word in split_words(text)}


@pytest.fixture(scope="module")
def paths(glue, tmp_path_factory):
    """A workspace with the splits of a task of single texts and of one of pairs. To be read."""
    folder = tmp_path_factory.mktemp("edits")
    for task in ("cola", "qqp"):
        preprocess(tiny.prepare_settings(folder, task, data_dir=glue))
    return Workspace(folder)


def rows_of(*columns):
    first, second = columns if len(columns) == 2 else (columns[0], None)
    return Split(list(first), second and list(second), np.arange(len(first)) % 2, np.arange(len(first)))


def edits_of(text, draws=3000):
    rng = np.random.default_rng(1)
    return {Editor(TEXTS).edit(text, rng) for _ in range(draws)}


def test_every_kind_of_edit_is_drawn():
    found = edits_of("The dogs bark at the cat.")
    assert {
        "Dogs the bark at the cat.",  # swapped
        "The dogs at the cat.",  # removed
        "The dogs bark at the the cat.",  # added
        "A dogs bark at the cat.",  # exchanged
        "The dogs barked at the cat.",  # another ending
        "The dog bark at the cat.",
    } <= found


def test_punctuation_and_spaces_stay_between_words():
    for text in edits_of("The dog barks, and the cat barked."):
        assert text.endswith(".")
        assert "  " not in text
        assert text == text.strip()


@given(st.lists(st.sampled_from(sorted(VOCABULARY)), min_size=3, max_size=8), st.integers(0, 10**6))
def test_an_edit_changes_few_words(words, seed):
    edited = split_words(Editor(TEXTS).edit(" ".join(words), np.random.default_rng(seed)))
    assert {*edited} <= {*words} | VOCABULARY
    lost, gained = Counter(words) - Counter(edited), Counter(edited) - Counter(words)
    assert max(lost.total(), gained.total()) <= 2


def test_texts_without_words_of_letters_alone_are_edited():
    editor, rng = Editor(["12 34 56 78", "9a 8b 7c"]), np.random.default_rng(1)
    found = {editor.edit("12 34 56 78", rng) for _ in range(100)}
    assert {"34 12 56 78", "12 34 56"} <= found


@pytest.mark.parametrize("text", ["", "...", "The dog", "Яблоко", "我喜欢这部电影"])
def test_texts_of_fewer_than_three_words_stay(text):
    assert edits_of(text, 20) == {text}


def test_draws_depend_on_the_seed_and_the_row():
    rows = rows_of(TEXTS)
    (one,), (again,), (other,) = (list(edited_rows(rows, 5, 1, seed)) for seed in (1, 1, 2))
    assert one.sentence1 == again.sentence1 != other.sentence1
    assert one.source_rows.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert not one.labelled.any()
    assert [len(rows) for rows in edited_rows(rows, 5, 7, 1)] == [5]


def test_one_text_of_a_pair_is_edited():
    (found,) = edited_rows(rows_of(TEXTS, TEXTS[::-1]), 30, 1, 1)
    changed = {
        (a != TEXTS[row], b != TEXTS[2 - row])
        for a, b, row in zip(found.sentence1, found.sentence2, found.source_rows, strict=True)
    }
    assert changed == {(True, False), (False, True), (False, False)}


def test_edited_rows_are_new(paths):
    found = augmented(paths, "edits", task="cola", variants=4)
    held_out = {name: read_split(paths.split("cola", name)) for name in ("train", "validation", "test")}
    assert not {near_key(text) for text in found.sentence1} & texts_of(*held_out.values())
    assert len(texts_of(found)) == len(found) > len(held_out["train"])


def test_edited_pairs_are_new(paths):
    found = augmented(paths, "edits", variants=4)
    train, others = splits(paths)
    assert not texts_of(found) & texts_of(*others)
    assert not {*pairs_of(found)} & {*pairs_of(train)}
    assert len(found) > len(train)


def test_a_task_of_tags_has_no_edited_rows(paths):
    with pytest.raises(UserError, match="--augment edits does not support tasks of kind tags"):
        augmented(paths, "edits", task="ncbi-disease")
