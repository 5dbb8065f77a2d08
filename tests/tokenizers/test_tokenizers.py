"""Tokenizers and embedding modules, and how many weights the thesis's students have."""

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.data.tokens import EncodedText
from common.errors import UserError
from compression.students.settings import StudentSettings, student_defaults
from compression.students.student import Student
from compression.tokenizers import load_tokenizer, make_embedding
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.bpe_files import find_files, read_vectors
from compression.tokenizers.char import ALPHABET, OTHER, CharTokenizer
from compression.tokenizers.hash import HASHES, HashEmbedding, HashTokenizer

TEXTS = [text for text, _ in tiny.sentences(60)]


def rows_of(encoded):
    return [encoded.ids[a:b].tolist() for a, b in zip(encoded.offsets, encoded.offsets[1:], strict=False)]


@pytest.fixture(scope="session")
def bpe_files(tmp_path_factory):
    settings = StudentSettings(vocab_size=70, embedding_dim=5, bpe_source="train")
    return find_files(settings, TEXTS, tmp_path_factory.mktemp("bpe"))


@pytest.fixture(params=["char", "hash", "bpe"])
def tokenizer(request, bpe_files):
    kinds = {
        "char": lambda: CharTokenizer(8),
        "hash": lambda: HashTokenizer(60, 10, 8),
        "bpe": lambda: BpeTokenizer(bpe_files[0], 8),
    }
    return kinds[request.param]()


def test_every_sentence_has_a_token_and_at_most_max_tokens(tokenizer):
    encoded = tokenizer.encode(["", TEXTS[0], "   ", "a"])
    assert len(encoded) == 4
    assert encoded.lengths.tolist()[:2] == [1, 8]
    assert encoded.lengths.min() >= 1


def test_a_sentences_tokens_do_not_depend_on_its_neighbours(tokenizer):
    together = rows_of(tokenizer.encode(TEXTS[:10]))
    assert together == [rows_of(tokenizer.encode([text]))[0] for text in TEXTS[:10]]


def test_case_does_not_matter(tokenizer):
    assert rows_of(tokenizer.encode(["A Film"])) == rows_of(tokenizer.encode(["a film"]))


def test_odd_text_is_encoded(tokenizer):
    encoded = tokenizer.encode(["\u2028", "日本語", "🙂" * 50, "\x00", "a\u0301"])
    assert encoded.lengths.min() >= 1
    assert encoded.lengths.max() <= 8


def test_saved_and_loaded_it_encodes_the_same(tokenizer, tmp_path):
    kind = type(tokenizer).__name__.removesuffix("Tokenizer").lower()
    settings = StudentSettings(embedding_type=kind, vocab_size=70 if kind == "bpe" else 60, max_tokens=8)
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(settings, tmp_path)
    assert rows_of(loaded.encode(TEXTS)) == rows_of(tokenizer.encode(TEXTS))


def test_characters():
    ids = rows_of(CharTokenizer(50).encode(["Ab z?", "é’1_", ""]))
    assert [row[0] for row in ids[0]] == [ALPHABET.index(c) + 1 for c in "ab z?"]
    assert [row[0] for row in ids[1]] == [ALPHABET.index("e") + 1, ALPHABET.index("'") + 1, OTHER, OTHER]
    assert ids[2] == [[OTHER]]
    assert len(ALPHABET) + 1 == 33


def test_hashes_are_md5_of_the_word_and_a_digit():
    # md5 of "film0", "film1", "film2": first eight bytes, little end first, modulo 5000 * 500.
    import hashlib

    codes = [int.from_bytes(hashlib.md5(f"film{i}".encode()).digest()[:8], "little") % 2_500_000 for i in range(3)]
    assert rows_of(HashTokenizer(5000, 10, 512).encode(["Film"])) == [[codes]]


def test_hash_codes_stay_in_the_tables():
    tokenizer = HashTokenizer(60, 10, 512)
    encoded = tokenizer.encode(TEXTS)
    assert encoded.ids.shape[1] == HASHES
    assert encoded.ids.min() >= 0
    assert encoded.ids.max() < 60 * 6


def test_a_hash_embedding_is_a_weighted_sum():
    module = HashEmbedding(StudentSettings(embedding_type="hash", vocab_size=20, embedding_dim=3, hash_ratio=10))
    code = torch.tensor([[[5, 23, 39]]])  # rows 0, 1, 1; importance 5, 3, 19 of their sectors
    with torch.no_grad():
        importance, table = module.importance.weight.dense(), module.table.weight.dense()
        expected = importance[5] * table[0] + importance[20 + 3] * table[1] + importance[40 + 19] * table[1]
        assert torch.allclose(module(code)[0, 0], expected)


def test_a_vocabulary_smaller_than_the_ratio_keeps_one_shared_vector():
    settings = StudentSettings(embedding_type="hash", vocab_size=5, embedding_dim=3)
    encoded = HashTokenizer(5, 10, 8).encode(TEXTS)
    assert make_embedding(settings)(torch.from_numpy(encoded.ids.astype(np.int64))[None]).shape[-1] == 3


def test_bpe_files_are_trained_once_and_give_the_same_bytes(tmp_path, bpe_files):
    settings = StudentSettings(vocab_size=70, embedding_dim=5, bpe_source="train")
    made = find_files(settings, TEXTS, tmp_path)
    assert [path.read_bytes() for path in made] == [path.read_bytes() for path in bpe_files]
    times = [path.stat().st_mtime_ns for path in made]
    assert find_files(settings, TEXTS, tmp_path) == made
    assert [path.stat().st_mtime_ns for path in made] == times
    assert find_files(settings, TEXTS[:-1], tmp_path) != made


def test_pieces_come_from_all_text_and_vectors_from_the_tasks_own(tmp_path):
    settings = StudentSettings(vocab_size=70, embedding_dim=5, bpe_source="train")
    made = find_files(settings, [*TEXTS, *["zzyzx"] * 50], tmp_path, TEXTS)
    vectors = read_vectors(made[1], made[0], 5)
    assert len(BpeTokenizer(made[0], 9).encode(["zzyzx"]).ids) == 1
    assert vectors.shape == (70, 5)
    assert find_files(settings, [*TEXTS, *["zzyzx"] * 50], tmp_path, TEXTS[:-1]) != made


def test_bpe_vectors_come_in_the_order_of_the_pieces(bpe_files):
    from gensim.models import KeyedVectors

    vectors = read_vectors(bpe_files[1], bpe_files[0], 5)
    assert vectors.shape == (70, 5)
    pieces = BpeTokenizer(bpe_files[0], 8)
    known = KeyedVectors.load_word2vec_format(str(bpe_files[1]), binary=True)
    place = rows_of(pieces.encode(["the"]))[0][0][0]
    assert np.allclose(vectors[place], known["▁the"])


@pytest.mark.parametrize(("dim", "message"), [(4, "ask for 70 of 4"), (5, None)])
def test_vectors_of_the_wrong_width_are_refused(bpe_files, dim, message):
    if message is None:
        read_vectors(bpe_files[1], bpe_files[0], dim)
        return
    with pytest.raises(UserError, match=message):
        read_vectors(bpe_files[1], bpe_files[0], dim)


def test_damaged_and_missing_bpe_files_are_named(tmp_path, bpe_files):
    with pytest.raises(UserError, match=r"bpe\.model: no such file"):
        BpeTokenizer(tmp_path / "bpe.model", 8)
    (tmp_path / "bpe.model").write_bytes(bpe_files[0].read_bytes()[:100])
    with pytest.raises(UserError, match=r"bpe\.model: not a sentencepiece model"):
        BpeTokenizer(tmp_path / "bpe.model", 8)
    (tmp_path / "v.w2v.bin").write_bytes(bpe_files[1].read_bytes()[:100])
    with pytest.raises(UserError, match=r"v\.w2v\.bin: not vectors"):
        read_vectors(tmp_path / "v.w2v.bin", bpe_files[0], 5)


def test_a_vocabulary_larger_than_the_text_is_refused(tmp_path):
    settings = StudentSettings(vocab_size=5000, embedding_dim=5, bpe_source="train")
    with pytest.raises(UserError, match="too small for --vocab-size 5000"):
        find_files(settings, TEXTS, tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_bpe_model_of_another_size_is_refused(tmp_path, bpe_files):
    BpeTokenizer(bpe_files[0], 8).save(tmp_path)
    with pytest.raises(UserError, match="70 pieces, the student has 80"):
        load_tokenizer(StudentSettings(vocab_size=80), tmp_path)


@given(st.lists(st.lists(st.integers(1, 99), max_size=7), min_size=1, max_size=9), st.data())
def test_a_padded_batch_holds_its_sentences_and_zeros(sentences, data):
    encoded = EncodedText.from_lists(sentences, width=1, empty=(7,), max_tokens=5)
    rows = np.array(data.draw(st.lists(st.integers(0, len(sentences) - 1), min_size=1, max_size=6)))
    ids, lengths = encoded.pad(rows)
    assert ids.shape == (len(rows), lengths.max(), 1)
    for line, length, row in zip(ids[..., 0], lengths, rows, strict=True):
        expected = sentences[row][:5] or [7]
        assert line[:length].tolist() == expected
        assert not line[length:].any()


@pytest.mark.parametrize(
    ("arch", "embedding", "dim", "parameters"),
    [
        ("ffn", "hash", 25, 30_302),
        ("bilstm", "bpe", 25, 398_002),
        ("bilstm", "hash", 25, 300_502),
        ("rnn", "char", 100, 64_002),
    ],
)
def test_students_have_as_many_weights_as_in_table_7_1(arch, embedding, dim, parameters):
    defaults = student_defaults(arch, pair=False) | {"embedding_type": embedding, "embedding_dim": dim}
    settings = StudentSettings(**{k: v for k, v in defaults.items() if k in StudentSettings.model_fields})
    student = Student(arch, settings, outputs=2, pair=False)
    assert sum(p.numel() for p in student.parameters()) == parameters
