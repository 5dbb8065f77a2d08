"""Teachers that answer questions: windows over long contexts, logits for each word, and fine-tuning."""

import numpy as np
import pytest
import tiny
import tiny_questions
import torch
from stages import score_of
from tiny_questions import unanswered

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.kinds.registry import ANSWERS
from common.kinds.spans import ENDS, word_spans
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.huggingface.answerer import HuggingFaceAnswerer
from common.teachers.logits import load_logits
from common.training.losses import combined
from common.training.metrics import score
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.evaluation.predictions import predictions_file
from compression.inference.saved_model import load_saved

CPU = torch.device("cpu")
QUESTION = "how is the film ?"
CONTEXT = "the tedious film's plot, 1990's is \u200b wonderful! " * 6


@pytest.fixture(scope="module")
def answerer(encoder):
    torch.manual_seed(0)
    return HuggingFaceAnswerer(encoder, ANSWERS, ENDS, CPU, torch.float32, 64, new_head=True)


def pieces_of(teacher, question, context):
    """The model's logits [pieces, 2], and the characters of the pieces, of one sequence."""
    tokens = teacher.tokenizer(question, context, return_offsets_mapping=True, return_tensors="pt")
    offsets, inside = tokens.pop("offset_mapping")[0].tolist(), tokens.sequence_ids(0)
    with torch.inference_mode():
        output = teacher.model(**tokens)
    logits = torch.stack([output.start_logits[0], output.end_logits[0]], 1).numpy()
    return logits, [span if own == 1 else None for span, own in zip(offsets, inside, strict=True)]


def test_a_word_starts_as_its_first_piece_and_ends_as_its_last(answerer):
    context = CONTEXT[:47]
    answerer.model.eval()
    logits, spans = pieces_of(answerer, QUESTION, context)
    found = answerer.logits(unanswered((QUESTION, context), (QUESTION, "film"), (QUESTION, "")))
    words = word_spans(context)
    assert found.shape == (3, len(words) + 1, 2)
    assert (~np.isnan(found[..., 0])).sum(1).tolist() == [len(words) + 1, 2, 1]
    assert found[0, 0] == pytest.approx(logits[0], abs=1e-5)
    for place, (start, end) in enumerate(words.tolist(), start=1):
        own = [i for i, span in enumerate(spans) if span and span[0] < end and span[1] > start]
        if own:  # a zero-width space has no piece
            assert found[0, place] == pytest.approx([logits[own[0], 0], logits[own[-1], 1]], abs=1e-5)
    assert np.isfinite(found[~np.isnan(found)]).all()


def test_a_long_context_is_read_in_windows(answerer):
    encoded = answerer.encode(unanswered((QUESTION, "film"), (QUESTION, CONTEXT)))
    first, last = encoded.first_windows[1:]
    assert encoded.first_windows[:2].tolist() == [0, 1]
    assert last - first > 3
    assert encoded.windows.lengths[first : last - 1].tolist() == [64] * (last - first - 1)
    words = word_spans(CONTEXT)
    places = encoded.words.ids[encoded.words.offsets[1] + 1 :]
    assert len(places) == len(words)
    # Each word's own text is at its place, and no window has more of the context on both sides of it.
    pieces = {}
    for window in range(last - first):
        ids = encoded.windows.ids[slice(*encoded.windows.offsets[first + window :][:2])]
        pieces[window] = np.flatnonzero(ids[:-1, 1] == 1), ids[:, 0]
    for (start, end), (window, begin, stop) in zip(words, places, strict=True):
        if CONTEXT[start:end] == "\u200b":
            continue
        context, ids = pieces[window]
        assert answerer.tokenizer.decode(ids[begin : stop + 1]).replace(" ", "") == CONTEXT[start:end]
        assert context[0] <= begin <= stop <= context[-1]
        margin = min(begin - context[0], context[-1] - stop)
        # Neighbouring windows overlap by 21 pieces: in the middle of the context half of them are on either side.
        assert margin >= 7 or window in (0, last - first - 1)
    found = answerer.logits(unanswered((QUESTION, CONTEXT)))
    assert np.isfinite(found).all()
    assert found.shape == (1, len(words) + 1, 2)


def test_a_row_does_not_depend_on_its_batch(answerer):
    rows = unanswered((QUESTION, CONTEXT), ("a " * 80, "film plot"), (QUESTION, CONTEXT[:90]), (QUESTION, "a b"))
    together = answerer.logits(rows)
    for row in range(len(rows)):
        alone = answerer.logits(rows.take(np.array([row])))[0]
        assert together[row, : len(alone)] == pytest.approx(alone, abs=1e-5)
        assert np.isnan(together[row, len(alone) :]).all()


def test_too_few_tokens_are_refused(encoder):
    teacher = HuggingFaceAnswerer(encoder, ANSWERS, ENDS, CPU, torch.float32, 31, new_head=True)
    with pytest.raises(UserError, match="--max-tokens 31: a question and its context need at least 32"):
        teacher.encode(unanswered((QUESTION, CONTEXT)))


def test_the_loss_of_answers_is_of_the_words_that_there_are():
    nan = float("nan")
    logits = torch.tensor([[[0.0, 1], [2, 0], [1, 1]], [[1, 1], [0, 3], [nan, nan]]], requires_grad=True)
    labels = torch.tensor([[1, 2], [0, 1]])
    start = [logits[0, :, 0].softmax(0)[1], logits[1, :2, 0].softmax(0)[0]]
    end = [logits[0, :, 1].softmax(0)[2], logits[1, :2, 1].softmax(0)[1]]
    expected = -torch.stack([*start, *end]).log().mean()
    loss = combined(ANSWERS, logits, labels, None, 1.0, "mse", 1.0)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    assert torch.isfinite(logits.grad).all()
    # A teacher's logits are padded to the longest row of all.
    teacher = torch.nn.functional.pad(logits.detach() + 1, (0, 0, 0, 4), value=nan)
    assert combined(ANSWERS, logits, labels, teacher, 0.0, "mse", 1.0).item() == pytest.approx(1)
    assert combined(ANSWERS, logits, labels, teacher, 0.0, "kl", 2.0).item() == pytest.approx(0, abs=1e-6)
    other = teacher * torch.tensor([2.0, 0.5])
    shares = [
        (each[:, :3][row, :count, end] / 2).softmax(0)
        for each in (other, logits)
        for row, count in ((0, 3), (1, 2))
        for end in (0, 1)
    ]
    divergence = sum((p * (p / q).log()).sum() for p, q in zip(shares[:4], shares[4:], strict=True))
    found = combined(ANSWERS, logits, labels, other, 0.0, "kl", 2.0)
    assert found.item() == pytest.approx(divergence.item(), rel=1e-4)  # a mean of four, times the temperature's square


def check_exported(paths, task, teacher, file):
    """A file of the teacher's logits is imported under another name: sixteenths, at most 8 below the highest."""
    rows = ("processed", "test")
    preprocess(tiny.prepare_settings(paths.root, task.argument, generate_loss=rows, model_name=teacher, logits_to=file))
    given = {"generate_loss": rows, "model_name": "copy", "logits_from": file}
    preprocess(tiny.prepare_settings(paths.root, task.argument, **given))
    assert read_config(paths.model(task.name, "copy")).task_kind.by_word
    for name in ("train", "test"):
        own, copied = (load_logits(paths, task, each, name) for each in (teacher, "copy"))
        limited = np.maximum(own, np.nanmax(own, axis=1, keepdims=True) - 8)
        assert np.array_equal(copied, np.round(limited * 16) / 16, equal_nan=True)
    texts = file.with_suffix(".jsonl")
    texts.write_text('{"sentence1": "who?", "sentence2": "me", "label": "me"}')
    with pytest.raises(UserError, match=r"logits\.jsonl: logits of answers must be a file that --logits-to wrote"):
        preprocess(tiny.prepare_settings(paths.root, task.argument, **{**given, "logits_from": texts}))


@pytest.mark.slow
def test_a_teacher_learns_to_answer_and_its_logits_are_kept(tmp_path, encoder):
    argument = str(tiny_questions.write_task(tmp_path / "files", 60))
    paths, task = Workspace(tmp_path / "w"), load_task(argument)
    preprocess(tiny.prepare_settings(paths.root, argument))
    folder = finetune(tiny.finetune_settings(paths.root, argument, encoder, max_epochs=4, max_tokens=64))
    assert (read_config(folder).task_kind, read_config(folder).pair) == (ANSWERS, True)
    row = score_of(paths.root, folder.name, argument)
    assert row["metrics"]["answer_f1"] > 0.5
    assert row["metrics"]["answer_f1"] >= row["metrics"]["exact_match"]
    assert predictions_file(paths.scores("films", "films", folder.name), "test").exists()
    preprocess(tiny.prepare_settings(paths.root, argument, generate_loss=("processed",), precision="fp32"))
    train, logits = load_split(paths, task, "train"), load_logits(paths, task, folder.name, "train")
    assert (~np.isnan(logits[..., 0])).sum(1).tolist() == [len(word_spans(text)) + 1 for text in train.sentence2]
    assert score(task, train.labels, logits, train.sentence2)["answer_f1"] > 0.5
    model = load_saved(paths, folder, None, True)
    asked = list(zip(train.sentence1[:3], train.sentence2, strict=False))
    assert (model.kind.name, model.threshold, model.probabilities(asked).shape[2]) == ("answers", None, 2)
    with pytest.raises(UserError, match=r"answers \(films\) are not supported"):
        preprocess(tiny.prepare_settings(paths.root, argument, augment="tinybert"))
    check_exported(paths, task, folder.name, tmp_path / "logits.parquet")
    for arch, more in (("roberta_base", {}), (str(folder), {"as_is": True})):
        with pytest.raises(UserError, match=r"of kind answers: use|question answering .* is not supported"):
            finetune(tiny.finetune_settings(paths.root, argument, arch, **more))
