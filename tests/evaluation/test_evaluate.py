"""Scores: one row a test split, metrics checked by hand, result.json written for test alone."""

import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
import torch

from common.data.split import load_split, read_metadata, read_split, write_split
from common.data.tasks import load_task
from common.store.workspace import Workspace
from common.teachers.logits import load_logits
from common.training.metrics import score
from compression.augmentation.preprocess import preprocess
from compression.distillation.distill import distill
from compression.evaluation.evaluate import EvaluateSettings, evaluate, finished_rows
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits


def scored(workspace, task, name, **given):
    return evaluate(EvaluateSettings(task=task, workspace=workspace, model_name=name, cpu=True, loadbar=False, **given))


def student(workspace, task="sst-2", **given):
    values = {"student_arch": "ffn", "embedding_type": "hash", "model_name": "s", "epochs": 1, **given}
    return distill(tiny.compress_settings(task=task, workspace=workspace, **tiny.small(**values)))


def test_metrics_by_hand():
    task, classes = load_task("qqp"), np.eye(2, dtype=np.float32)
    scores = score(task, np.array([1, 1, 1, 0, 0]), classes[[1, 0, 0, 0, 1]])
    assert list(scores) == ["accuracy", "f1"]
    assert scores["accuracy"] == pytest.approx(2 / 5)
    assert scores["f1"] == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))  # precision 1/2, recall 1/3
    assert score(task, np.zeros(3, np.int64), classes[[0, 0, 0]]) == {"accuracy": 1.0, "f1": 0.0}


def test_models_say_how_far_they_agree_with_their_teacher_where_no_row_has_a_label(workspace):
    student(workspace)
    path = workspace / "data/sst-2/splits/test.parquet"
    split = read_split(path, "")
    write_split(path, dataclasses.replace(split, labels=np.full(len(split), -1)), {})
    preprocess(tiny.prepare_settings(workspace, "sst-2", precision="fp32", generate_loss=("test",)))
    (row,) = scored(workspace, "sst-2", "s")
    assert list(row["metrics"]) == ["agreement"]
    teacher = load_logits(Workspace(workspace), load_task("sst-2"), "tiny-bert", "test")
    net, tokenizer, _ = load_student(workspace / "models/sst-2/s", torch.device("cpu"))
    own = student_logits(net, encode_split(tokenizer, split), torch.device("cpu"))
    assert pq.read_table(workspace / "models/sst-2/s/predictions-test.parquet")["label"].null_count == len(split)
    assert list(row["validation"]) == ["accuracy"]  # these rows have labels
    assert row["metrics"]["agreement"] == pytest.approx((own.argmax(1) == teacher.argmax(1)).mean())
    assert scored(workspace, "sst-2", "tiny-bert")[0]["metrics"] == {}


def test_mnli_has_a_row_for_each_of_its_test_splits(tmp_path, glue):
    preprocess(tiny.prepare_settings(tmp_path, "mnli", data_dir=glue))
    folder = student(tmp_path, "mnli", alpha=1.0, only_original_data=True)
    rows = scored(tmp_path, "mnli", "s")
    assert [row["split"] for row in rows] == ["test_matched", "test_mismatched"]
    assert json.loads((folder / "result.json").read_text()) == rows


def test_the_score_is_that_of_the_logits(workspace):
    folder = student(workspace)
    split = load_split(Workspace(workspace), load_task("sst-2"), "test")
    net, tokenizer, _ = load_student(folder, torch.device("cpu"))
    right = student_logits(net, encode_split(tokenizer, split), torch.device("cpu")).argmax(1) == split.labels
    (row,) = scored(workspace, "sst-2", "s")
    assert row["metrics"]["accuracy"] == pytest.approx(right.mean())
    assert row["rows"] == len(split)


def test_a_student_has_its_score_over_validation_its_parts_and_its_settings(workspace):
    folder = student(workspace, student_arch="rnn")
    (row,) = scored(workspace, "sst-2", "s")
    (over_validation,) = scored(workspace, "sst-2", "s", split="validation")
    assert row["validation"] == over_validation["metrics"] == over_validation["validation"]
    assert sum(row["parts"].values()) == row["parameters"]
    assert list(row["parts"]) == ["embedding", "encoder", "classifier"]
    assert row["settings"] == json.loads((folder / "config.json").read_text())["settings"]
    (teacher,) = scored(workspace, "sst-2", "tiny-bert")
    assert teacher["validation"] is None
    assert set(teacher["parts"]) == {"embeddings", "encoder", "head"}
    assert sum(teacher["parts"].values()) == teacher["parameters"]


def test_predictions_are_saved_with_labels_and_what_they_are_of(workspace):
    folder = student(workspace)
    (row,) = scored(workspace, "sst-2", "s")
    split = load_split(Workspace(workspace), load_task("sst-2"), "test")
    net, tokenizer, _ = load_student(folder, torch.device("cpu"))
    own = student_logits(net, encode_split(tokenizer, split), torch.device("cpu")).argmax(1)
    saved = pq.read_table(folder / "predictions-test.parquet")
    assert [str(kind) for kind in saved.schema.types] == ["int64", "int64"]
    assert saved["label"].to_pylist() == split.labels.tolist()
    assert saved["prediction"].to_pylist() == own.tolist()
    metadata = read_metadata(folder / "predictions-test.parquet")
    assert metadata == {"model": row["config_hash"], "data": row["data"]}
    scored(workspace, "sst-2", "s", split="validation")
    assert [path.name for path in folder.glob("predictions-*")] == ["predictions-test.parquet"]


def finished(workspace, **given):
    return finished_rows(EvaluateSettings(task="sst-2", workspace=workspace, model_name="s", cpu=True, **given))


def test_a_finished_evaluation_is_reused_only_whole(workspace):
    folder = student(workspace)
    assert finished(workspace) == []
    rows = scored(workspace, "sst-2", "s")
    assert finished(workspace) == rows
    assert finished(workspace, force=True) == []
    saved, predictions = folder / "result.json", folder / "predictions-test.parquet"
    for field in ("validation", "parts", "settings"):  # as an earlier version wrote it
        saved.write_text(json.dumps([{key: value for key, value in rows[0].items() if key != field}]))
        assert finished(workspace) == []
    saved.write_text(json.dumps(rows))
    assert finished(workspace) == rows
    whole = predictions.read_bytes()
    predictions.write_bytes(whole[: len(whole) // 2])
    assert finished(workspace) == []
    predictions.unlink()
    assert finished(workspace) == []
    predictions.write_bytes(whole)
    assert finished(workspace) == rows
    for name in ("validation", "test"):
        path = workspace / f"data/sst-2/splits/{name}.parquet"
        before, split = path.read_bytes(), read_split(path, "").take(np.arange(9))
        write_split(path, split, {"fingerprint": split.fingerprint()})
        assert finished(workspace) == []
        path.write_bytes(before)
    assert finished(workspace) == rows


def test_only_test_is_written_down(workspace):
    folder = student(workspace)
    assert scored(workspace, "sst-2", "s", split="validation")[0]["split"] == "validation"
    assert not (folder / "result.json").exists()


def test_a_teacher_is_scored_like_a_student(workspace):
    (row,) = scored(workspace, "sst-2", "tiny-bert")
    assert row["stage"] == "teacher"
    assert row["student_arch"] is None
    assert row["bytes_model"] == (workspace / "models/sst-2/tiny-bert/huggingface/model.safetensors").stat().st_size
    assert row["metrics"]["accuracy"] > 0.7


def test_a_model_can_be_named_by_its_folder(workspace):
    folder = student(workspace)
    assert scored(workspace, "sst-2", str(folder))[0]["metrics"] == scored(workspace, "sst-2", "s")[0]["metrics"]


def test_speed_is_measured_when_asked_for(workspace):
    student(workspace)
    (row,) = scored(workspace, "sst-2", "s", time=True)
    assert row["speed"]["sentences_per_second"] > 0
    assert row["speed"]["milliseconds_for_one"] > 0


def test_scoring_a_row_does_not_depend_on_the_others(workspace):
    folder = student(workspace, student_arch="bilstm", embedding_type="char")
    split = load_split(Workspace(workspace), load_task("sst-2"), "test")
    net, tokenizer, _ = load_student(folder, torch.device("cpu"))
    together = student_logits(net, encode_split(tokenizer, split), torch.device("cpu"))
    for row in (0, 5, 17):
        alone = student_logits(net, encode_split(tokenizer, split.take(np.array([row]))), torch.device("cpu"))
        assert np.allclose(alone[0], together[row], atol=1e-5)
