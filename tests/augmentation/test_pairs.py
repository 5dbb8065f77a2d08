"""New pairs of train's texts: neighbours, recombine, closure."""

import itertools
import tempfile
from pathlib import Path

import few_pairs
import numpy as np
import pytest
import tiny
from few_pairs import augmented, pairs_of, prepared, texts_of
from hypothesis import event, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

import compression.augmentation.pairs
from common.data.overlap import near_keys
from common.data.split import Split, write_split
from common.data.tasks import load_task
from common.data.text import near_key, split_words
from common.errors import UserError
from common.kinds.registry import LABELS, MULTILABEL
from common.progress import nothing
from common.store.workspace import Workspace
from compression.augmentation.fresh import Fresh, held_out_keys
from compression.augmentation.pairs import EquivalentTexts, NearTexts, RandomTexts, Texts, open_pairs

METHODS = ("neighbours", "recombine", "closure")
# Of three words, since rows of train that share longer ones with validation leave train.
QUESTIONS = [f"{verb} the {thing} ?" for verb in tiny.VERBS for thing in tiny.THINGS[:3]]
ROWS = st.lists(st.tuples(*(st.sampled_from([*QUESTIONS, "?", ""]),) * 2, st.integers(0, 1)), min_size=4, max_size=30)


def split_of(rows):
    first, second, labels = zip(*rows, strict=True)
    return Split(list(first), list(second), np.array(labels), np.arange(len(rows)))


@settings(max_examples=25)
@given(train=ROWS, dev=ROWS, method=st.sampled_from(METHODS))
def test_new_pairs_have_texts_of_train_and_none_of_held_out_rows(train, dev, method):
    own, held_out = split_of(train), split_of(dev)
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.parquet" for name in ("train", "test")}
        for file, rows in zip(files.values(), (own, held_out), strict=True):
            write_split(file, rows, {})
        try:
            function = open_pairs(method, 3, 1, 1, files["train"], (files["test"],))
        except UserError as error:
            event(str(error))
            return
        table = function(own, 0, nothing)
        columns = (table[name].to_pylist() for name in ("sentence1", "sentence2"))
        candidates = Split(*columns, table["label"].to_numpy(), table["source_row"].to_numpy())
        fresh = Fresh(near_keys(own), held_out_keys([files["test"]]))
    found = candidates.take(fresh.choose(candidates))
    assert texts_of(found) <= texts_of(own)
    assert texts_of(found).isdisjoint({"", *texts_of(held_out)})
    pairs = [frozenset(pair) for pair in pairs_of(found)]
    assert len(set(pairs)) == len(pairs)
    assert set(pairs).isdisjoint(map(frozenset, pairs_of(own)))
    assert {len(pair) for pair in pairs} <= {2}
    assert ((found.source_rows >= 0) & (found.source_rows < len(own))).all()


@settings(max_examples=12)
@given(train=ROWS)
def test_a_closure_is_complete(train):
    rows = split_of(train)
    texts = Texts(rows, set())
    found = {
        frozenset(pair[1:])
        for pair in EquivalentTexts(texts, 10**6, 1, rows.labels, 1).candidates(np.arange(30)[: len(rows)])
    }
    # By hand: the closure of "the same" as a relation between texts, one pair after another.
    same = {(text, text) for text in range(len(texts.texts))}
    same |= {
        tuple(pair)
        for row, label in zip(texts.rows.tolist(), rows.labels, strict=True)
        for pair in (row, row[::-1])
        if label
    }
    while more := {(a, d) for (a, b), (c, d) in itertools.product(same, same) if b == c} - same:
        same |= more
    usable = {text for text in range(len(texts.texts)) if texts.usable[text]}
    expected = {frozenset((a, b)) for a, b in same if a != b and {a, b} <= usable}
    for (a, b), label in zip(texts.rows.tolist(), rows.labels, strict=True):
        if not label and (a, b) not in same:
            expected |= {frozenset((a, c)) for c in usable if (b, c) in same and a in usable}
            expected |= {frozenset((c, b)) for c in usable if (a, c) in same and b in usable}
    rows_of_train = {frozenset(row) for row in texts.rows.tolist()}
    assert {pair for pair in found if pair <= usable} - rows_of_train == expected - rows_of_train


def test_labels_of_a_closure_follow_from_two_rows(tmp_path):
    same = [("a1", "b1"), ("b1", "c1"), ("c1", "d1"), ("e1", "f1")]
    other = [("A1 !", "e1"), ("x1", "y1")]
    train = [*((*pair, 1) for pair in same), *((*pair, 0) for pair in other)]
    # Validation takes as many rows as there are in train, at most half: rows that share a short text stay in train.
    rows, labels = split_of(train), dict.fromkeys(map(frozenset, []))
    texts = Texts(rows, set())
    source = EquivalentTexts(texts, 9, 1, rows.labels, 1)
    fresh = Fresh([list(map(near_key, column)) for column in rows.sentences()], set())
    found = list(source.candidates(np.arange(len(rows))))
    written = split_of([(texts.texts[a], texts.texts[b], int(rows.labels[row])) for row, a, b in found])
    written = written.take(fresh.choose(written))
    labels = {frozenset(pair): label for pair, label in zip(pairs_of(written), written.labels.tolist(), strict=True)}
    duplicates = [("a1", "c1"), ("a1", "d1"), ("b1", "d1")]
    different = [("a1", "f1"), *itertools.product(("b1", "c1", "d1"), ("e1",))]
    assert labels == {frozenset(pair): 1 for pair in duplicates} | {frozenset(pair): 0 for pair in different}


def test_rows_that_contradict_the_closure_and_unlabelled_ones_take_no_part():
    rows = split_of([("a", "b", 1), ("b", "c", 1), ("a", "c", 0), ("c", "d", -1), ("d", "e", 1)])
    texts = Texts(rows, set())
    found = list(EquivalentTexts(texts, 9, 1, rows.labels, 1).candidates(np.arange(5)))
    assert {row for row, _, _ in found} == {0, 1}


def test_a_closure_draws_at_most_k_pairs_of_a_row_by_seed_and_row():
    rows = split_of([("t0", f"t{i}", 1) for i in range(1, 12)])
    texts = Texts(rows, set())

    def drawn(seed, numbers):
        return list(EquivalentTexts(texts, 3, seed, rows.labels, 1).candidates(np.array(numbers)))

    every = drawn(1, range(11))
    assert [sum(row == number for row, _, _ in every) for number in range(11)] == [3] * 11
    assert drawn(1, [4, 7]) == [one for one in every if one[0] in (4, 7)]
    assert drawn(2, range(11)) != every


def brute_force(texts, k):
    """(first, second) -> cosine of the nearest second texts of each first one, from dense products."""
    seconds = texts.seconds
    vectorizer = TfidfVectorizer(analyzer=split_words)
    table = vectorizer.fit_transform([texts.texts[i] for i in seconds]).toarray()
    found = {}
    for first in np.unique(texts.rows[:, 0]):
        scores = table @ vectorizer.transform([texts.texts[first]]).toarray()[0]
        near = sorted((-score, second) for score, second in zip(scores, seconds, strict=True) if second != first)
        found |= {(int(first), int(second)): -score for score, second in near[:k] if score < 0}
    return found


def test_neighbours_are_those_of_the_highest_cosine():
    rows = split_of([(a, b, y) for a, b, y in tiny.pairs(60)])
    texts = Texts(rows, set())
    found = {pair[1:]: None for pair in NearTexts(texts, 4).candidates(np.arange(60))}
    expected = brute_force(texts, 4)
    assert len(found) == len(expected) == 60 * 4
    # Texts of one template are often equally near; which of them is taken is not the point.
    everything = brute_force(texts, 60)
    for first in range(0, len(texts.texts)):
        ours, theirs = (
            sorted(everything[pair] for pair in pairs if pair[0] == first) for pairs in (list(found), list(expected))
        )
        assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("source", [lambda texts: NearTexts(texts, 3), lambda texts: RandomTexts(texts, 3, 1)])
def test_a_text_has_its_partners_once_whatever_the_other_rows_of_a_call(source, monkeypatch):
    rows = split_of([*tiny.pairs(40), *((a, f"again {b}", y) for a, b, y in tiny.pairs(10))])
    texts = Texts(rows, {near_key(rows.sentence1[3]), near_key(rows.sentence2[5])})
    found = list(source(texts).candidates(np.arange(50)))
    assert {row for row, _, _ in found} == set(range(40)) - {3}
    assert near_key(rows.sentence2[5]) not in {near_key(texts.texts[second]) for _, _, second in found}
    assert {second for _, _, second in found} <= set(texts.rows[:, 1].tolist())
    monkeypatch.setattr(compression.augmentation.pairs, "_MOST_PRODUCTS", 1)  # one query at a time
    parts = [list(source(texts).candidates(part)) for part in np.array_split(np.arange(50), 7)]
    assert list(itertools.chain.from_iterable(parts)) == found


def test_words_of_too_many_texts_do_not_count(monkeypatch):
    monkeypatch.setattr(compression.augmentation.pairs, "_COMMON_TEXTS", 2)
    rows = split_of([("the boat", f"the {name} boat", 0) for name in ("red", "green", "blue")])
    assert list(NearTexts(Texts(rows, set()), 5).candidates(np.arange(3))) == []
    with pytest.raises(UserError, match="no text has a word to find neighbours by"):
        NearTexts(Texts(split_of([("?", "?", 0)]), set()), 5)


def test_fresh_rows_by_hand():
    rows = split_of(
        [("a", "b", 0), ("B!", "A", 0), ("a", "c", 0), ("c", "a", 1), ("h", "c", 0), ("c", "C", 0), ("?", "c", 0)]
    )
    fresh = Fresh([["a"], ["b"]], {"h"})
    assert fresh.choose(rows).tolist() == [2]
    assert fresh.choose(rows).tolist() == []
    single = Split(["a", "B", "b", "h i", "c"], None, np.zeros(5), np.arange(5))
    assert Fresh([["a"]], {"h i"}).choose(single).tolist() == [1, 4]


def test_nothing_new_is_an_error_and_no_file(tmp_path):
    rows = [(f"q{i}", f"r{i}", i % 2) for i in range(8)]
    paths = prepared(tmp_path, rows, [(b, b, 0) for _, b, _ in rows])  # all second texts are held out
    for method in ("recombine", "closure"):
        with pytest.raises(UserError, match="qqp: no new rows"):
            augmented(paths, method)
        assert not paths.augmented("qqp", method).exists()
    with pytest.raises(UserError, match="no text has a word to find neighbours by"):
        augmented(paths, "neighbours")


def test_unknown_labels_are_of_the_kind_of_the_others():
    assert LABELS.unknown_labels(3, ()).tolist() == [-1, -1, -1]
    assert np.isnan(MULTILABEL.unknown_labels(3, (4,))).tolist() == [[True] * 4] * 3


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A workspace of QQP with 60 rows, of which some share questions. To be read, or written under other names."""
    rows = tiny.pairs(60)
    again = [(rows[i][1], rows[i + 1][0], 1) for i in range(0, 30, 2)]
    return prepared(tmp_path_factory.mktemp("few"), [*rows, *again], tiny.pairs(70)[60:])


@pytest.mark.parametrize("method", METHODS)
def test_rows_are_the_same_again(paths, method):
    whole = augmented(paths, method, augmented=f"{method}-whole")
    assert len(whole) > 2
    file = paths.augmented("qqp", f"{method}-whole")
    before = file.read_bytes()
    assert augmented(paths, method, augmented=f"{method}-whole", force=True).fingerprint() == whole.fingerprint()
    assert file.read_bytes() == before
    assert (whole.labelled.all(), whole.labelled.any()) == ((True, True) if method == "closure" else (False, False))


@pytest.mark.parametrize(("method", "drawn"), [("neighbours", False), ("recombine", True)])
def test_only_draws_depend_on_the_seed(paths, method, drawn):
    one, two = (augmented(paths, method, augmented=f"{method}-{seed}", partners=2).fingerprint() for seed in (1, 1))
    assert one == two
    rows = tiny.prepare_settings(paths.root, "qqp", augment=method, augmented=f"{method}-other", partners=2)
    few_pairs.preprocess(rows.model_copy(update={"seed": 8}))
    other = few_pairs.read_split(paths.augmented("qqp", f"{method}-other")).fingerprint()
    assert (other != one) == drawn


def test_rows_are_named_after_their_method_and_stale_with_their_splits(paths):
    assert augmented(paths, "recombine", partners=1) is not None
    name = paths.augmented("qqp", "recombine").resolve().parent.name
    augmented(paths, "recombine", partners=2)
    assert paths.augmented("qqp", "recombine").resolve().parent.name != name


def test_methods_for_pairs_refuse_other_tasks(prepared_single):
    for method, message in (("neighbours", "a row of sst-2 is a single text"), ("closure", "single text")):
        with pytest.raises(UserError, match=message):
            augmented(prepared_single, method, task="sst-2")
    with pytest.raises(UserError, match="--sides one is for pairs"):
        augmented(prepared_single, "tinybert", task="sst-2", sides="one")
    with pytest.raises(UserError, match="mnli names no equivalence label"):
        augmented(prepared_single, "closure", task="mnli")


@pytest.fixture(scope="module")
def prepared_single(tmp_path_factory, glue):
    """A workspace with the splits of SST-2 and MNLI."""
    workspace = tmp_path_factory.mktemp("singles")
    for task in ("sst-2", "mnli"):
        few_pairs.preprocess(tiny.prepare_settings(workspace, task, data_dir=glue))
    return Workspace(workspace)


@pytest.mark.parametrize(
    "changed", [{"equivalence": "same"}, {"columns": {"sentence1": "a", "label": "b"}, "symmetric": False}]
)
def test_equivalence_is_a_label_of_pairs(changed):
    task = load_task("qqp")
    assert (task.equivalence, load_task("mrpc").equivalence) == ("duplicate", "equivalent")
    with pytest.raises(ValueError, match="equivalence must be one of the labels of a task on pairs"):
        type(task)(**{**task.model_dump(), **changed})
