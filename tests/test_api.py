"""compression.distill and the others: the same models as the scripts', their mistakes as exceptions."""

import inspect
import json
from types import SimpleNamespace

import own_task
import pytest
import tiny

import compression
from common.errors import UserError
from compression import api
from compression.runtime import load
from compression.shrinking.chain import compress

pytestmark = pytest.mark.slow


def given(workspace):
    """Settings of a tiny student, as a notebook's user types them."""
    sizes = tiny.with_effect(**tiny.small(student_arch="ffn", embedding_type="hash", seed=tiny.SEED))
    return {"task": "sst-2", "workspace": workspace, "cpu": True, "loadbar": False, **sizes}


def test_a_chain_of_functions_builds_the_models_of_the_script(workspace, prepared, tmp_path):
    student = compression.distill(**given(workspace))
    small = compression.quantize(student, bits=4, cpu=True)
    packed = compression.pack(small)
    other = tiny.copy_workspace(prepared, tmp_path / "other")
    actions = ("distill", "quantize", "pack")
    folders = compress(tiny.compress_settings(**{**given(other), "compression_actions": actions, "bits": 4}))
    assert [student.name, small.name] == [folder.name for folder in folders]
    assert compression.quantize(student, task="sst-2", bits=4, cpu=True).path == small.path
    assert packed.path == workspace / f"packed/sst-2/{small.name}.fwt"
    assert packed.path.read_bytes() == (other / f"packed/sst-2/{small.name}.fwt").read_bytes()
    assert packed.bytes == packed.path.stat().st_size < student.bytes
    history = tiny.read_history(student.path)
    assert student.scores == {"validation accuracy": max(epoch["score"] for epoch in history)}
    assert small.scores == packed.scores == {}
    (row,) = compression.evaluate(small, cpu=True)
    (again,) = compression.evaluate(small, packed=True)
    (by_path,) = compression.evaluate(str(packed.path), task="sst-2", workspace=workspace)
    assert row["metrics"] == again["metrics"] == by_path["metrics"]
    assert load(packed.path).predict(["a wonderful film"])[0] in ("negative", "positive")


def test_data_and_teachers(tmp_path, glue, encoder):
    place = {"task": "sst-2", "workspace": tmp_path / "w", "loadbar": False}
    rows = compression.preprocess(**place, data_dir=glue)
    assert set(rows) == {"train", "validation", "test"}
    training = {"max_epochs": 1, "batch_size": 16, "lr": 1e-2, "precision": "fp32"}
    teacher = compression.finetune(**place, cpu=True, arch=str(encoder), **training)
    assert (teacher.name, teacher.task) == ("tiny-bert", "sst-2")
    rows = compression.preprocess(**place, generate_loss="processed")
    assert list(rows.values()) == [rows["--generate-loss processed"]]
    (pruned,) = compression.compress(**{**given(tmp_path / "w"), "only_original_data": True})
    assert compression.prune(pruned).name == f"{pruned.name}+p"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bits": 4}, "--bits has no effect without --compression-actions quantize"),
        ({"epoch": 3}, r"unknown setting 'epoch'; did you mean epochs\?"),
        ({"student_arch": "fnn"}, "--student-arch: should be 'ffn', 'rnn', 'bilstm'"),
        ({"task": "sst"}, r"unknown task 'sst'; did you mean sst-2\?"),
    ],
)
def test_mistakes_are_exceptions_of_one_line(tmp_path, settings, words):
    with pytest.raises(UserError, match=words) as caught:
        compression.distill(**{"task": "sst-2", "workspace": tmp_path, **settings})
    assert "\n" not in str(caught.value)


def test_defaults_are_those_of_the_students_settings_file(workspace):
    settings = {**given(workspace), "epochs": 1}
    del settings["batch_size"]
    built = compression.distill(**settings)
    assert '"batch_size": 256' in (built.path / "manifest.json").read_text()


def test_the_score_is_that_of_the_epoch_whose_weights_are_kept(tmp_path):
    """A half-pruned model may score better, but its weights are not kept."""
    records = [{"score": 0.9, "kept": False}, {"score": 0.8, "kept": True}]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    settings = SimpleNamespace(task="sst-2", workspace=tmp_path)
    assert api._built(settings, tmp_path).scores == {"validation accuracy": 0.8}


def test_functions_are_listed_and_nothing_else_is_there():
    assert set(compression.__all__) <= set(dir(compression))
    with pytest.raises(AttributeError, match="has no attribute 'distil'"):
        _ = compression.distil


def test_signatures_show_the_settings_with_their_defaults():
    fit, evaluate = inspect.signature(compression.fit).parameters, inspect.signature(compression.evaluate).parameters
    assert list(fit)[:3] == ["texts", "labels", "file"]
    assert fit["max_bytes"].default == (32_000,)
    assert evaluate["model_name"].default is inspect.Parameter.empty
    for name in compression.__all__:
        assert "settings" not in inspect.signature(getattr(compression, name)).parameters


def test_texts_and_labels_in_memory_are_fitted(tmp_path, short_fits):
    rows = own_task.labelled_rows(200)
    texts, labels = [text for text, _ in rows], [label for _, label in rows]
    settings = {"max_bytes": 4000, "minutes": 0.5, "cpu": True, "loadbar": False, "workspace": tmp_path / "workspace"}
    result = compression.fit(texts, [*labels[:-1], None], **settings)
    assert result.bytes <= 4000
    assert set(result.predict(texts[:9])) <= set(labels)
    with pytest.raises(UserError, match="200 texts, but 3 labels"):
        compression.fit(texts, labels[:3], **settings)
    with pytest.raises(UserError, match="fit takes texts and labels, or a file"):
        compression.fit(texts, **settings)
    with pytest.raises(UserError, match="texts and labels are not of one kind"):
        compression.fit([*texts[:-1], 3], labels, **settings)
    pairs = compression.fit([(text, text[::-1]) for text in texts], labels, **settings, dry_run=True)
    assert pairs["texts"] == ["text1", "text2"]


@pytest.mark.parametrize("row", ["a", "ab", "abc", None, ("a",), ("a", "b", "c")])
def test_rows_that_are_no_pairs_are_named(tmp_path, row):
    with pytest.raises(UserError, match="fit: texts are pairs, but text 2 is not"):
        compression.fit([("a film", "a plot"), row], ["good", "bad"], workspace=tmp_path)
