"""Making a saved student smaller later: how it was distilled is known, and what was read counts."""

import shutil

import pytest
import tiny

from common.config import parse_flags
from common.data.split import read_metadata, read_split, write_split
from common.errors import UserError
from common.training.models import read_config
from compression.settings import CompressSettings, defaults_for
from compression.shrinking.chain import compress


def distilled(workspace, **given):
    values = tiny.small(student_arch="ffn", embedding_type="hash", epochs=1, **given)
    settings = tiny.compress_settings(task="sst-2", workspace=workspace, compression_actions=("distill",), **values)
    return compress(settings)[0]


def smaller(workspace, name, *words):
    """A model made by compress.py's flags."""
    flags = ["--task", "sst-2", "--workspace", str(workspace), "--load-trained-model", name, "--cpu", *words]
    return compress(parse_flags(CompressSettings, [*flags, "--no-loadbar"], "", defaults_for))[-1]


def test_tuning_goes_on_as_the_student_was_distilled(workspace):
    parent = distilled(workspace, loss="kl", only_original_data=True, alpha=0.5, batch_size=7)
    folder = smaller(workspace, parent.name, "--compression-actions", "quantize", "--tune-epochs", "1")
    used = read_config(folder).settings
    assert (used["student_arch"], used["loss"], used["alpha"], used["batch_size"]) == ("ffn", "kl", 0.5, 7)
    assert used["only_original_data"] is True
    again = smaller(workspace, parent.name, "--compression-actions", "prune", "--tune-epochs", "1", "--batch-size", "9")
    assert read_config(again).settings["batch_size"] == 9


def test_a_student_can_guide_itself_where_no_teacher_is(workspace):
    parent = distilled(workspace, only_original_data=True, alpha=1.0)
    for folder in ("models/sst-2/tiny-bert", "data/sst-2/logits"):
        shutil.rmtree(workspace / folder)
    words = ["--compression-actions", "quantize", "--tune-epochs", "1", "--bits", "4"]
    assert (smaller(workspace, parent.name, *words, "--guide", "student") / "history.jsonl").exists()


def test_other_data_make_another_model(workspace):
    parent = distilled(workspace, only_original_data=True, alpha=1.0)
    words = ["--compression-actions", "prune", "--prune-vocabulary", "2"]
    folder = smaller(workspace, parent.name, *words)
    before = read_config(folder).key
    assert smaller(workspace, parent.name, *words) == folder
    path = workspace / "data/sst-2/splits/train.parquet"
    split = read_split(path, "")
    write_split(path, split.take(range(20)), read_metadata(path))
    with pytest.raises(UserError, match="made with other settings or data"):
        smaller(workspace, parent.name, *words)
    assert read_config(smaller(workspace, parent.name, *words, "--force")).key != before


@pytest.mark.parametrize("words", [["--max-loss", "1"], ["--max-bytes", "900"], ["--quantizer", "ternary"]])
def test_bits_that_would_have_no_meaning_are_refused(words):
    with pytest.raises(UserError, match="leave --bits out"):
        parse_flags(CompressSettings, ["--task", "sst-2", "--bits", "4", *words], "")
