"""RoBERTa's masked language model and tokenizer by fairseq, against fairseq's own interface."""

import re

import numpy as np
import pytest
import small_roberta
import tiny
import torch
from small_roberta import CPU, TEXT, hub

from common.data.split import load_split, read_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.fairseq.models import FairseqMaskedLM
from common.teachers.fairseq.sources import byte_pairs
from common.teachers.fairseq.tokens import RobertaTokens
from common.teachers.load import load_masked_lm
from compression.augmentation.candidates import MaskedCandidates
from compression.augmentation.preprocess import preprocess


def test_its_masked_lm_augments(taught, roberta, glove, tmp_path):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    given = {"augment": "tinybert", "masked_lm": str(roberta), "glove": glove, "variants": 4}
    preprocess(tiny.prepare_settings(workspace, "sst-2", **given))
    variants = read_split(Workspace(workspace).augmented("sst-2", "tinybert"), "")
    sources = load_split(Workspace(workspace), load_task("sst-2"), "train")
    assert len(variants) > len(sources)
    by_glove = {line.split()[0] for line in glove.read_text().splitlines()}
    own = {word for text in sources.sentence1 for word in text.split()}
    predicted = {word for text in variants.sentence1 for word in text.split()} - own - by_glove
    assert predicted <= {word.lower() for word in load_masked_lm(str(roberta), CPU, tmp_path).words()}
    assert predicted


def test_its_candidates_do_not_depend_on_the_batch(roberta, tmp_path):
    model = load_masked_lm(str(roberta), CPU, tmp_path)
    words = [[match.span() for match in re.finditer(r"\w+", text)] for text in TEXT[:40]]
    together = MaskedCandidates(model, 5).find(TEXT[:40], words)
    assert any(together)
    assert together == MaskedCandidates(model, 5, batch_pieces=1).find(TEXT[:40], words)


def test_masked_words_are_predicted_as_by_fairseq(roberta):
    model, own = FairseqMaskedLM(roberta, roberta, CPU), hub(roberta)
    rows = [pieces.ids for pieces in model.encode(TEXT[:3])]
    places = np.array([2, 4, 3])
    for row, place in zip(rows, places, strict=True):
        row[place] = model.mask_id
    ids = np.full((3, max(map(len, rows)) + 2), 99)
    for row, numbers in zip(ids, rows, strict=True):
        row[: len(numbers)] = numbers
    found = model.predict(ids, np.array([len(row) for row in rows]), places)
    for row, place, logits in zip(rows, places, found, strict=True):
        expected = own.model(torch.tensor([row]))[0][0, place]
        torch.testing.assert_close(logits, expected.detach(), atol=1e-5, rtol=0)
    words = model.words()
    assert words[model.mask_id] == words[0] == ""


def test_fairseqs_fill_mask_fills_in_the_same_words(roberta):
    model = FairseqMaskedLM(roberta, roberta, CPU)
    before, masked, after = "the", "film", "of 1990 is truly wonderful ,"
    [pieces] = model.encode([f"{before} {masked} {after}"])
    place = next(i for i, (start, _) in enumerate(pieces.spans) if start == len(before) + 1)
    pieces.ids[place] = model.mask_id
    found = model.predict(np.array([pieces.ids]), np.array([len(pieces.ids)]), np.array([place]))
    shares, best = found[0].softmax(0).topk(5)
    words = [model.tokens.pairs.decode([int(model.tokens.dictionary[i])]) for i in best.tolist()]
    # A space in front, since fairseq's interface puts none there and its first word would be another.
    filled = hub(roberta).fill_mask(f" {before} <mask> {after}", topk=5)
    assert [word for _, _, word in filled] == words
    np.testing.assert_allclose([share for _, share, _ in filled], shares.numpy(), atol=1e-6)


@pytest.mark.parametrize("real", [False, True])
def test_pieces_cover_the_sentence(roberta, tmp_path, real):
    folder = roberta
    if real:
        if not small_roberta.SHARED.exists():
            pytest.skip("GPT-2's vocabulary is not here")
        folder = small_roberta.SHARED
    tokens = RobertaTokens(folder)
    for text in (TEXT[0], "naïve 漢字 x́ 😀!", "it's  two", "", "a"):
        pieces = tokens.pieces(text, 64)
        assert (pieces.ids[0], pieces.ids[-1], pieces.spans[0], pieces.spans[-1]) == (0, 2, (0, 0), (0, 0))
        covered = {i for start, end in pieces.spans for i in range(start, end)}
        assert covered == {i for i, letter in enumerate(text) if not letter.isspace()}
        words = tokens.words()
        for number, (start, end) in zip(pieces.ids, pieces.spans, strict=True):
            assert words[number] in ("", text[start:end])
    assert len(tokens.pieces(" ".join(TEXT[:9]), 10).ids) == 10


def test_known_ids_of_the_real_vocabulary():
    if not small_roberta.SHARED.exists():
        pytest.skip("GPT-2's vocabulary is not here")
    tokens = RobertaTokens(small_roberta.SHARED)
    assert tokens.join("Hello world", None, 128) == [0, 31414, 232, 2]  # as fairseq's documentation has it
    assert (len(tokens), tokens.mask_id) == (50265, 50264)
    assert byte_pairs(small_roberta.SHARED, small_roberta.SHARED) == small_roberta.SHARED


def test_a_masked_lm_of_any_kind_is_loaded_by_name_or_folder(roberta, tmp_path, taught):
    assert isinstance(load_masked_lm(str(roberta), CPU, tmp_path), FairseqMaskedLM)
    with pytest.raises(UserError, match="lm_head"):
        load_masked_lm(str(Workspace(taught).model("sst-2", "small")), CPU, tmp_path)
