"""Tuning a saved student: how it was distilled is known, and the rows that are read are part of its identity."""

import shutil

import pytest
import shrunk
import tiny

from common.config import parse_flags
from common.errors import UserError
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.shrinking.chain import compress
from compression.shrinking.settings import CompressSettings, defaults_for


def smaller(workspace, name, *words):
    """A model built by compress.py's flags."""
    flags = ["--task", "sst-2", "--workspace", str(workspace), "--load-trained-model", name, "--cpu", *words]
    return compress(parse_flags(CompressSettings, [*flags, "--no-loadbar"], "", defaults_for))[-1]


def test_a_student_can_guide_itself_where_no_teacher_is(workspace):
    (workspace / "models/sst-2/tiny-bert").unlink()
    shutil.rmtree(workspace / "data/sst-2/logits")
    words = ["--compression-actions", "quantize", "--tune-epochs", "1", "--bits", "4"]
    assert (smaller(workspace, "ffn", *words, "--guide", "student") / "history.jsonl").exists()


def test_other_data_make_another_model(workspace, glue):
    words = ["--compression-actions", "prune", "--prune-vocabulary", "2"]
    folder = smaller(workspace, "ffn", *words)
    before = read_config(folder).key
    assert smaller(workspace, "ffn", *words) == folder
    again = {"seed": 8, "force": True}
    preprocess(tiny.prepare_settings(workspace, "sst-2", data_dir=glue).model_copy(update=again))
    with pytest.raises(UserError, match="built with other settings or inputs"):
        smaller(workspace, "ffn", *words)
    assert read_config(smaller(workspace, "ffn", *words, "--force")).key != before


def test_a_chain_and_separate_commands_build_the_same(workspace):
    """The recipe of the distillation holds for the later commands, unless their own flags say otherwise."""
    recipe = {"loss": "kl", "alpha": 0.5, "batch_size": 9, "student_arch": "ffn"}
    given = {"embedding_type": "hash", "prune_aware": True, "prune_threshold": 0.2, "tune_epochs": 1, "model_name": "s"}
    chain = shrunk.compressed(workspace, "distill", "prune", "quantize", **recipe, **given)
    keys = [read_config(folder).key for folder in chain]
    words = ["--tune-epochs", "1", "--seed", str(tiny.SEED)]
    pruned = smaller(workspace, "s", "--compression-actions", "prune", "--prune-threshold", "0.2", *words)
    quantized = smaller(workspace, pruned.name, "--compression-actions", "quantize", *words)
    assert [pruned, quantized] == chain[1:]
    assert [read_config(folder).key for folder in (pruned, quantized)] == keys[1:]
    used = read_config(quantized).settings
    assert {**used, **recipe, "only_original_data": True} == used
    again = smaller(workspace, "s", "--compression-actions", "prune", "--tune-epochs", "1", "--batch-size", "7")
    assert read_config(again).settings["batch_size"] == 7
