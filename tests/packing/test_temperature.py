"""Temperatures: fitted where validation has labels, stored in packed files, and no answer changes by them."""

import dataclasses
import struct

import damage
import numpy as np
import packed_students as saved
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax
from shrunk import compressed, shrunk
from stages import logits_of

from common.data.prepare import prepare
from common.data.split import load_split, read_split, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.artifact import folder_of, read_manifest
from common.store.workspace import Workspace
from common.teachers.logits import load_logits
from common.training.calibration import LEAST, MOST, fit_temperature, negative_log_likelihood
from compression.augmentation.preprocess import preprocess
from compression.packing import pack_student, packed_sections
from compression.runtime import PackedError, load, to_probabilities
from compression.runtime.header import CALIBRATED
from compression.runtime.model import load_bytes
from compression.shrinking import files
from compression.students.saved import load_student

TEXTS = ["the film is truly wonderful", "dreadful", ""]


def rows(seed, labels=3, n=4000):
    """Logits, and labels drawn from their softmax: calibrated at temperature 1."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, labels))
    drawn = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return logits.astype(np.float32), drawn


@pytest.mark.parametrize("labels", [2, 5])
def test_a_temperature_that_logits_were_multiplied_by_is_found_again(labels):
    logits, drawn = rows(1, labels)
    fitted = fit_temperature(logits, drawn)
    assert fitted == pytest.approx(1, abs=0.06)  # drawn at 1, of 4,000 rows
    for scale in (0.25, 0.5, 3, 8):
        assert fit_temperature(scale * logits, drawn) == pytest.approx(scale * fitted, rel=1e-3)


def test_it_stays_within_its_bounds():
    logits, drawn = rows(2)
    assert fit_temperature(1000 * logits, drawn) == MOST
    assert fit_temperature(logits / 1000, drawn) == pytest.approx(LEAST, abs=1e-4)


def test_rows_without_a_wrong_one_say_nothing():
    logits, _ = rows(3)
    assert fit_temperature(logits, logits.argmax(1)) == 1.0


ROWS = st.integers(2, 4).flatmap(
    lambda labels: st.integers(1, 30).flatmap(
        lambda n: st.tuples(
            arrays(np.float32, (n, labels), elements=st.floats(-50, 50, width=32)),
            arrays(np.int64, n, elements=st.integers(0, labels - 1)),
        )
    )
)


@given(ROWS)
def test_the_likelihood_is_never_lower_with_the_temperature(given_rows):
    logits, labels = given_rows
    temperature = fit_temperature(logits, labels)
    assert LEAST <= temperature <= MOST
    assert negative_log_likelihood(logits, labels, temperature) <= negative_log_likelihood(logits, labels)


@given(ROWS, st.floats(1 / 128, 128))
def test_the_most_probable_label_stays(given_rows, temperature):
    logits, _ = given_rows
    probabilities = to_probabilities(logits, temperature)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    chosen = probabilities[np.arange(len(logits)), logits.argmax(1)]
    assert (chosen == probabilities.max(1)).all()


@pytest.mark.parametrize("temperature", [1 / 128, 0.7312, 1, 2.5, 128])
def test_a_packed_file_divides_by_it_and_has_the_same_size(tmp_path, temperature):
    folder = saved.write_student(tmp_path / "s", "ffn", "hash", "affine-row")
    data = pack_student(folder, temperature)
    model, plain = load_bytes(data), load_bytes(pack_student(folder))
    assert (model.temperature, plain.temperature) == (pytest.approx(temperature), 1)
    assert np.array_equal(model.logits(TEXTS), plain.logits(TEXTS))
    expected = softmax(plain.logits(TEXTS) / temperature, 1)
    np.testing.assert_allclose(model.probabilities(TEXTS), expected, rtol=1e-3, atol=1e-6)
    sections = packed_sections(*load_student(folder, torch.device("cpu")))
    assert len(data) == sum(section.bytes for section in sections)


@pytest.mark.parametrize("shape", [{"labels": []}, {"kind": "tags", "pooling": "max"}])
def test_scores_and_tags_have_none(tmp_path, shape):
    folder = saved.write_student(tmp_path / "s", "bilstm", "char", **shape)
    assert pack_student(folder, 2.0) == pack_student(folder)
    assert load_bytes(pack_student(folder)).temperature == 1


@pytest.fixture
def parts(tmp_path):
    """Header and rest of a packed file with a temperature."""
    return damage.take_apart(pack_student(saved.write_student(tmp_path / "s", "ffn", "char"), 2.0))


@pytest.mark.parametrize("value", [0, -1, 0.0078, 128.1, 1e30, float("inf"), float("nan")])
def test_a_temperature_out_of_bounds_is_refused(parts, value):
    header, rest = parts
    with pytest.raises(PackedError, match=r"not between 0\.0078125 and 128"):
        load_bytes(damage.assemble(header, struct.pack("<f", value) + rest[4:]))


def test_a_file_may_have_none(parts):
    header, rest = parts
    assert header[2] == CALIBRATED
    without = load_bytes(damage.assemble(header[:2] + bytes([0]) + header[3:], rest[4:]))
    assert without.temperature == 1
    assert np.array_equal(without.logits(TEXTS), load_bytes(damage.assemble(header, rest)).logits(TEXTS))


@pytest.mark.parametrize(("shape", "flags"), [({"labels": []}, 0), ({"kind": "tags", "pooling": "max"}, 2 + 4)])
def test_a_temperature_of_scores_or_tags_is_refused(tmp_path, shape, flags):
    header, rest = damage.take_apart(pack_student(saved.write_student(tmp_path / "s", "bilstm", "char", **shape)))
    assert header[2] == flags
    forged = header[:2] + bytes([flags | CALIBRATED]) + header[3:]
    with pytest.raises(PackedError, match="a temperature is stored for a model without probabilities"):
        load_bytes(damage.assemble(forged, struct.pack("<f", 1) + rest))


def train(workspace, **given):
    """Train a student named s on labels alone."""
    student = {"student_arch": "ffn", "embedding_type": "hash", "model_name": "s", "epochs": 6}
    compressed(workspace, "distill", **student, **given)


def packed(workspace):
    """Pack s. Returns its temperature, as the file and the manifest have it."""
    shrunk(workspace, "pack", "s")
    path = workspace / "packed/sst-2/s.fwt"
    temperature = read_manifest(folder_of(path)).facts["temperature"]
    assert load(path).temperature == pytest.approx(temperature)
    return temperature


def without_labels(workspace):
    """Remove validation's labels. Returns its rows."""
    splits = workspace / "data/sst-2/splits"
    split = read_split(splits / "validation.parquet")
    unknown = dataclasses.replace(split, labels=np.full(len(split), -1))
    write_split(splits / "validation.parquet", unknown, {})
    tiny.edit_facts(splits, labelled={**read_manifest(splits).facts["labelled"], "validation": 0})
    return unknown


def test_packing_fits_the_temperature_on_validation(workspace, glue):
    train(workspace)
    split = load_split(Workspace(workspace), load_task("sst-2"), "validation")
    logits = logits_of(workspace / "models/sst-2/s", split)
    assert packed(workspace) == fit_temperature(logits, split.labels)
    before = read_manifest(folder_of(workspace / "packed/sst-2/s.fwt"))
    packed(workspace)
    assert read_manifest(folder_of(workspace / "packed/sst-2/s.fwt")) == before
    prepare(Workspace(workspace), load_task("sst-2"), glue, seed=99)
    packed(workspace)
    assert read_manifest(folder_of(workspace / "packed/sst-2/s.fwt")).key != before.key


def test_the_teachers_choices_stand_for_labels(workspace):
    train(workspace, alpha=0.0)
    split = without_labels(workspace)
    preprocess(tiny.prepare_settings(workspace, "sst-2", precision="fp32", generate_loss=("validation",)))
    teacher = load_logits(Workspace(workspace), load_task("sst-2"), "tiny-bert", "validation")
    assert packed(workspace) == fit_temperature(logits_of(workspace / "models/sst-2/s", split), teacher.argmax(1))


def test_without_labels_or_rows_probabilities_are_not_calibrated(workspace, capsys):
    train(workspace)
    without_labels(workspace)
    assert packed(workspace) == 1
    assert "s is packed without calibration: sst-2: validation has no labels" in capsys.readouterr().err
    (workspace / "data/sst-2/splits").unlink()
    assert packed(workspace) == 1
    assert "s is packed without calibration: " in capsys.readouterr().err


def test_a_file_that_the_runtime_refuses_is_not_published(workspace, monkeypatch):
    train(workspace)
    monkeypatch.setattr(files, "pack_student", lambda folder, **fitted: pack_student(folder, **fitted)[:-1])
    with pytest.raises(UserError, match=r"s cannot be packed: the runtime refuses its file: .* truncated"):
        packed(workspace)
    assert not (workspace / "packed/sst-2/s.fwt").exists()
