"""The runtime's answers to texts of every kind, and to files that are wrong."""

import numpy as np
import packed_students as made
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from unicode_torture import TORTURE

from compression.runtime import HashedWords, PackedError, load, tidy

CHARACTERS = st.text(
    st.sampled_from("the film wonderful\u0301\u00e9\u2581\u2603 0.,!\ud55c\u1112\u1161\u11ab\uff41\u200b")
)
TEXT = st.one_of(st.text(), CHARACTERS, st.sampled_from([text for text, _ in tiny.sentences(50)]))


def whole(text):
    """Text that UTF-8 can hold."""
    return "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000)


@pytest.mark.slow
@pytest.mark.parametrize("embedding", ["hash", "char", "wordpiece", "ngrams"])
@given(text=TEXT)
@settings(max_examples=40)
def test_answers_are_those_of_pytorch(models, embedding, text):
    model, folder = models[embedding]
    assert np.abs(model.logits([whole(text)]) - made.torch_logits(folder, [whole(text)])).max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", [*made.EMBEDDINGS, "ngrams", "windows"])
def test_torture_in_one_batch_is_torture_one_by_one(models, name):
    model, folder = models[name]
    together = model.logits(TORTURE)
    assert np.isfinite(together).all()
    assert np.abs(together - np.concatenate([model.logits([text]) for text in TORTURE])).max() < 1e-5
    assert np.abs(together - made.torch_logits(folder, TORTURE)).max() < 1e-4
    assert model.logits([]).shape == (0, 3)


def test_too_many_words_are_forgotten_again(models, monkeypatch):
    model, _ = models["hash"]
    texts = [" ".join(f"w{i}x{j}" for j in range(40)) for i in range(60)]
    before = model.logits(texts[:1])
    monkeypatch.setattr(HashedWords, "most_values", 500)
    assert np.abs(model.logits(texts * 20)[::60] - before).max() < 1e-6

    words = HashedWords(10, np.ones((2, 6), np.float32), np.ones((30, 1), np.float32), 512)
    words.encode(" ".join(map(str, range(90))))
    assert words.table().shape == (91, 6)  # the words, and the token of an empty text
    assert words.full
    words = words.without_words()
    assert words.encode("a a b") == [1, 1, 2]
    assert words.table().shape == (3, 6)


def test_lone_surrogates_are_replacement_characters(models):
    for model, _ in models.values():
        assert np.array_equal(model.logits(["a \ud800 b\udfff"]), model.logits(["a \ufffd b\ufffd"]))
        assert np.array_equal(model.logits(["\ud83d\ude00"]), model.logits(["\U0001f600"]))


def test_probabilities_are_the_softmax(models):
    model, _ = models["char"]
    found = model.probabilities(TORTURE)
    powers = np.exp(model.logits([tidy(text) for text in TORTURE]).astype(np.float64))
    assert np.abs(found - powers / powers.sum(1, keepdims=True)).max() < 1e-6


def test_predictions_are_the_labels_of_highest_probability(models):
    model, _ = models["bpe"]
    found = model.predict(TORTURE)
    assert found == [model.labels[i] for i in model.probabilities(TORTURE).argmax(1)]
    assert model.predict([]) == []


def test_predictions_of_pairs_words_and_scores(tmp_path):
    def loaded(name, arch="ffn", **kind):
        return load(made.packed(tmp_path / name, arch, "hash", **kind))

    pairs = [("how are you", "how  do you do"), ("a film", "a\tfilm")]
    assert loaded("pairs", pair=True).predict(pairs) == loaded("pairs", pair=True).predict(
        [("how are you", "how do you do"), ("a film", "a film")]
    )
    tags = loaded("tags", "rnn", kind="tags")
    found = tags.predict(["a  wonderful film", "", "why not"])
    assert [len(row) for row in found] == [3, 0, 2]
    assert found[2] == [tags.labels[i] for i in tags.probabilities(["why not"])[0].argmax(-1)]
    scores = loaded("scores", labels=[])
    assert scores.predict(["a film"]) == scores.probabilities(["a film"])[:, 0].tolist()


CHANGES = {
    "an empty file": lambda data: b"",
    "not a packed student": lambda data: data[:3],
    "not a packed student ": lambda data: b"PK\x03\x04" + data,
    "truncated, or something was appended": lambda data: data[:-1],
    "truncated, or something was appended ": lambda data: data[:40],
    "truncated, or something was appended  ": lambda data: data + b"\n",
    "by a newer version of Featherweight, in format 3; this one reads 2": lambda data: data[:3] + b"\x03" + data[4:],
    "checksum is wrong": lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
}


@pytest.mark.parametrize("message", CHANGES)
def test_wrong_files_are_named_in_one_line(models, tmp_path, message):
    path = tmp_path / "x.fwt"
    path.write_bytes(CHANGES[message]((models["hash"][1] / "hash.fwt").read_bytes()))
    with pytest.raises(PackedError, match=message.strip()) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_larger_than_any_is_not_read(models, monkeypatch):
    monkeypatch.setattr("compression.runtime.model.MOST_FILE", 100)
    with pytest.raises(PackedError, match=r"hash\.fwt: larger than any packed student$"):
        load(models["hash"][1] / "hash.fwt")


def test_questions_are_answered_from_short_and_long_contexts():
    model = load("squad-shifts-200k")
    context = "The bridge was built in 1897 by Anna Smith , an engineer from Leeds ."
    asked = [("Who built the bridge ?", context), ("Who built the bridge ?", context * 90), ("Who ?", "")]
    answers = model.predict(asked)
    assert all(answer in text for answer, (_, text) in zip(answers, asked, strict=True))
    assert (answers[0], answers[2]) == ("Anna Smith", "")
    assert list(model.lines(asked)) == answers
    with pytest.raises(PackedError, match="a model that answers questions has no probabilities"):
        model.probabilities(asked)


def test_a_transformer_answers_questions(tmp_path):
    sizes = {"pair": True, "kind": "answers", "labels": ["start", "end"], "max_tokens": 20}
    model = load(made.packed(tmp_path / "s", "transformer", "hash", **sizes))
    context = "the film and the wonderful cast"
    assert all(answer in context for answer in model.predict([("the film ?", context), ("", context), ("a", "")]))


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(PackedError, match=r"nothing\.fwt: No such file"):
        load(tmp_path / "nothing.fwt")
    with pytest.raises(PackedError, match="directory"):
        load(tmp_path)
