"""Scores: one row a test split, metrics checked by hand, result.json written for test alone."""

import dataclasses

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
from processes import run_script
from shrunk import shrunk
from stages import logits_of, scored

from common.data.prepare import prepare
from common.data.split import load_split, read_metadata, read_split, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.artifact import read_manifest
from common.store.files import read_json
from common.store.workspace import Workspace
from common.teachers.logits import load_logits
from common.training.metrics import score
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.distillation.distill import distill
from compression.evaluation.evaluate import saved_rows
from compression.runtime import to_probabilities


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
    splits = workspace / "data/sst-2/splits"
    split = read_split(splits / "test.parquet")
    write_split(splits / "test.parquet", dataclasses.replace(split, labels=np.full(len(split), -1)), {})
    tiny.edit_facts(splits, labelled={**read_manifest(splits).facts["labelled"], "test": 0})
    preprocess(tiny.prepare_settings(workspace, "sst-2", precision="fp32", generate_loss=("test",)))
    (row,) = scored(workspace, "s")
    assert list(row["metrics"]) == ["agreement"]
    teacher = load_logits(Workspace(workspace), load_task("sst-2"), "tiny-bert", "test")
    own = logits_of(workspace / "models/sst-2/s", split)
    assert pq.read_table(tiny.scores(workspace, "s") / "predictions-test.parquet")["label"].null_count == len(split)
    assert list(row["validation"]) == ["accuracy"]  # these rows have labels
    assert row["metrics"]["agreement"] == pytest.approx((own.argmax(1) == teacher.argmax(1)).mean())
    assert scored(workspace, "tiny-bert")[0]["metrics"] == {}


def test_mnli_has_a_row_for_each_of_its_test_splits_and_their_mean(tmp_path, glue, capsys):
    preprocess(tiny.prepare_settings(tmp_path, "mnli", data_dir=glue))
    student(tmp_path, "mnli", alpha=1.0, only_original_data=True)
    rows = scored(tmp_path, "s", "mnli")
    assert [row["split"] for row in rows] == ["test_matched", "test_mismatched"]
    assert read_json(tiny.scores(tmp_path, "s", "mnli") / "result.json") == rows
    words = ("--task", "mnli", "--workspace", tmp_path, "--model-name", "s", "--cpu", "--no-loadbar")
    assert run_script("evaluate.py", *words) == 0
    mean = sum(row["metrics"]["accuracy"] for row in rows) / 2
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"s on mnli, mean of test_matched and test_mismatched: accuracy {mean:.4f}"


def test_the_score_is_that_of_the_logits(workspace):
    folder = student(workspace)
    split = load_split(Workspace(workspace), load_task("sst-2"), "test")
    right = logits_of(folder, split).argmax(1) == split.labels
    (row,) = scored(workspace, "s")
    assert row["metrics"]["accuracy"] == pytest.approx(right.mean())
    assert row["rows"] == len(split)


def test_a_student_has_its_score_over_validation_its_parts_and_its_settings(workspace):
    folder = student(workspace, student_arch="rnn")
    (row,) = scored(workspace, "s")
    (over_validation,) = scored(workspace, "s", split="validation")
    assert row["validation"] == over_validation["metrics"] == over_validation["validation"]
    assert sum(row["parts"].values()) == row["parameters"]
    assert list(row["parts"]) == ["embedding", "encoder", "classifier"]
    assert row["settings"] == read_config(folder).settings
    (teacher,) = scored(workspace, "tiny-bert")
    assert teacher["validation"] is None
    assert set(teacher["parts"]) == {"embeddings", "encoder", "head"}
    assert sum(teacher["parts"].values()) == teacher["parameters"]


def test_predictions_are_saved_with_labels_and_what_they_are_of(workspace):
    folder = student(workspace)
    (row,) = scored(workspace, "s")
    split = load_split(Workspace(workspace), load_task("sst-2"), "test")
    logits = logits_of(folder, split)
    scores = tiny.scores(workspace, "s")
    saved = pq.read_table(scores / "predictions-test.parquet")
    assert [str(kind) for kind in saved.schema.types] == ["int64", "int64", "float"]
    assert saved["label"].to_pylist() == split.labels.tolist()
    assert saved["prediction"].to_pylist() == logits.argmax(1).tolist()
    probabilities = to_probabilities(logits, row["calibration"]["temperature"])
    assert saved["probability"].to_numpy() == pytest.approx(probabilities.max(1), abs=1e-6)
    metadata = read_metadata(scores / "predictions-test.parquet")
    assert metadata == {"model": row["config_hash"], "data": row["data"], "kind": "labels"}
    scored(workspace, "s", split="validation")
    assert [path.name for path in scores.glob("predictions-*")] == ["predictions-test.parquet"]


def kept(workspace):
    folder = workspace / "models/sst-2/s"
    return saved_rows(Workspace(workspace), load_task("sst-2"), folder, read_config(folder))


def test_scores_are_reused_only_whole_and_of_the_model_and_data_as_they_are(workspace, glue):
    student(workspace)
    assert kept(workspace) == []
    rows = scored(workspace, "s")
    file = tiny.scores(workspace, "s") / "predictions-test.parquet"
    whole, written = file.read_bytes(), file.stat().st_mtime_ns
    assert scored(workspace, "s") == kept(workspace) == rows
    assert file.stat().st_mtime_ns == written
    scored(workspace, "s", force=True)
    assert file.stat().st_mtime_ns != written
    file.write_bytes(whole[: len(whole) // 2])
    assert kept(workspace) == []
    assert without_seconds(scored(workspace, "s")) == without_seconds(rows)
    assert file.read_bytes() == whole
    file.unlink()
    assert kept(workspace) == []
    scored(workspace, "s")
    student(workspace, epochs=2, force=True)
    assert kept(workspace) == []
    assert scored(workspace, "s")[0]["config_hash"] != rows[0]["config_hash"]
    student(workspace, force=True)
    assert without_seconds(kept(workspace)) == without_seconds(rows)
    prepare(Workspace(workspace), load_task("sst-2"), glue, seed=99)
    assert kept(workspace) == []


def without_seconds(rows):
    return [{**row, "seconds": None} for row in rows]


def test_a_packed_file_of_another_model_is_refused(workspace):
    command = ("python compress.py", "--compression-actions pack", "--load-trained-model s")
    student(workspace)
    with pytest.raises(UserError, match=f"no such file; run: {'.*'.join(command)}"):
        scored(workspace, "s", packed=True)
    shrunk(workspace, "pack", "s")
    (row,) = scored(workspace, "s", packed=True)
    assert (row["stage"], row["metrics"]) == ("packed", scored(workspace, "s")[0]["metrics"])
    path = workspace / "packed/sst-2/s.fwt"
    old = path.resolve()
    student(workspace, epochs=2, force=True)
    assert not path.exists()
    path.symlink_to(old)
    with pytest.raises(UserError, match=f"packed from another model than s is now; run: {'.*'.join(command)}"):
        scored(workspace, "s", packed=True)


def test_only_test_is_written_down(workspace):
    student(workspace)
    assert scored(workspace, "s", split="validation")[0]["split"] == "validation"
    assert not (workspace / "scores").exists()


def test_a_teacher_is_scored_like_a_student(workspace):
    (row,) = scored(workspace, "tiny-bert")
    assert row["stage"] == "teacher"
    assert row["student_arch"] is None
    assert row["bytes_model"] == (workspace / "models/sst-2/tiny-bert/huggingface/model.safetensors").stat().st_size
    assert row["metrics"]["accuracy"] > 0.7


def test_a_model_can_be_named_by_its_folder(workspace):
    folder = student(workspace)
    assert scored(workspace, str(folder))[0]["metrics"] == scored(workspace, "s")[0]["metrics"]


def test_speed_is_measured_when_asked_for_and_scores_are_kept(workspace):
    folder = student(workspace)
    (row,) = scored(workspace, "s", time=True)
    speed = row.pop("speed")
    assert saved_rows(Workspace(workspace), load_task("sst-2"), folder, read_config(folder)) == [row]
    assert scored(workspace, "s") == [row]
    assert (speed.pop("runtime"), speed.pop("flops")) == ("numpy", 2 * (6 * 7 + 7 * 2))
    assert all(speed[name] > 0 for name in ("sentences_per_second", "milliseconds_for_one", "peak_memory"))
    (teacher,) = scored(workspace, "tiny-bert", time=True)
    measured = ["sentences_per_second", "milliseconds_for_one", "joules_for_one", "flops"]
    assert list(teacher["speed"]) == ["runtime", *measured]
    assert teacher["speed"]["runtime"] == "pytorch"


def test_energy_of_training_is_a_power_times_its_seconds_if_it_was_trained(workspace):
    student(workspace)
    (row,) = scored(workspace, "s", time=True, watts=10)
    assert row["joules"] == {"train": 10 * row["seconds"]["train"]}
    shrunk(workspace, "quantize", "s", model_name="q")
    (row,) = scored(workspace, "q", time=True, watts=10)
    assert row["seconds"]["train"] is None
    assert "joules" not in row


def test_scoring_a_row_does_not_depend_on_the_others(workspace):
    folder = student(workspace, student_arch="bilstm", embedding_type="char")
    split = load_split(Workspace(workspace), load_task("sst-2"), "test")
    split = dataclasses.replace(split, sentence1=[*split.sentence1[:5], "", *split.sentence1[6:]])
    together = logits_of(folder, split)
    for row in (0, 5, 17):
        assert np.allclose(logits_of(folder, split.take(np.array([row])))[0], together[row], atol=1e-5)
