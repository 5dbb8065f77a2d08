"""One test for each fault of the thesis's own program in training and compression (1 to 10): it must not return."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from torch import nn
from toy_run import toy

from common.data.readers.tables import read_source
from common.data.split import Split
from common.data.tasks import load_task
from common.store.workspace import Workspace
from common.teachers.logits import generate
from common.training.checkpoint import load_tensors
from common.training.loop import fit
from common.training.models import read_config
from compression.augmentation.augment import AugmentTask, CandidateSource, augment
from compression.distillation.losses import kl
from compression.distillation.trainer import make_optimizer
from compression.evaluation.evaluate import evaluate
from compression.evaluation.settings import EvaluateSettings
from compression.shrinking.chain import compress
from compression.shrinking.pruning.weights import TARGETS, prunable
from compression.shrinking.quantization.scheme import Scheme
from compression.students.layers import Recurrent
from compression.students.recurrent import BidirectionalEncoder
from compression.students.saved import load_student
from compression.students.settings import StudentSettings
from compression.students.spec import StudentSpec
from compression.students.student import Student
from compression.tokenizers.hash import HashTokenizer

CPU = torch.device("cpu")
SST = load_task("sst-2")


def compressed(workspace, *actions, task="sst-2", **given):
    values = {"student_arch": "ffn", "embedding_type": "hash", **given}
    return compress(
        tiny.compress_settings(task=task, workspace=workspace, compression_actions=actions, **tiny.small(**values))
    )


def scored(workspace, name, **given):
    return evaluate(
        EvaluateSettings(task="sst-2", workspace=workspace, model_name=name, cpu=True, loadbar=False, **given)
    )


@pytest.mark.parametrize("arch", ["bilstm", "rnn"])
def test_01_the_backward_directions_state_has_read_the_whole_sentence(arch):
    torch.manual_seed(0)
    settings = StudentSettings(embedding_dim=3, encoder_hidden_dim=4)
    encoder = BidirectionalEncoder(StudentSpec(arch, settings, 2))
    vectors = torch.randn(1, 6, 3)
    before = encoder(vectors, torch.tensor([6]))
    for place in range(6):
        changed = vectors.clone()
        changed[0, place] += 1
        after = encoder(changed, torch.tensor([6]))
        assert not torch.allclose(after[:, :4], before[:, :4], atol=1e-6), f"forward does not see token {place}"
        assert not torch.allclose(after[:, 4:], before[:, 4:], atol=1e-6), f"backward does not see token {place}"
    # The token read last counts for most: the first one, for the backward direction.
    grads = torch.autograd.functional.jacobian(lambda v: encoder(v, torch.tensor([6]))[0, 4:].sum(), vectors)
    assert grads[0, 0].norm() > grads[0, 5].norm()


def test_02_dev_and_train_sentences_become_the_same_tokens(tmp_path):
    # SST-2's train rows end in a space; a dev file's last column ends in the line's newline.
    header = ["sentence", "label"]
    train = tiny.write_tsv(tmp_path / "train.tsv", header, [["a truly charming film ", "1"]])
    dev = tiny.write_tsv(tmp_path / "dev.tsv", header, [[" a truly  charming film", "1"]])
    texts = [read_source(path, SST).sentence1 for path in (train, dev)]
    assert texts[0] == texts[1] == ["a truly charming film"]
    codes = [HashTokenizer(60, 10, 99).encode(text).ids.tolist() for text in texts]
    assert codes[0] == codes[1]


def test_02_a_sentence_in_the_last_column_loses_its_newline(tmp_path):
    task = SST.model_copy(update={"columns": {"label": "label", "sentence1": "sentence"}})
    path = tmp_path / "dev.tsv"
    path.write_bytes(b"label\tsentence\r\n1\ta film \r\n0\tno film\n")
    assert read_source(path, task).sentence1 == ["a film", "no film"]


def test_03_the_teacher_reads_text_without_newlines(workspace, monkeypatch):
    class Listening:
        def logits(self, split, advance):
            heard.extend(split.sentence1)
            return np.zeros((len(split), 2), np.float32)

    heard = []
    paths = Workspace(workspace)
    monkeypatch.setattr("common.teachers.load.load_teacher", lambda *arguments: Listening())
    for name in ("train", "validation", "test"):
        generate(paths, SST, "tiny-bert", name, "fp32", cpu=True, force=True)
    assert len(heard) > 200
    assert all(text == text.strip() and "\n" not in text for text in heard)


def test_04_the_best_checkpoint_is_a_copy(tmp_path):
    run, seen = toy(tmp_path, [0.9, 0.1, 0.1])
    fit(run)
    assert torch.equal(run.model.weight, seen[0]["weight"])
    assert not torch.equal(seen[0]["weight"], seen[2]["weight"])


def test_05_prune_aware_training_learns_after_the_first_epoch(workspace):
    options = {"prune_aware": True, "epochs": 8, "patience": 8, "alpha": 1.0, "only_original_data": True}
    (folder,) = compressed(workspace, "distill", student_arch="rnn", embedding_type="char", **options)
    losses = [json.loads(line)["loss"] for line in (folder / "history.jsonl").read_text().splitlines()]
    assert len({round(loss, 6) for loss in losses}) == 8
    assert losses[-1] < losses[1]


@pytest.mark.parametrize(("arch", "embedding"), [("bilstm", "bpe"), ("rnn", "char"), ("ffn", "hash")])
def test_06_sparsity_is_as_requested_and_biases_stay(workspace, arch, embedding):
    parent, folder = compressed(workspace, "distill", "prune", student_arch=arch, embedding_type=embedding, epochs=1)
    before, after = load_student(parent, CPU)[0], load_student(folder, CPU)[0]
    for part in prunable(after, arch, embedding):
        assert int((part.weight == 0).sum()) == round(TARGETS[part.kind] * part.weight.numel())
    for (name, old), new in zip(before.named_parameters(), after.parameters(), strict=True):
        assert old.dim() == 2 or torch.equal(old, new), name
    assert read_config(folder).compression["sparsity"]["classifier"] == pytest.approx(0.125, abs=0.02)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "adadelta"])
def test_07_every_parameter_is_trained_and_clipped_once(optimizer, tmp_path):
    settings = tiny.compress_settings(task="sst-2", optimizer=optimizer, student_arch="rnn")
    student = Student("rnn", settings.student(), 2, False)
    held = [p for group in make_optimizer(settings, student).param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(list(student.parameters()))
    assert sum(p.dim() == 1 for p in held) == 6  # two biases a direction, two of the classifier


def test_07_clipping_is_on_and_counts_biases(tmp_path):
    assert tiny.compress_settings(task="sst-2").max_grad_norm == 1.0
    run, _ = toy(tmp_path)
    before = [p.detach().clone() for p in run.model.parameters()]
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=1.0)
    run.batches = lambda epoch: [np.arange(12)]
    loss = run.loss
    run.loss = lambda rows: 1000 * loss(rows)
    fit(run)
    moved = [(p.detach() - old).flatten() for p, old in zip(run.model.parameters(), before, strict=True)]
    assert torch.cat(moved).norm().item() == pytest.approx(1.0, abs=1e-4)
    assert all(step.abs().sum() > 0 for step in moved)


@pytest.mark.parametrize("arch", ["bilstm", "rnn", "ffn"])
@pytest.mark.parametrize("loss", ["kl", "temperature-softmax"])
def test_08_every_student_uses_the_temperature(workspace, arch, loss):
    weights = []
    for temperature in (1.0, 6.0):
        options = {"loss": loss, "temperature": temperature, "model_name": f"t{temperature:g}", "epochs": 1}
        (folder,) = compressed(workspace, "distill", student_arch=arch, only_original_data=True, **options)
        weights.append((folder / "model.safetensors").read_bytes())
    assert weights[0] != weights[1]


def test_08_kl_has_its_factor():
    student, teacher = torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    plain = nn.functional.kl_div((student / 4).log_softmax(1), (teacher / 4).softmax(1), reduction="batchmean")
    assert kl(student, teacher, 4.0).item() == pytest.approx(16 * plain.item(), rel=1e-5)


def test_09_whole_words_are_masked_split_words_get_neighbours_and_pairs_stay_pairs():
    class Masked:
        def find(self, texts, spans, advance):
            whole = [
                [span for span in found if text[slice(*span)] == "single"]
                for text, found in zip(texts, spans, strict=True)
            ]
            return [{span: ["masked"] for span in found} for found in whole]

    class Neighbours:
        def of(self, words):
            return {word: ["neighbour"] for word in words}

    train = Split(["alpha single", "beta single"], ["alpha split", "beta split"], np.array([0, 1]), np.arange(2))
    work = AugmentTask(
        masked_lm=None,
        glove=None,
        candidates=1,
        variants=20,
        probability=0.5,
        fraction=1.0,
        held_out=(),
        seed=1,
        cpu=True,
        downloads=Path(),
    )
    variants = augment(train, 0, CandidateSource(Masked(), Neighbours()), work, set())
    for first, second, row in zip(variants.sentence1, variants.sentence2, variants.source_rows, strict=True):
        name = ("alpha", "beta")[row]
        assert re.fullmatch(f"({name}|neighbour) (single|masked)", first)
        assert re.fullmatch(f"({name}|neighbour) (split|neighbour)", second)
    assert any("masked" in text for text in variants.sentence1)


@pytest.mark.parametrize("inputs", [None, "dynamic"])
@pytest.mark.parametrize("kind", ["lstm", "rnn"])
def test_10_the_quantized_recurrence_computes_what_the_float_one_does(kind, inputs):
    torch.manual_seed(0)
    rnn = Recurrent(kind, 6, 8)
    vectors = torch.randn(3, 9, 6)
    with torch.no_grad():
        exact = rnn(vectors)
        for name in ("weight_ih", "weight_hh"):
            setattr(rnn, name, Scheme(ranges="minmax").quantize(getattr(rnn, name).dense()))
        rnn.inputs = inputs
        assert 0 < (rnn(vectors) - exact).abs().max() < 0.02


def test_10_every_recurrent_matrix_is_quantized_and_calibration_does_not_read_test(workspace):
    (parent,) = compressed(workspace, "distill", student_arch="rnn", epochs=1)
    (workspace / "data/sst-2/splits/test.parquet").unlink()
    given = {"ptq_embedding": True, "dq_encoder": True, "ptq_classifier": True}
    (folder,) = compress(
        tiny.compress_settings(
            task="sst-2",
            workspace=workspace,
            compression_actions=("quantize",),
            load_trained_model=parent.name,
            **given,
        )
    )
    tensors, _ = load_tensors(folder / "model.safetensors")
    floats = [name for name, t in tensors.items() if t.dtype == torch.float32 and t.dim() == 2 and t.shape[1] > 1]
    assert floats == []
    assert sum(name.startswith("encoder.") and name.endswith("codes") for name in tensors) == 4
