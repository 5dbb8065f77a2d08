"""Masked language models from Hugging Face, and candidates that do not depend on batches."""

import numpy as np
import pytest
import tiny
import torch

from common.errors import UserError
from common.teachers.base import Pieces
from common.teachers.huggingface.masked_lm import HuggingFaceMaskedLM
from common.teachers.load import load_masked_lm, masked_lm_fingerprint
from compression.augmentation.candidates import TIE, MaskedCandidates

CPU = torch.device("cpu")
TEXTS = [text for text, _ in tiny.sentences(12)]
KINDS = ("bert", "roberta", "distilbert", "electra")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folder of a tiny masked language model of each kind."""
    root = tmp_path_factory.mktemp("masked-lms")
    return {kind: tiny.write_masked_lm(root / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def bert(folders):
    return HuggingFaceMaskedLM.load(str(folders["bert"]), CPU)


def spans(text):
    """Every word of a text split at spaces."""
    ends = np.cumsum([len(word) + 1 for word in text.split(" ")]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(text.split(" "), ends, strict=True)]


def padded(sequences):
    ids = np.zeros((len(sequences), max(map(len, sequences))), np.int64)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
    return ids, np.array(list(map(len, sequences)))


@pytest.mark.parametrize("kind", KINDS)
def test_logits_at_one_place_are_those_of_the_whole_model(folders, kind):
    model = load_masked_lm(str(folders[kind]), CPU)
    sequences = [pieces.ids for pieces in model.encode(TEXTS)]
    places = np.array([1 + row % 5 for row in range(len(TEXTS))])
    ids, lengths = padded(sequences)
    logits = model.predict(ids, lengths, places)
    assert logits.shape == (len(TEXTS), len(model.words()))
    assert logits.dtype == torch.float32
    for row, sequence in enumerate(sequences):
        with torch.inference_mode():
            whole = model.model(input_ids=torch.tensor([sequence])).logits[0, places[row]]
        assert torch.allclose(logits[row], whole, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_spans_say_which_characters_a_piece_covers(folders, kind):
    model = HuggingFaceMaskedLM.load(str(folders[kind]), CPU)
    text = "the  film is tedious!"
    (pieces,) = model.encode([text])
    assert len(pieces.ids) == len(pieces.spans)
    assert pieces.spans[0] == pieces.spans[-1] == (0, 0)
    covered = [text[start:end] for start, end in pieces.spans[1:-1]]
    assert "film" in covered
    assert "tedious" not in covered
    assert "".join(covered) == text.replace(" ", "")


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_pieces_that_are_whole_words(folders, kind):
    model = HuggingFaceMaskedLM.load(str(folders[kind]), CPU)
    words = model.words()
    assert {"film", "wonderful"} <= set(words)
    assert words[model.mask_id] == ""
    assert all(word == "" or word.isalpha() for word in words)
    film = words.index("film")
    (pieces,) = model.encode(["the film is wonderful"])
    assert film in pieces.ids


def test_sentences_are_cut_at_the_models_length(folders):
    for kind in ("bert", "roberta"):
        model = HuggingFaceMaskedLM.load(str(folders[kind]), CPU)
        assert model.max_pieces == 96
        (pieces,) = model.encode(["film " * 200])
        assert len(pieces.ids) == 96
        model.predict(np.array([pieces.ids]), np.array([96]), np.array([5]))


def test_unknown_pieces_are_no_words(bert):
    (pieces,) = bert.encode(["the ☃ film"])
    assert pieces.spans == [(0, 0), (0, 3), (0, 0), (6, 10), (0, 0)]


def test_a_plain_encoder_is_refused(encoder):
    with pytest.raises(UserError, match="no trained head for masked language modelling"):
        load_masked_lm(str(encoder), CPU)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        load_masked_lm(str(tmp_path / "none"), CPU)
    with pytest.raises(UserError, match="no such folder"):
        masked_lm_fingerprint(str(tmp_path / "none"), tmp_path)


def test_a_name_the_hub_does_not_have_is_refused():
    with pytest.raises(UserError, match="no masked language model could be downloaded from featherweight/none"):
        load_masked_lm("featherweight/none", CPU)


def test_a_damaged_model_is_named(folders, tmp_path):
    own = tiny.copy_workspace(folders["bert"], tmp_path / "own")
    before = masked_lm_fingerprint(str(own), tmp_path)
    assert before == masked_lm_fingerprint(str(folders["bert"]), tmp_path)
    weights = own / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert masked_lm_fingerprint(str(own), tmp_path) != before
    with pytest.raises(UserError, match="no masked language model could be loaded from"):
        load_masked_lm(str(own), CPU)


def plain_candidates(model, text, span, k):
    """TinyBERT's way: one word of one sentence at a time, every place through the output layer."""
    (pieces,) = model.encode([text])
    place = pieces.spans.index(span)
    ids = list(pieces.ids)
    ids[place] = model.mask_id
    with torch.inference_mode():
        scores = model.model(input_ids=torch.tensor([ids])).logits[0, place]
    words, chosen = model.words(), {}
    for piece in scores.argsort(descending=True).tolist():
        form = words[piece].lower()
        if len(form) > 1 and form != text[slice(*span)].lower() and form not in chosen and len(chosen) < k:
            chosen[form] = piece
    return set(chosen)


@pytest.mark.parametrize("kind", KINDS)
def test_candidates_are_the_likeliest_words_whatever_the_batch(folders, kind):
    model = HuggingFaceMaskedLM.load(str(folders[kind]), CPU)
    asked = [spans(text) for text in TEXTS]
    found = MaskedCandidates(model, 5).find(TEXTS, asked)
    for size in (1, 7 * 20, 64 * 20):
        assert MaskedCandidates(model, 5, batch_pieces=size).find(TEXTS, asked) == found
    assert MaskedCandidates(model, 5).find(TEXTS[::-1], asked[::-1]) == found[::-1]
    looked_at = 0
    for text, candidates in zip(TEXTS, found, strict=True):
        for span, words in candidates.items():
            assert {word.lower() for word in words} == plain_candidates(model, text, span, 5)
            assert len(words) == 5
            looked_at += 1
    assert looked_at > 30


class Rounding:
    """A model of one-letter places whose scores have another last digit in every batch but alone."""

    mask_id, max_pieces = 0, 9

    def __init__(self, scores):
        self.scores, self.alone = scores, 0
        self.vocabulary = ["", *(f"word{chr(97 + i)}" for i in range(len(scores)))]

    def encode(self, sentences):
        return [Pieces([0, 1, 0], [(0, 0), (0, 5), (0, 0)]) for _ in sentences]

    def words(self):
        return self.vocabulary

    def predict(self, ids, lengths, places):
        assert (lengths == 3).all()
        assert (ids[np.arange(len(ids)), places] == self.mask_id).all()
        scores = torch.tensor([[9.0, *self.scores]]).repeat(len(ids), 1)
        if len(ids) > 1:
            noise = 1e-5 * torch.arange(len(self.scores)) * len(ids)
            scores[:, 1:] += noise
        else:
            self.alone += 1
        return scores


@pytest.mark.parametrize("lead", [1e-6, 5e-5])
def test_a_near_tie_is_decided_alone(lead):
    # The 2nd and 3rd best: in a batch the 3rd comes out ahead.
    model = Rounding([0.0, 5.0, 4.0 + lead, 4.0, 1.0])
    texts = ["worda"] * 6
    asked = [[(0, 5)]] * 6
    for size in (1, 7, 64):
        found = MaskedCandidates(model, 2, batch_pieces=3 * size).find(texts, asked)
        assert found == [{(0, 5): ["wordb", "wordc"]}] * 6
    assert model.alone >= 6


def test_only_near_ties_run_again():
    model = Rounding([0.0, 5.0, 4.0 + 4 * TIE, 4.0, 1.0])
    found = MaskedCandidates(model, 2).find(["worda"] * 6, [[(0, 5)]] * 6)
    assert found == [{(0, 5): ["wordb", "wordc"]}] * 6
    assert model.alone == 0


def test_a_word_is_one_candidate_however_it_is_written():
    model = Rounding([0.0, 5.0, 4.9, 3.0, 1.0])
    model.vocabulary = ["", "film", "Great", "great", "PARIS", "of"]
    source = MaskedCandidates(model, 2)
    model.encode = lambda texts: [Pieces([0, 1, 0], [(0, 0), (0, 4), (0, 0)])] * len(texts)
    assert source.find(["Film"], [[(0, 4)]]) == [{(0, 4): ["great", "PARIS"]}]


def test_fewer_words_than_requested_are_all_returned():
    model = Rounding([0.0, 5.0, 4.0])
    assert MaskedCandidates(model, 9).find(["worda"], [[(0, 5)]]) == [{(0, 5): ["wordb", "wordc"]}]


def test_a_piece_that_ends_within_a_letter_is_not_a_whole_word():
    model = Rounding([0.0, 5.0, 4.0])
    model.encode = lambda texts: [Pieces([0, 1, 2, 0], [(0, 0), (0, 5), (4, 5), (0, 0)])]
    assert MaskedCandidates(model, 1).find(["worda"], [[(0, 5)]]) == [{}]


def test_minilm_has_no_head_for_it():
    with pytest.raises(UserError, match="minilm: the package holds no masked-language-model head"):
        load_masked_lm("minilm", CPU)
