"""Masked language models from Hugging Face, and candidates that do not depend on batches."""

import numpy as np
import pytest
import tiny
import torch

from common.errors import UserError
from common.teachers.huggingface.masked_lm import Pieces
from common.teachers.load import load_masked_lm, masked_lm_fingerprint
from compression.augmentation.candidates import TIE, MaskedCandidates

CPU = torch.device("cpu")
TEXTS = [text for text, _ in tiny.sentences(8)]


@pytest.fixture(scope="module", params=("bert", "roberta", "distilbert", "electra"))
def model(request, tmp_path_factory):
    """A tiny masked language model of each kind."""
    folder = tiny.write_masked_lm(tmp_path_factory.mktemp("masked-lm") / "model", request.param)
    return load_masked_lm(str(folder), CPU, folder)


def spans(text):
    """Every word of a text split at spaces."""
    ends = np.cumsum([len(word) + 1 for word in text.split(" ")]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(text.split(" "), ends, strict=True)]


def test_logits_at_one_position_are_those_of_the_whole_model(model):
    ids = np.array([pieces.ids[:8] for pieces in model.encode(TEXTS)])
    rows = np.arange(len(TEXTS))
    logits = model.predict(ids, 1 + rows % 5)
    assert logits.shape == (len(TEXTS), len(model.words()))
    assert logits.dtype == torch.float32
    with torch.inference_mode():
        whole = model.model(input_ids=torch.from_numpy(ids)).logits[rows, 1 + rows % 5]
    assert torch.allclose(logits, whole, atol=1e-5)


def test_spans_are_the_characters_that_a_piece_covers(model):
    text = "the  film is tedious!"
    (pieces,) = model.encode([text])
    assert len(pieces.ids) == len(pieces.spans)
    assert pieces.spans[0] == pieces.spans[-1] == (0, 0)
    covered = [text[start:end] for start, end in pieces.spans[1:-1]]
    assert "film" in covered
    assert "tedious" not in covered
    assert "".join(covered) == text.replace(" ", "")


def test_words_are_pieces_that_are_whole_words(model):
    words = model.words()
    assert {"film", "wonderful"} <= set(words)
    assert words[model.mask_id] == ""
    assert all(word == "" or word.isalpha() for word in words)
    (pieces,) = model.encode(["the film is wonderful"])
    assert words.index("film") in pieces.ids


def test_sentences_are_cut_at_the_models_length(model):
    (pieces,) = model.encode(["film " * 200])
    assert len(pieces.ids) == 96
    model.predict(np.array([pieces.ids]), np.array([5]))


def test_unknown_pieces_are_not_words(tmp_path):
    model = load_masked_lm(str(tiny.write_masked_lm(tmp_path / "bert")), CPU, tmp_path)
    (pieces,) = model.encode(["the ☃ film"])
    assert pieces.spans == [(0, 0), (0, 3), (0, 0), (6, 10), (0, 0)]


def test_models_that_cannot_be_used_are_refused(encoder, tmp_path):
    for source, message in {
        str(encoder): "no trained head for masked language modelling",
        str(tmp_path / "none"): "no such folder",
        "featherweight/none": "no masked language model could be downloaded from featherweight/none",
        "minilm": "minilm: the package has no masked-language-model head",
    }.items():
        with pytest.raises(UserError, match=message):
            load_masked_lm(source, CPU, tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        masked_lm_fingerprint(str(tmp_path / "none"), tmp_path)


def test_a_damaged_model_is_named(tmp_path):
    folder = tiny.write_masked_lm(tmp_path / "bert")
    before = masked_lm_fingerprint(str(folder), tmp_path)
    assert before == masked_lm_fingerprint(str(tiny.copy_workspace(folder, tmp_path / "copy")), tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert masked_lm_fingerprint(str(folder), tmp_path) != before
    with pytest.raises(UserError, match="no masked language model could be loaded from"):
        load_masked_lm(str(folder), CPU, tmp_path)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_every_file_of_a_model_counts(tmp_path, kind):
    folder = tiny.write_masked_lm(tmp_path / "model", kind)
    names = sorted(path.name for path in folder.iterdir())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(names)
    found = {masked_lm_fingerprint(str(folder), tmp_path)}
    for name in (*names, "merges.txt", "spiece.model"):
        with (folder / name).open("ab") as file:
            file.write(b" ")
        found.add(masked_lm_fingerprint(str(folder), tmp_path))
    assert len(found) == len(names) + 3


def plain_candidates(model, text, span, k):
    """TinyBERT's way: one word of one sentence at a time, every position through the output layer."""
    (pieces,) = model.encode([text])
    index = pieces.spans.index(span)
    ids = torch.tensor([pieces.ids])
    ids[0, index] = model.mask_id
    with torch.inference_mode():
        scores = model.model(input_ids=ids).logits[0, index]
    words = [model.words()[piece].lower() for piece in scores.argsort(descending=True).tolist()]
    candidates = dict.fromkeys(word for word in words if len(word) > 1 and word != text[slice(*span)].lower())
    return set(list(candidates)[:k])


@pytest.mark.slow
def test_candidates_are_the_likeliest_words_whatever_the_batch(model):
    words = [spans(text) for text in TEXTS]
    found = MaskedCandidates(model, 5).find(TEXTS, words)
    assert MaskedCandidates(model, 5, batch_pieces=7 * 20).find(TEXTS, words) == found
    assert MaskedCandidates(model, 5).find(TEXTS[::-1], words[::-1]) == found[::-1]
    compared = [
        (text, *item) for text, candidates in zip(TEXTS[:5], found, strict=False) for item in candidates.items()
    ]
    for text, span, candidates in compared:
        assert len(candidates) == 5
        assert {word.lower() for word in candidates} == plain_candidates(model, text, span, 5)
    assert len(compared) > 12


class Rounding:
    """A model of one masked position whose scores have another last digit in every batch of more than one row."""

    mask_id = 0

    def __init__(self, scores, vocabulary=None, pieces=None):
        self.scores, self.alone = scores, 0
        self.vocabulary = vocabulary or ["", *(f"word{chr(97 + i)}" for i in range(len(scores)))]
        self.pieces = pieces or Pieces([0, 1, 0], [(0, 0), (0, 5), (0, 0)])

    def encode(self, sentences):
        return [self.pieces] * len(sentences)

    def words(self):
        return self.vocabulary

    def predict(self, ids, index):
        assert (ids[np.arange(len(ids)), index] == self.mask_id).all()
        scores = torch.tensor([[9.0, *self.scores]]).repeat(len(ids), 1)
        if len(ids) > 1:
            scores[:, 1:] += 1e-5 * torch.arange(len(self.scores)) * len(ids)
        else:
            self.alone += 1
        return scores


@pytest.mark.parametrize(("lead", "alone"), [(1e-6, 12), (5e-5, 12), (4 * TIE, 0)])
def test_a_near_tie_alone_is_run_again_and_decided_alone(lead, alone):
    # The 2nd and 3rd best: in a batch the 3rd comes out ahead.
    model = Rounding([0.0, 5.0, 4.0 + lead, 4.0, 1.0])
    for size in (7, 64):
        found = MaskedCandidates(model, 2, batch_pieces=3 * size).find(["worda"] * 6, [[(0, 5)]] * 6)
        assert found == [{(0, 5): ["wordb", "wordc"]}] * 6
    assert model.alone == alone


def test_a_word_is_one_candidate_however_it_is_written():
    model = Rounding([0.0, 5.0, 4.9, 3.0, 1.0], ["", "worda", "Great", "great", "PARIS", "of"])
    assert MaskedCandidates(model, 2).find(["Worda"], [[(0, 5)]]) == [{(0, 5): ["great", "PARIS"]}]


def test_fewer_words_than_requested_are_all_returned():
    assert MaskedCandidates(Rounding([0.0, 5.0, 4.0]), 9).find(["worda"], [[(0, 5)]]) == [{(0, 5): ["wordb", "wordc"]}]


def test_a_piece_that_ends_within_a_letter_is_not_a_whole_word():
    model = Rounding([0.0, 5.0, 4.0], pieces=Pieces([0, 1, 2, 0], [(0, 0), (0, 5), (4, 5), (0, 0)]))
    assert MaskedCandidates(model, 1).find(["worda"], [[(0, 5)]]) == [{}]
