"""A task of several labels a text through every stage, from a JSONL file to a packed file."""

import json

import numpy as np
import pytest
import tiny
import tiny_labels
import torch
from learned_rows import distillation_set
from stages import logits_of, score_of

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.logits import load_logits
from common.training.metrics import score
from common.training.models import read_config
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.label_shift import recorded_labels
from compression.augmentation.preprocess import preprocess
from compression.experiments.best import BestSettings, best
from compression.experiments.compare import CompareSettings, compare
from compression.experiments.comparison_text import comparison_text
from compression.experiments.report import terminal_table
from compression.inference.predict import PredictSettings, predict
from compression.runtime import load
from compression.shrinking.chain import compress

pytestmark = pytest.mark.slow
METRICS = ["f1_micro", "f1_macro", "subset_accuracy"]


@pytest.fixture(scope="module")
def taught(tmp_path_factory, encoder, glove):
    """A workspace with rows in part unlabelled, a teacher, augmented rows and logits. To be read, not written."""
    folder = tmp_path_factory.mktemp("several")
    rows = [(text, None if i % 8 == 0 else labels) for i, (text, labels) in enumerate(tiny_labels.labelled(240))]
    task = str(tiny_labels.write_task(folder / "files", rows))
    workspace = folder / "workspace"
    tiny.teach(workspace, task, encoder, glove, max_epochs=15, patience=15)
    return workspace, task


@pytest.fixture
def workspace(taught, tmp_path):
    """A copy for a test to write in, and the task."""
    return tiny.copy_workspace(taught[0], tmp_path / "workspace"), taught[1]


def distilled(workspace, task, **given):
    shape = {"student_arch": "ffn", "embedding_type": "hash", "only_original_data": True, "alpha": 0.5, "loss": "mse"}
    return compress(tiny.compress_settings(workspace=workspace, task=task, **tiny.small(**{**shape, **given})))


def test_from_a_jsonl_file_to_a_packed_file_that_answers(workspace, capsys):
    workspace, task = workspace
    actions = ("distill", "quantize", "pack")
    sizes = {"embedding_dim": 16, "cls_hidden_dim": 16, "vocab_size": 2000, "hash_ratio": 2, "bits": 8}
    given = {"alpha": 0.0, "epochs": 30, "patience": 30, "batch_size": 8, "loss": "kl", "temperature": 2.0, **sizes}
    distilled_, quantized = distilled(workspace, task, compression_actions=actions, **given)
    teacher, *students = (score_of(workspace, name, task) for name in ("tiny-bert", distilled_.name, quantized.name))
    assert list(teacher["metrics"]) == METRICS
    assert teacher["metrics"]["f1_micro"] > 0.75  # all labels for each text have 0.6
    assert all(row["metrics"]["f1_micro"] > 0.75 for row in students)
    assert score_of(workspace, quantized.name, task, packed=True)["metrics"] == students[-1]["metrics"]
    assert all(title in terminal_table([teacher, *students]) for title in ("F1 micro, %", "Subset accuracy, %"))

    path = Workspace(workspace).packed("topics", quantized.name)
    split = load_split(Workspace(workspace), load_task(task), "test")
    logits = logits_of(quantized, split)
    shares = torch.from_numpy(logits / load(path).temperature).sigmoid().numpy()
    np.testing.assert_allclose(load(path).probabilities(split.sentence1), shares, atol=1e-5)
    assert (read_config(quantized).task_kind.name, load(path).kind, load(path).labels) == (
        "multilabel",
        "multilabel",
        tuple(tiny_labels.LABELS),
    )

    (workspace / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in split.sentence1))
    answers = []
    for model in (str(quantized), str(path)):
        predict(PredictSettings(model=model, workspace=workspace, input=workspace / "in.jsonl", cpu=True))
        answers.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    chosen = [[label for label, yes in zip(tiny_labels.LABELS, row, strict=True) if yes] for row in logits >= 0]
    for found in answers:
        assert [answer["predicted_labels"] for answer in found] == chosen
        np.testing.assert_allclose([list(answer["probabilities"].values()) for answer in found], shares, atol=1e-5)


def test_a_teacher_trains_with_sigmoids_and_says_so(taught):
    workspace, task = taught
    folder = Workspace(workspace).model("topics", "tiny-bert")
    assert read_config(folder).task_kind.independent
    config = json.loads((folder / "huggingface" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    logits = load_logits(Workspace(workspace), load_task(task), "tiny-bert", "train")
    train = load_split(Workspace(workspace), load_task(task), "train")
    rows = np.flatnonzero(train.labelled)
    assert score(load_task(task), train.labels[rows], logits[rows])["f1_micro"] > 0.75


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_rows_without_labels_and_augmented_rows_take_the_teachers_labels(workspace, alpha):
    workspace, name = workspace
    paths, task = Workspace(workspace), load_task(name)
    settings = tiny.compress_settings(workspace=workspace, task=name, **tiny.small(alpha=alpha))
    rows = distillation_set(settings, task)
    train = load_split(paths, task, "train")
    chosen = task.kind.choices(task, rows.logits)
    own = np.flatnonzero(train.labelled)
    np.testing.assert_array_equal(rows.split.labels[own], train.labels[own])
    others = np.setdiff1d(np.arange(len(rows.split)), own)
    assert len(others) > len(train) - len(own) > 0
    np.testing.assert_array_equal(rows.split.labels[others], chosen[others])
    alone = {"alpha": 1.0, "only_original_data": True}
    labelled = distillation_set(settings.model_copy(update=alone), task)
    assert len(labelled.split) == len(own)


def test_shares_of_labels_are_of_rows(taught):
    workspace, name = taught
    paths, task = Workspace(workspace), load_task(name)
    found = {shares.rows: shares for shares in recorded_labels(paths, {name: None})}
    train = load_split(paths, task, "train")
    logits = load_logits(paths, task, "tiny-bert", "tinybert")
    for rows, labels in (("train", train.labels[train.labelled]), ("augmented", task.kind.choices(task, logits))):
        assert found[rows].count == len(labels)
        expected = labels.sum(0) / len(labels)
        assert list(found[rows].shares.values()) == pytest.approx(expected.tolist())


@pytest.mark.parametrize(
    ("arch", "embedding", "alpha", "loss", "more"),
    [
        ("bilstm", "bpe", 0.0, "kl", {"compression_actions": ("distill", "factorize", "quantize"), "rank": 0.5}),
        ("conv", "hash", 0.5, "temperature-softmax", {"prune_aware": True, "only_original_data": False}),
        ("rnn", "char", 1.0, "mse", {"compression_actions": ("distill", "prune", "quantize"), "tune_epochs": 1}),
        ("ffn", "hash", 0.5, "kl", {"compression_actions": ("distill", "quantize"), "max_loss": 60.0}),
        ("ffn", "hash", 0.5, "kl", {"compression_actions": ("distill", "quantize"), "max_bytes": 2000}),
    ],
)
def test_every_way_to_train_and_shrink(workspace, arch, embedding, alpha, loss, more):
    workspace, task = workspace
    given = {"student_arch": arch, "embedding_type": embedding, "alpha": alpha, "loss": loss, "epochs": 1, **more}
    folders = distilled(workspace, task, **given)
    assert all(read_config(folder).task_kind.independent for folder in folders)
    row = score_of(workspace, folders[-1].name, task)
    assert list(row["metrics"]) == METRICS
    found = analyze(AnalyzeSettings(task=task, workspace=workspace, model_name=folders[-1].name, json_=True))
    assert found["bytes_model"] == row["bytes_model"]


def test_a_student_guides_itself(workspace):
    workspace, task = workspace
    tuned = {"compression_actions": ("distill", "quantize"), "tune_epochs": 1, "guide": "student", "epochs": 1}
    assert distilled(workspace, task, **tuned)


def test_a_transformer_is_aligned_with_its_teacher(workspace):
    workspace, task = workspace
    given = {"student_arch": "transformer", "embedding_type": "wordpiece", "encoder_hidden_dim": 12, "heads": 2}
    given |= {"layers": 1, "align_hidden": 1.0, "align_attention": 1.0, "align_first": 1, "intermediate_dim": 8}
    (folder,) = distilled(workspace, task, **given)
    assert len(tiny.read_history(folder)) == 3


def test_ensembles_adapters_and_teachers_taken_as_they_are(workspace, encoder):
    workspace, name = workspace
    paths, task = Workspace(workspace), load_task(name)
    finetune(tiny.finetune_settings(workspace, name, encoder, max_epochs=1, adapters=4, model_name="adapted"))
    finetune(tiny.finetune_settings(workspace, name, encoder, ensemble=("tiny-bert", "adapted")))
    rows = {"model_name": "ensemble", "generate_loss": ("processed",), "precision": "fp32"}
    preprocess(tiny.prepare_settings(workspace, name, **rows))
    both = [load_logits(paths, task, model, "train") for model in ("tiny-bert", "adapted")]
    assert np.allclose(load_logits(paths, task, "ensemble", "train"), np.mean(both, axis=0))
    of_ours = paths.model("topics", "tiny-bert")
    for arch, model in ((of_ours, "again"), (of_ours / "huggingface", "from-files")):
        finetune(tiny.finetune_settings(workspace, name, arch, as_is=True, model_name=model))
        assert score_of(workspace, model, name)["metrics"] == score_of(workspace, "tiny-bert", name)["metrics"]


def test_two_students_are_compared_and_the_best_is_found(workspace):
    workspace, task = workspace
    for model, epochs in (("short", 1), ("long", 6)):
        distilled(workspace, task, model_name=model, epochs=epochs)
        score_of(workspace, model, task)
    found = compare(CompareSettings(task=task, workspace=workspace), "short", "long")
    (line,) = found.lines
    assert [effect.metric for effect in line.effects] == METRICS
    assert all(effect.interval is not None for effect in line.effects)
    (test,) = line.tests
    rights = []
    for model in ("short", "long"):
        split = load_split(Workspace(workspace), load_task(task), "test")
        logits = logits_of(Workspace(workspace).model("topics", model), split)
        predicted = load_task(task).kind.choices(load_task(task), logits)
        rights.append((predicted == split.labels).all(1))
    assert (test.b, test.c) == ((rights[0] & ~rights[1]).sum(), (~rights[0] & rights[1]).sum())
    assert "a row of topics is right if it has exactly the right labels" in " ".join(comparison_text(found).split())
    ranking = best(BestSettings(task=task, workspace=workspace))
    assert ranking.metric == "f1_micro"


def test_pairs_of_texts(tmp_path, encoder):
    lines = [
        {"a": text, "b": " ".join(reversed(text.split())), "label": labels} for text, labels in tiny_labels.labelled(80)
    ]
    columns = {"sentence1": "a", "sentence2": "b", "label": "label"}
    task = str(tiny_labels.write_task(tmp_path / "files", [], columns=columns))
    (tmp_path / "files" / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    workspace = tmp_path / "workspace"
    preprocess(tiny.prepare_settings(workspace, task))
    finetune(tiny.finetune_settings(workspace, task, encoder, max_epochs=1))
    preprocess(tiny.prepare_settings(workspace, task, precision="fp32", generate_loss=("processed",)))
    folder = distilled(workspace, task, epochs=1, compression_actions=("distill", "pack"))[0]
    row = score_of(workspace, folder.name, task)
    assert score_of(workspace, folder.name, task, packed=True)["metrics"] == row["metrics"]


def test_without_any_labels_students_agree_with_an_adopted_teacher(workspace, tmp_path):
    workspace, _ = workspace
    rows = [(text, None) for text, _ in tiny_labels.labelled(100)]
    task = str(tiny_labels.write_task(tmp_path / "files", rows, name="unknown"))
    preprocess(tiny.prepare_settings(workspace, task))
    finetune(tiny.finetune_settings(workspace, task, "topics/tiny-bert", as_is=True, model_name="t"))
    over = {"generate_loss": ("processed", "validation", "test"), "precision": "fp32"}
    preprocess(tiny.prepare_settings(workspace, task, **over))
    (folder,) = distilled(workspace, task, alpha=0.0, epochs=1)
    assert 0 <= score_of(workspace, folder.name, task)["metrics"]["agreement"] <= 1


def test_what_does_not_fit_is_refused(workspace, prepared, tmp_path):
    workspace, task = workspace
    with pytest.raises(UserError, match="topics is of kind multilabel: use a Hugging Face encoder"):
        finetune(tiny.finetune_settings(workspace, task, "roberta_base"))
    of_one = prepared / "models" / "sst-2" / "tiny-bert"
    for arch in (of_one, of_one / "huggingface"):
        with pytest.raises(UserError, match="labels texts, topics texts with any number of labels"):
            finetune(tiny.finetune_settings(workspace, task, arch, as_is=True))
    rows = [(text, labels[0] if labels else "none") for text, labels in tiny_labels.labelled(80)]
    labels = [*tiny_labels.LABELS, "none"]
    one = str(tiny_labels.write_task(tmp_path / "one", rows, name="one", kind="labels", labels=labels))
    preprocess(tiny.prepare_settings(workspace, one))
    several = Workspace(workspace).model("topics", "tiny-bert")
    for arch in (several, several / "huggingface"):
        with pytest.raises(UserError, match="labels texts with any number of labels, one texts"):
            finetune(tiny.finetune_settings(workspace, one, arch, as_is=True))
    (folder,) = distilled(workspace, task, epochs=1)
    changed = tiny_labels.write_task(tmp_path / "changed", [], kind="labels")
    with pytest.raises(UserError, match="predicts multilabel, topics has labels"):
        score_of(workspace, folder.name, str(changed))
