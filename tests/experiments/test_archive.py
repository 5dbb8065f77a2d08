"""Archives of finished experiments: whole, and without a machine's paths and names."""

import shutil
from pathlib import Path

import pivot_rows
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archive import ArchiveSettings, archive, main, portable, read_finished
from common.errors import UserError
from common.store.files import write_json
from compression.experiments.jobs import plan_file
from compression.experiments.report.record import ExperimentRecord, definition_files, read_record, write_record
from compression.experiments.report.results import read_results, write_results


@pytest.fixture
def folder(swept, tmp_path):
    """A copy of the sweep's experiment alone, in a new workspace."""
    folder = tmp_path / "workspace" / "experiments" / "g"
    folder.mkdir(parents=True)
    for name in ("experiment.json", "results.json"):
        shutil.copyfile(swept[0] / "experiments" / "g" / name, folder / name)
    return folder


def settings(folder: Path) -> ArchiveSettings:
    return ArchiveSettings(workspace=folder.parent.parent, to=folder.parent.parent / "archive")


def test_a_finished_sweep_is_archived_without_its_machine(swept, tmp_path, monkeypatch, capsys):
    workspace, grid = swept
    words = ["archive.py", "g", "--workspace", str(workspace), "--to", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    main()
    assert capsys.readouterr().out == f"archived: {tmp_path / 'g'}\n"
    assert sorted(path.name for path in (tmp_path / "g").iterdir()) == ["experiment.json", "g.yaml", "results.json"]
    assert (tmp_path / "g" / "g.yaml").read_bytes() == grid.read_bytes()
    before, after = read_finished(workspace / "experiments" / "g"), read_finished(tmp_path / "g")
    assert after.record == before.record.model_copy(update={"files": {}})
    assert [row["run"] for row in after.rows] == [f"models/sst-2/{row['model']}" for row in before.rows]
    kept = [{name: row[name] for name in row if name not in ("run", "checksum")} for row in after.rows]
    assert kept == [{name: row[name] for name in row if name not in ("run", "checksum")} for row in before.rows]
    for path in (tmp_path / "g").iterdir():
        assert str(workspace.parent) not in path.read_text()


@pytest.mark.parametrize("changed", [{"name": "../g"}, {"files": {"/tmp/g.yaml": ""}}, {"files": {"..": ""}}])
def test_names_that_lead_out_of_the_archive_are_refused(tmp_path, changed):
    folder = tmp_path / "workspace" / "experiments" / "g"
    given = {"name": "g", "title": "g", "kind": "chain", "definition": "g", **changed}
    write_record(folder, ExperimentRecord(**given))
    with pytest.raises(UserError, match=r"experiment\.json: .* is not a name for a file or folder"):
        archive(settings(folder), ["g"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["workspace"]


def test_unfinished_and_changed_experiments_are_not_archived(folder):
    wanted = settings(folder)
    rows, record = read_results(folder / "results.json"), read_record(folder)

    def refused(words: str) -> None:
        with pytest.raises(UserError, match=words):
            archive(wanted, ["g"])
        assert not wanted.to.exists()

    write_results(folder / "results.json", rows[1:])
    refused("1 of 4 runs have no rows")
    (folder / "results.json").unlink()
    refused("unfinished")
    write_json(folder / "results.json", [{**row, "metrics": {"accuracy": 1.0}} for row in rows])
    refused("was changed after it was written")
    write_results(folder / "results.json", rows)
    write_record(folder, record.model_copy(update={"runs": record.runs[1:]}))
    refused("that it no longer has")


def test_of_several_experiments_all_are_archived_or_none(folder):
    wanted = settings(folder)
    with pytest.raises(UserError, match="no experiment 'h'"):
        archive(wanted, ["g", "h"])
    assert not wanted.to.exists()
    archive(wanted, ["g"])
    assert archive(wanted, ["g"]) == [wanted.to / "g"]


def test_a_record_holds_its_file_and_the_base_of_it(tmp_path):
    jobs = "jobs: [{preprocess: {}}, {evaluate: {}}]"
    (tmp_path / "a.yaml").write_text("name: a\nsettings: {task: sst-2}\njobs: []\n")
    (tmp_path / "b.yaml").write_text(f"name: b\nbase: a.yaml\n{jobs}")
    (tmp_path / "c.yaml").write_text("name: c\nbase: b.yaml\n" + jobs)
    files = definition_files(tmp_path / "c.yaml")
    assert files == {path.name: path.read_text() for path in [tmp_path / f"{one}.yaml" for one in "cba"]}
    assert plan_file(tmp_path / "c.yaml", []).record.files == files


@pytest.mark.parametrize(("status", "archived"), [("COMPLETED", True), ("RUNNING", False), ("INTERRUPTED", False)])
def test_a_chain_whose_last_run_did_not_end_is_unfinished(tmp_path, status, archived):
    record = ExperimentRecord(name="c", title="c", kind="chain", definition="preprocess compress evaluate")
    folder = tmp_path / "experiments" / "c"
    write_record(folder, record)
    write_results(folder / "results.json", [pivot_rows.row(None, 1, {"accuracy": 0.5})])
    for number, ended in (("9", "FAILED"), ("10", status)):
        write_json(folder / "sacred" / number / "run.json", {"status": ended})
    if archived:
        (folder,) = archive(ArchiveSettings(workspace=tmp_path, to=tmp_path / "to"), ["c"])
        assert len(read_finished(folder).rows) == 1
    else:
        with pytest.raises(UserError, match=f"last run is {status.lower()}"):
            read_finished(folder)


def test_paths_and_names_of_a_machine_are_removed():
    before = {
        "definition": "packed.yaml data_dir=/data/of/me/glue table=~/x/y.csv lr=1/3",
        "data_dir": "glue/mine",
        "workspace": "/ws/runs/8",
        "run": "/elsewhere/workspace/models/sst-2/a+q",
        "given": [{"arch": "/home/me/roberta"}, {"task": "configs/tasks/x.yaml"}, {"task": "../own data/x.yaml"}],
        "bpe_model": "C:\\me\\bpe.model",
        "host": "vm",
        "seconds": {"train": 1.5, "started": "2026-11-21T22:53:28"},
        "labels": ["n/a", "* 1 point", 3, None],
    }
    assert portable(before, Path("/ws")) == {
        "definition": "packed.yaml data_dir=glue table=y.csv lr=1/3",
        "data_dir": "mine",
        "workspace": "runs/8",
        "run": "models/sst-2/a+q",
        "given": [{"arch": "roberta"}, {"task": "configs/tasks/x.yaml"}, {"task": "x.yaml"}],
        "bpe_model": "bpe.model",
        "seconds": {"train": 1.5},
        "labels": ["n/a", "* 1 point", 3, None],
    }


TEXTS = st.text(alphabet="ab /~.=\\:,'", max_size=12)
NAMES = st.sampled_from(["run", "data_dir", "task", "other"])
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(), lambda v: st.lists(v) | st.dictionaries(NAMES, v), max_leaves=6
)


@given(VALUES)
def test_portable_values_do_not_change_again_and_have_no_path_from_a_root(value):
    once = portable(value, Path("/ab"))
    assert portable(once, Path("/ab")) == once
    assert not any(text.startswith("/") or " /" in text or "=/" in text for text in leaves(once))


def leaves(value) -> list[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value] if isinstance(value, str) else [text for one in inner for text in leaves(one)]
