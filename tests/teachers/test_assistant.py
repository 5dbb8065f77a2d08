"""A teacher that learns from another's logits and the labels: a teacher assistant."""

import dataclasses

import numpy as np
import pytest
import tiny

import common.teachers.finetune
from common.config import parse_flags
from common.data.split import load_split, read_metadata, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.seeds import drawn
from common.store.artifact import artifact_at, read_manifest
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.logits import load_logits
from common.teachers.settings import FinetuneSettings, defaults_for
from common.training.models import read_config
from compression.experiments.jobs import plan_chain

SST = load_task("sst-2")


def assistant(workspace, encoder, task="sst-2", **given):
    about = {"teacher": "tiny-bert", "model_name": "assistant", "max_epochs": 1, **given}
    return finetune(tiny.finetune_settings(workspace, task, encoder, **about))


@pytest.fixture
def learned(monkeypatch):
    """The rows and logits that the last fine-tuning learned from."""
    seen = {}
    train = common.teachers.finetune.huggingface_training.train

    def record(settings, seed, task, source, splits, out, context, **guided):
        seen.update(split=splits[0], logits=guided["logits"])
        return train(settings, seed, task, source, splits, out, context, **guided)

    monkeypatch.setattr(common.teachers.finetune.huggingface_training, "train", record)
    return seen


def test_it_learns_the_logits_that_a_student_would(workspace, encoder, learned):
    folder = assistant(workspace, encoder)
    paths = Workspace(workspace)
    assert np.array_equal(learned["logits"], load_logits(paths, SST, "tiny-bert", "train"))
    assert learned["split"].fingerprint() == load_split(paths, SST, "train").fingerprint()
    config = read_config(folder)
    assert (config.kind, config.teacher, config.augmented) == ("teacher", "tiny-bert", False)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_augmented_rows_have_the_teachers_choices_and_come_from_the_rows_drawn(workspace, encoder, learned, share):
    assert read_config(assistant(workspace, encoder, augmented="tinybert", downsample_data=share)).augmented
    paths = Workspace(workspace)
    train, more = (load_split(paths, SST, name) for name in ("train", "tinybert"))
    kept = drawn(len(train), share, tiny.SEED, "downsample")
    chosen = np.flatnonzero(np.isin(more.source_rows, kept))
    logits = [
        load_logits(paths, SST, "tiny-bert", name)[rows] for name, rows in (("train", kept), ("tinybert", chosen))
    ]
    assert np.array_equal(learned["logits"], np.concatenate(logits))
    assert learned["split"].sentence1 == train.take(kept).sentence1 + more.take(chosen).sentence1
    expected = np.concatenate([train.labels[kept], logits[1].argmax(1)])
    assert np.array_equal(learned["split"].labels, expected)


def test_augmented_rows_without_a_source_row_are_always_learned(workspace, encoder, learned):
    """Rows read from a file or from other tasks have the source row -1."""
    paths = Workspace(workspace)
    more = load_split(paths, SST, "tinybert")
    file = paths.augmented("sst-2", "tinybert").resolve()
    write_split(file, dataclasses.replace(more, source_rows=np.full(len(more), -1)), read_metadata(file))
    assistant(workspace, encoder, augmented="tinybert", downsample_data=0.5)
    assert learned["split"].sentence1[-len(more) :] == more.sentence1


def test_its_logits_come_near_those_of_its_teacher(workspace, encoder):
    losses = [epoch["loss"] for epoch in tiny.read_history(assistant(workspace, encoder, max_epochs=8))]
    assert losses[-1] < losses[0] / 5


def test_rows_without_a_label_are_learned_too(workspace, encoder, learned):
    """With the teacher's choice; from labels alone they are left out."""
    paths = Workspace(workspace)
    file = paths.split("sst-2", "train")
    train = load_split(paths, SST, "train")
    write_split(file, dataclasses.replace(train, labels=np.where(np.arange(len(train)) < 9, -1, train.labels)), {})
    assistant(workspace, encoder, alpha=0.5)
    assert len(learned["split"]) == len(train)
    logits = load_logits(paths, SST, "tiny-bert", "train")
    assert np.array_equal(learned["split"].labels[:9], logits[:9].argmax(1))


def test_the_logits_and_how_they_are_learned_are_part_of_the_key(workspace, encoder):
    given = {"augmented": "tinybert", "max_epochs": 1}
    folders = [
        assistant(workspace, encoder, model_name=f"a{i}", **given | more)
        for i, more in enumerate([{}, {"alpha": 0.5}, {"loss": "kl"}, {"augmented": None}])
    ]
    assert len({artifact_at(folder).key for folder in folders}) == 4
    inputs = read_manifest(folders[0]).inputs
    logits = artifact_at(Workspace(workspace).logits("sst-2", "tiny-bert", "tinybert"))
    assert inputs["logits tinybert"] == logits.key
    assert {"rows tinybert", "logits train", "splits", "encoder"} < inputs.keys()


def test_missing_logits_are_named_with_the_command(workspace, encoder):
    Workspace(workspace).logits("sst-2", "tiny-bert", "train").unlink()
    with pytest.raises(
        UserError, match=r"run: python preprocess\.py --task sst-2 --model-name tiny-bert --generate-loss"
    ):
        assistant(workspace, encoder)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--alpha 0.5", "--alpha has no effect without --teacher"),
        ("--augmented tinybert", "--augmented has no effect without --teacher"),
        ("--teacher t --temperature 2", "--temperature has no effect without --loss temperature-softmax or kl"),
        ("--teacher t --alpha 1", "--teacher has no effect with --alpha 1, which learns from labels only"),
        ("--teacher t --arch roberta_base", "--teacher is for Hugging Face encoders, not for fairseq's roberta_base"),
        ("--teacher t --as-is", "--teacher has no effect with --as-is: nothing is trained"),
        ("--teacher t --ensemble a b", "--teacher has no effect with --ensemble: nothing is trained"),
    ],
)
def test_flags_without_effect_are_refused(words, message):
    with pytest.raises(UserError, match=message):
        parse_flags(FinetuneSettings, ["--task", "sst-2", *words.split()], "test", defaults_for)


def test_in_a_chain_the_teacher_is_the_students(tmp_path):
    words = ["--task", "sst-2", "--teacher", "minilm", "--workspace", str(tmp_path)]
    jobs = {job.kind: job.settings() for job in plan_chain(["finetune", "preprocess", "compress"], words).jobs}
    assert (jobs["finetune"].teacher, jobs["compress"].teacher) == (None, "minilm")
