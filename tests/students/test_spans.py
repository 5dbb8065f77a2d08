"""Students that find answers: words of the context that attend to the question, and distillation."""

import numpy as np
import packed_students
import pytest
import tiny
import tiny_questions
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from stages import score_of

from common.errors import UserError
from common.kinds.registry import ANSWERS
from common.kinds.spans import ENDS, best_spans, texts_of, to_characters, word_spans
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.training.batching import sorted_batches
from common.training.losses import combined
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.runtime import HashedWords, PackedError, load, spans, windows_of
from compression.shrinking.chain import compress
from compression.students.batch import Batch
from compression.students.saved import load_student
from compression.students.scoring import encode_split, for_loss, student_logits
from compression.students.settings import StudentSettings
from compression.students.spec import StudentSpec
from compression.students.student import Student
from compression.tokenizers.unlearned import CharTokenizer, HashTokenizer

CPU = torch.device("cpu")
PAIRS = [("how is the film ?", "the film (1990) is wonderful!"), ("", "plot"), ("a" * 9, ""), ("film", "a, b; " * 20)]
PAIRS += [("film", f"{'a' * 70} film {'b' * 31}")]


def rows_of(pairs):
    return tiny_questions.unanswered(*pairs)


ARCHS = ("bilstm", "gru", "conv", *packed_students.TRANSFORMERS)


def student_of(arch, embedding="char"):
    torch.manual_seed(0)
    sizes = {"embedding_dim": 6, "encoder_hidden_dim": 5, "cls_hidden_dim": 7, "max_tokens": 30}
    sizes |= {"vocab_size": 60, "hash_ratio": 2}
    if arch in packed_students.TRANSFORMERS:
        sizes |= packed_students.TRANSFORMER
    else:
        sizes |= {"pooling": "max", "pair_encoder": "align"}
    settings = StudentSettings(embedding_type=embedding, **sizes)
    return Student(arch, settings, outputs=2, pair=True, by_word=True).eval(), settings


@pytest.mark.parametrize("arch", ARCHS)
def test_every_word_of_the_context_has_logits_whatever_the_batch(arch):
    student, settings = student_of(arch)
    encoded = encode_split(CharTokenizer(settings.max_tokens), rows_of(PAIRS))
    logits = student_logits(student, encoded, CPU)
    assert (~np.isnan(logits[..., 0])).sum(1).tolist() == [1 + len(word_spans(context)) for _, context in PAIRS]
    assert logits.shape[2] == 2
    for row in range(len(PAIRS)):
        alone = student_logits(student, encode_split(CharTokenizer(30), rows_of(PAIRS[row : row + 1])), CPU)[0]
        assert logits[row, : len(alone)] == pytest.approx(alone, abs=1e-5)
    size = StudentSpec(arch, settings, 2, True, True).encoder
    assert size.output == size.state


def words_from(first, last):
    return " ".join(f"w{number}" for number in range(first, last))


@pytest.mark.parametrize("arch", ARCHS)
def test_a_long_context_is_read_in_windows(arch):
    student, _ = student_of(arch, "hash")

    def read(context):
        rows = encode_split(HashTokenizer(60, 2, 30), rows_of([("how is w7 or w98 ?", context)]))
        return student_logits(student, rows, CPU)[0]

    whole = read(words_from(0, 100))  # a word is one token
    windows = [read(words_from(begin, begin + 30)) for begin in (0, 20, 40, 60, 70)]
    words = [window[1:][slice(*own)] for window, own in zip(windows, OWN, strict=True)]
    assert whole[1:] == pytest.approx(np.concatenate(words), abs=1e-6)
    assert whole[0] == pytest.approx(np.min([window[0] for window in windows], 0), abs=1e-6)


OWN = [(0, 25), (5, 25), (5, 25), (5, 20), (10, 30)]
"""The words of each window, counted from its start: up to the middle of the overlap with the next one."""


@given(st.integers(1, 12).flatmap(lambda most: st.tuples(st.just(most), st.lists(st.integers(1, most), min_size=1))))
def test_windows_have_all_words_each_where_it_has_the_most_context(given):
    most, lengths = given
    ends = np.cumsum(lengths)
    starts, tokens = ends - lengths, int(ends[-1])
    windows = windows_of(starts.tolist(), tokens, most)
    begins, stops = ([getattr(read, end) for read, _ in windows] for end in ("start", "stop"))
    assert (begins[0], stops[-1]) == (0, tokens)
    assert set(begins) <= set(starts.tolist())
    assert all(stop - begin <= most for begin, stop in zip(begins, stops, strict=True))
    assert [word for _, own in windows for word in range(len(lengths))[own]] == list(range(len(lengths)))
    if max(lengths) == 1:
        assert all(stop - begin >= most // 3 for stop, begin in zip(stops, begins[1:], strict=False))
    margins = np.minimum(starts - np.array(begins)[:, None], np.array(stops)[:, None] - ends)
    inside = margins.max(0) >= 0
    chosen = np.repeat(np.arange(len(windows)), [own.stop - own.start for _, own in windows])
    assert chosen[inside].tolist() == margins.argmax(0)[inside].tolist()
    assert all(begins[window] <= start < stops[window] for window, start in zip(chosen, starts, strict=True))


@pytest.mark.parametrize("arch", ARCHS)
def test_contexts_that_fit_are_read_as_one_text(arch):
    student, settings = student_of(arch)
    rows = encode_split(CharTokenizer(settings.max_tokens), rows_of([("film ?", "a" * 29), ("b", "a b"), ("c", "")]))
    assert rows.second.lengths.max() == settings.max_tokens
    order = np.concatenate(sorted_batches(rows.lengths, 256))
    batch = rows.batch(order, CPU)
    with torch.inference_mode():
        expected = for_loss(student(batch), batch).numpy()
    assert np.array_equal(student_logits(student, rows, CPU)[order], expected, equal_nan=True)


def test_an_answer_at_the_end_of_a_long_context_is_found(tmp_path):
    about = {**packed_students.ALIGNED, "labels": ENDS, "kind": "answers", "max_tokens": 30}
    folder = packed_students.write_student(tmp_path / "s", "conv", "hash", **about)
    model, (student, tokenizer, _) = load(packed_students.write_packed(folder)), load_student(folder, CPU)
    # A convolution's logits depend on the neighbours of a word only: an answer stays the best one at any place.
    words = (f"x{number}" for number in range(50))
    answer = next(word for word in words if model.predict([("film ?", f"a a a {word} a a a")]) == [word])
    pair = ("film ?", f"{'a ' * 200}{answer}{' a' * 3}")
    assert model.predict([pair]) == [answer]
    own, packed = student_logits(student, encode_split(tokenizer, rows_of([pair])), CPU), model.logits([pair])
    assert best_spans(own, None).tolist() == best_spans(packed, None).tolist() == [[201, 201]]
    assert np.allclose(packed, own, atol=1e-4)


def test_a_context_may_be_longer_than_a_batch_of_the_runtime(tmp_path, monkeypatch):
    about = {**packed_students.ALIGNED, "labels": ENDS, "kind": "answers", "max_tokens": 60}
    folder = packed_students.write_student(tmp_path / "s", "conv", "hash", **about)
    model, (student, tokenizer, _) = load(packed_students.write_packed(folder)), load_student(folder, CPU)
    monkeypatch.setattr(HashedWords, "most_values", 500)  # forgotten whenever no word is waiting
    pairs = [("w1 ?", words_from(0, 20_000)), ("w3", words_from(2, 5))]
    own = student_logits(student, encode_split(tokenizer, rows_of(pairs)), CPU)
    assert np.allclose(model.logits(pairs), own, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("loss", ["kl", "mse"])
def test_words_that_training_cuts_off_are_in_no_loss(loss):
    student, _ = student_of("bilstm", "hash")
    teacher = torch.randn((2, 41, 2), generator=torch.Generator().manual_seed(1))
    teacher[1, 21:] = torch.nan

    def losses(pairs, answers, alpha):
        batch = encode_split(HashTokenizer(60, 2, 30), rows_of(pairs)).batch(np.arange(len(pairs)), CPU)
        student.zero_grad()
        logits = for_loss(student(batch), batch)
        value = combined(ANSWERS, logits, torch.tensor(answers), teacher[: len(pairs)], alpha, loss, 1.0)
        value.backward()
        return [value.detach(), *(parameter.grad.clone() for parameter in student.parameters())]

    long, cut = (("how is w7 ?", words_from(0, count)) for count in (40, 30))
    other = ("how ?", words_from(0, 20))
    for alpha in (0.0, 0.5, 1.0):
        found = losses([long, other], [[30, 30], [2, 3]], alpha)
        torch.testing.assert_close(found, losses([cut, other], [[30, 30], [2, 3]], alpha))
    # An answer that is cut off has no label: the rest is learned as without the row, and alone it has no gradient.
    torch.testing.assert_close(losses([long, other], [[35, 36], [2, 3]], 1.0), losses([other], [[2, 3]], 1.0))
    assert not any(each.any() for each in losses([long], [[35, 36]], 1.0))


def test_questions_and_contexts_are_encoded_word_by_word():
    encoded = encode_split(HashTokenizer(60, 2, 30), rows_of([("film-plot", "the film's (plot)"), ("film", "")]))
    starts = encoded.word_starts
    assert starts.lengths.tolist() == [8, 1]
    assert starts.ids[:8, 0].tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    context, question = encoded.second.ids[: encoded.second.offsets[1]], encoded.text.ids[: encoded.text.offsets[1]]
    assert context[[1, 5]].tolist() == question[[0, 2]].tolist()


@pytest.mark.parametrize("arch", ARCHS)
def test_a_word_depends_on_the_question(arch):
    student, settings = student_of(arch)
    tokenizer = CharTokenizer(settings.max_tokens)
    first, second = (
        student_logits(student, encode_split(tokenizer, rows_of([(question, "the film")])), CPU)
        for question in ("film ?", "plot ?")
    )
    assert np.abs(first - second).max() > 1e-4


def test_no_answer_reads_the_maximum_over_the_context():
    student, settings = student_of("conv")
    batch = encode_split(CharTokenizer(settings.max_tokens), rows_of(PAIRS[:1])).batch(np.array([0]), CPU)
    every = torch.arange(-1, batch.second.lengths.item())[None]  # each token as a word
    inputs = student.encode(Batch(batch.ids, batch.lengths, batch.second, every))
    assert torch.equal(inputs[0, 0], inputs[0, 1:].amax(0))


def test_no_answer_reads_a_transformers_first_token():
    student, settings = student_of("transformer")
    batch = encode_split(CharTokenizer(settings.max_tokens), rows_of(PAIRS)).batch(np.arange(len(PAIRS)), CPU)
    states = student.encoder(*student._vectors(batch))
    read = student.encode(batch)
    assert torch.equal(read[:, 0], states[:, 0])
    # The first context's first word is behind the first token, the question and a separator.
    assert torch.equal(read[0, 1], states[0, 2 + len(PAIRS[0][0].replace(" ", "")) + len(PAIRS[0][0].split())])


@pytest.mark.parametrize("embedding", packed_students.EMBEDDINGS)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_packed_student_answers_as_the_student_does(tmp_path, arch, embedding):
    about = {"pair": True, "labels": ENDS, "kind": "answers", "max_tokens": 30, "f1": arch == "conv"}
    about |= {} if arch in packed_students.TRANSFORMERS else packed_students.ALIGNED
    folder = packed_students.write_student(tmp_path / "s", arch, embedding, "affine-row", **about)
    pairs = [*PAIRS, ("wie?", "\u00fcn\u00efcode \u200b \u6f22\u5b57 caf\u00e9's"), ("", "")]
    model = load(packed_students.write_packed(folder))
    student, tokenizer, _ = load_student(folder, CPU)
    own = student_logits(student, encode_split(tokenizer, rows_of(pairs)), CPU)
    packed = model.logits(pairs)
    assert packed.shape == own.shape
    assert np.allclose(packed, own, atol=1e-4, equal_nan=True)
    contexts = [context for _, context in pairs]
    chosen = best_spans(packed, model.threshold)
    assert model.threshold == (0.5 if arch == "conv" else None)
    assert model.predict(pairs) == [text for (text,) in texts_of(to_characters(chosen, contexts), contexts)]
    with pytest.raises(PackedError, match="answers questions has no probabilities"):
        model.probabilities(pairs)


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 40), st.just(2)), elements=st.floats(-9, 9, width=16)))
def test_the_runtime_chooses_the_answers_of_evaluation(logits):
    (first, last), (sure, _) = best_spans(logits[None], None)[0], best_spans(logits[None], 0.5)[0]
    assert spans.best_span(logits, None) == (None if first == 0 else (first - 1, last - 1))
    if sure:
        assert spans.best_span(logits, 0.5) == (first - 1, last - 1)
    elif first and logits[0].sum() > logits[first, 0] + logits[last, 1] + 1e-3:
        assert spans.best_span(logits, 0.5) is None


@pytest.mark.slow
def test_a_student_learns_to_answer(tmp_path, encoder):
    argument = str(tiny_questions.write_task(tmp_path / "files", 120, unanswerable=True))
    paths = Workspace(tmp_path / "w")
    preprocess(tiny.prepare_settings(paths.root, argument))
    finetune(tiny.finetune_settings(paths.root, argument, encoder, max_epochs=4, max_tokens=64))
    preprocess(tiny.prepare_settings(paths.root, argument, generate_loss=("processed",), precision="fp32"))
    given = {"student_arch": "bilstm", "embedding_type": "hash", "pair_encoder": "align", "only_original_data": True}
    sizes = {"embedding_dim": 12, "encoder_hidden_dim": 12, "vocab_size": 500, "hash_ratio": 2, "epochs": 12}
    given |= {"alpha": 0.5, "loss": "kl", "temperature": 1.0, "compression_actions": ("distill", "quantize", "pack")}
    settings = {"workspace": paths.root, "task": argument, **tiny.small(**given, **sizes)}
    scores = {}
    for folder in compress(tiny.compress_settings(**settings)):
        config = read_config(folder)
        assert (config.task_kind, config.pair) == (ANSWERS, True)
        row = score_of(paths.root, folder.name, argument)
        scores[config.stage] = row["metrics"]["answer_f1"]
    packed = score_of(paths.root, folder.name, argument, packed=True)
    assert packed["metrics"] == row["metrics"]
    assert packed["threshold"] == load(paths.packed("films", folder.name)).threshold
    assert scores["distilled"] > 0.6
    assert scores["quantized"] > 0.5
    for changed, message in (
        ({"pair_encoder": "compare"}, "question answering .* needs --pair-encoder align"),
        ({"compression_actions": ("distill", "export")}, "predicts answers is not exported to ONNX"),
    ):
        with pytest.raises(UserError, match=message):
            compress(tiny.compress_settings(**{**settings, **changed}))
