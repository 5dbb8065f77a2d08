"""Fine-tuning by fairseq: its recipe, stopped runs, labels in order, regression."""

import json
import logging
import shutil
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from small_roberta import CPU, settings, split_of

from common.config import CONFIG_DIR, load_yaml
from common.data.split import definition_of, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.fairseq import training as fairseq_training
from common.teachers.fairseq.library import load_fairseq
from common.teachers.finetune import finetune
from common.teachers.load import load_masked_lm, load_teacher
from common.teachers.settings import FAIRSEQ_ARCHS, FinetuneSettings, defaults_for, is_fairseq
from common.training.checkpoint import load_tensors
from common.training.metrics import main_score
from compression.experiments.jobs import Job


class Interrupted(Exception):
    pass


def test_a_stopped_run_ends_with_the_bytes_of_one_never_stopped(taught, tmp_path, roberta, monkeypatch):
    import fairseq_cli.train

    monkeypatch.setattr(fairseq_training, "save_interval", lambda *_: 4)
    given = [settings(tmp_path / name, roberta, max_epochs=2) for name in ("whole", "stopped")]
    for each in given:
        shutil.copytree(taught / "data", each.workspace / "data")
    whole = finetune(given[0])
    for updates in (2, 13, 5):  # before the first checkpoint, in the middle of an epoch, again
        with monkeypatch.context() as patch:
            patch.setattr(fairseq_cli.train, "validate_and_save", stop_after(updates))
            with pytest.raises(Interrupted):
                finetune(given[1])
    with monkeypatch.context() as patch:
        patch.setattr(fairseq_training, "save", None)  # trained to the end, not saved
        with pytest.raises(TypeError):
            finetune(given[1])
    stopped = finetune(given[1])
    weights = [(folder / "huggingface/model.safetensors").read_bytes() for folder in (whole, stopped)]
    assert weights[0] == weights[1]
    histories = [[{**epoch, "seconds": 0} for epoch in tiny.read_history(folder)] for folder in (whole, stopped)]
    assert histories[0] == histories[1]


def stop_after(updates):
    from fairseq_cli.train import validate_and_save

    done = []

    def replacement(*arguments):
        result = validate_and_save(*arguments)
        done.append(1)
        if len(done) == updates:
            raise Interrupted
        return result

    return replacement


def test_the_same_command_twice_and_other_settings(taught, roberta, monkeypatch):
    monkeypatch.setattr(fairseq_training, "train", None)  # a finished one is not trained again
    assert finetune(settings(taught, roberta)) == Workspace(taught).model("sst-2", "small")
    with pytest.raises(UserError, match="--force"):
        finetune(settings(taught, roberta, lr=0.01))


def fine_tuned(folder, roberta, labels_of, kind, task, **given):
    """Labels, logits and history of a teacher of rows of two words, the first of which gives the label.

    labels_of: the labels of bad and of good rows, of type `kind`; six rows have no label.
    """
    task = {"name": "own", "columns": {"sentence1": "text", "label": "score"}, **task}
    (folder / "own.yaml").write_text(json.dumps({**task, "source": {"files": {"all": "x.tsv"}}}))
    rows = [(f"{adjective} {noun}", y) for y in (0, 1) for adjective in (tiny.BAD, tiny.GOOD)[y] for noun in tiny.NOUNS]
    rows = [rows[i] for i in np.random.default_rng(tiny.SEED).permutation(len(rows))]
    texts, labels = [text for text, _ in rows], np.array([labels_of[y] for _, y in rows], kind)
    known = labels.copy()
    known[:6] = -1 if kind is np.int64 else np.nan
    paths, path = Workspace(folder / "w"), str(folder / "own.yaml")
    definition = definition_of(load_task(path))
    tiny.write_manifest(
        paths.splits("own"), settings={"definition": definition}, task_file=path, labelled={"validation": 1}
    )
    kind_of_task = load_task(path).kind
    for name, chosen in (("train", slice(0, None, 2)), ("validation", slice(1, None, 2))):
        write_split(paths.split("own", name), split_of(*texts[chosen], labels=known[chosen], kind=kind_of_task), {})
    teacher = finetune(settings(paths.root, roberta, path, **given))
    return labels, load_teacher(teacher, CPU, torch.float32).logits(split_of(*texts)), tiny.read_history(teacher)


def test_seconds_are_those_of_all_epochs(monkeypatch):
    """There are two validations in an epoch; fairseq measures the time of the epoch so far."""
    load_fairseq("the test")
    from common.teachers.fairseq import task

    teacher = task.FeatherweightTask.__new__(task.FeatherweightTask)
    teacher.cfg = SimpleNamespace(model_name="m")
    teacher.history = []
    for epoch, seconds in ((1, 2.0), (1, 5.0), (2, 3.0), (2, 4.5), (3, 1.0)):
        teacher.epoch = epoch
        meters = {"loss": SimpleNamespace(avg=1.0), "train_wall": SimpleNamespace(sum=seconds)}
        monkeypatch.setattr(task.metrics, "get_meters", lambda name, meters=meters: meters)
        teacher.post_validate(None, {"loss": 1.0, "score": 0.5, "num_updates": 1}, None)
    assert [record["seconds"] for record in teacher.history] == [5.0, 9.5, 10.5]


def test_classes_keep_their_order(tmp_path, roberta):
    """Three labels, the first one of which never occurs, and rows without a label."""
    task = {"labels": ["zero", "one", "two"]}
    labels, logits, _ = fine_tuned(tmp_path, roberta, (2, 1), np.int64, task, max_epochs=8)
    assert logits.shape == (72, 3)
    assert (logits.argmax(1) == labels).mean() > 0.8


def test_regression(tmp_path, roberta):
    task, given = {"kind": "numbers", "range": [1.0, 5.0]}, {"max_epochs": 8, "lr": 0.007, "batch_size": 2}
    scores, logits, history = fine_tuned(tmp_path, roberta, (1.5, 4.5), np.float32, task, **given)
    assert logits.shape == (72, 1)
    assert np.abs(logits[:, 0] * 4 + 1 - scores).mean() < 0.6  # trained to scores scaled to [0, 1]
    assert history[-1]["score"] > history[0]["score"]


@pytest.mark.parametrize(
    "task", [{"labels": ["a", "b"], "metrics": ["matthews"]}, {"kind": "numbers", "range": [1.0, 5.0]}]
)
def test_the_first_metric_chooses_the_checkpoint(tmp_path, roberta, task):
    kind, labels_of = (np.int64, (0, 1)) if "labels" in task else (np.float32, (1.5, 4.5))
    labels, logits, history = fine_tuned(tmp_path, roberta, labels_of, kind, task, max_epochs=2)
    known = np.arange(7, 72, 2)  # rows of validation
    expected = main_score(load_task(str(tmp_path / "own.yaml")), labels[known], logits[known])
    assert max(record["score"] for record in history) == pytest.approx(expected, abs=1e-4)
    assert -1 < expected < 1


def test_patience_counts_epochs(tmp_path, roberta, monkeypatch):
    """There are several validations in an epoch, and nothing is learned."""
    monkeypatch.setattr(fairseq_training, "save_interval", lambda *_: 1)
    given = tmp_path, roberta, (0, 1), np.int64, {"labels": ["a", "b"]}
    with monkeypatch.context() as patch:
        patch.setattr(fairseq_training, "save", None)  # trained to the end, not saved
        with pytest.raises(TypeError):
            fine_tuned(*given, lr=1e-9, patience=2, max_epochs=5)
    assert len(fine_tuned(*given, lr=1e-9, patience=2, max_epochs=5)[2]) == 3


def test_batches_of_long_texts_have_all_their_rows(tmp_path, roberta, monkeypatch):
    """A batch has all 69 rows of train, so that every epoch is one update."""
    monkeypatch.setattr(tiny, "NOUNS", [f"{noun} {'and ' * 200}" for noun in tiny.NOUNS * 2])
    given = tmp_path, roberta, (0, 1), np.int64, {"labels": ["a", "b"]}
    assert len(fine_tuned(*given, batch_size=69, max_epochs=3)[2]) == 3


def test_a_teacher_of_fairseqs_is_a_start_for_transformers_too(taught, tmp_path):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    first = Workspace(workspace).model("sst-2", "small")
    assert not is_fairseq(str(first))
    given = {"max_epochs": 1, "model_name": "second", "lr": 1e-5, "freeze_embeddings": True}
    second = finetune(settings(workspace, first, **given))
    old, new = (load_tensors(path / "huggingface" / "model.safetensors")[0] for path in (first, second))
    assert old.keys() == new.keys()
    embeddings, head = "roberta.embeddings.word_embeddings.weight", "classifier.dense.weight"
    assert torch.equal(old[embeddings], new[embeddings])
    assert not torch.equal(old[head], new[head])


def test_without_fairseq_the_error_names_the_command_that_installs_it(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.split(".")[0] == "fairseq"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fairseq", None)
    hint = r"needs fairseq; run: pip install -r requirements-fairseq\.txt && pip install --no-deps ve-fairseq"
    with pytest.raises(UserError, match=f"^--arch roberta_base {hint}"):
        finetune(settings(tmp_path, "roberta_base"))
    with pytest.raises(UserError, match=f"^the masked language model roberta_base {hint}"):
        load_masked_lm("roberta_base", CPU, tmp_path)


def test_importing_fairseq_changes_no_filters_and_no_logging():
    before = list(warnings.filters), logging.getLogger().level
    load_fairseq("the test")
    assert (list(warnings.filters), logging.getLogger().level) == before


def test_recipes_are_those_of_the_glue_example():
    for arch in FAIRSEQ_ARCHS:
        given = {"arch": arch, "task": "mrpc"}
        found = FinetuneSettings(**{**defaults_for(given), **given})
        assert (found.lr, found.batch_size, found.max_updates, found.max_epochs) == (1e-5, 16, 2296, 10)
        assert round(found.warmup * found.max_updates) == 137
    for task, recipe in load_yaml(CONFIG_DIR / "teachers" / "roberta.yaml")["tasks"].items():
        assert load_task(task).name == task
        FinetuneSettings(task=task, **recipe)
    job = Job("finetune", {"arch": "roberta_large", "task": "rte"}).settings()
    assert (job.lr, job.batch_size, job.weight_decay) == (2e-5, 16, 0.1)
    assert defaults_for({"arch": "minilm", "task": "mrpc"}) == {}
    assert defaults_for({"arch": "roberta_base", "task": "rotten-tomatoes"})["batch_size"] == 32


def test_max_updates_is_refused_elsewhere(prepared, encoder):
    with pytest.raises(UserError, match="--max-updates"):
        finetune(settings(prepared, encoder, model_name="other", max_updates=5))
