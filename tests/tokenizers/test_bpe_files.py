"""Files of byte pairs: trained once, found again, refused when damaged."""

import numpy as np
import pytest
import tiny
from gensim.models import KeyedVectors

from common.errors import UserError
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.bpe_files import cached_files, find_files, read_vectors

TEXTS = [text for text, _ in tiny.sentences(60)]


def test_bpe_files_are_trained_once_and_give_the_same_bytes(tmp_path, bpe_files):
    files = find_files(70, 5, "train", TEXTS, tmp_path)
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in bpe_files]
    times = [path.stat().st_mtime_ns for path in files]
    assert find_files(70, 5, "train", TEXTS, tmp_path) == files
    assert [path.stat().st_mtime_ns for path in files] == times
    assert find_files(70, 5, "train", TEXTS[:-1], tmp_path) != files


def test_pieces_come_from_all_text_and_vectors_from_the_tasks_own(tmp_path):
    files = find_files(70, 5, "train", [*TEXTS, *["zzyzx"] * 50], tmp_path, TEXTS)
    vectors = read_vectors(files[1], files[0], 5)
    assert len(BpeTokenizer(files[0], 9).encode(["zzyzx"]).ids) == 1
    assert vectors.shape == (70, 5)
    assert find_files(70, 5, "train", [*TEXTS, *["zzyzx"] * 50], tmp_path, TEXTS[:-1]) != files


def test_bpe_vectors_come_in_the_order_of_the_pieces(bpe_files):
    vectors = read_vectors(bpe_files[1], bpe_files[0], 5)
    assert vectors.shape == (70, 5)
    known = KeyedVectors.load_word2vec_format(str(bpe_files[1]), binary=True)
    row = BpeTokenizer(bpe_files[0], 8).encode(["the"]).ids[0, 0]
    assert np.allclose(vectors[row], known["▁the"])


def test_files_that_are_damaged_missing_or_of_another_size_are_named(tmp_path, bpe_files):
    with pytest.raises(UserError, match="ask for 70 of 4"):
        read_vectors(bpe_files[1], bpe_files[0], 4)
    with pytest.raises(UserError, match=r"bpe\.model: no such file"):
        BpeTokenizer(tmp_path / "bpe.model", 8)
    (tmp_path / "bpe.model").write_bytes(bpe_files[0].read_bytes()[:100])
    with pytest.raises(UserError, match=r"bpe\.model: not a sentencepiece model"):
        BpeTokenizer(tmp_path / "bpe.model", 8)
    (tmp_path / "v.w2v.bin").write_bytes(bpe_files[1].read_bytes()[:100])
    with pytest.raises(UserError, match=r"v\.w2v\.bin: not vectors"):
        read_vectors(tmp_path / "v.w2v.bin", bpe_files[0], 5)
    BpeTokenizer(bpe_files[0], 8).save(tmp_path)
    with pytest.raises(UserError, match="70 pieces, the student has 80"):
        BpeTokenizer.load(tmp_path, 80, 8)


def test_a_vocabulary_larger_than_the_text_has_all_its_byte_pairs(tmp_path, capsys):
    files = find_files(5000, 5, "train", TEXTS, tmp_path)
    size = BpeTokenizer(files[0], 8).vocab_size
    assert 50 < size < 5000
    assert f"the text has only {size} byte pairs: the vocabulary has these, not 5000" in capsys.readouterr().err
    assert read_vectors(files[1], files[0], 5).shape == (size, 5)


def test_characters_that_are_too_rare_are_no_pieces(tmp_path):
    rare = [chr(0x4E00 + i) for i in range(100)]
    files = find_files(70, 5, "train", [*TEXTS * 500, *rare], tmp_path, with_vectors=False)
    tokenizer = BpeTokenizer(files[0], 8)
    assert len({tokenizer.encode([character]).ids.tobytes() for character in rare}) == 1


def test_a_torn_download_of_bpemb_does_not_get_into_its_cache(tmp_path, monkeypatch, bpe_files):
    def get(url, file, ignore_tardir):
        source = bpe_files[".w2v.bin" in url]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(source.read_bytes()[: 100 if torn and ".w2v.bin" in url else None])
        return file

    monkeypatch.setattr("compression.tokenizers.bpe_files.CACHE", tmp_path / "bpemb" / "en")
    monkeypatch.setattr("bpemb.bpemb.http_get", get)
    torn = True
    with pytest.raises(UserError, match="cannot be downloaded"):
        find_files(70, 5, "bpemb", TEXTS, tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    torn = False
    assert cached_files(70, 5, "auto") is None
    files = cached_files(70, 5, "bpemb")  # a student's inputs, downloaded before they are named
    assert files == find_files(70, 5, "bpemb", TEXTS, tmp_path)
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in bpe_files]
    assert {path.parent for path in files} == {tmp_path / "bpemb" / "en"}
    assert find_files(70, 5, "auto", TEXTS, tmp_path) == files
