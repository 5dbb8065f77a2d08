"""The training loop: best weights kept, early stopping, and stopped runs that end with the bytes of whole ones."""

import json
import shutil

import numpy as np
import pytest
import tiny
import torch
from stops import stopped_in_step
from torch import nn
from toy_run import toy

import common.training.loop
import compression.distillation.trainer
from common import energy
from common.errors import UserError
from common.store.artifact import artifact_at
from common.teachers.finetune import finetune
from common.teachers.huggingface import training as huggingface_training
from common.teachers.huggingface.teacher import HuggingFaceTeacher
from common.teachers.settings import FinetuneSettings
from common.training.checkpoint import load_tensors, load_weights
from common.training.loop import Callback, Run, epochs_done, fit, linear_schedule, over_rows, train_step
from common.training.losses import combined
from common.training.models import read_config
from compression.distillation.distill import distill
from compression.distillation.pruning import GradualPruner, Prunable


class Stopped(Exception):
    """Stands for a kill."""


def stop_after(steps, function):
    """The function, but for raising at its call number `steps` + 1."""
    left = [steps]

    def stopping(*arguments, **options):
        if not left[0]:
            raise Stopped
        left[0] -= 1
        return function(*arguments, **options)

    return stopping


class EligibleAfter(Callback):
    def __init__(self, progress):
        self.progress = progress

    def eligible(self, progress):
        return progress > self.progress


@pytest.mark.parametrize(
    ("scores", "epochs", "best", "changed"),
    [
        ([0.1, 0.9, 0.5, 0.4], 4, 1, {}),
        ([0.5, 0.5], 2, 0, {}),  # of equal epochs the first
        ([0.1, 0.9, 0.5, 0.4, 0.95, 0.1], 4, 1, {"patience": 2}),
        ([0.9, 0.1, 0.2], 3, 2, {"callbacks": [EligibleAfter(0.5)]}),
        ([0.9, 0.1, 0.2], 3, 2, {"callbacks": [EligibleAfter(1.0)]}),
    ],
)
def test_the_best_epochs_weights_are_kept(tmp_path, scores, epochs, best, changed):
    run, seen = toy(tmp_path, scores, schedule=linear_schedule(0.1), **changed)
    history = fit(run)
    assert [record["score"] for record in history] == scores[:epochs]
    assert [record["epoch"] for record in history if record["kept"]] == [best]
    assert all(torch.equal(value, seen[best][name]) for name, value in run.model.state_dict().items())
    assert len({weights["weight"].sum().item() for weights in seen}) == epochs
    assert run.optimizer.param_groups[0]["lr"] == 0.1  # as before training


@pytest.mark.parametrize(
    ("scores", "kept", "best"),
    [
        ([0.1, 0.9, 0.5, 0.4], 2, [1, 2]),
        ([0.5, 0.5, 0.9, 0.5], 3, [0, 1, 2]),  # of equal epochs the first ones
        ([0.3, float("nan"), 0.2], 5, [0, 2]),
        ([0.1, 0.9], 1, [1]),
    ],
)
def test_the_mean_of_the_best_epochs_weights_is_kept(tmp_path, scores, kept, best):
    run, seen = toy(tmp_path, scores, kept=kept)
    run.model.register_buffer("codes", torch.zeros(2, dtype=torch.uint8))
    train, run.losses = run.losses, lambda *batch: (run.model.codes.add_(1), train(*batch))[1]
    fit(run)
    for name in ("weight", "bias"):
        mean = torch.stack([seen[epoch][name].double() for epoch in best]).mean(0).float()
        assert torch.equal(run.model.state_dict()[name], mean)
    first = max(best, key=lambda epoch: scores[epoch])
    assert torch.equal(run.model.codes, seen[first]["codes"])


def test_a_loss_that_is_not_a_number_stops_with_a_hint(tmp_path):
    run, _ = toy(tmp_path)
    run.losses = over_rows(lambda rows: run.model.weight.sum() * float("nan"))
    with pytest.raises(UserError, match="the loss became nan; lower --lr"):
        fit(run)


@pytest.mark.parametrize("kept", [1, 3])
@pytest.mark.parametrize("stop", [0, 2, 6, 10])
def test_a_stopped_toy_run_resumes_to_the_same_weights(tmp_path, monkeypatch, stop, kept):
    scores = [0.1, 0.9, 0.5, 0.4]
    whole, _ = toy(tmp_path / "whole", scores, kept=kept)
    history = fit(whole)
    monkeypatch.setattr(common.training.loop, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    first, _ = toy(tmp_path / "stopped", scores, kept=kept)
    first.losses = stop_after(stop, first.losses)
    with pytest.raises(Stopped):
        fit(first)
    done = stop // 3
    second, _ = toy(tmp_path / "stopped", scores[done:], epochs=4, kept=kept)
    again = fit(second)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True))
    for one, other in zip(history, again, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_the_energy_of_training_is_what_the_machine_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "COUNTERS", tmp_path)
    run, _ = toy(tmp_path / "uncounted", [0.1, 0.2], epochs=2)
    assert all("joules" not in record for record in fit(run))
    counter = tmp_path / "intel-rapl:0"
    counter.mkdir()
    for file, value in (("name", "package-0"), ("energy_uj", "0"), ("max_energy_range_uj", "1000000000")):
        (counter / file).write_text(f"{value}\n")
    run, _ = toy(tmp_path / "counted", [0.1, 0.2], epochs=2)
    losses = run.losses

    def costly(rows, parts):
        (counter / "energy_uj").write_text(str(int((counter / "energy_uj").read_text()) + 2_000_000))
        return losses(rows, parts)

    run.losses = costly
    assert [record["joules"] for record in fit(run)] == [6.0, 12.0]  # two for each of three steps


def test_a_damaged_state_is_not_resumed(tmp_path):
    run, _ = toy(tmp_path / "a", [0.1, 0.2])
    fit(run)
    whole, _ = toy(tmp_path / "b", [0.1, 0.2])
    fit(whole)
    path = tmp_path / "a" / "run.training" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    again, seen = toy(tmp_path / "a", [0.1, 0.2])
    fit(again)
    assert len(seen) == 2
    assert torch.equal(again.model.weight, whole.model.weight)


def test_a_stopped_training_ends_after_the_epochs_that_it_has(tmp_path):
    """A run of ten epochs is stopped in its third one; what is kept is what a run of two of the ten has."""
    stopped, _ = toy(tmp_path / "a", [0.1, 0.3] + [0.9] * 8)
    with stopped_in_step(8):
        fit(stopped)
    path = tmp_path / "a" / "run.training" / "state.safetensors"
    assert epochs_done(path) == 2
    assert epochs_done(tmp_path / "none") == 0
    ended, seen = toy(tmp_path / "a", [0.9] * 10, stop_after=2)
    whole, _ = toy(tmp_path / "b", [0.1, 0.3] + [0.9] * 8, stop_after=2)
    assert len(fit(ended)) == len(fit(whole)) == 2
    assert seen == []
    assert torch.equal(ended.model.weight, whole.model.weight)


def test_a_finished_state_is_not_trained_further(tmp_path):
    run, _ = toy(tmp_path, [0.1, 0.2])
    fit(run)
    again, seen = toy(tmp_path, [], epochs=2)
    fit(again)
    assert seen == []
    assert torch.equal(again.model.weight, run.model.weight)


def test_the_linear_schedule_rises_and_falls():
    factor = linear_schedule(0.1)
    assert 0 < factor(0.0) < 0.02
    assert factor(0.1) == pytest.approx(1)
    assert factor(0.55) == pytest.approx(0.5)
    assert factor(1.0) == 0


STUDENTS = {
    "bilstm-char": {"student_arch": "bilstm", "embedding_type": "char"},
    "rnn-bpe-prune-aware": {
        "student_arch": "rnn",
        "embedding_type": "bpe",
        "prune_aware": True,
        "prune_threshold": 0.5,
    },
    "conv-hash-adadelta": {"student_arch": "conv", "embedding_type": "hash", "optimizer": "adadelta", "alpha": 0.5},
    "ffn-hash": {"student_arch": "ffn", "embedding_type": "hash"},
    "ffn-hash-words-dropped": {"student_arch": "ffn", "embedding_type": "hash", "word_dropout": 0.2},
}


def student_of(workspace, kind, **given):
    values = {"model_name": "s", **tiny.small(**STUDENTS[kind]), **given}
    return distill(tiny.compress_settings(task="sst-2", workspace=workspace, **values))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.endswith(".safetensors")}


def key_of(folder):
    return artifact_at(folder).key


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["bilstm-char", "rnn-bpe-prune-aware", "conv-hash-adadelta", "ffn-hash-words-dropped"])
def test_a_stopped_distillation_ends_with_the_bytes_of_one_never_stopped(prepared, tmp_path, monkeypatch, capsys, kind):
    whole = student_of(tiny.copy_workspace(prepared, tmp_path / "whole"), kind, epochs=3)
    workspace = tiny.copy_workspace(prepared, tmp_path / "stopped")
    with monkeypatch.context() as patch:  # killed in the first epoch
        patch.setattr(common.training.loop, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
        patch.setattr(compression.distillation.trainer, "combined", stop_after(3, combined))
        with pytest.raises(Stopped):
            student_of(workspace, kind, epochs=3)
    with stopped_in_step(17):  # stopped in the second one
        student_of(workspace, kind, epochs=3)
    assert not (workspace / "models/sst-2/s").exists()
    state = load_tensors(tiny.work_folder(workspace) / "state.safetensors")[1]["state"]
    assert state["total_steps"] == 3 + 17
    stopped = student_of(workspace, kind, epochs=3)
    assert f"resuming from epoch {state['epoch'] + 1}, step {state['step']}" in capsys.readouterr().err
    assert files(stopped) == files(whole)
    assert losses(stopped) == losses(whole)
    assert not list((workspace / "store").glob("*.work"))


@pytest.mark.slow
def test_weights_that_start_at_zero_do_not_change_what_a_stopped_prune_aware_run_learns(tmp_path):
    # The user's own vectors may hold zeros. They are not pruned weights, before a stop or after it.
    pruning = tiny.compress_settings(task="sst-2", prune_aware=True, prune_threshold=0.5)

    def run(folder):
        model = nn.Embedding.from_pretrained(torch.zeros(200, 2), freeze=False)
        pruner = GradualPruner([Prunable("table.weight", "bpe", model.weight)], pruning)
        return Run(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            batches=lambda epoch: [np.array([row]) for row in range(200)],
            losses=over_rows(lambda rows: (model(torch.from_numpy(rows)) - 1).square().mean()),
            validate=lambda: 0.5,
            epochs=2,
            patience=9,
            seed=1,
            state_file=tmp_path / folder / "state.safetensors",
            callbacks=[pruner],
        )

    whole, stopped, again = run("whole"), run("stopped"), run("stopped")
    fit(whole)
    with stopped_in_step(101):  # one step after the pruner selected weights, one before it selects again
        fit(stopped)
    fit(again)
    assert torch.equal(again.model.weight, whole.model.weight)


def test_a_student_can_be_the_mean_of_its_best_epochs(workspace):
    given = tiny.small(student_arch="ffn", embedding_type="hash", only_original_data=True, epochs=3, task="sst-2")
    weights = [
        load_weights(distill(tiny.compress_settings(workspace=workspace, model_name=f"s{i}", **given, **more)))
        for i, more in enumerate([{"average_epochs": 3}, {"average_epochs": 1}, {}])
    ]
    same = [all(torch.equal(one[name], weights[2][name]) for name in one) for one in weights]
    assert same == [False, True, True]
    keys = [artifact_at(workspace / "models/sst-2" / f"s{i}").key for i in range(3)]
    assert keys[0] != keys[1] == keys[2]


def test_dropping_words_changes_what_is_learned_and_the_key_and_none_is_the_default(workspace):
    shares = {"none": {}, "zero": {"word_dropout": 0.0}, "some": {"word_dropout": 0.2}}
    folders = {
        name: student_of(workspace, "ffn-hash", only_original_data=True, epochs=1, **{"model_name": name}, **share)
        for name, share in shares.items()
    }
    weights, keys = ({name: read(folder) for name, folder in folders.items()} for read in (files, key_of))
    assert weights["none"] == weights["zero"] != weights["some"]
    assert keys["none"] == keys["zero"] != keys["some"]


@pytest.mark.parametrize("arch", ["bilstm", "gru", "rnn", "conv", "ffn"])
def test_training_in_bf16_follows_that_in_fp32(workspace, arch):
    """Weights stay float32; steps differ by rounding."""
    given = tiny.small(student_arch=arch, embedding_type="hash", only_original_data=True, epochs=1, task="sst-2")
    losses = {}
    for precision in ("fp32", "bf16"):
        named = {**given, "precision": precision, "model_name": f"{arch}-{precision}"}
        folder = distill(tiny.compress_settings(workspace=workspace, **named))
        losses[precision] = json.loads((folder / "history.jsonl").read_text())["loss"]
        assert {tensor.dtype for tensor in load_weights(folder).values()} == {torch.float32}
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.02)
    assert losses["bf16"] != losses["fp32"]


def test_another_seed_gives_other_weights(workspace):
    settings = (tiny.small(**STUDENTS["ffn-hash"], seed=seed) for seed in (1, 2))
    first, second = (distill(tiny.compress_settings(task="sst-2", workspace=workspace, **given)) for given in settings)
    assert first.name != second.name
    assert files(first) != files(second)


def test_a_finished_student_is_reused_another_is_not_overwritten_and_force_replaces(workspace):
    folder = student_of(workspace, "ffn-hash")
    written_at = (folder / "model.safetensors").stat().st_mtime_ns
    assert student_of(workspace, "ffn-hash") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written_at
    before = files(folder)
    with pytest.raises(UserError, match="--force"):
        student_of(workspace, "ffn-hash", lr=0.5)
    assert files(folder) == before
    student_of(workspace, "ffn-hash", lr=0.5, force=True)
    assert files(folder) != before


def test_a_stopped_finetuning_ends_with_the_bytes_of_one_never_stopped(workspace, encoder, monkeypatch):
    whole = workspace / "models" / "sst-2" / "tiny-bert"
    expected = (whole / "huggingface" / "model.safetensors").read_bytes()
    config = read_config(whole)
    shutil.rmtree(whole.resolve())
    whole.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(common.training.loop, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
        patch.setattr(HuggingFaceTeacher, "forward", stop_after(15, HuggingFaceTeacher.forward))
        with pytest.raises(Stopped):
            finetune(tiny.finetune_settings(workspace, "sst-2", encoder))
    finetune(tiny.finetune_settings(workspace, "sst-2", encoder))
    assert (whole / "huggingface" / "model.safetensors").read_bytes() == expected
    assert read_config(whole) == config


def sixteen_bits(monkeypatch, loss_times):
    """Fine-tune in float16 on the CPU, which --fp16 leaves to GPUs; the loss and so its gradients are multiplied."""
    monkeypatch.setattr(huggingface_training, "pick_dtype", lambda precision, device: torch.float16)
    monkeypatch.setattr(huggingface_training, "combined", lambda *given: loss_times * combined(*given))


def of_sixteen_bits(workspace, encoder, **given):
    values = {"max_epochs": 2, "weight_decay": 0.0, "model_name": "half", "precision": "fp16", "force": True, **given}
    return finetune(tiny.finetune_settings(workspace, "sst-2", encoder, **values)) / "huggingface"


def test_fp16_learns_from_gradients_that_are_zero_in_16_bits(workspace, encoder, monkeypatch):
    sixteen_bits(monkeypatch, 1e-7)
    learned = load_tensors(of_sixteen_bits(workspace, encoder) / "model.safetensors")[0]
    start = load_tensors(encoder / "model.safetensors")[0]
    name = "encoder.layer.0.attention.self.value.weight"
    assert (learned[f"bert.{name}"] - start[name]).abs().max() > 1e-3


def test_a_stopped_fp16_finetuning_keeps_the_scale_of_its_loss(workspace, encoder, monkeypatch):
    """Gradients overflow until the scale is small enough: with another scale, other steps are left out."""
    sixteen_bits(monkeypatch, 1e3)
    whole = of_sixteen_bits(workspace, encoder)
    weights, history = files(whole), losses(whole.parent)
    with stopped_in_step(15):
        of_sixteen_bits(workspace, encoder)
    scaler = load_tensors(tiny.work_folder(workspace) / "state.safetensors")[1]["scaler"]
    assert scaler["scale"] < torch.amp.GradScaler("cpu").get_scale()
    assert files(of_sixteen_bits(workspace, encoder)) == weights
    assert losses(whole.parent) == history


def test_a_finetuning_goes_on_in_its_precision_on_other_hardware(workspace, encoder, monkeypatch):
    given = {"precision": "auto", "model_name": "auto", "max_epochs": 2, "force": True}
    settings = tiny.finetune_settings(workspace, "sst-2", encoder, **given)
    monkeypatch.setattr("common.devices._has_bf16", lambda device: True)
    weights = files(finetune(settings) / "huggingface")
    with stopped_in_step(15):
        finetune(settings)
    monkeypatch.setattr("common.devices._has_bf16", lambda device: False)
    assert files(finetune(settings) / "huggingface") == weights
    assert files(finetune(settings) / "huggingface") != weights


@pytest.mark.parametrize("scaled", [False, True])
def test_gradients_are_clipped_together_with_those_of_what_is_trained_with_the_model(tmp_path, scaled):
    """Such as the projections of alignment, which no student keeps."""
    run, _ = toy(tmp_path)
    extra = nn.Parameter(torch.zeros(3))
    trained = [*run.model.parameters(), extra]
    before = torch.cat([each.detach().flatten().clone() for each in trained])
    run.optimizer = torch.optim.SGD(trained, lr=1.0)
    run.scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    run.losses = over_rows(lambda rows: 30 * sum(parameter.sum() for parameter in trained))
    train_step(run, np.arange(5))
    step = torch.cat([each.detach().flatten() for each in trained]) - before
    assert step.norm().item() == pytest.approx(run.max_grad_norm, rel=1e-4)
    assert step.tolist() == pytest.approx([-(7**-0.5)] * 7, rel=1e-4)


@pytest.mark.parametrize("parts", [2, 3, 99])
def test_parts_of_a_batch_give_the_gradients_of_the_whole(tmp_path, parts):
    """Here the loss is a mean over rows. Means over words, pieces and tokens: tests/distillation/test_parts.py."""
    whole, in_parts = (toy(tmp_path / str(each), parts=each)[0] for each in (1, parts))
    in_parts.model.load_state_dict(whole.model.state_dict())
    losses = [train_step(run, np.arange(7)) for run in (whole, in_parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for one, other in zip(whole.model.parameters(), in_parts.model.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-6)


def test_the_teacher_learned(prepared):
    for task in ("sst-2", "qqp"):
        history = losses(prepared / "models" / task / "tiny-bert")
        assert history[-1] < history[0]
    scores = [
        json.loads(s)["score"] for s in (prepared / "models/sst-2/tiny-bert/history.jsonl").read_text().splitlines()
    ]
    assert max(scores) > 0.8


def test_a_teacher_can_learn_from_a_share_of_the_rows(workspace, encoder, monkeypatch):
    given = {"task": "sst-2", "arch": str(encoder), "workspace": workspace, "model_name": "share", "seed": 3}
    learned_from = []
    monkeypatch.setattr(huggingface_training, "train", lambda *given: learned_from.append(given[4]) or {})
    for share in (1.0, 0.5, 0.5):
        finetune(FinetuneSettings(**given, downsample_data=share, force=True))
    whole, half, again = learned_from
    assert len(half[0]) == round(len(whole[0]) / 2)
    assert set(half[0].source_rows) < set(whole[0].source_rows)
    assert half[0].source_rows.tolist() == again[0].source_rows.tolist()
    assert len(half[1]) == len(whole[1])
