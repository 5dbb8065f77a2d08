"""Classifiers adopted as teachers without training."""

import numpy as np
import pytest
import tiny
import torch
import transformers
from answer_files import GOOD, answers, imported, prepared_task, write
from own_task import NAMES, write_yaml

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.logits import load_logits
from common.teachers.settings import FinetuneSettings
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess


def write_classifier(encoder, folder, names=None, outputs=2):
    """A Hugging Face classifier with a head of random, but saved, weights."""
    labels = {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}} if names else {}
    torch.manual_seed(1)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=outputs, **labels)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory):
    """(workspace, task file): a prepared task of sentences without labels."""
    folder = tmp_path_factory.mktemp("unlabelled")
    (folder / "lines.txt").write_text("".join(f"{text}\n" for text, _ in tiny.sentences(120)))
    path = write_yaml(folder, {"all": "lines.txt"}, name="lines", columns=None)
    preprocess(tiny.prepare_settings(folder / "w", path))
    return folder / "w", path


def adopted(unlabelled, source, **given):
    return finetune(tiny.finetune_settings(*unlabelled, source, **{"as_is": True, **given}))


@pytest.mark.parametrize("names", [None, ["Thumbs Down", "Thumbs Up"]])
def test_a_classifier_is_adopted_with_its_weights_and_logits(tmp_path, encoder, unlabelled, names):
    source = write_classifier(encoder, tmp_path / "clf", names)
    folder = adopted(unlabelled, source, model_name=f"t{bool(names)}")
    assert adopted(unlabelled, source, model_name=folder.name) == folder
    config = read_config(folder)
    assert (config.kind, config.task, config.labels, config.trained_on) == ("teacher", "lines", NAMES, ())
    rows = {"generate_loss": ("validation",), "model_name": folder.name, "precision": "fp32"}
    preprocess(tiny.prepare_settings(*unlabelled, **rows))
    paths, task = Workspace(unlabelled[0]), load_task(unlabelled[1])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    texts = load_split(paths, task, "validation").sentence1
    with torch.inference_mode():
        expected = [model(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in texts]
    np.testing.assert_allclose(load_logits(paths, task, folder.name, "validation"), np.stack(expected), atol=1e-5)


@pytest.mark.parametrize(
    ("names", "outputs", "message"),
    [
        (None, 3, "has 3 outputs, lines needs 2"),
        (["bad", "good"], 2, "has the labels bad, good; lines has thumbs down, thumbs up"),
        (["THUMBS UP", "THUMBS DOWN"], 2, r"another order; write labels: \[thumbs up, thumbs down\] in .*lines\.yaml"),
    ],
)
def test_a_head_of_other_labels_is_refused(tmp_path, encoder, unlabelled, names, outputs, message):
    source = write_classifier(encoder, tmp_path / "clf", names, outputs)
    with pytest.raises(UserError, match=message):
        adopted(unlabelled, source)


def test_only_fine_tuned_classifiers_are_adopted(tmp_path, encoder, unlabelled, prepared):
    (tmp_path / "empty").mkdir()
    for source, message in {
        encoder: r"no trained classification head \(classifier\.bias is missing\)",
        tmp_path / "empty": "empty: contains no model",
        "featherweight/none": "is neither a folder nor TASK/NAME of a teacher in the workspace, and",
        prepared / "models/qqp/tiny-bert": "reads pairs of sentences, lines has single sentences",
    }.items():
        with pytest.raises(UserError, match=message):
            adopted(unlabelled, source)
    with pytest.raises(UserError, match=r"no row of train has a label.*--as-is"):
        adopted(unlabelled, encoder, as_is=False)


def test_logits_without_a_model_are_not_adopted(tmp_path):
    paths, task = prepared_task(tmp_path)
    imported(paths, task, write(tmp_path / "a.csv", answers(paths, task, lambda _: GOOD)))
    settings = {"task": task.argument, "workspace": paths.root, "arch": f"{task.name}/api", "as_is": True}
    with pytest.raises(UserError, match="api was imported as logits: there is no model to import"):
        finetune(FinetuneSettings(**settings, model_name="other"))


def test_a_classifier_is_adopted_for_two_tasks_of_equal_labels(tmp_path, encoder, unlabelled):
    source = write_classifier(encoder, tmp_path / "clf")
    (tmp_path / "lines.txt").write_text("".join(f"{text}\n" for text, _ in tiny.sentences(60)))
    other = write_yaml(tmp_path, {"all": "lines.txt"}, name="other", columns=None)
    preprocess(tiny.prepare_settings(unlabelled[0], other))
    for path in (unlabelled[1], other):
        folder = adopted((unlabelled[0], path), source, model_name="both")
        assert read_config(folder).task == load_task(path).name
