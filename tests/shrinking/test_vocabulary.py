"""Vocabulary pruning: pieces and rows that training text hardly uses are removed, and no others change."""

import numpy as np
import pytest
import sentencepiece
import shrunk
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from learned_rows import distillation_text

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from compression.shrinking.pruning.vocabulary import prune_vocabulary, row_uses
from compression.students.batch import EncodedRows
from compression.students.saved import load_student
from compression.students.scoring import student_logits
from compression.tokenizers import UNKNOWN
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.bpe_files import find_files
from compression.tokenizers.bpe_model import mark_unused

TEXTS = [text for text, _ in tiny.sentences(60)]
PIECES = 120


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return find_files(PIECES, 3, "train", TEXTS, tmp_path_factory.mktemp("bpe"))[0]


def reader(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)


@given(st.sets(st.integers(3, PIECES - 1)))
def test_pieces_are_marked_and_all_else_stays(model_file, unused):
    model = model_file.read_bytes()
    before, after = reader(model), reader(mark_unused(model, unused))
    assert after.get_piece_size() == PIECES
    for piece in range(PIECES):
        assert after.id_to_piece(piece) == before.id_to_piece(piece)
        assert after.get_score(piece) == before.get_score(piece)
        assert after.is_unused(piece) == (piece in unused)
    assert mark_unused(model, ()) == model
    with pytest.raises(UserError, match="not a sentencepiece model"):
        mark_unused(model[:-3], ())


@pytest.mark.slow
@given(st.sets(st.integers(3, PIECES - 1)))
def test_rows_are_the_pieces_in_use_in_order(model_file, dropped):
    whole = BpeTokenizer(model_file, 40)
    tokenizer = whole.without(dropped)
    old, new = reader(whole.model_bytes), reader(tokenizer.model_bytes)
    left = [old.id_to_piece(piece) for piece in range(PIECES) if piece not in dropped]
    assert tokenizer.vocab_size == len(left)
    assert [new.id_to_piece(piece) for piece in tokenizer.kept.tolist()] == left
    rows = {piece: row for row, piece in enumerate(left)}
    for text in TEXTS[:20]:
        pieces = new.encode(text.lower().translate(str.maketrans("123456789", "0" * 9)), out_type=str)[:40]
        assert tokenizer.encode([text]).ids[:, 0].tolist() == [rows.get(piece, UNKNOWN) for piece in pieces]


def test_a_character_without_a_row_reads_as_unknown(model_file):
    whole = BpeTokenizer(model_file, 40)
    pieces = reader(whole.model_bytes)
    rows = [piece for piece in range(3, PIECES) if "y" in pieces.id_to_piece(piece)]
    assert rows
    assert UNKNOWN not in whole.encode(["y"]).ids
    tokenizer = whole.without(rows)
    ids = tokenizer.encode(["y"]).ids[:, 0].tolist()
    assert UNKNOWN in ids
    assert max(ids) < tokenizer.vocab_size


def test_dropping_in_two_steps_is_dropping_in_one(model_file):
    whole = BpeTokenizer(model_file, 40)
    twice = whole.without([10, 20]).without([10])  # row 10 is piece 11 by then
    assert [twice.model_bytes, twice.vocab_size] == [whole.without([10, 11, 20]).model_bytes, PIECES - 3]


def student():
    return shrunk.fresh("rnn", "bpe", vocab_size=PIECES)


@pytest.mark.parametrize("least", [1, 3, 8])
def test_every_piece_left_is_used_often_enough(model_file, least):
    net, whole = student(), BpeTokenizer(model_file, 40)
    before = net.embedding.table.weight.value.detach().clone()
    tokenizer, reached = prune_vocabulary(net, whole, whole.encode(TEXTS).ids, least)
    (uses,) = row_uses(net, tokenizer.encode(TEXTS).ids).values()
    assert len(uses) == tokenizer.vocab_size < PIECES
    assert uses[3:].min() >= least  # behind the unknown piece and two control signs
    assert reached == {"embedding.table.weight": {"rows": tokenizer.vocab_size, "before": PIECES}}
    assert torch.equal(net.embedding.table.weight.value, before[tokenizer.kept])


def test_a_sentence_without_a_dropped_piece_keeps_its_logits(model_file):
    net, whole = student(), BpeTokenizer(model_file, 40)
    before = student_logits(net, EncodedRows(whole.encode(TEXTS)), shrunk.CPU)
    tokenizer, _ = prune_vocabulary(net, whole, whole.encode(TEXTS).ids, 5)
    old, new = ([t.kept[t.encode([text]).ids[:, 0]].tolist() for text in TEXTS] for t in (whole, tokenizer))
    same = np.array([a == b for a, b in zip(old, new, strict=True)])
    assert 0 < same.sum() < len(TEXTS)
    after = student_logits(net, EncodedRows(tokenizer.encode(TEXTS)), shrunk.CPU)
    assert np.allclose(before[same], after[same], atol=1e-6)
    assert not np.allclose(before[~same], after[~same], atol=1e-6)


@pytest.mark.parametrize("arch", ["ffn", "rnn"])  # hashes and characters
@pytest.mark.parametrize("epochs", [0, 1])
def test_rows_of_hashes_and_characters_become_zero_and_stay_so(workspace, arch, epochs):
    least = 12
    folder = shrunk.shrunk(workspace, "prune", arch, prune_vocabulary=least, tune_epochs=epochs)
    before, after = (load_student(each, shrunk.CPU) for each in (folder.with_name(arch), folder))
    train = load_split(Workspace(workspace), load_task("sst-2"), "train").sentence1
    uses = row_uses(before[0], before[1].encode(train).ids)
    assert len(uses) == (2 if arch == "ffn" else 1)
    for name, counts in uses.items():
        old, new = (each[0].get_submodule(name).value.detach() for each in (before, after))
        rare = torch.from_numpy(counts < least)
        assert rare.any() or name == "embedding.table.weight"  # six vectors that all words share
        assert not rare.all()
        assert not new[rare].any()
        assert torch.equal(new[~rare], old[~rare]) == (epochs == 0)
        assert after[2].compression["vocabulary"][name] == {"rows": int((~rare).sum()), "before": len(rare)}


def test_rows_that_are_never_used_change_no_logit_of_training_text(workspace):
    folder = shrunk.shrunk(workspace, "prune", "ffn", prune_vocabulary=1)
    before, after = (shrunk.logits(each, workspace, rows="train") for each in (folder.with_name("ffn"), folder))
    assert np.array_equal(before, after)


@pytest.mark.parametrize("epochs", [0, 1])
def test_byte_pairs_go_through_saving_and_later_stages(workspace, epochs):
    given = {"student_arch": "bilstm", "vocab_size": 100, "factorize": ("embedding",), "rank": 3}
    given |= {"prune_vocabulary": 6, "tune_epochs": epochs, "only_original_data": False, "alpha": 0.0}
    parent, _, pruned, quantized = shrunk.compressed(workspace, "distill", "factorize", "prune", "quantize", **given)
    net, tokenizer, config = load_student(pruned, shrunk.CPU)
    assert config.student["vocab_size"] == tokenizer.vocab_size < 100
    assert net.embedding.table.weight.dense().shape == (tokenizer.vocab_size, 6)
    assert load_student(quantized, shrunk.CPU)[1].model_bytes == tokenizer.model_bytes
    paths, task = Workspace(workspace), load_task("sst-2")
    texts = load_split(paths, task, "train").sentence1 + load_split(paths, task, "tinybert").sentence1
    (uses,) = row_uses(net, tokenizer.encode(texts).ids).values()
    assert uses[3:].min() >= 6
    shrunk.check_saved_again(pruned)
    (pruned / BpeTokenizer.file).write_bytes((parent / BpeTokenizer.file).read_bytes())
    with pytest.raises(UserError, match="100 pieces, the student has"):
        shrunk.loaded(pruned)


def test_uses_are_counted_in_the_drawn_rows_alone(workspace):
    given = {"student_arch": "bilstm", "vocab_size": 100, "embedding_init": "random", "prune_vocabulary": 2}
    given |= {"downsample_data": 0.3, "model_name": "s"}
    pruned = shrunk.compressed(workspace, "distill", "prune", **given)[-1]
    net, tokenizer, _ = load_student(pruned, shrunk.CPU)
    drawn = {"downsample_data": 0.3, "only_original_data": True}
    settings = tiny.compress_settings(task="sst-2", workspace=workspace, **drawn)
    texts = distillation_text(settings, load_task("sst-2"))[0].sentence1
    (uses,) = row_uses(net, tokenizer.encode(texts).ids).values()
    assert uses[3:].min() >= 2
    alone = shrunk.smaller(workspace, "s", "--compression-actions", "prune", "--prune-vocabulary", "2")
    assert alone == pruned


@pytest.mark.parametrize("arch", ["bilstm", "ffn"])
def test_something_must_be_left(workspace, arch):
    with pytest.raises(UserError, match=r"--prune-vocabulary 100000: .* nothing would be left"):
        shrunk.shrunk(workspace, "prune", arch, model_name="p", prune_vocabulary=100_000)
    assert not (workspace / "models/sst-2/p").exists()
