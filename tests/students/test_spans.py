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

from common.data.ragged import known
from common.data.spans import ENDS, best_spans, texts_of, to_characters, word_spans
from common.data.split import Split
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.evaluation.evaluate import evaluate
from compression.evaluation.settings import EvaluateSettings
from compression.runtime import PackedError, load, spans
from compression.shrinking.chain import compress
from compression.students.batch import Batch
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits
from compression.students.settings import StudentSettings
from compression.students.spec import StudentSpec
from compression.students.student import Student
from compression.tokenizers.char import CharTokenizer
from compression.tokenizers.hash import HashTokenizer

CPU = torch.device("cpu")
PAIRS = [("how is the film ?", "the film (1990) is wonderful!"), ("", "plot"), ("a" * 9, ""), ("film", "a, b; " * 20)]


def rows_of(pairs):
    questions, contexts = zip(*pairs, strict=True)
    return Split(list(questions), list(contexts), np.full((len(pairs), 1, 2), -1), np.arange(len(pairs)))


ARCHS = ("bilstm", "conv", *packed_students.TRANSFORMERS)


def student_of(arch):
    torch.manual_seed(0)
    sizes = {"embedding_dim": 6, "encoder_hidden_dim": 5, "cls_hidden_dim": 7, "max_tokens": 30}
    if arch in packed_students.TRANSFORMERS:
        sizes |= packed_students.TRANSFORMER
    else:
        sizes |= {"pooling": "max", "pair_encoder": "align"}
    settings = StudentSettings(embedding_type="char", **sizes)
    return Student(arch, settings, outputs=2, pair=True, tokens=True).eval(), settings


@pytest.mark.parametrize("arch", ARCHS)
def test_every_word_of_the_context_has_logits_whatever_the_batch(arch):
    student, settings = student_of(arch)
    encoded = encode_split(CharTokenizer(settings.max_tokens), rows_of(PAIRS))
    logits = student_logits(student, encoded, CPU)
    assert known(logits).sum(1).tolist() == [1 + len(word_spans(context)) for _, context in PAIRS]
    assert logits.shape[2] == 2
    for row in range(len(PAIRS)):
        alone = student_logits(student, encode_split(CharTokenizer(30), rows_of(PAIRS[row : row + 1])), CPU)[0]
        assert logits[row, : len(alone)] == pytest.approx(alone, abs=1e-5)
    # Words that are cut off have the last token's logits.
    assert logits[3, -1].tolist() == logits[3, -2].tolist()
    size = StudentSpec(arch, settings, 2, True, True).encoder
    assert size.output == size.state


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
    about = {"pair": True, "labels": ENDS, "tokens": True, "max_tokens": 30, "f1": arch == "conv"}
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
    with pytest.raises(PackedError, match="answers questions; its labels have no probabilities"):
        model.probabilities(pairs)


@given(st.text(st.sampled_from("ab1 .'\u00e9_\u6f22\u200b\u0301"), max_size=20))
def test_the_runtime_has_the_words_of_training(text):
    assert spans.word_spans(text) == list(map(tuple, word_spans(text).tolist()))


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
        assert (config.tokens, config.pair) == (True, True)
        about = {"task": argument, "workspace": paths.root, "model_name": folder.name, "cpu": True, "loadbar": False}
        (row,) = evaluate(EvaluateSettings(**about))
        scores[config.stage] = row["metrics"]["answer_f1"]
    (packed,) = evaluate(EvaluateSettings(**{**about, "packed": True}))
    assert packed["metrics"] == row["metrics"]
    assert packed["threshold"] == load(paths.packed("films", folder.name)).threshold
    assert scores["distilled"] > 0.6
    assert scores["quantized"] > 0.5
    for changed, message in (
        ({"pair_encoder": "compare"}, "question answering .* needs --pair-encoder align"),
        ({"compression_actions": ("distill", "export")}, "answers questions is not exported to ONNX"),
    ):
        with pytest.raises(UserError, match=message):
            compress(tiny.compress_settings(**{**settings, **changed}))
