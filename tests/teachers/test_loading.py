"""Teachers from folders: tensors must be those of config.json, weights safetensors, and every file counts."""

import contextlib
import functools
import json
import re
import shlex
import shutil
import subprocess
import sys

import huggingface_hub
import numpy as np
import pytest
import tiny
import torch
import transformers

from common.data.split import Split
from common.errors import UserError
from common.kinds.registry import ANSWERS, LABELS, TAGS
from common.store.artifact import artifact_at
from common.teachers.finetune import finetune
from common.teachers.frozen import FrozenEncoder
from common.teachers.huggingface.answerer import HuggingFaceAnswerer
from common.teachers.huggingface.pretrained import load_general, quiet_transformers, resolve
from common.teachers.huggingface.tagger import HuggingFaceTagger
from common.teachers.huggingface.teacher import HuggingFaceTeacher
from common.teachers.load import load_masked_lm, load_teacher
from common.training.checkpoint import load_tensors, save_tensors

CPU = torch.device("cpu")
WORDS = "bert.embeddings.word_embeddings.weight"


def edit_config(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))
    return folder


def without(folder, *ends):
    """The same folder, its weights without the tensors whose names end so."""
    tensors, _ = load_tensors(folder / "model.safetensors")
    save_tensors(folder / "model.safetensors", {n: t for n, t in tensors.items() if not n.endswith(ends)}, {})
    return folder


@pytest.fixture
def copied(encoder, tmp_path):
    """A copy of the encoder, for a test to change."""
    return shutil.copytree(encoder, tmp_path / "copied")


def loaded(source, outputs=2, **given):
    return HuggingFaceTeacher(source, LABELS, ("a", "b", "c")[:outputs], CPU, torch.float32, 32, **given)


def tuned(workspace, source, **given):
    return finetune(tiny.finetune_settings(workspace, "sst-2", source, model_name="tuned", max_epochs=1, **given))


def test_an_encoder_of_another_vocabulary_size_is_refused_by_name(workspace, copied):
    edit_config(copied, vocab_size=999)
    with pytest.raises(UserError, match=rf"copied.*: {WORDS} has shape \[123, 16\], not \[999, 16\]$"):
        tuned(workspace, copied)
    assert not (workspace / "models/sst-2/tuned").exists()
    with pytest.raises(UserError, match=r"word_embeddings\.weight has shape"):
        load_general(str(copied))


def test_an_encoder_that_lacks_tensors_is_refused_by_name(workspace, copied):
    without(copied, "query.weight")
    name = r"bert\.encoder\.layer\.0\.attention\.self\.query\.weight"
    with pytest.raises(UserError, match=f"copied: its weights lack {name}$"):
        tuned(workspace, copied)
    with pytest.raises(UserError, match=r"its weights lack encoder\.layer\.0\.attention\.self\.query\.weight$"):
        load_general(str(copied))


def test_of_many_lacking_tensors_some_are_named(workspace, copied):
    edit_config(copied, num_hidden_layers=2)
    with pytest.raises(UserError, match=r"lack bert\.encoder\.layer\.1\.attention.*, and 12 more$"):
        tuned(workspace, copied)


def test_a_masked_language_model_that_lacks_tensors_is_refused_by_name(tmp_path):
    folder = without(tiny.write_masked_lm(tmp_path / "lm"), "query.weight")
    for load in (load_general, lambda source: load_masked_lm(source, CPU, tmp_path)):
        with pytest.raises(UserError, match=r"its weights lack .*query\.weight$"):
            load(str(folder))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody/nothing", "no encoder nobody/nothing: it is not a folder, was not downloaded before, and http://127"),
        ("no spaces", "no encoder no spaces: Repo id must use alphanumeric chars"),
    ],
)
def test_a_hub_that_cannot_be_reached_is_asked_once(tmp_path, monkeypatch, name, message):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=message):
        resolve(name, tmp_path)


def test_a_new_head_and_a_pooler_may_be_missing(copied):
    classifier = loaded(copied, outputs=3, new_head=True)
    classifier.save(copied.with_name("three"))
    source = copied.with_name("three") / "huggingface"
    assert loaded(source, outputs=2, new_head=True).model.classifier.out_features == 2
    with pytest.raises(UserError, match=r"classifier\.weight has shape \[3, 16\], not \[2, 16\]"):
        loaded(source, outputs=2)
    with pytest.raises(UserError, match=r"its weights lack classifier\.bias, classifier\.weight$"):
        loaded(copied)
    without(copied, "pooler.dense.weight", "pooler.dense.bias")
    loaded(copied, new_head=True)


@pytest.mark.parametrize(
    ("name", "adapters"), [("tokenizer.json", False), ("tokenizer.json", True), ("model.safetensors", False)]
)
def test_a_file_that_cannot_be_written_is_an_error_of_the_system(copied, tmp_path, name, adapters):
    """The libraries in Rust raise exceptions of their own, one of them a plain Exception."""
    classifier = loaded(copied, new_head=True)
    if adapters:
        classifier.adapt(4, "base")
    (tmp_path / "saved" / "huggingface" / name).mkdir(parents=True)
    with pytest.raises(OSError, match=f"directory.*{tmp_path}"):
        classifier.save(tmp_path / "saved")


def test_texts_are_cut_at_the_encoders_positions(copied):
    """--max-tokens may be more than the 96 that the encoder reads."""
    teacher = HuggingFaceTeacher(copied, LABELS, ("a", "b"), CPU, torch.float32, 500, new_head=True)
    texts = [" ".join(["film"] * words) for words in (94, 400)]
    logits = teacher.logits(Split(texts, None, np.zeros(2, np.int64), np.arange(2)))
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-6)
    vectors = FrozenEncoder(copied, CPU, torch.float32, 500).vectors(texts)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-3)


def test_adapters_need_a_whole_encoder(workspace, copied):
    without(copied, "pooler.dense.weight", "pooler.dense.bias")
    with pytest.raises(UserError, match=r"copied lacks bert\.pooler\.dense\.bias, bert\.pooler\.dense\.weight$"):
        tuned(workspace, copied, adapters=3)


def test_a_damaged_teacher_of_ours_is_refused_by_name(workspace):
    folder = workspace / "models/sst-2/tiny-bert"
    without(folder / "huggingface", "classifier.weight")
    with pytest.raises(UserError, match=r"its weights lack classifier\.weight$"):
        load_teacher(folder, CPU, torch.float32)


def test_weights_of_16_bits_are_computed_with_in_32(copied):
    transformers.AutoModel.from_pretrained(copied).half().save_pretrained(copied)
    teacher = loaded(copied, new_head=True)
    assert {tensor.dtype for tensor in teacher.model.state_dict().values() if tensor.is_floating_point()} == {
        torch.float32
    }


@pytest.fixture
def pickled(copied):
    """The encoder with its weights as a pickle."""
    tensors, _ = load_tensors(copied / "model.safetensors")
    torch.save(tensors, copied / "pytorch_model.bin")
    (copied / "model.safetensors").unlink()
    return copied


def test_pickled_weights_are_refused_by_every_loader(workspace, pickled):
    classifier = edit_config(pickled, architectures=["BertForSequenceClassification"])
    for load in (
        lambda: tuned(workspace, pickled),
        lambda: tuned(workspace, classifier, as_is=True),
        lambda: load_general(str(pickled)),
        lambda: load_masked_lm(str(pickled), CPU, pickled),
    ):
        with pytest.raises(UserError, match=r"^\S+copied/pytorch_model\.bin: a pickle.* convert the weights: python"):
            load()


@pytest.mark.slow
def test_the_command_that_is_named_converts_pickled_weights(pickled, encoder):
    with pytest.raises(UserError) as error:
        loaded(pickled, new_head=True)
    command = shlex.split(re.search("convert the weights: (python .*)", str(error.value))[1])
    subprocess.run([sys.executable, *command[1:]], check=True, timeout=120)
    before, after = (load_tensors(folder / "model.safetensors")[0] for folder in (encoder, pickled))
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    loaded(pickled, new_head=True)


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json", "config.json", "merges.txt"])
def test_every_file_of_a_teachers_folder_counts(prepared, copied, tmp_path, name):
    workspace = tiny.copy_workspace(prepared, tmp_path / "workspace")
    first = artifact_at(tuned(workspace, copied)).key
    file = copied / name
    file.write_text((file.read_text() if file.exists() else "") + "\n")
    with pytest.raises(UserError, match=r"'tuned' in .* was built with other settings or inputs"):
        tuned(workspace, copied)
    assert artifact_at(tuned(workspace, copied, force=True)).key != first


@pytest.mark.parametrize(("given", "kept"), [({}, 0.1), ({"attention_dropout": 0.0}, 0.0)])
def test_attention_dropout_is_the_encoders_or_the_given_one(workspace, copied, given, kept):
    edit_config(copied, attention_probs_dropout_prob=0.1)
    teacher = load_teacher(tuned(workspace, copied, **given), CPU, torch.float32)
    assert teacher.model.config.attention_probs_dropout_prob == kept
    assert {part.dropout.p for part in teacher.model.modules() if type(part).__name__ == "BertSelfAttention"} == {kept}


def test_a_teacher_with_adapters_keeps_its_own_vocabulary_and_settings(workspace, copied):
    """Those of the encoder's folder may have been replaced since."""
    folder = tuned(workspace, copied, adapters=3)
    before = load_teacher(folder, CPU, torch.float32)
    words = (copied / "vocab.txt").read_text().splitlines()
    for file in copied.glob("tokenizer*"):
        file.unlink()
    (copied / "vocab.txt").write_text("\n".join([*words[:5], *reversed(words[5:])]) + "\n")
    edit_config(copied, hidden_act="relu")
    after = load_teacher(folder, CPU, torch.float32)
    assert after.tokenizer.get_vocab() == before.tokenizer.get_vocab()
    assert after.model.config.hidden_act == before.model.config.hidden_act == "gelu"


def test_code_that_comes_with_a_model_is_not_executed(encoder, tmp_path, monkeypatch):
    folder = shutil.copytree(encoder, tmp_path / "own-code")
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\nfrom transformers import BertConfig as Config\n")
    edit_config(folder, model_type="own", auto_map={"AutoConfig": "own.Config"})
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # transformers asks whether to trust the code
    with pytest.raises(UserError, match="no teacher could be loaded"):
        HuggingFaceTeacher(folder, LABELS, ("a", "b"), CPU, torch.float32, 128, True)
    assert not ran.exists()


HUB = "somebody/code"
CODE = dict.fromkeys(("AutoConfig", "AutoModel", "AutoTokenizer"), f"{HUB}--own.Config")
ATTACKS = {
    "attention-inside": {"_attn_implementation_internal": HUB},
    "attention-by-part": {"_attn_implementation": {"": HUB}},
    **{f"{name}-{kind}": {name: kind} for name in ("attn_implementation", "_attn_implementation")
       for kind in (HUB, "kernels-community/flash-attn2", "flash_attention_2")},
    "experts": {"_experts_implementation_internal": HUB, "experts_implementation": HUB},
    "code-of-the-hub": {"auto_map": CODE},
    "code-of-the-folder": {"auto_map": dict.fromkeys(CODE, "own.Config")},
    "unknown-model": {"auto_map": CODE, "model_type": HUB},
    **{name: {name: HUB} for name in ("_name_or_path", "base_model_name_or_path", "model_type", "tokenizer_class",
                                      "hidden_act", "position_embedding_type", "problem_type", "dtype")},
    "kernels": {"kernel_config": {"BertLayer": HUB}, "use_kernels": True},
    "quantized": {"quantization_config": {"quant_method": "gptq", "bits": 4, "dataset": HUB, "tokenizer": HUB}},
}  # fmt: skip
"""What a config.json may have: names of the hub, and code of the folder."""


@pytest.fixture
def done(monkeypatch):
    """What is fetched, or would be imported, while transformers believes that the hub can be reached."""
    done = []
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    for name in (
        "socket.socket.connect",
        "socket.getaddrinfo",
        "transformers.modeling_utils.lazy_import_flash_attention",
    ):
        monkeypatch.setattr(name, lambda *given, name=name: done.append((name, given)))
    return done


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_config_runs_and_fetches_nothing(encoder, tmp_path, done, attack):
    """A loader may ignore a field or refuse the folder. CVE-2026-4372, CVE-2026-5241."""
    folders = shutil.copytree(encoder, tmp_path / "encoder"), tiny.write_masked_lm(tmp_path / "lm")
    for folder in folders:
        (folder / "own.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom transformers import BertConfig as Config\n"
        )
        edit_config(folder, **ATTACKS[attack])
        settings = json.loads((folder / "tokenizer_config.json").read_text()) | ATTACKS[attack]
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    classes = (HuggingFaceTeacher, LABELS), (HuggingFaceTagger, TAGS), (HuggingFaceAnswerer, ANSWERS)
    loaders = [
        *(
            functools.partial(load, folders[0], kind, ("a", "b"), CPU, torch.float32, 32, new_head=True)
            for load, kind in classes
        ),
        lambda: FrozenEncoder(folders[0], CPU, torch.float32, 32),
        *(lambda folder=folder: load_general(str(folder)) for folder in folders),
        lambda: load_masked_lm(str(folders[1]), CPU, tmp_path),
    ]
    for load in loaders:
        with contextlib.suppress(UserError):
            load()
    assert done == []
    assert not (tmp_path / "ran").exists()


def test_a_name_of_the_hub_in_any_field_fetches_nothing(encoder, tmp_path, done):
    folder = shutil.copytree(encoder, tmp_path / "encoder")
    usual = (folder / "config.json").read_bytes()
    fields = json.loads(usual)
    assert len(fields) > 10
    for field in fields:
        (folder / "config.json").write_bytes(usual)
        edit_config(folder, **{field: HUB})
        with contextlib.suppress(UserError):
            FrozenEncoder(folder, CPU, torch.float32, 32)
    assert done == []


@pytest.mark.parametrize(
    ("version", "refused"), [("4.57.1", True), ("5.4.0", True), ("5.5.0", False), ("6.0.0", False)]
)
def test_versions_that_run_code_of_a_config_are_refused(monkeypatch, version, refused):
    monkeypatch.setattr("transformers.__version__", version)
    with (
        pytest.raises(UserError, match=r"^transformers .* 5\.5 or newer is needed; run: pip")
        if refused
        else (contextlib.nullcontext())
    ):
        quiet_transformers()


def test_a_name_that_cannot_be_looked_up_is_an_error_of_one_line(workspace):
    with pytest.raises(UserError, match=r"^no encoder base: [^\n]+$"):
        finetune(tiny.finetune_settings(workspace, "sst-2", "base"))
