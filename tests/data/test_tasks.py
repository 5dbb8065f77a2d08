"""Tasks: the shipped ones, the user's own, and faulty YAML files."""

import json

import pytest
import tiny_tags
from own_task import labelled_rows, own_task, write_yaml

from common.data.prepare import prepare
from common.data.tasks import known_tasks, load_task
from common.errors import UserError
from common.store.workspace import Workspace
from compression.experiments.chain import plan_file


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
    assert set(known_tasks()) == {*expected, "rotten-tomatoes", *tiny_tags.BIOMEDICAL}


def test_archives_come_with_a_checksum_and_other_files_with_where_to_get_them():
    for name in known_tasks():
        source = load_task(name).source
        if source.kind == "glue":
            assert (source.sha256 is None) == (source.url is None), name
            assert len(source.sha256 or "0" * 64) == 64, name
            assert source.url or source.obtain, name


@pytest.mark.parametrize(("name", "hint"), [("mrpc", "download_glue_data"), ("ax", "gluebenchmark.com/diagnostics")])
def test_files_without_an_archive_are_requested(tmp_path, name, hint):
    with pytest.raises(UserError, match=f"--data-dir.*{hint}"):
        prepare(Workspace(tmp_path), load_task(name), None, seed=1)
    with pytest.raises(UserError, match=f"no such file.*{hint}"):
        prepare(Workspace(tmp_path), load_task(name), tmp_path, seed=1)


def test_mrpc_and_sts_b_share_sentences():
    assert load_task("mrpc").overlaps == ("sts-b",)
    assert load_task("sts-b").overlaps == ("mrpc",)


def test_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.csv: no such file"):
        prepare(Workspace(tmp_path), load_task(write_yaml(tmp_path, {"all": "none.csv"})), None, seed=1)
    with pytest.raises(UserError, match=r"none\.yaml: no such file"):
        load_task(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": [True, False]}, "put yes, no, true and false in quotes"),
        ({"source": {"files": {"trian": "a.csv"}}}, "unknown split 'trian'; did you mean train?"),
        ({"source": {"files": {"all": "a.csv", "train": "b.csv"}}}, "all and train mean the same"),
        (
            {"source": {"files": {"all": "a.csv", "test": "b.csv"}}, "test": {"rows": 5}},
            "cannot be carved and have a file",
        ),
        ({"name": "a/b"}, "'a/b' is not a task name"),
        ({"name": "sst-2"}, "sst-2 is the name of a shipped task; give yours another"),
        ({"colums": {}}, "unknown setting 'colums'; did you mean columns?"),
    ],
)
def test_a_faulty_task_file_is_refused(tmp_path, changed, message):
    path = write_yaml(tmp_path, {"all": "a.csv"})
    (tmp_path / "mine.yaml").write_text(json.dumps({**json.loads((tmp_path / "mine.yaml").read_text()), **changed}))
    with pytest.raises(UserError) as error:
        load_task(path)
    assert str(error.value).startswith(path)
    assert message in str(error.value)


def test_an_experiment_finds_the_task_next_to_its_file(tmp_path, monkeypatch):
    own_task(tmp_path, labelled_rows(20))
    experiment = {"name": "e", "settings": {"task": "mine.yaml"}, "jobs": [{"preprocess": {}}]}
    (tmp_path / "e.yaml").write_text(json.dumps(experiment))
    assert plan_file(tmp_path / "e.yaml", []).jobs[0].given["task"] == str(tmp_path / "mine.yaml")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/e.yaml").write_text(json.dumps(experiment))
    monkeypatch.chdir(tmp_path)
    assert plan_file(tmp_path / "sub/e.yaml", []).jobs[0].given["task"] == "mine.yaml"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": ["B-a", "I-a"]}, "O among them"),
        ({"labels": ["O", "I-a"]}, "I-a continues an entity that nothing begins: B-a is missing"),
        ({"labels": ["O", "a"]}, "'a' is not an IOB tag"),
        ({"metrics": ["f1"]}, "metric f1 is not one of this kind of task"),
        ({"columns": {"sentence1": "a", "sentence2": "b"}}, "texts are single ones"),
        ({"columns": {"sentence1": "word", "label": "tag"}}, "no columns to name"),
    ],
)
def test_a_faulty_task_is_refused(tmp_path, changed, message):
    with pytest.raises(UserError, match=message):
        load_task(str(tiny_tags.write_task(tmp_path, **changed)))
