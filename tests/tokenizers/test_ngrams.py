"""N-grams: those of a text, their fingerprints, which are chosen, and that packed files read them as training does."""

import json
import zlib
from types import SimpleNamespace

import numpy as np
import packed_students as made
import pytest
import tiny
import torch
from c_parity import TEXTS, both, check
from damage import assemble, take_apart
from hypothesis import given
from hypothesis import strategies as st
from packed_students import torch_logits
from unicode_torture import TORTURE

from common.data.split import Split
from common.errors import UserError
from common.kinds.registry import MULTILABEL, NUMBERS, TAGS
from compression.analysis.packed_bytes import sections_of_file
from compression.evaluation.packed import load_packed
from compression.packing import pack_student, packed_sections
from compression.packing import streams as packing
from compression.packing.vocabulary import PackedNGrams
from compression.runtime import NGrams, PackedError, fingerprint_bits, fingerprint_of, load, load_bytes
from compression.runtime.native import load_native
from compression.runtime.reader import Reader
from compression.runtime.vocabulary import Fingerprints
from compression.runtime.weights import Streams
from compression.shrinking.chain import compress
from compression.students.saved import load_student
from compression.tokenizers.ngrams import NGramTokenizer, choose_ngrams

WORDS = [
    "it's", "#<it", "#it'", "#t's", "#'s>", "#<it'", "#it's", "#t's>", "#<it's", "#it's>",
    "a", "it's a",
    "no", "a no", "#<no", "#no>",
    "!", "no !",
]  # fmt: skip
"""The n-grams of "It's a no!", in order."""


def tokenizer_of(ngrams, bits=27, max_tokens=512):
    fingerprints = {zlib.crc32(ngram.encode()) % 2**bits: ngram for ngram in ngrams}
    return NGramTokenizer([fingerprints[number] for number in sorted(fingerprints)], bits, max_tokens)


def rows_of(texts, labels, second=None, **more):
    return Split(texts, second, np.array(labels), np.arange(len(texts)), **more)


def pieces_of(tokenizer, text):
    return [tokenizer.pieces[row] for row in tokenizer.encode([text]).ids[:, 0]]


def test_ngrams_of_a_text_in_order():
    assert pieces_of(tokenizer_of(WORDS), "It\u2019s a no!") == WORDS
    assert pieces_of(tokenizer_of(WORDS, max_tokens=5), "It\u2019s a no!") == WORDS[:5]


def test_only_words_are_unknown():
    known = tokenizer_of(["it's a", "#<no", "a"])
    assert pieces_of(known, "It's a no!") == ["", "a", "it's a", "", "#<no", ""]
    assert pieces_of(known, "") == pieces_of(known, " ") == [""]


def test_parts_have_characters_of_any_script():
    parts = ["#<\u03c3\u03bf", "#\u03bf\u03c6>", "#<\u03c3\u03bf\u03c6", "#\u03c3\u03bf\u03c6>", "#\u03c3\u03bf\u03c6"]
    assert set(pieces_of(tokenizer_of(parts), "\u03a3\u03bf\u03c6")) == {"", *parts}
    assert pieces_of(tokenizer_of(["\u4e2d", "\u4e2d \u6587", "\u6587"]), "\u4e2d\u6587") == [
        "\u4e2d",
        "\u6587",
        "\u4e2d \u6587",
    ]


def test_ids_are_places_of_fingerprints():
    """Bits of the fingerprint are the low ones of the CRC-32; n-grams with equal ones have one row."""
    numbers = [zlib.crc32(word.encode()) % 2**7 for word in ("film", "story")]
    assert NGrams(sorted(numbers), 7).encode("film story")[::2] != [0, 0]
    ids = {word: NGrams(sorted(numbers), 7).encode(word)[0] for word in ("film", "story")}
    assert ids == {word: 1 + sorted(numbers).index(number) for word, number in zip(ids, numbers, strict=True)}


def test_a_vocabulary_comes_back_and_a_damaged_one_is_refused(tmp_path):
    tokenizer = made.ngrams()
    tokenizer.save(tmp_path)
    back = NGramTokenizer.load(tmp_path, made.VOCAB, 512)
    assert (back.pieces, back.identity) == (tokenizer.pieces, tokenizer.identity)
    for bits, ngrams in ((0, []), (9, []), (9, [1]), (9, 1), (9, "ab"), (9, ["\ud800"])):
        (tmp_path / "ngrams.json").write_text(json.dumps({"bits": bits, "ngrams": ngrams}))
        with pytest.raises(UserError, match="not a vocabulary of n-grams"):
            NGramTokenizer.load(tmp_path, made.VOCAB, 512)
    for content in ('{"ngrams": ["a"]}', "[]"):
        (tmp_path / "ngrams.json").write_text(content)
        with pytest.raises(UserError, match="not a vocabulary of n-grams"):
            NGramTokenizer.load(tmp_path, made.VOCAB, 512)
    (tmp_path / "ngrams.json").write_text('{"bits": 9, "ngrams": ["a", "a"]}')
    with pytest.raises(UserError, match=r"ngrams\.json: the n-grams are not sorted by their fingerprints"):
        NGramTokenizer.load(tmp_path, 3, 512)


def test_rows_are_removed():
    tokenizer = made.ngrams()
    fewer = tokenizer.without([3, 5])
    assert fewer.pieces == [piece for row, piece in enumerate(tokenizer.pieces) if row not in (3, 5)]
    assert fewer.fingerprints == [tokenizer.fingerprints[row - 1] for row in range(1, made.VOCAB) if row not in (3, 5)]


# Choosing


def test_scores_are_chi_squared():
    """Of equal scores the first n-gram in alphabetical order is taken, and one of a single row last."""
    rows = rows_of(["a x", "a x", "a y", "b y", "b z"], [0, 0, 0, 1, 1])
    # b is on two rows, E = (1.2, 0.8), M = (0, 2): score 1.44 / 1.7 + 1.44 / 1.3 = 1.96.
    # Then a has 1.47, x and "a x" have 0.87, y has 0.05.
    best = ["b", "a", "a x", "x", "y"]
    for count in range(1, 6):
        assert set(choose_ngrams(rows, count + 1, 9).pieces[1:]) == set(best[:count])


def test_the_vocabulary_is_as_large_as_there_are_ngrams(capsys):
    tokenizer = choose_ngrams(rows_of(["a b", "a c"], [0, 1]), 100, 9)
    assert set(tokenizer.pieces) == {"", "a", "b", "c", "a b", "a c"}
    assert "only 5 n-grams: the vocabulary has 6 rows, not 100" in capsys.readouterr().err


def test_the_rows_of_a_class_do_not_depend_on_its_text_being_first_or_second():
    texts, labels = zip(*tiny.sentences(40), strict=True)
    empty = [""] * len(texts)
    alone = choose_ngrams(rows_of([*texts], labels), 30, 9).pieces
    assert choose_ngrams(rows_of([*texts], labels, second=empty), 30, 9).pieces == alone
    assert choose_ngrams(rows_of(empty, labels, second=[*texts]), 30, 9).pieces == alone
    assert choose_ngrams(rows_of([*texts], labels, second=[*texts]), 30, 9).pieces == alone


def test_several_labels_and_numbers():
    texts = ["red", "red", "red round", "round", "round", "blue", "blue", "blue"]
    labels = np.array([[1, 0], [1, 0], [1, 1], [0, 1], [0, 1], [0, 0], [0, 0], [0, 0]], np.float32)
    chosen = choose_ngrams(rows_of(texts, labels, kind=MULTILABEL), 20, 9).pieces[1:]
    assert {"red", "round", "#ound>"} < set(chosen)
    assert not any("lu" in ngram for ngram in chosen)
    texts = [f"{word} !" for word in ("a", "a", "b", "b", "c", "c", "a", "b")]
    numbers = np.float32([0, 0.1, 2, 2.1, 5, 6, 0.2, 7])
    assert set(choose_ngrams(rows_of(texts, numbers, kind=NUMBERS), 3, 9).pieces[1:]) == {"a", "a !"}


def test_rows_without_a_label_are_not_read_and_some_are_needed():
    texts = ["a x", "a x", "c c", "b", "b"]
    assert set(choose_ngrams(rows_of(texts, [0, 0, -1, 1, 1]), 9, 9).pieces) == {"", "a", "x", "a x", "b"}
    with pytest.raises(UserError, match="no training row has a label"):
        choose_ngrams(rows_of(texts, [-1] * 5), 9, 9)
    with pytest.raises(UserError, match="the training rows have no words"):
        choose_ngrams(rows_of(["", ""], [0, 1]), 9, 9)
    with pytest.raises(UserError, match="--vocab-size 1: n-grams need at least 2"):
        choose_ngrams(rows_of(texts, [0] * 5), 1, 9)
    with pytest.raises(UserError, match="not by tags"):
        choose_ngrams(rows_of(["a"], np.array([[1]]), kind=TAGS), 9, 9)


def test_words_alone():
    texts, labels = zip(*tiny.sentences(100), strict=True)
    words = choose_ngrams(rows_of([*texts], labels), 20, 9, "words")
    assert {*tiny.GOOD, *tiny.BAD} < set(words.pieces)
    assert all(word.isalnum() or word == "!" for word in words.pieces[1:])
    assert words.bits == 15


def test_words_and_pairs():
    texts, labels = ["not good", "not bad", "good", "bad"] * 3, [0, 1, 1, 0] * 3
    pairs = choose_ngrams(rows_of(texts, labels), 5, 9, "pairs")
    assert {*pairs.pieces[1:]} == {"not good", "not bad", "good", "bad"}
    assert pairs.bits == choose_ngrams(rows_of(texts, labels), 4, 9, "words").bits


# Packing


@given(numbers=st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=50), bits=st.sampled_from([7, 19, 32]))
def test_fingerprints_come_back(numbers, bits):
    fingerprints = sorted({number % 2**bits for number in numbers})
    packed = PackedNGrams(SimpleNamespace(fingerprints=fingerprints, bits=bits, vocab_size=len(fingerprints) + 1))
    written, read = packing.Streams(), Streams()
    packed.write(written)
    found = Fingerprints(Reader(bytes(written.header.data)), read)
    for array, (stored, _) in zip(read.main, written.main, strict=True):
        array.values = stored.values
    assert list(found.ngrams()._ids) == fingerprints
    assert found.rows == 1 + len(fingerprints)


def test_an_ngram_takes_less_than_ten_bits():
    words = {fingerprint_of(f"word{number}", fingerprint_bits(3000)) for number in range(3000)}
    packed = PackedNGrams(SimpleNamespace(fingerprints=sorted(words), bits=19, vocab_size=len(words) + 1))
    streams = packing.Streams()
    packed.write(streams)
    bits = 8 * len(streams.header.data) + sum(array.cost for array, _ in streams.main)
    assert bits < 9.5 * len(words)


@pytest.mark.parametrize("pair", [False, True])
def test_a_packed_file_answers_as_pytorch(tmp_path, pair):
    folder = made.write_student(tmp_path / "s", "ffn", "ngrams", pair=pair, max_tokens=50)
    texts = [
        *(text for text in TORTURE if text.isprintable()),
        "",
        *(text for text, _ in tiny.sentences(20)),
        "film " * 90,
    ]
    texts = list(zip(texts, texts[::-1], strict=True)) if pair else texts
    model = load_bytes(pack_student(folder))
    assert model.embedding == "ngrams"
    assert np.abs(model.logits(texts) - torch_logits(folder, texts)).max() < 1e-4


def test_its_bytes_are_counted(tmp_path):
    folder = made.write_student(tmp_path / "s", "ffn", "ngrams", "affine-row")
    sections, data = packed_sections(*load_student(folder, torch.device("cpu"))), pack_student(folder)
    assert sum(section.bytes for section in sections) == len(data)
    of_vocabulary = sum(section.bytes for section in sections if section.name == "vocabulary")
    assert 8 * made.VOCAB < 8 * of_vocabulary < 11 * made.VOCAB
    path = tmp_path / "s.fwt"
    path.write_bytes(data)
    of_file, weights = sections_of_file(path)
    assert sum(section.bytes for section in of_file) == len(data)
    assert weights["embedding.table.weight"] == made.VOCAB * made.DIM


@pytest.mark.parametrize("size", [2, made.VOCAB])
def test_the_c_runtime_reads_the_same_ngrams(tmp_path, c_library, size):
    """Cut at 50 tokens, so that every text's order of n-grams counts."""
    theirs, ours = both(tmp_path, "ffn", "ngrams", max_tokens=50, vocab_size=size, pair=size == 2)
    assert ours.embedding == "ngrams"
    check(
        theirs,
        ours,
        [*TEXTS, "", "x", "film " * 90, "\ud55c\uad6d\uc5b4 \u4e2d\u6587", "\u2019\u03c3\u03c2\u2019s na\u00efve"],
    )


def test_damaged_fingerprints_are_refused(tmp_path, c_library):
    """The header has the bits of a fingerprint, and the number of n-grams."""
    path, count = tmp_path / "damaged.fwt", made.VOCAB - 1
    header, rest = take_apart(pack_student(made.write_student(tmp_path / "s", "ffn", "ngrams")))
    place = header.index(bytes([14, count]))
    for bits, number, message in (
        (7, count, "a fingerprint of an n-gram is too large"),
        (33, count, "a field has the unknown value 33"),
        (14, 0, "a size in the file is zero"),
        (14, count + 1, None),
    ):
        path.write_bytes(assemble(header[:place] + bytes([bits, number]) + header[place + 2 :], rest))
        for read in (load, load_native):
            with pytest.raises(PackedError, match=message if read is load else None):
                read(path)


def test_ngrams_are_for_an_ffn(tmp_path):
    with pytest.raises(ValueError, match="--embedding-type ngrams is for ffn"):
        tiny.compress_settings(task="sst-2", student_arch="conv", embedding_type="ngrams")
    header, rest = take_apart(pack_student(made.write_student(tmp_path / "s", "ffn", "ngrams")))
    with pytest.raises(PackedError, match="for another architecture"):
        load_bytes(assemble(bytes([3]) + header[1:], rest))


@pytest.mark.slow
def test_a_student_of_ngrams_is_trained_pruned_quantized_and_packed(workspace, c_library):
    actions = ("distill", "prune", "quantize", "pack")
    given = tiny.small(student_arch="ffn", embedding_type="ngrams", prune_vocabulary=2, bits=4)
    settings = tiny.compress_settings(task="sst-2", workspace=workspace, compression_actions=actions, **given)
    folder = compress(settings)[-1]
    texts = [text for text, _ in tiny.sentences(20)]
    path = settings.paths.packed("sst-2", folder.name)
    packed = load_packed(path)
    assert np.allclose(packed.logits(texts), torch_logits(folder, texts), atol=1e-4)
    assert np.array_equal(load_native(path).logits(texts).argmax(1), packed.logits(texts).argmax(1))
    assert "ngrams" in folder.name


def test_words_alone_have_longer_fingerprints_so_that_few_parts_match():
    texts = [f"common word{number % 90} strange{number % 7}" for number in range(400)]
    rows = Split(texts, None, np.arange(400) % 7, np.arange(400))
    tokenizer = choose_ngrams(rows, 60, 512, "words")
    assert not [ngram for ngram in tokenizer.pieces[1:] if ngram.startswith("#") or " " in ngram]
    assert {f"strange{number}" for number in range(7)} <= set(tokenizer.pieces)
    assert tokenizer.bits > choose_ngrams(rows, 60, 512).bits
