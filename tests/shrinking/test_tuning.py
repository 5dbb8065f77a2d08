"""Tuning a saved student: how it was distilled is known, and the rows that are read are part of its identity."""

import shutil

import pytest
import shrunk
import tiny

from common.errors import UserError
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess


def test_a_student_can_guide_itself_where_no_teacher_is(workspace):
    (workspace / "models/sst-2/tiny-bert").unlink()
    shutil.rmtree(workspace / "data/sst-2/logits")
    words = ["--compression-actions", "quantize", "--tune-epochs", "1", "--bits", "4"]
    assert (shrunk.smaller(workspace, "ffn", *words, "--guide", "student") / "history.jsonl").exists()


def test_other_data_make_another_model(workspace, glue):
    words = ["--compression-actions", "prune", "--prune-vocabulary", "2"]
    folder = shrunk.smaller(workspace, "ffn", *words)
    before = read_config(folder).key
    assert shrunk.smaller(workspace, "ffn", *words) == folder
    again = {"seed": 8, "force": True}
    preprocess(tiny.prepare_settings(workspace, "sst-2", data_dir=glue).model_copy(update=again))
    with pytest.raises(UserError, match="built with other settings or inputs"):
        shrunk.smaller(workspace, "ffn", *words)
    assert read_config(shrunk.smaller(workspace, "ffn", *words, "--force")).key != before


def test_a_share_of_the_rows_is_drawn_again_in_tuning(workspace):
    """The seed of the distillation draws the rows, also where a later command does not give it."""
    given = {"student_arch": "ffn", "embedding_type": "hash", "downsample_data": 0.3, "seed": 11, "model_name": "s"}
    chain = shrunk.compressed(workspace, "distill", "quantize", tune_epochs=1, **given)
    quantized = shrunk.smaller(workspace, "s", "--compression-actions", "quantize", "--tune-epochs", "1")
    assert quantized == chain[-1]
    assert read_config(quantized).seed == 11


def test_a_chain_and_separate_commands_build_the_same(workspace):
    """The recipe of the distillation holds for the later commands, unless their own flags say otherwise."""
    recipe = {"loss": "kl", "alpha": 0.5, "batch_size": 9, "student_arch": "ffn"}
    given = {"embedding_type": "hash", "prune_aware": True, "prune_threshold": 0.2, "tune_epochs": 1, "model_name": "s"}
    chain = shrunk.compressed(workspace, "distill", "prune", "quantize", **recipe, **given)
    keys = [read_config(folder).key for folder in chain]
    words = ["--tune-epochs", "1"]
    pruned = shrunk.smaller(workspace, "s", "--compression-actions", "prune", "--prune-threshold", "0.2", *words)
    quantized = shrunk.smaller(workspace, pruned.name, "--compression-actions", "quantize", *words)
    assert [pruned, quantized] == chain[1:]
    assert [read_config(folder).key for folder in (pruned, quantized)] == keys[1:]
    used = read_config(quantized).settings
    assert {**used, **recipe, "only_original_data": True} == used
    again = shrunk.smaller(workspace, "s", "--compression-actions", "prune", "--tune-epochs", "1", "--batch-size", "7")
    assert read_config(again).settings["batch_size"] == 7
