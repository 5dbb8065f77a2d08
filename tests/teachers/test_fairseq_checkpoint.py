"""fairseq's checkpoints: both formats are read, and nothing else is, without running code in them."""

import argparse
import os
import shutil
import tarfile

import numpy as np
import pytest
import torch
from small_roberta import CPU, TEXT

from common.errors import UserError
from common.teachers.fairseq import sources
from common.teachers.fairseq.checkpoint import load_checkpoint, read_model
from common.teachers.fairseq.convert import tokenizer_of
from common.teachers.fairseq.sources import byte_pairs, resolve
from common.teachers.load import load_masked_lm
from common.teachers.settings import is_fairseq


def changed_copy(folder, target, **changes):
    """A copy of a RoBERTa's folder with another checkpoint."""
    shutil.copytree(folder, target)
    torch.save({**load_checkpoint(folder / "model.pt"), **changes}, target / "model.pt")
    return target


def test_both_checkpoint_formats_hold_the_same_model(roberta, old_roberta):
    new, old = read_model(roberta / "model.pt"), read_model(old_roberta / "model.pt")
    assert old[0] == new[0]
    assert old[1].keys() == new[1].keys()
    assert "decoder.lm_head.bias" in load_checkpoint(old_roberta / "model.pt")["model"]
    models = [load_masked_lm(str(folder), CPU, folder) for folder in (roberta, old_roberta)]
    ids = np.array([models[0].encode([TEXT[0]])[0].ids])
    assert torch.equal(*(model.predict(ids, np.array([3])) for model in models))


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("key", ["args", "model", "extra_state"])
def test_a_checkpoint_that_carries_code_is_refused_and_nothing_runs(roberta, tmp_path, key, zipped):
    state = {**load_checkpoint(roberta / "model.pt"), key: Evil(str(tmp_path / "executed"))}
    torch.save(state, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=r"model\.pt: refused, .*mkdir"):
        read_model(tmp_path / "model.pt")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("content", [b"", b"no checkpoint at all", None])
def test_a_damaged_checkpoint(roberta, tmp_path, content):
    whole = (roberta / "model.pt").read_bytes()
    (tmp_path / "model.pt").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(UserError, match=r"model\.pt: (damaged|refused)"):
        read_model(tmp_path / "model.pt")
    with pytest.raises(UserError, match="no such file"):
        read_model(tmp_path / "none.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arch": "transformer_lm"}, "not a RoBERTa model"),
        ({"encoder_layers": 2}, "is missing"),
        ({"encoder_layers": "many"}, "encoder_layers"),
        ({"encoder_ffn_embed_dim": 32}, "has shape"),
        ({"max_positions": 64}, "has shape"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_refused(old_roberta, tmp_path, change, message):
    args = argparse.Namespace(**{**vars(load_checkpoint(old_roberta / "model.pt")["args"]), **change})
    other = changed_copy(old_roberta, tmp_path / "other", args=args)
    with pytest.raises(UserError, match=message):
        load_masked_lm(str(other), CPU, other)


def test_tensors_too_many_are_refused(old_roberta, tmp_path):
    tensors = load_checkpoint(old_roberta / "model.pt")["model"]
    other = changed_copy(old_roberta, tmp_path / "other", model={**tensors, "decoder.extra": torch.zeros(1)})
    with pytest.raises(UserError, match=r"encoder\.extra is not part"):
        load_masked_lm(str(other), CPU, other)


def test_a_folder_without_its_files(roberta, tmp_path):
    assert not is_fairseq(str(tmp_path))
    shutil.copyfile(roberta / "model.pt", tmp_path / "model.pt")
    with pytest.raises(UserError, match=r"dict\.txt: no such file"):
        resolve(str(tmp_path), tmp_path)
    shutil.copyfile(roberta / "dict.txt", tmp_path / "dict.txt")
    (tmp_path / "encoder.json").write_text("{")
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\n")
    with pytest.raises(UserError, match="damaged vocabulary"):
        tokenizer_of(tmp_path, tmp_path, 96)


def test_an_official_archive_is_fetched_and_unpacked(roberta, old_roberta, tmp_path, monkeypatch):
    archive = tmp_path / "roberta.base.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for name in ("model.pt", "dict.txt"):
            packed.add(old_roberta / name, f"roberta.base/{name}")
    asked = []
    monkeypatch.setattr(sources, "fetch", lambda url, sha, folder, instead: asked.append((url, sha)) or archive)
    downloads = tmp_path / "downloads"
    assert resolve("roberta_base", downloads) == (str(downloads / "roberta.base"), "roberta_base")
    assert asked == [("https://dl.fbaipublicfiles.com/fairseq/models/roberta.base.tar.gz", None)]
    assert read_model(downloads / "roberta.base/model.pt")[0] == read_model(roberta / "model.pt")[0]
    assert byte_pairs(downloads / "roberta.base", downloads) == downloads / "gpt2_bpe"
    assert [url.rsplit("/", 1)[-1] for url, _ in asked[1:]] == ["encoder.json", "vocab.bpe"]
