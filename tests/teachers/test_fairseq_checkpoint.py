"""fairseq's checkpoints: both formats are read, and nothing else is, without running code in them."""

import argparse
import os
import shutil

import numpy as np
import pytest
import torch
from small_roberta import CPU, TEXT

from common.data.archives import unpack_member
from common.errors import UserError
from common.teachers.fairseq.checkpoint import load_checkpoint, read_model
from common.teachers.fairseq.models import FairseqMaskedLM
from common.teachers.fairseq.sources import byte_pairs, resolve
from common.teachers.fairseq.tokens import RobertaTokens
from common.teachers.settings import is_fairseq


def test_both_checkpoint_formats_hold_the_same_model(roberta, old_roberta):
    new, old = read_model(roberta / "model.pt"), read_model(old_roberta / "model.pt")
    assert old[0] == new[0]
    assert old[1].keys() == new[1].keys()
    assert "decoder.lm_head.bias" in load_checkpoint(old_roberta / "model.pt")["model"]
    ids = FairseqMaskedLM(roberta, roberta, CPU).encode([TEXT[0]])[0].ids
    predictions = [
        FairseqMaskedLM(folder, folder, CPU).predict(np.array([ids]), np.array([len(ids)]), np.array([3]))
        for folder in (roberta, old_roberta)
    ]
    assert torch.equal(*predictions)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["args", "model", "extra_state"])
def test_a_checkpoint_that_carries_code_is_refused_and_nothing_runs(roberta, tmp_path, place, zipped):
    shutil.copytree(roberta, tmp_path / "evil")
    state = {**load_checkpoint(roberta / "model.pt"), place: Evil(str(tmp_path / "executed"))}
    torch.save(state, tmp_path / "evil" / "model.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=r"model\.pt: refused, .*mkdir"):
        FairseqMaskedLM(tmp_path / "evil", tmp_path / "evil", CPU)
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
def test_a_checkpoint_that_is_not_what_it_says(old_roberta, tmp_path, change, message):
    shutil.copytree(old_roberta, tmp_path / "other")
    state = load_checkpoint(old_roberta / "model.pt")
    torch.save({**state, "args": argparse.Namespace(**{**vars(state["args"]), **change})}, tmp_path / "other/model.pt")
    with pytest.raises(UserError, match=message):
        FairseqMaskedLM(tmp_path / "other", tmp_path / "other", CPU)


def test_tensors_too_many_are_refused(old_roberta, tmp_path):
    shutil.copytree(old_roberta, tmp_path / "other")
    state = load_checkpoint(old_roberta / "model.pt")
    state["model"]["decoder.extra"] = torch.zeros(1)
    torch.save(state, tmp_path / "other" / "model.pt")
    with pytest.raises(UserError, match=r"encoder\.extra is not part"):
        FairseqMaskedLM(tmp_path / "other", tmp_path / "other", CPU)


def test_a_folder_without_its_files(roberta, tmp_path, taught):
    (tmp_path / "a").mkdir()
    shutil.copyfile(roberta / "model.pt", tmp_path / "a" / "model.pt")
    with pytest.raises(UserError, match=r"dict\.txt: no such file"):
        resolve(str(tmp_path / "a"), tmp_path)
    shutil.copyfile(roberta / "dict.txt", tmp_path / "a" / "dict.txt")
    with pytest.raises(UserError, match=r"encoder\.json: no such file"):
        RobertaTokens(tmp_path / "a")
    (tmp_path / "a" / "encoder.json").write_text("{")
    (tmp_path / "a" / "vocab.bpe").write_text("#version: 0.2\n")
    with pytest.raises(UserError, match="damaged vocabulary"):
        RobertaTokens(tmp_path / "a")
    assert not is_fairseq(str(tmp_path))


def test_an_official_archive_is_fetched_and_unpacked(roberta, old_roberta, tmp_path, monkeypatch):
    import tarfile

    from common.teachers.fairseq import sources as fairseq_sources

    archive = tmp_path / "roberta.base.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for name in ("model.pt", "dict.txt"):
            packed.add(old_roberta / name, f"roberta.base/{name}")
    asked = []
    monkeypatch.setattr(fairseq_sources, "fetch", lambda url, sha, folder, instead: asked.append((url, sha)) or archive)
    assert resolve("roberta_base", tmp_path / "downloads") == (str(tmp_path / "downloads/roberta.base"), "roberta_base")
    assert asked == [("https://dl.fbaipublicfiles.com/fairseq/models/roberta.base.tar.gz", None)]
    assert read_model(tmp_path / "downloads/roberta.base/model.pt")[0] == read_model(roberta / "model.pt")[0]
    assert byte_pairs(tmp_path / "downloads/roberta.base", tmp_path / "downloads") == tmp_path / "downloads/gpt2_bpe"
    assert [url.rsplit("/", 1)[-1] for url, _ in asked[1:]] == ["encoder.json", "vocab.bpe"]
    assert unpack_member is fairseq_sources.unpack_member
