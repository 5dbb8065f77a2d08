"""--accumulate: the losses of a batch's parts, and so their gradients, add up to the whole batch's.

Texts have different numbers of tokens, so that the mean over a part's tokens counts less or more than its rows do.
"""

import json

import numpy as np
import pytest
import tiny_tags
import torch

from common.data.split import Split
from common.data.tasks import Task
from common.kinds.registry import ANSWERS, TAGS
from common.kinds.spans import ENDS
from common.store.step import Context
from common.teachers.huggingface.pretrained import load_general
from compression.distillation.alignment import Aligner, AlignmentTeacher
from compression.distillation.dataset import DistillationSet
from compression.distillation.trainer import train_student
from compression.shrinking.chain import compress
from compression.shrinking.settings import CompressSettings, defaults_for
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers.teacher_vocabulary import vocabulary_of
from compression.tokenizers.unlearned import CharTokenizer

LENGTHS = (1, 2, 1, 9, 4, 1, 7, 2, 12, 3)
SHAPE = {"embedding_dim": 8, "encoder_hidden_dim": 12, "heads": 2, "intermediate_dim": 16, "max_tokens": 24}
CONV = {"student_arch": "conv", "embedding_type": "char", "embedding_dim": 6, "pooling": "max"}
WHOLE = {"epochs": 2, "batch_size": 5, "lr": 1e-3, "dropout": 0.0, "cpu": True, "only_original_data": True}


def tags():
    labels = [np.arange(length) % 4 for length in LENGTHS]
    labels = np.stack([np.pad(each, (0, max(LENGTHS) - len(each)), constant_values=-1) for each in labels])
    return Split([" ".join("film"[: 1 + n % 4] for n in range(n)) for n in LENGTHS], None, labels, np.arange(10), TAGS)


def questions():
    """A word is two tokens, and the answer is the last word: those of long contexts are cut off."""
    labels = np.array([[[2 * length - 2, 2 * length - 1]] for length in LENGTHS])
    return Split(["how ?"] * 10, ["a " * (length - 1) + "b" for length in LENGTHS], labels, np.arange(10), ANSWERS)


def texts():
    return Split(["the film " * length for length in LENGTHS], None, np.arange(10) % 2, np.arange(10))


def losses_of(folder, split, task, parts, logits=None, aligned=None, **given):
    """The mean loss of each epoch, the second after some steps."""
    settings = CompressSettings(task="sst-2", workspace=folder, accumulate=parts, **WHOLE, **given)
    tokenizer, aligner = CharTokenizer(settings.max_tokens), None
    if aligned is not None:
        vocabulary = vocabulary_of(aligned.tokenizer, "bert")
        tokenizer = vocabulary.tokenizer(settings.max_tokens)
        settings = settings.model_copy(update={"vocab_size": tokenizer.vocab_size})
        torch.manual_seed(2)
        aligner = Aligner(
            settings,
            settings.student_arch,
            settings,
            AlignmentTeacher(aligned.model, vocabulary, torch.device("cpu")),
            settings.epochs,
        )
    torch.manual_seed(1)
    student = Student(settings.student_arch, settings.part(StudentSettings), task.outputs, task.pair, task.kind.by_word)
    rows = DistillationSet(split, logits, False)
    context = Context(work=folder / f"work{parts}", key="key", name="student", cache=folder / "cache")
    history = train_student(
        settings, settings, settings.seed, task, student, tokenizer, rows, split, context, aligner=aligner
    )
    return [epoch["loss"] for epoch in history]


def task_of(**given):
    return Task(**{"name": "mine", "source": {"files": {}}, **given})


def random_logits(counts, outputs):
    logits = np.random.default_rng(1).normal(size=(len(counts), max(counts), outputs)).astype(np.float32)
    logits[np.arange(max(counts)) >= np.array(counts)[:, None]] = np.nan
    return logits


@pytest.mark.parametrize("parts", [2, 3, 99])
@pytest.mark.parametrize("loss", ["mse", "kl"])
def test_of_tagged_words(tmp_path, parts, loss):
    task, logits = task_of(kind="tags", labels=tiny_tags.LABELS), random_logits(LENGTHS, 4)
    given = {**CONV, "alpha": 0.5, "loss": loss}
    whole, in_parts = (losses_of(tmp_path, tags(), task, each, logits, **given) for each in (1, parts))
    assert in_parts == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("parts", [2, 99])
@pytest.mark.parametrize("loss", ["mse", "kl", "temperature-softmax"])
def test_of_answers(tmp_path, parts, loss):
    task, logits = task_of(kind="answers", labels=ENDS), random_logits([1 + length for length in LENGTHS], 2)
    given = {**CONV, "pair_encoder": "align", "max_tokens": 7, "alpha": 0.5, "loss": loss}
    whole, in_parts = (losses_of(tmp_path, questions(), task, each, logits, **given) for each in (1, parts))
    assert in_parts == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("states", ["scores", "probabilities"])
def test_of_aligned_states(tmp_path, masked_lm, states):
    given = {"student_arch": "transformer", "embedding_type": "wordpiece", "layers": 1, **SHAPE, "alpha": 1.0}
    given |= {"align_hidden": 1.0, "align_attention": 1.0, "align_embedding": 1.0, "align_last": 1.0}
    given |= {"attention_states": states, "aligned": load_general(str(masked_lm))}
    task = task_of(labels=["0", "1"])
    whole, in_parts = (losses_of(tmp_path, texts(), task, each, **given) for each in (1, 3))
    assert in_parts == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("pairs", [None, "sentence_order_weight", "next_sentence_weight"])
def test_of_masked_pieces_and_pairs(workspace, masked_lm, tmp_path, pairs):
    """Pieces and pairs are drawn for the whole batch; parts of one pair have changed pairs too, and maybe no piece."""
    (tmp_path / "corpus.txt").write_text("".join(f"the film {'is a film ' * length}!\n" for length in LENGTHS))

    def losses(parts):
        values = {"compression_actions": ("pretrain",), "teacher": str(masked_lm), "model_name": f"parts{parts}"}
        values |= {"corpus": (str(tmp_path / "corpus.txt"),), "workspace": workspace, "accumulate": parts, "layers": 1}
        values |= {"align_hidden": 1.0, "align_attention": 1.0, "output_temperature": 2.0, **SHAPE, **WHOLE}
        values |= {pairs: 3.0} if pairs else {}
        (folder,) = compress(CompressSettings(**{**defaults_for(values), **values}))
        return [json.loads(line)["loss"] for line in (folder / "history.jsonl").read_text().splitlines()]

    whole = losses(1)
    for parts in (2, 5):
        assert losses(parts) == pytest.approx(whole, rel=1e-4)


def test_dropped_words_are_read_by_the_student_in_training_alone(tmp_path, masked_lm, monkeypatch):
    """With --word-dropout the teacher reads whole texts, and so does the student when it is validated."""
    read: dict[str, list[int]] = {"training": [], "validating": [], "teacher": []}
    vectors, states = Student._vectors, AlignmentTeacher.states

    def of_student(student, batch):
        read["training" if student.training else "validating"] += batch.ids.flatten().tolist()
        return vectors(student, batch)

    def of_teacher(teacher, batch, *more):
        read["teacher"] += batch.ids.flatten().tolist()
        return states(teacher, batch, *more)

    monkeypatch.setattr(Student, "_vectors", of_student)
    monkeypatch.setattr(AlignmentTeacher, "states", of_teacher)
    given = {"student_arch": "transformer", "embedding_type": "wordpiece", "layers": 1, **SHAPE, "alpha": 1.0}
    given |= {"align_last": 1.0, "aligned": load_general(str(masked_lm)), "word_dropout": 0.999}
    losses_of(tmp_path, texts(), task_of(labels=["0", "1"]), 1, **given)
    known = {who: np.mean(np.array(ids) != 0) for who, ids in read.items()}
    assert known["training"] < 0.01
    assert min(known["validating"], known["teacher"]) > 0.3
