"""Tasks: the shipped ones, the user's own, and faulty YAML files."""

import json
import re
from pathlib import Path

import pytest
import tiny_questions
import tiny_tags
import yaml
from own_task import labelled_rows, own_task, write_yaml

from common.data.prepare import prepare
from common.data.tasks import FILE, known_tasks, load_task
from common.errors import UserError
from common.store.workspace import Workspace
from compression.experiments.jobs import plan_file


def test_every_glue_task_has_its_metrics():
    expected = {
        "cola": ("matthews",),
        "sst-2": ("accuracy",),
        "mrpc": ("accuracy", "f1"),
        "sts-b": ("pearson", "spearman"),
        "qqp": ("accuracy", "f1"),
        "mnli": ("accuracy",),
        "qnli": ("accuracy",),
        "rte": ("accuracy",),
        "wnli": ("accuracy",),
        "ax": ("matthews",),
    }
    assert {name: load_task(name).all_metrics for name in expected} == expected
    others = {"rotten-tomatoes", "imdb", "banking77", *tiny_questions.SHIPPED, *tiny_tags.BIOMEDICAL}
    assert set(known_tasks()) == expected.keys() | others


@pytest.mark.parametrize("name", known_tasks())
def test_archives_come_with_a_checksum_and_other_files_with_where_to_get_them(name):
    task = load_task(name)
    assert task.name == name
    if task.source.kind == "glue":
        assert (task.source.sha256 is None) == (task.source.url is None or FILE in task.source.url)
        assert len(task.source.sha256 or "0" * 64) == 64
        assert task.source.url or task.source.obtain


@pytest.mark.parametrize(("name", "hint"), [("mrpc", "download_glue_data"), ("ax", "gluebenchmark.com/diagnostics")])
def test_files_without_an_archive_are_requested(tmp_path, name, hint):
    for data_dir, message in ((None, "--data-dir"), (tmp_path, "no such file")):
        with pytest.raises(UserError, match=f"{message}.*{hint}"):
            prepare(Workspace(tmp_path), load_task(name), data_dir, seed=1)


def test_mrpc_and_sts_b_share_sentences():
    assert load_task("mrpc").overlaps == ("sts-b",)
    assert load_task("sts-b").overlaps == ("mrpc",)


def test_missing_tasks_and_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"unknown task 'sst2'; did you mean sst-2\?"):
        load_task("sst2")
    with pytest.raises(UserError, match=r"none\.yaml: no such file"):
        load_task(str(tmp_path / "none.yaml"))
    with pytest.raises(UserError, match=r"none\.csv: no such file"):
        prepare(Workspace(tmp_path), load_task(write_yaml(tmp_path, {"all": "none.csv"})), None, seed=1)


def glue_source(folder="up", archive="a.zip", file="a.tsv"):
    return {"kind": "glue", "folder": folder, "url": f"http://127.0.0.1:9/{archive}", "files": {"train": file}}


FAULTS = [
    ({"labels": ["a"]}, "two or more labels"),
    ({"labels": None}, "two or more labels, or kind: numbers and a range"),
    ({"range": [0, 1]}, "range is for tasks of kind numbers"),
    ({"labels": None, "kind": "numbers", "range": [5, 0]}, "lowest score must come first"),
    ({"label_values": ["a"]}, "same length"),
    ({"labels": ["a", "a"]}, "must not repeat"),
    ({"labels": [True, False]}, "put yes, no, true and false in quotes"),
    ({"columns": {"sentence2": "review", "label": "verdict"}}, "sentence1"),
    ({"metrics": ["pearson"]}, "pearson is not one of this kind of task"),
    (
        {"labels": None, "kind": "numbers", "range": [0, 5], "metrics": ["accuracy"]},
        "accuracy is not one of this kind of task (pearson, s",
    ),
    ({"labels": ["a", "b", "c"], "metrics": ["f1"]}, "f1_macro"),
    ({"validation": {"fraction": 0.1}, "models_of": "mnli"}, "models_of"),
    ({"source": {"files": {"trian": "a.csv"}}}, "unknown split 'trian'; did you mean train?"),
    ({"source": {"files": {"all": "a.csv", "train": "b.csv"}}}, "all and train mean the same"),
    ({"source": {"files": {"all": "a.csv", "test": "b.csv"}}, "test": {"rows": 5}}, "cannot be split off train"),
    ({"name": "a/b"}, "'a/b' is not a task name"),
    ({"name": ""}, "'' is not a task name"),
    ({"name": "a\0b"}, r"'a\x00b' is not a task name"),
    ({"models_of": "../sst-2"}, "models_of: '../sst-2' is not a task name"),
    ({"models_of": "sst-2"}, "models_of: a task that only scores models of another task has only test files"),
    ({"labels": None, "kind": "numbers", "range": [0, 1e300]}, "range: scores are at most 1e+15"),
    ({"source": glue_source(folder="../up")}, "'../up' is outside the archive's folder"),
    ({"source": glue_source(file="/etc/passwd")}, "'/etc/passwd' is outside the archive's folder"),
    ({"source": glue_source(archive="..")}, "'..' is outside the archive's folder"),
    ({"name": "sst-2"}, "sst-2 is the name of a shipped task; give yours another"),
    ({"colums": {}}, "unknown setting 'colums'; did you mean columns?"),
]
TAGGING_FAULTS = [
    ({"labels": ["B-a", "I-a"]}, "O among them"),
    ({"labels": ["O", "I-a"]}, "I-a continues an entity that nothing begins: B-a is missing"),
    ({"labels": ["O", "a"]}, "'a' is not an IOB tag"),
    ({"metrics": ["f1"]}, "metric f1 is not one of this kind of task"),
    ({"columns": {"sentence1": "a", "sentence2": "b"}}, "kind tags has single texts"),
    ({"columns": {"sentence1": "word", "label": "tag"}}, "kind tags have no columns"),
]


@pytest.mark.parametrize(
    ("tokens", "changed", "message"),
    [(False, *fault) for fault in FAULTS] + [(True, *fault) for fault in TAGGING_FAULTS],
)
def test_a_faulty_task_file_is_refused(tmp_path, tokens, changed, message):
    path = tiny_tags.write_task(tmp_path, rows=4) if tokens else Path(write_yaml(tmp_path, {"all": "a.csv"}))
    values = {**yaml.safe_load(path.read_text()), **changed}
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
    with pytest.raises(UserError) as error:
        load_task(str(path))
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_an_experiment_finds_the_task_next_to_its_file(tmp_path, monkeypatch):
    own_task(tmp_path, labelled_rows(20))
    experiment = {"name": "e", "settings": {"task": "mine.yaml"}, "jobs": [{"preprocess": {}}]}
    (tmp_path / "e.yaml").write_text(json.dumps(experiment))
    assert plan_file(tmp_path / "e.yaml", []).jobs[0].flags["task"] == str(tmp_path / "mine.yaml")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/e.yaml").write_text(json.dumps(experiment))
    monkeypatch.chdir(tmp_path)
    assert plan_file(tmp_path / "sub/e.yaml", []).jobs[0].flags["task"] == "mine.yaml"


def test_a_package_that_cannot_be_there_is_named(tmp_path):
    for package in ("nowhere.data", "..data", ""):
        source = {"kind": "package", "package": package, "files": {"train": "a.csv"}}
        with pytest.raises(UserError, match=f"the data package {re.escape(package)} is not installed$"):
            prepare(Workspace(tmp_path), load_task(write_yaml(tmp_path, {}, source=source)), None, seed=1)
