"""Augmentation after TinyBERT's Algorithm 1."""

import functools
import pickle
import re
import shutil
from types import SimpleNamespace

import few_pairs
import numpy as np
import pytest
import tiny
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

import common.data.split
from common.data.split import Split, load_split, read_split, split_table, write_split
from common.data.tasks import load_task
from common.data.text import near_key
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.load import load_masked_lm, masked_lm_fingerprint
from compression.augmentation.augment import CandidateSource, Variation, augment, open_variants
from compression.augmentation.candidates import MaskedCandidates
from compression.augmentation.glove import Neighbours, glove_fingerprint, load_glove
from compression.augmentation.preprocess import preprocess
from compression.augmentation.words import in_case_of, replaceable, replaceable_indices, split_pieces


def split_of(first, second=None):
    n = len(first)
    return Split(list(first), None if second is None else list(second), np.arange(n) % 2, np.arange(n) + 100)


def plain(train, n=5, p=0.5, **given):
    sources = {
        "masked_lm": lambda word: [f"{word}m", f"{word}n"],
        "neighbours": lambda word: [f"{word}g", f"{word}h"],
        "single_piece": lambda word: len(word) < 6,
    }
    return tiny.augmented(train, n=n, p=p, **{**sources, **given})


SENTENCES = split_of([text for text, _ in tiny.sentences(30)])


def test_a_rows_variants_depend_on_the_seed_and_not_on_the_rows_before_it():
    whole = plain(SENTENCES)
    assert plain(SENTENCES, seed=2).fingerprint() != whole.fingerprint()
    first = plain(SENTENCES.take(np.arange(3)))
    assert whole.sentence1[: len(first)] == first.sentence1
    rest = plain(SENTENCES.take(np.arange(3, len(SENTENCES))), first_row=3)
    assert whole.sentence1[len(first) :] == rest.sentence1
    assert whole.source_rows[len(first) :].tolist() == rest.source_rows.tolist()


def test_only_rows_of_some_words_are_varied():
    texts = ["good film", "good film plot", "good film plot bad scene story", ""]
    assert set(plain(split_of(texts), n=20, least_words=6).source_rows.tolist()) == {2}
    assert set(plain(split_of(texts, texts[::-1]), n=20, least_words=6).source_rows.tolist()) == {1, 2}


def test_variants_differ_from_their_source_and_each_other_and_keep_its_label():
    result = plain(SENTENCES, n=20)
    assert (np.diff(result.source_rows) >= 0).all()
    for row in range(len(SENTENCES)):
        variants = [text for text, source in zip(result.sentence1, result.source_rows, strict=True) if source == row]
        assert 0 < len(variants) <= 20
        assert len({*variants, SENTENCES.sentence1[row]}) == len(variants) + 1
    assert result.labels.tolist() == SENTENCES.labels[result.source_rows].tolist()


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
    result = plain(split_of(["the film of 1999 , isn't it a 2nd film !"]), n=20, p=1.0)
    assert result.sentence1
    for text in result.sentence1:
        assert re.fullmatch(r"the film\w of 1999 , isn't it a 2nd film\w !", text)
    assert not any(replaceable(word) for word in (*ENGLISH_STOP_WORDS, "1999", "!", "x", "isn't", "é1", ""))
    assert replaceable("film")


def test_spacing_and_punctuation_between_words_stay():
    result = plain(split_of(["Great  film(really)—watch it!"]), n=9, p=1.0)
    assert all(re.fullmatch(r"Great\w  film\w\(really\w\)—watch\w it!", text) for text in result.sentence1)


def test_pairs_are_varied_together():
    first = [f"question{chr(97 + i)} number film" for i in range(9)]
    second = [f"answer{chr(97 + i)} number film" for i in range(9)]
    result = plain(split_of(first, second), n=8)
    assert result.sentence2 is not None
    for a, b, row in zip(result.sentence1, result.sentence2, result.source_rows, strict=True):
        assert a.startswith(f"question{chr(97 + row)}")
        assert b.startswith(f"answer{chr(97 + row)}")
        assert (a, b) != (first[row], second[row])
    assert {row for row, b in zip(result.source_rows, result.sentence2, strict=True) if b != second[row]} == set(
        range(9)
    )


def test_one_side_of_a_pair_is_varied_by_a_draw():
    first = [f"question{chr(97 + i)} number film" for i in range(9)]
    second = [f"answer{chr(97 + i)} film" for i in range(9)]
    pairs = split_of(first, second)
    one, both = plain(pairs, n=40, sides="one"), plain(pairs, n=40)
    changed = [(a != first[row], b != second[row]) for a, b, row in zip(*one.sentences(), one.source_rows, strict=True)]
    assert set(changed) == {(True, False), (False, True)}
    assert 0.3 < np.mean(changed, axis=0)[0] < 0.7
    # The draws of words are those of both sides.
    assert set(one.sentence1) <= {*both.sentence1, *first}
    tail = plain(pairs.take(np.arange(5, 9)), n=40, sides="one", first_row=5)
    assert tail.sentence2 == one.sentence2[-len(tail) :]


def test_variants_of_pairs_have_no_held_out_text_on_either_side():
    pairs = split_of(["a fine film", "a poor film"], ["the plot ?", "the cast ?"])
    found = plain(pairs, n=30, held_out={"the plot", "a poorm film"}, sides="one")
    assert found.sentence1
    assert "the plot ?" not in found.sentence2
    assert "a poorm film" not in found.sentence1
    assert set(found.source_rows.tolist()) == {0, 1}


def test_a_row_without_replaceable_words_or_candidates_has_no_variants():
    assert set(plain(split_of(["", "it is !", "fine film"])).source_rows.tolist()) == {2}
    assert len(plain(split_of(["fine film"]), masked_lm=lambda word: [], neighbours=lambda word: [])) == 0


def test_probability_one_replaces_every_word_and_a_small_one_few():
    every = plain(SENTENCES, p=1.0, n=1, single_piece=lambda word: True)
    assert all("film " not in text for text in every.sentence1)
    few = plain(SENTENCES, p=0.05, n=1)
    assert len(few) < len(SENTENCES)


def test_variants_equal_to_held_out_rows_are_dropped():
    source = split_of(["a Fine film !"])
    every = plain(source, n=20)
    assert "a Fineg film !" not in every.sentence1  # four letters: asked of the masked LM
    kept = plain(source, n=20, held_out={"a finem film"})
    assert "a Finem film !" in every.sentence1
    assert kept.sentence1 == [text for text in every.sentence1 if text != "a Finem film !"]


def test_a_share_of_variants_is_kept_each_by_its_own_draw():
    every = plain(SENTENCES, n=20)
    some = plain(SENTENCES, n=20, fraction=0.25)
    assert len(some) == pytest.approx(len(every) / 4, rel=0.25)
    pairs = set(zip(every.source_rows, every.sentence1, strict=True))
    assert set(zip(some.source_rows, some.sentence1, strict=True)) <= pairs
    tail = plain(SENTENCES.take(np.arange(20, 30)), n=20, fraction=0.25, first_row=20)
    assert tail.sentence1 == some.sentence1[-len(tail) :]


@pytest.mark.parametrize(
    ("word", "candidate", "result"),
    [
        ("Film", "movie", "Movie"),
        ("FILM", "movie", "MOVIE"),
        ("film", "movie", "movie"),
        ("film", "Paris", "Paris"),
        ("iPhone", "phone", "phone"),
    ],
)
def test_candidates_take_the_case_of_the_word_they_replace(word, candidate, result):
    assert in_case_of(word, candidate) == result
    given = {"masked_lm": lambda _: [candidate], "single_piece": lambda _: True}
    assert plain(split_of([word]), n=1, p=1.0, **given).sentence1 == [result]


@pytest.mark.parametrize("text", ["don’t it's rock’n’roll", "🎬🍿 👍🏽 👨‍👩‍👧"])
def test_clitics_and_emoji_stay(text):
    pieces = split_pieces(text)
    assert "".join(pieces) == text
    assert replaceable_indices(pieces) == []
    result = plain(split_of([f"film {text} film"]), n=20, p=1.0)
    assert len(result) > 0
    assert all(f" {text} " in variant for variant in result.sentence1)


def test_words_of_other_scripts_are_words():
    assert [split_pieces("שלום עולם")[i] for i in replaceable_indices(split_pieces("שלום עולם"))] == ["שלום", "עולם"]
    result = plain(split_of(["שלום עולם"]), n=1, p=1.0, masked_lm=lambda word: [word[::-1]])
    assert result.sentence1 == ["םולש םלוע"]


def test_candidates_of_a_repeated_sentence_are_found_once():
    asked = []
    plain(split_of(["fine film"] * 5), masked_lm=lambda word: asked.append(word) or [word + "x"])
    assert asked == ["fine", "film"]


def test_glove_neighbours_are_near_and_not_the_word_itself(glove):
    vectors = load_glove(glove)
    found = vectors.neighbours(["wonderful", "film", "unheard"], 5)
    assert set(found) == {"wonderful", "film"}
    assert sorted(found["wonderful"]) == sorted(set(tiny.GOOD) - {"wonderful"})
    assert sorted(found["film"]) == sorted(set(tiny.NOUNS) - {"film"})
    near = vectors.unit[[vectors.index[w] for w in found["film"]]] @ vectors.unit[vectors.index["film"]]
    assert (np.diff(near) <= 1e-6).all()


def test_a_words_neighbours_do_not_depend_on_the_other_words_of_a_call(glove):
    vectors, words = load_glove(glove), sorted({*tiny.GOOD, *tiny.NOUNS})
    together = vectors.neighbours(words, 5)
    assert {word: vectors.neighbours([word], 5)[word] for word in words} == together


def test_neighbours_are_cached_up_to_a_limit(glove):
    vectors, asked = load_glove(glove), []
    counting = SimpleNamespace(neighbours=lambda words, k: asked.extend(words) or vectors.neighbours(words, k))
    cache = Neighbours(counting, 5, limit=4)
    for words in (["film", "story"], ["film", "cast", "unheard"], ["film", "plot"], ["cast", "plot"]):
        assert cache.of(words) == {word: vectors.neighbours([word], 5).get(word, []) for word in words}
    # The fifth word empties the cache.
    assert asked == ["film", "story", "cast", "unheard", "film", "plot", "cast"]


def test_words_with_spaces_and_word2vecs_header_are_read(tmp_path):
    (tmp_path / "vectors.txt").write_text("3 2\nfilm 1 2\n. . . 3 4\nat name@domain.com 5 6\n")
    vectors = load_glove(tmp_path / "vectors.txt")
    assert vectors.words == ["film", ". . .", "at name@domain.com"]
    assert np.allclose(vectors.unit[1], [0.6, 0.8])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", "line 2: expected a word and 2 numbers, found 1"),
        ("a 1 2\nb 1 x\n", "line 2"),
        ("a\n", "line 1"),
        ("a 1 2\n\n", "line 2"),
        ("", "glove.txt: no vectors"),
        (None, "glove.txt: no such file"),
    ],
)
def test_a_malformed_glove_file_names_its_line(tmp_path, text, message):
    if text is not None:
        (tmp_path / "glove.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        load_glove(tmp_path / "glove.txt")


@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_augmented_files_vary_train_alone(prepared, task):
    paths, loaded = Workspace(prepared), load_task(task)
    train = load_split(paths, loaded, "train")
    result = read_split(paths.augmented(task, "tinybert"))
    assert len(result) > 0
    held_out = few_pairs.texts_of(*(load_split(paths, loaded, name) for name in ("validation", "test")))
    originals = list(zip(*train.sentences(), strict=True))
    for texts, row, label in zip(zip(*result.sentences(), strict=True), result.source_rows, result.labels, strict=True):
        assert texts != originals[row]
        assert label == train.labels[row]
        assert held_out.isdisjoint(map(near_key, texts))
        # Only words were replaced, one by one, each by one of its kind.
        for text, source in zip(texts, originals[row], strict=True):
            assert len(text.split()) == len(source.split())


def test_pairs_keep_a_quarter(prepared, glove):
    paths, task = Workspace(prepared), load_task("qqp")
    result = read_split(paths.augmented("qqp", "tinybert"))
    how = Variation(variants=2, replace_probability=0.4, candidates=15, seed=tiny.SEED)
    train = load_split(paths, task, "train")
    every = augment(train, 0, CandidateSource(None, Neighbours(load_glove(glove), 15)), how, set())
    # Among 250 variants a quarter by independent draws: 7 is a standard deviation.
    assert len(result) == pytest.approx(len(every) / 4, abs=3 * np.sqrt(len(every) * 3 / 16))


@pytest.fixture
def masked_lm(masked_lm):
    """The folder as it is typed."""
    return str(masked_lm)


def work_of(masked_lm, glove, folder, **given):
    held_out = folder / "held_out.parquet"
    write_split(held_out, split_of(["nothing like it"]), {})
    how = Variation(variants=6, replace_probability=0.4, candidates=5, seed=tiny.SEED, **given)
    return functools.partial(open_variants, how, masked_lm, glove, (held_out,), True, folder)


def augmented_rows(work, train, parts):
    """Return augmented rows of train, built in so many parts."""
    function, result = work(), []
    for rows in np.array_split(np.arange(len(train)), parts):
        advanced = []
        result += function(train.take(rows), int(rows[0]), advanced.append).to_pylist()
        assert sum(advanced) == len(rows)
    return result


def test_batches_parts_and_a_plain_loop_give_the_same_rows(masked_lm, glove, tmp_path):
    work = pickle.loads(pickle.dumps(work_of(masked_lm, glove, tmp_path)))  # as a worker gets it
    expected = augmented_rows(work, SENTENCES, 1)
    assert len(expected) > 100
    assert augmented_rows(work, SENTENCES, 4) == expected
    model = load_masked_lm(masked_lm, torch.device("cpu"), tmp_path)
    for size in (1, 7 * 25, 64 * 25):
        source = CandidateSource(MaskedCandidates(model, 5, size), Neighbours(load_glove(glove), 5))
        assert split_table(augment(SENTENCES, 0, source, work.args[0], set())).to_pylist() == expected


def test_whole_words_get_words_of_the_masked_lm_and_split_ones_neighbours(masked_lm, glove, tmp_path):
    model = load_masked_lm(masked_lm, torch.device("cpu"), tmp_path)
    source = CandidateSource(MaskedCandidates(model, 50), Neighbours(load_glove(glove), 5))
    ((pieces, found),) = source.find(["The film is utterly tedious"])
    named = {pieces[index]: set(words) for index, words in found.items()}
    assert set(named) == {"film", "utterly", "tedious"}
    assert named["tedious"] == set(tiny.BAD) - {"tedious"}
    near = {word for word in tiny.ADVERBS if replaceable(word)} - {"utterly"}
    assert near <= named["utterly"]
    assert named["film"] == {word for word in model.words() if len(word) > 1} - {"film"}


def test_models_and_vectors_count_by_their_content(masked_lm, glove, tmp_path):
    copy = shutil.copytree(masked_lm, tmp_path / "bert")
    before = masked_lm_fingerprint(masked_lm, tmp_path)
    assert masked_lm_fingerprint(str(copy), tmp_path) == before
    (copy / "vocab.txt").write_text((copy / "vocab.txt").read_text().replace("film", "movie"))
    assert masked_lm_fingerprint(str(copy), tmp_path) != before
    other = tiny.write_glove(tmp_path / "other.txt")
    assert glove_fingerprint(other) == glove_fingerprint(glove) != glove_fingerprint(None)
    other.write_text(other.read_text().replace("film", "movie"))
    assert glove_fingerprint(other) != glove_fingerprint(glove)


def test_held_out_rows_are_read_part_by_part(glove, tmp_path, monkeypatch):
    monkeypatch.setattr(common.data.split, "ROW_GROUP_ROWS", 2)
    work = work_of(None, glove, tmp_path)
    train = split_of(["a wonderful film of the director"])
    every = [row["sentence1"] for row in augmented_rows(work, train, 1)]
    assert len(every) > 2
    write_split(tmp_path / "held_out.parquet", split_of(["one", "two", "three", f"{every[1]} !".upper()]), {})
    assert [row["sentence1"] for row in augmented_rows(work, train, 1)] == [every[0], *every[2:]]


def augmented_bytes(workspace, glove, **given):
    values = {"augment": "tinybert", "glove": glove, "variants": 2, **given}
    preprocess(tiny.prepare_settings(workspace, "sst-2", **values))
    return (workspace / "data/sst-2/augmented/tinybert.parquet").read_bytes()


@pytest.mark.slow
def test_a_task_augmented_with_a_masked_lm(workspace, glove, masked_lm):
    before = augmented_bytes(workspace, glove)
    path = workspace / "data/sst-2/augmented/tinybert.parquet"
    result = augmented_bytes(workspace, glove, masked_lm=masked_lm)
    assert result != before
    assert augmented_bytes(workspace, glove, masked_lm=masked_lm) == result
    assert list(path.parent.glob("[!.]*")) == [path]


@pytest.mark.slow
def test_the_encoder_of_a_given_teacher_proposes_words_where_it_has_a_head(workspace, glove, masked_lm):
    by_glove = augmented_bytes(workspace, glove)
    assert augmented_bytes(workspace, glove, model_name="tiny-bert") == by_glove  # its encoder has no head
    by_encoder = augmented_bytes(workspace, glove, masked_lm=masked_lm)
    tiny.edit_facts(workspace / "models/sst-2/tiny-bert", encoder=masked_lm)
    assert augmented_bytes(workspace, glove, model_name="tiny-bert") == by_encoder
    assert augmented_bytes(workspace, glove, teacher_arch="tiny-bert") == by_encoder
    assert by_encoder != by_glove
    tiny.edit_facts(workspace / "models/sst-2/tiny-bert", encoder="/gone")
    with pytest.raises(UserError, match=r"--augment needs the encoder of tiny-bert, but .*/gone no longer exists"):
        augmented_bytes(workspace, glove, model_name="tiny-bert")


def test_rows_that_are_up_to_date_are_reused(workspace, glove):
    path = workspace / "data/sst-2/augmented/tinybert.parquet"
    before, result = path.read_bytes(), path.stat().st_mtime_ns
    assert augmented_bytes(workspace, glove) == before
    assert path.stat().st_mtime_ns == result
    assert augmented_bytes(workspace, glove, force=True) == before
    assert augmented_bytes(workspace, glove, variants=3) != before


def test_other_vectors_under_the_same_name_are_noticed(workspace, tmp_path):
    own = tiny.write_glove(tmp_path / "own.txt")
    before = augmented_bytes(workspace, own)
    lines = own.read_text().splitlines(keepends=True)
    own.write_text("".join(line for line in lines if line.split()[0] not in tiny.NOUNS))
    assert augmented_bytes(workspace, own) != before
