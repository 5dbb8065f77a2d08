"""Packed students that give a text any number of labels: independent probabilities, equal to PyTorch's."""

import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import packed_students as made
import pytest
import torch
from damage import assemble, take_apart
from hypothesis import given
from hypothesis import strategies as st

from common.training.calibration import fit_temperature
from compression.evaluation.calibration import calibration_fields, reliability_bins
from compression.inference.predict import PredictSettings, predict
from compression.packing import pack_student
from compression.runtime import PackedError, load, to_probabilities
from compression.runtime.__main__ import main
from compression.runtime.header import CALIBRATED
from compression.runtime.kinds import BY_WORD, MULTILABEL
from compression.runtime.model import load_bytes

TEXTS = ["the film is truly wonderful , and the cast feels charming !", "dreadful", "", "A plot of 1984: café ☃"]
LABELS = ["bad", "good", "so-so"]


def some(values):
    """The labels of probabilities of at least a half."""
    return [label for label, value in zip(LABELS, values, strict=True) if value >= 0.5]


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """Folder and packed file of a student whose answers to TEXTS have none, or several of the labels."""

    folder = made.write_student(
        tmp_path_factory.mktemp("several") / "s", "ffn", "hash", kind="multilabel", edit=made.spread, seed=7
    )
    return folder, made.write_packed(folder)


@given(st.lists(st.floats(-200, 200, width=32), min_size=1, max_size=5))
def test_sigmoids_are_pytorchs_without_overflow(values):
    with np.errstate(all="raise", under="ignore"):
        found = to_probabilities(np.float32(values), 1.0, independent=True)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, torch.tensor(values).sigmoid().numpy(), rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("arch", ["ffn", "bilstm", "conv", "transformer"])
def test_probabilities_are_the_sigmoids_of_pytorchs_logits(tmp_path, arch, pair):
    texts = [(text, TEXTS[0]) for text in TEXTS] if pair else TEXTS
    folder = made.write_student(tmp_path / "s", arch, "hash", "affine-row", kind="multilabel", pair=pair)
    model = load_bytes(pack_student(folder))
    expected = torch.from_numpy(made.torch_logits(folder, texts)).sigmoid().numpy()
    assert (model.kind, model.outputs) == ("multilabel", 3)
    np.testing.assert_allclose(model.probabilities(texts), expected, atol=1e-5)


def test_only_the_flag_tells_the_kinds_apart(tmp_path):
    headers = []
    for number, kind in enumerate(("labels", "multilabel")):
        folder = made.write_student(tmp_path / str(number) / "s", "ffn", "char", kind=kind)
        headers.append(take_apart(pack_student(folder))[0])
    one, several = headers
    assert [i for i, (a, b) in enumerate(zip(one, several, strict=True)) if a != b] == [2]
    assert several[2] == one[2] | MULTILABEL


@pytest.mark.parametrize(
    ("given_", "flags", "message"),
    [({"labels": []}, MULTILABEL, "no labels"), ({}, MULTILABEL | BY_WORD, "kind of task with the unknown number")],
)
def test_impossible_combinations_are_refused(tmp_path, given_, flags, message):
    header, rest = take_apart(pack_student(made.write_student(tmp_path / "s", "rnn", "char", **given_)))
    code = bytes([200]) if flags == MULTILABEL | BY_WORD else b""
    forged = header[:2] + bytes([header[2] & ~CALIBRATED | flags]) + code + header[3:]
    with pytest.raises(PackedError, match=message):
        load_bytes(assemble(forged, rest))


def test_the_runtimes_command_prints_the_labels(student, capsys, monkeypatch):
    _, path = student
    expected = load(path).probabilities(TEXTS).tolist()
    assert {len(some(row)) for row in expected} >= {0, 2}
    lines = []
    for row in expected:
        shares = [f"{label} {value:.6f}" for label, value in zip(LABELS, row, strict=True)]
        lines.append("\t".join(["|".join(some(row)) or "none of these", *shares]))
    monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(buffer=io.BytesIO("\n".join(TEXTS).encode()), isatty=lambda: False)
    )
    main([str(path)])
    assert capsys.readouterr().out.splitlines() == lines
    (path.parent / "in.txt").write_text("\n".join(TEXTS))
    predict(PredictSettings(model=str(path), input=path.parent / "in.txt", cpu=True))
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("which", [0, 1])
def test_predictions_as_tables_and_json(student, tmp_path, capsys, which):
    model, expected = str(student[which]), load(student[1]).probabilities(TEXTS).tolist()
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    about = {"model": model, "input": tmp_path / "in.jsonl", "columns": ("text",), "cpu": True}
    predict(PredictSettings(**about))
    for line, row in zip(capsys.readouterr().out.splitlines(), expected, strict=True):
        answer = json.loads(line)
        assert answer["predicted_labels"] == some(row)
        assert list(answer["probabilities"].values()) == pytest.approx(row, abs=1e-5)
        assert list(answer["probabilities"]) == LABELS
    predict(PredictSettings(**about, output_format="tsv"))
    header, *lines = capsys.readouterr().out.splitlines()
    names = ["text", "predicted_labels", "probability_bad", "probability_good", "probability_so-so"]
    assert header.split("\t") == names
    assert [line.split("\t")[1] for line in lines] == ["|".join(some(row)) for row in expected]


def test_the_prompt_answers_with_labels(student, capsys, monkeypatch):
    lines = [TEXTS[0].encode() + b"\n", b""]
    stdin = SimpleNamespace(buffer=SimpleNamespace(readline=lambda: lines.pop(0)), isatty=lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    predict(PredictSettings(model=str(student[1])))
    (row,) = load(student[1]).probabilities(TEXTS[:1]).tolist()
    assert capsys.readouterr().out.split("\t")[0] == ("|".join(some(row)) or "none of these")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_temperature_is_that_of_least_binary_cross_entropy(seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (200, 3)).astype(np.float32)
    labels = (rng.random((200, 3)) < 1 / (1 + np.exp(-logits / 2))).astype(np.float32)
    found = fit_temperature(logits, labels, independent=True)

    def cost(temperature):
        scaled = torch.from_numpy(logits).double() / temperature
        return torch.nn.functional.binary_cross_entropy_with_logits(scaled, torch.from_numpy(labels).double()).item()

    assert cost(found) <= min(cost(temperature) for temperature in np.geomspace(0.05, 20, 400)) + 1e-9
    assert 1.5 < found < 2.7
    assert fit_temperature(logits, (logits >= 0).astype(np.float32), independent=True) == 1


def test_a_temperature_divides_the_logits_and_changes_no_label(student):
    folder, path = student
    warm, plain = load_bytes(pack_student(folder, 3.0)), load(path)
    expected = torch.from_numpy(plain.logits(TEXTS) / 3).sigmoid().numpy()
    np.testing.assert_allclose(warm.probabilities(TEXTS), expected, atol=1e-6)
    assert ((warm.probabilities(TEXTS) >= 0.5) == (plain.probabilities(TEXTS) >= 0.5)).all()


def test_each_label_of_a_row_is_a_prediction_of_its_own_in_reliability_bins():
    shares = np.float32([[0.9, 0.1], [0.57, 0.45]])  # confidences 0.9, 0.9, 0.57, 0.55
    labels = np.float32([[1, 1], [1, 0]])
    bins = {round(probability, 4): (rows, right) for rows, probability, right in reliability_bins(shares, labels)}
    assert bins == {0: (0, 0), 0.9: (2, 0.5), 0.56: (2, 1)}
    logits = torch.from_numpy(shares).logit().numpy()
    fields = calibration_fields(logits, labels, None)
    assert fields["ece"] == pytest.approx((2 * 0.4 + 2 * 0.44) / 4, abs=1e-5)


def test_another_least_probability_and_the_most_probable_labels(student, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    expected = load(student[1]).probabilities(TEXTS).tolist()
    about = {"model": str(student[1]), "input": tmp_path / "in.txt", "cpu": True, "output_format": "jsonl"}
    predict(PredictSettings(**about, min_probability=0.85, top=2, explain=True))
    for line, row in zip(capsys.readouterr().out.splitlines(), expected, strict=True):
        answer = json.loads(line)
        assert answer["predicted_labels"] == [each for each, p in zip(LABELS, row, strict=True) if p >= 0.85]
        first, second = sorted(range(3), key=lambda i: -row[i])[:2]
        assert [each["label"] for each in answer["top"]] == [LABELS[first], LABELS[second]]
        assert "predicted_label" not in answer
        assert "explanation" in answer
