"""Packed students with byte-level pairs: answers are PyTorch's, and files that are wrong are refused."""

import damage
import numpy as np
import packed_students as made
import pytest
import small_roberta
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from unicode_torture import TORTURE

from common.data.split import Split
from common.errors import UserError
from common.kinds.registry import ANSWERS, TAGS
from compression.packing import pack_student
from compression.packing.header import HeaderWriter
from compression.packing.vocabulary import pack_vocabulary
from compression.runtime import PackedError, load
from compression.runtime.model import load_bytes
from compression.runtime.vocabulary import MOST_BYTE_LEVEL
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers.bytelevel import ByteLevelTokenizer

SENTENCES = [text for text, _ in tiny.sentences(20)]


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A loaded student, and its folder."""
    folder = made.write_student(tmp_path_factory.mktemp("packed") / "s", "bilstm", "bytelevel", "affine-row")
    return load(made.write_packed(folder)), folder


@given(text=st.one_of(st.text(), st.text(st.sampled_from("the film's\u00e9\u4e2d\t 9!")), st.sampled_from(SENTENCES)))
@settings(max_examples=60)
def test_answers_are_those_of_pytorch(packed, text):
    model, folder = packed
    assert np.abs(model.logits([text]) - made.torch_logits(folder, [text])).max() < 1e-4


def test_torture_in_one_batch_is_torture_one_by_one(packed):
    model, folder = packed
    assert np.abs(model.logits(TORTURE) - made.torch_logits(folder, TORTURE)).max() < 1e-4
    assert np.array_equal(model.logits(["a \ud800"]), model.logits(["a \ufffd"]))


@pytest.mark.parametrize("arch", ["bilstm", "transformer"])
@pytest.mark.parametrize("spans", [False, True])
def test_words_are_encoded_one_by_one_with_a_space_in_front(tmp_path, arch, spans):
    align = {"pooling": "max", "pair_encoder": "align"} if arch == "bilstm" else {}
    about = {"pair": True, "labels": ["start", "end"], **align} if spans else {}
    folder = made.write_student(tmp_path / "s", arch, "bytelevel", kind="answers" if spans else "tags", **about)
    model = load(made.write_packed(folder))
    texts, numbers = [*SENTENCES, "Don't, caf\u00e9 \u4e2d\u6587!"], np.arange(len(SENTENCES) + 1)
    labels = np.full((len(texts), 1, 2) if spans else (len(texts), 1), -1)
    split = Split(texts, texts[::-1] if spans else None, labels, numbers, ANSWERS if spans else TAGS)
    student, tokenizer, _ = load_student(folder, torch.device("cpu"))
    assert tokenizer.encode(["film"]).ids.tolist() == tokenizer.encode([" film"]).ids.tolist()
    found = model.logits(list(zip(*split.sentences(), strict=True)) if spans else texts)
    wanted = student_logits(student, encode_split(tokenizer, split), torch.device("cpu"))
    assert np.allclose(found, wanted, atol=1e-4, equal_nan=True)


def test_files_with_other_flags_or_a_damaged_vocabulary_are_refused_or_are_models(packed):
    header, rest = damage.take_apart(pack_student(packed[1]))
    start = HeaderWriter()
    start.byte(9)
    start.number(len(made.byte_level().merges))
    at = header.index(bytes(start.data))
    assert load_bytes(damage.assemble(header, rest)).embedding == "bpe"
    for flags in (10, 12, 32, 255):
        with pytest.raises(PackedError, match=f"a field has the unknown value {flags}"):
            load_bytes(damage.assemble(header[:at] + bytes([flags]) + header[at + 1 :], rest))
    rng, refused = np.random.default_rng(1), 0
    for _ in range(150):
        try:
            model = load_bytes(damage.damaged(rng, [(header, rest)]))
            assert np.isfinite(model.logits(["A film, 2!"])).all()
        except PackedError:
            refused += 1
    assert refused > 75


def test_too_many_merges_are_refused():
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    merges = [a + b for a in letters for b in letters]
    merges += [merge + letter for letter in letters for merge in merges][: MOST_BYTE_LEVEL + 1 - len(merges)]
    with pytest.raises(UserError, match=r"cannot be packed: more than 56,000 byte-level pieces"):
        pack_vocabulary(ByteLevelTokenizer(merges, (), False, 9))


@pytest.mark.slow
@pytest.mark.skipif(not small_roberta.SHARED.exists(), reason="GPT-2's vocabulary is not here")
def test_robertas_vocabulary_takes_152_kilobytes(tmp_path):
    lines = (small_roberta.SHARED / "vocab.bpe").read_text().split("\n")[1:]
    tokenizer = ByteLevelTokenizer([line.replace(" ", "") for line in lines if line], (), False, 512)
    sizes = {"embedding_type": "wordpiece", "embedding_dim": 1, "cls_hidden_dim": 1, "vocab_size": tokenizer.vocab_size}
    student = Student("ffn", StudentSettings(**sizes), 2, False)
    student.embedding.table.weight.value.data.zero_()
    tiny.save_student(tmp_path / "s", student, tokenizer, arch="ffn", student=sizes)
    data = pack_student(tmp_path / "s")
    assert 150_000 < len(data) < 155_000
    for text in SENTENCES:
        assert load_bytes(data)._tokenizer.encode(text) == tokenizer.encode([text]).ids[:, 0].tolist()
