"""Augmentation after TinyBERT's Algorithm 1."""

import numpy as np
import pytest
import tiny
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from common.data import Split, load_split, read_split
from common.errors import UserError
from common.tasks import load_task
from common.text import match_key
from common.workspace import Workspace
from compression.augment import augment, candidate_words, drop_held_out, load_glove, replaceable
from compression.preprocess import preprocess


def split_of(first, second=None):
    n = len(first)
    return Split(list(first), None if second is None else list(second), np.arange(n) % 2, np.arange(n) + 100)


def plain(train, n=5, p=0.5, seed=1, **sources):
    given = {
        "masked_lm": lambda word: [f"{word}m", f"{word}n"],
        "neighbours": lambda word: [f"{word}g", f"{word}h"],
        "single_piece": lambda word: len(word) < 6,
    }
    return augment(train, **{**given, **sources}, n=n, p=p, seed=seed)


SENTENCES = split_of([text for text, _ in tiny.sentences(30)])


def test_the_same_seed_gives_the_same_rows_and_another_others():
    assert plain(SENTENCES).fingerprint() == plain(SENTENCES).fingerprint()
    assert plain(SENTENCES).fingerprint() != plain(SENTENCES, seed=2).fingerprint()


def test_a_rows_variants_do_not_depend_on_the_rows_before_it():
    whole = plain(SENTENCES)
    first = plain(SENTENCES.take(np.arange(3)))
    assert whole.sentence1[: len(first)] == first.sentence1


def test_variants_differ_from_their_source_and_each_other_and_keep_its_label():
    made = plain(SENTENCES, n=20)
    assert (np.diff(made.source_rows) >= 0).all()
    for row in range(len(SENTENCES)):
        variants = [text for text, source in zip(made.sentence1, made.source_rows, strict=True) if source == row]
        assert 0 < len(variants) <= 20
        assert len({*variants, SENTENCES.sentence1[row]}) == len(variants) + 1
    assert made.labels.tolist() == SENTENCES.labels[made.source_rows].tolist()


def test_single_piece_words_go_to_the_masked_lm_and_the_rest_to_neighbours():
    asked = {"masked_lm": set(), "neighbours": set()}

    def source(name):
        return lambda word: asked[name].add(word) or [word + "x"]

    plain(
        split_of(["The Film was wonderful , yet unwatchable"]),
        masked_lm=source("masked_lm"),
        neighbours=source("neighbours"),
        single_piece=lambda word: word in ("film", "wonderful"),
    )
    assert asked == {"masked_lm": {"film", "wonderful"}, "neighbours": {"unwatchable"}}


def test_stop_words_numbers_and_signs_stay():
    made = plain(split_of(["the film of 1999 , isn't it a 2nd film !"]), n=20, p=1.0)
    assert made.sentence1
    for text in made.sentence1:
        words, source = text.split(), ["the", "film", "of", "1999", ",", "isn't", "it", "a", "2nd", "film", "!"]
        assert [w for i, w in enumerate(words) if i not in (1, 9)] == [
            w for i, w in enumerate(source) if i not in (1, 9)
        ]
        assert words[1] != "film"
    assert not any(replaceable(word) for word in (*ENGLISH_STOP_WORDS, "1999", "!", "x", "isn't", "é1", ""))
    assert replaceable("film")


def test_spacing_and_punctuation_between_words_stay():
    made = plain(split_of(["Great  film(really)—watch it!"]), n=9, p=1.0)
    for text in made.sentence1:
        assert text.count("(") == text.count("—") == text.count("!") == 1
        assert "  " in text


def test_pairs_are_varied_together():
    first = [f"question{chr(97 + i)} number film" for i in range(9)]
    second = [f"answer{chr(97 + i)} number film" for i in range(9)]
    made = plain(split_of(first, second), n=8)
    assert made.sentence2 is not None
    for a, b, row in zip(made.sentence1, made.sentence2, made.source_rows, strict=True):
        assert a.startswith(f"question{chr(97 + row)}")
        assert b.startswith(f"answer{chr(97 + row)}")
        assert (a, b) != (first[row], second[row])
    assert {row for row, b in zip(made.source_rows, made.sentence2, strict=True) if b != second[row]} == set(range(9))


def test_a_row_without_replaceable_words_has_no_variants():
    made = plain(split_of(["", "it is !", "fine film"]))
    assert set(made.source_rows.tolist()) == {2}


def test_words_without_candidates_stay():
    made = plain(split_of(["fine film"]), masked_lm=lambda word: [], neighbours=lambda word: [])
    assert len(made) == 0


def test_probability_one_replaces_every_word_and_a_small_one_few():
    every = plain(SENTENCES, p=1.0, n=1, single_piece=lambda word: True)
    assert all("film " not in text for text in every.sentence1)
    few = plain(SENTENCES, p=0.05, n=1)
    assert len(few) < len(SENTENCES)


def test_variants_equal_to_held_out_rows_are_dropped():
    made = split_of(["a fine film", "Another FILM !", "third film"])
    kept = drop_held_out(made, [split_of(["another film"]), split_of(["none"])])
    assert kept.sentence1 == ["a fine film", "third film"]
    assert kept.source_rows.tolist() == [100, 102]


def test_candidate_words_are_the_replaceable_ones():
    assert candidate_words(split_of(["The Film, it is fun"], ["x film 99"])) == ["film", "fun"]


def test_glove_neighbours_are_near_and_not_the_word_itself(glove):
    vectors = load_glove(glove)
    found = vectors.neighbours(["wonderful", "film", "unheard"], 5)
    assert set(found) == {"wonderful", "film"}
    assert sorted(found["wonderful"]) == sorted(set(tiny.GOOD) - {"wonderful"})
    assert sorted(found["film"]) == sorted(set(tiny.NOUNS) - {"film"})
    near = vectors.unit[[vectors.index[w] for w in found["film"]]] @ vectors.unit[vectors.index["film"]]
    assert (np.diff(near) <= 1e-6).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", "line 2: expected a word and 2 numbers, found 1"),
        ("a 1 2\nb 1 x\n", "line 2"),
        ("a\n", "line 1"),
        ("a 1 2\n\n", "line 2"),
        ("", "glove.txt"),
    ],
)
def test_a_malformed_glove_file_names_its_line(tmp_path, text, message):
    (tmp_path / "glove.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        load_glove(tmp_path / "glove.txt")


def test_a_missing_glove_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.txt: no such file"):
        load_glove(tmp_path / "none.txt")


@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_augmented_files_inherit_their_sources_side(prepared, task):
    paths, loaded = Workspace(prepared), load_task(task)
    train = load_split(paths, loaded, "train")
    made = read_split(paths.augmented(task, "tinybert"), "")
    assert len(made) > 0
    held_out = set()
    for name in ("validation", "test"):
        split = load_split(paths, loaded, name)
        held_out |= {tuple(map(match_key, texts)) for texts in zip(*split.sentences(), strict=True)}
    originals = list(zip(*train.sentences(), strict=True))
    for texts, row, label in zip(zip(*made.sentences(), strict=True), made.source_rows, made.labels, strict=True):
        assert texts != originals[row]
        assert label == train.labels[row]
        assert tuple(map(match_key, texts)) not in held_out
        # Only words were replaced, one by one, each by one of its kind.
        for text, source in zip(texts, originals[row], strict=True):
            assert len(text.split()) == len(source.split())


def test_pairs_keep_a_quarter(prepared, tmp_path, glove):
    workspace = tiny.copy_workspace(prepared, tmp_path / "w")
    made = len(read_split(Workspace(prepared).augmented("qqp", "tinybert"), ""))
    task = load_task("qqp")
    train = load_split(Workspace(workspace), task, "train")
    nearest = load_glove(glove).neighbours(candidate_words(train), 15)
    every = augment(train, lambda w: [], lambda w: nearest.get(w, []), lambda w: False, n=2, p=0.4, seed=tiny.SEED)
    assert made == pytest.approx(len(every) / 4, abs=1)


def augmented_bytes(workspace, glove, **given):
    values = {"augment": "tinybert", "glove": glove, "variants": 2, **given}
    preprocess(tiny.prepare_settings(workspace, "sst-2", **values))
    return (workspace / "data/sst-2/augmented/tinybert.parquet").read_bytes()


def test_up_to_date_rows_are_reused_and_others_made_anew(workspace, glove):
    path = workspace / "data/sst-2/augmented/tinybert.parquet"
    before, made = path.read_bytes(), path.stat().st_mtime_ns
    assert augmented_bytes(workspace, glove) == before
    assert path.stat().st_mtime_ns == made
    assert augmented_bytes(workspace, glove, force=True) == before
    assert augmented_bytes(workspace, glove, variants=3) != before


def test_other_vectors_under_the_same_name_are_noticed(workspace, tmp_path):
    own = tiny.write_glove(tmp_path / "own.txt")
    before = augmented_bytes(workspace, own)
    lines = own.read_text().splitlines(keepends=True)
    own.write_text("".join(line for line in lines if line.split()[0] not in tiny.NOUNS))
    assert augmented_bytes(workspace, own) != before
