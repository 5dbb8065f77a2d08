"""A task of tokens through every stage, from teacher to packed file."""

import json

import numpy as np
import packed_students
import pytest
import tiny
import tiny_tags
import torch
from stages import score_of

from common.data.split import Split, load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.kinds.iob import entities
from common.kinds.registry import TAGS
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.huggingface.tagger import HuggingFaceTagger
from common.teachers.logits import load_logits
from common.training.metrics import score
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.inference.predict import PredictSettings, predict
from compression.runtime import load
from compression.shrinking.chain import compress
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
ARCHS = [arch for arch in tiny.POOLINGS if arch != "ffn"]


@pytest.fixture(scope="module")
def taught(tmp_path_factory, encoder, glove):
    """A workspace with a task of tokens, its teacher, augmented rows and logits. To be read, not written."""
    folder = tmp_path_factory.mktemp("tokens")
    task = str(tiny_tags.write_task(folder / "files"))
    workspace = folder / "workspace"
    tiny.teach(workspace, task, encoder, glove, max_epochs=6)
    return workspace, task


@pytest.fixture
def workspace(taught, tmp_path):
    """A copy for a test to write in, and the task."""
    return tiny.copy_workspace(taught[0], tmp_path / "workspace"), taught[1]


def distilled(workspace, task, **given):
    shape = {"student_arch": "bilstm", "embedding_type": "hash", "only_original_data": True, "alpha": 0.5}
    return compress(tiny.compress_settings(workspace=workspace, task=task, **tiny.small(**{**shape, **given})))


def words_of(*texts):
    """Rows of texts, of labels that do not matter."""
    counts = max(text.count(" ") + 1 for text in texts)
    return Split(list(texts), None, np.zeros((len(texts), counts), np.int64), np.arange(len(texts)), TAGS)


def test_a_teachers_word_has_the_logits_of_its_first_piece(taught):
    workspace, _ = taught
    folder = Workspace(workspace).model("parts", "tiny-bert")
    teacher = HuggingFaceTagger.load(folder, CPU, torch.float32)
    words = ["the", "stupid", "film", "\u200b", "tedious"]  # whole, in letters, whole, without a piece, in letters
    found = teacher.logits(words_of(" ".join(words), "film"))
    tokens = teacher.tokenizer([words], is_split_into_words=True, return_tensors="pt")
    with torch.inference_mode():
        whole = teacher.model(**tokens).logits[0].numpy()
    pieces = tokens.word_ids(0)
    first = [pieces.index(word) for word in (0, 1, 2, 2, 4)]
    assert pieces.count(1) > 1
    assert found[0] == pytest.approx(whole[first], abs=1e-5)
    assert np.isnan(found[1, 1:]).all()
    assert not np.isnan(found[1, 0]).any()


def test_logits_of_words_are_kept_and_ensembles_are_their_mean(workspace, encoder):
    workspace, name = workspace
    paths, task = Workspace(workspace), load_task(name)
    train = load_split(paths, task, "train")
    logits = load_logits(paths, task, "tiny-bert", "train")
    assert logits.shape == (*train.labels.shape, len(tiny_tags.LABELS))
    assert np.array_equal(~np.isnan(logits[..., 0]), train.labels >= 0)
    assert score(task, train.labels, logits)["entity_f1"] > 0.75
    finetune(tiny.finetune_settings(workspace, name, encoder, max_epochs=1, model_name="other"))
    finetune(tiny.finetune_settings(workspace, name, encoder, ensemble=("tiny-bert", "other")))
    rows = {"model_name": "ensemble", "generate_loss": ("processed",), "precision": "fp32"}
    preprocess(tiny.prepare_settings(workspace, name, **rows))
    both = [load_logits(paths, task, model, "train") for model in ("tiny-bert", "other")]
    mean = load_logits(paths, task, "ensemble", "train")
    assert np.allclose(mean, np.mean(both, axis=0), equal_nan=True)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_student_learns_packs_and_answers_alike(workspace, arch, capsys):
    workspace, task = workspace
    given = {"compression_actions": ("distill", "prune", "quantize", "pack"), "prune_threshold": 0.1}
    embedding = "wordpiece" if arch == "recursive" else "bpe"
    folder = distilled(workspace, task, student_arch=arch, embedding_type=embedding, **given)[-1]
    whole, packed = (score_of(workspace, folder.name, task, packed=packed) for packed in (False, True))
    assert whole["metrics"] == packed["metrics"]
    assert read_config(folder).task_kind is TAGS
    (workspace / "in.txt").write_text("the film is truly moving !\n\nplot\n")
    about = {"workspace": workspace, "input": workspace / "in.txt", "cpu": True, "format": "lines"}
    predict(PredictSettings(model=str(folder), **about))
    by_folder = capsys.readouterr().out
    predict(PredictSettings(model=str(Workspace(workspace).packed("parts", folder.name)), **about))
    assert capsys.readouterr().out == by_folder
    first_column = [line.split("\t")[0] for line in by_folder.splitlines()]
    assert first_column == ["the", "film", "is", "truly", "moving", "!", "", "", "plot", ""]


def test_a_student_learns_what_its_teacher_knows(workspace):
    workspace, task = workspace
    sizes = {"embedding_dim": 16, "encoder_hidden_dim": 16, "vocab_size": 2000, "hash_ratio": 2}
    (folder,) = distilled(workspace, task, alpha=0.0, epochs=25, patience=25, batch_size=8, lr=0.01, **sizes)
    teacher, student = (score_of(workspace, name, task)["metrics"]["entity_f1"] for name in ("tiny-bert", folder.name))
    assert student > teacher - 0.1 > 0.6


def test_bits_are_chosen_by_what_they_do_to_words(workspace):
    workspace, task = workspace
    (student,) = distilled(workspace, task, embedding_dim=16, encoder_hidden_dim=16, epochs=1)
    smaller = {"compression_actions": ("quantize", "pack"), "load_trained_model": student.name, "force": True}
    sizes = []
    for most in (3_000, 6_000):
        folder = distilled(workspace, task, max_bytes=most, **smaller)[-1]
        sizes.append(Workspace(workspace).packed("parts", folder.name).stat().st_size)
    assert sizes[0] <= 3_000 < sizes[1] <= 6_000


def test_a_student_guides_itself_over_a_part_of_the_rows(workspace):
    workspace, task = workspace
    tuned = {"compression_actions": ("distill", "quantize"), "tune_epochs": 1, "guide": "student"}
    assert distilled(workspace, task, downsample_data=0.1, **tuned)


def test_augmented_rows_take_the_teachers_tags(workspace):
    workspace, task = workspace
    (folder,) = distilled(workspace, task, only_original_data=False, alpha=0.0)
    assert read_config(folder).augmented


def test_a_transformer_is_aligned_with_a_teacher_that_tags(workspace):
    workspace, task = workspace
    given = {"student_arch": "recursive", "embedding_type": "wordpiece", "encoder_hidden_dim": 12, "heads": 2}
    given |= {"iterations": 1, "align_hidden": 1.0, "align_attention": 1.0, "align_first": 1}
    (folder,) = distilled(workspace, task, **given)
    assert len(tiny.read_history(folder)) == 3


@pytest.mark.parametrize("embedding", packed_students.EMBEDDINGS)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_packed_student_tags_as_the_student_does(tmp_path, arch, embedding):
    folder = packed_students.write_student(
        tmp_path / "s", arch, embedding, "affine-row", labels=tiny_tags.LABELS, kind="tags", max_tokens=9
    )
    texts = [text for text, _ in tiny.sentences(12)] + ["", "ünïcode \u200b 漢字", "a " * 20 + "b"]
    packed = load(packed_students.write_packed(folder)).logits(texts)
    student, tokenizer, _ = load_student(folder, CPU)
    split = words_of(*texts)
    own = student_logits(student, encode_split(tokenizer, split), CPU)
    assert packed.shape == own.shape
    assert np.allclose(packed, own, atol=1e-4, equal_nan=True)
    alone = [student_logits(student, encode_split(tokenizer, split.take(np.array([i]))), CPU)[0] for i in range(4)]
    for row, one in enumerate(alone):
        assert np.allclose(own[row, : len(one)], one, atol=1e-5)


def test_predictions_next_to_the_input(workspace, capsys):
    workspace, task = workspace
    (folder,) = distilled(workspace, task, epochs=4)
    about = {"workspace": workspace, "model": str(folder), "cpu": True}
    (workspace / "in.csv").write_text("text,n\nthe film is moving,1\n")
    predict(PredictSettings(input=workspace / "in.csv", **about))
    header, line = capsys.readouterr().out.splitlines()
    assert header == "text,n,predicted_tags"
    tags = line.split(",")[2].split()
    predict(PredictSettings(input=workspace / "in.csv", output_format="jsonl", **about))
    answer = json.loads(capsys.readouterr().out)
    assert answer["predicted_tags"] == tags
    assert [(e["kind"], e["first"], e["end"]) for e in answer["entities"]] == entities(tags)


def test_what_cannot_tag_is_refused(workspace, prepared):
    workspace, task = workspace
    with pytest.raises(UserError, match="an FFN has one state per text"):
        distilled(workspace, task, student_arch="ffn", loss="mse")
    with pytest.raises(UserError, match="use a Hugging Face encoder"):
        finetune(tiny.finetune_settings(workspace, task, "roberta_base"))
    (folder,) = distilled(workspace, task)
    with pytest.raises(UserError, match="not exported to ONNX"):
        distilled(workspace, task, compression_actions=("export",), load_trained_model=folder.name)
    of_texts = prepared / "models" / "sst-2" / "tiny-bert"
    for arch in (of_texts, of_texts / "huggingface"):
        with pytest.raises(UserError, match="labels texts, parts words"):
            finetune(tiny.finetune_settings(workspace, task, arch, as_is=True))
