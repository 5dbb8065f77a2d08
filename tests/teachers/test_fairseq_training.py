"""Fine-tuning by fairseq: its recipe, stopped runs, labels in order, regression."""

import json
import shutil
import sys
import warnings

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file
from small_roberta import CPU, settings, split_of

from common.config import CONFIG_DIR, load_yaml
from common.data.split import definition_of, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.base import FAIRSEQ_ARCHS, is_fairseq
from common.teachers.fairseq.library import load_fairseq
from common.teachers.fairseq.teacher import HEAD
from common.teachers.finetune import finetune
from common.teachers.load import load_masked_lm, load_teacher
from common.teachers.settings import FinetuneSettings, defaults_for
from compression.experiments.jobs import Job


class Interrupted(Exception):
    pass


@pytest.mark.slow
def test_a_stopped_run_ends_with_the_bytes_of_one_never_stopped(taught, tmp_path, roberta, monkeypatch):
    import fairseq_cli.train

    from common.teachers.fairseq import recipe as fairseq_recipe
    from common.teachers.fairseq import training as fairseq_training

    monkeypatch.setattr(fairseq_recipe, "save_interval", lambda *_: 4)
    weights = []
    for stopped in (False, True):
        workspace = tmp_path / f"stopped-{stopped}"
        shutil.copytree(taught / "data", workspace / "data")
        given = settings(workspace, roberta, max_epochs=4)
        if stopped:
            for after in (2, 17, 9):  # before the first checkpoint, in the middle of an epoch, again
                with monkeypatch.context() as patch:
                    patch.setattr(fairseq_cli.train, "validate_and_save", stop_after(after))
                    with pytest.raises(Interrupted):
                        finetune(given)
            with monkeypatch.context() as patch:
                patch.setattr(fairseq_training, "write_model", None)  # trained to the end, not saved
                with pytest.raises(TypeError):
                    finetune(given)
        folder = finetune(given)
        weights.append((folder / "fairseq" / "model.safetensors").read_bytes())
        history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
        weights.append([{k: v for k, v in record.items() if k != "seconds"} for record in history])
    assert weights[:2] == weights[2:]


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


@pytest.mark.slow
def test_the_same_command_twice_and_other_settings(taught, tmp_path, roberta, monkeypatch):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    from common.teachers.fairseq import training as fairseq_training

    monkeypatch.setattr(fairseq_training, "train", None)  # a finished one is not trained again
    assert finetune(settings(workspace, roberta)) == Workspace(workspace).model("sst-2", "small")
    with pytest.raises(UserError, match="--force"):
        finetune(settings(workspace, roberta, lr=0.01))


def write_task(folder, **fields):
    values = {"name": "own", "columns": {"sentence1": "text", "label": "score"}}
    values |= {"source": {"files": {"all": "x.tsv"}}, "validation": {"fraction": 0.2}, **fields}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.yaml").write_text(json.dumps(values))
    return str(folder / "own.yaml")


def prepared_rows(workspace, task, labels, rows):
    """Splits of a task `own` with given labels."""
    definition = definition_of(load_task(task))
    tiny.write_manifest(Workspace(workspace).splits("own"), settings={"definition": definition}, task_file=task)
    for name, chosen in (("train", slice(0, None, 2)), ("validation", slice(1, None, 2))):
        texts = [text for text, _ in rows[chosen]]
        write_split(Workspace(workspace).split("own", name), split_of(*texts, labels=labels[chosen]), {})


def short_rows():
    """Rows of two words, the first of which gives the label; in random order."""
    kinds = [
        (f"{adjective} {noun}", y) for y in (0, 1) for adjective in (tiny.BAD, tiny.GOOD)[y] for noun in tiny.NOUNS
    ]
    return [kinds[i] for i in np.random.default_rng(tiny.SEED).permutation(len(kinds))]


@pytest.mark.slow
def test_classes_keep_their_order(tmp_path, roberta):
    """Three labels, the last one of which never occurs, and rows without a label."""
    rows = short_rows()
    task = write_task(tmp_path, labels=["zero", "one", "two"])
    labels = np.array([[2, 1][y] for _, y in rows], np.int64)
    labels[:6] = -1
    prepared_rows(tmp_path / "w", task, labels, rows)
    folder = finetune(settings(tmp_path / "w", roberta, task, max_epochs=8, lr=0.02))
    split = split_of(*(text for text, _ in rows))
    logits = load_teacher(folder, CPU, torch.float32).logits(split)
    assert logits.shape == (72, 3)
    assert (logits.argmax(1) == [[2, 1][y] for _, y in rows]).mean() > 0.8


@pytest.mark.slow
def test_regression(tmp_path, roberta):
    rows = short_rows()
    task = write_task(tmp_path, range=[1.0, 5.0])
    scores = np.array([[1.5, 4.5][y] for _, y in rows], np.float32)
    scores[3] = np.nan
    prepared_rows(tmp_path / "w", task, scores, rows)
    folder = finetune(settings(tmp_path / "w", roberta, task, max_epochs=8, lr=0.007, batch_size=2))
    logits = load_teacher(folder, CPU, torch.float32).logits(split_of(*(text for text, _ in rows)))
    assert logits.shape == (72, 1)
    scores[3] = [1.5, 4.5][rows[3][1]]
    assert np.abs(logits[:, 0] * 4 + 1 - scores).mean() < 0.6  # trained to scores scaled to [0, 1]
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert history[-1]["score"] > history[0]["score"]


@pytest.mark.slow
def test_a_teacher_of_ours_is_a_start_too(taught, tmp_path, roberta):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    first = Workspace(workspace).model("sst-2", "small")
    assert is_fairseq(str(first))
    folder = finetune(settings(workspace, first, max_epochs=1, model_name="second", lr=1e-5, freeze_embeddings=True))
    name = "encoder.sentence_encoder.embed_tokens.weight"
    old, new = (load_file(path / "fairseq" / "model.safetensors") for path in (first, folder))
    assert torch.equal(old[name], new[name])
    assert not torch.equal(
        old[f"classification_heads.{HEAD}.dense.weight"], new[f"classification_heads.{HEAD}.dense.weight"]
    )
    assert (folder / "fairseq" / "dict.txt").read_bytes() == (roberta / "dict.txt").read_bytes()


def test_without_fairseq_the_error_names_the_command_that_installs_it(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.split(".")[0] == "fairseq"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fairseq", None)
    hint = (
        r"roberta_base needs fairseq; run: pip install -r requirements-fairseq\.txt && pip install --no-deps ve-fairseq"
    )
    with pytest.raises(UserError, match=f"^--arch {hint}"):
        finetune(settings(tmp_path, "roberta_base"))
    with pytest.raises(UserError, match=f"^the masked language model {hint}"):
        load_masked_lm("roberta_base", CPU, tmp_path)
    with pytest.raises(UserError, match=r"^a RoBERTa teacher needs fairseq"):
        load_fairseq()


def test_importing_fairseq_changes_no_filters_and_no_logging():
    import logging

    before = list(warnings.filters), logging.getLogger().level
    load_fairseq()
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


def test_max_updates_is_refused_elsewhere(taught, encoder):
    with pytest.raises(UserError, match="--max-updates"):
        finetune(settings(taught, encoder, max_updates=5))
