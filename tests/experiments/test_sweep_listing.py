"""The commands of experiment.py that read a workspace, on a small sweep: list, show, report, best and compare."""

import json

import pytest
import sweep_grid
import tiny
from processes import run_script

from common.errors import UserError
from compression.experiments.run import distinct, plan_runs
from compression.experiments.sweep.grid import plan_grid
from compression.experiments.sweep.runs import Estimator, duration, experiments, show


@pytest.fixture
def command(swept, capsys):
    """Run experiment.py on the workspace and check its exit code; returns what it printed."""

    def run(*words, code=0):
        capsys.readouterr()
        assert run_script("experiment.py", *words, "--workspace", swept[0]) == code
        output = capsys.readouterr()
        return output.err if code else output.out

    return run


@pytest.fixture
def paths(swept):
    return sweep_grid.settings(swept[0]).paths


def test_list_shows_the_progress_of_every_experiment(command, paths, tmp_path):
    (one,) = experiments(paths)
    assert (one["name"], one["kind"], one["runs"], one["finished"], one["failed"]) == ("g", "sweep", 4, 4, 0)
    assert "4/4" in command("list")
    assert json.loads(command("list", "--json")) == [one]
    assert experiments(sweep_grid.settings(tmp_path).paths) == []


def test_a_damaged_record_is_listed_with_its_error(tmp_path):
    (tmp_path / "experiments" / "bad").mkdir(parents=True)
    (tmp_path / "experiments" / "bad" / "experiment.json").write_text('{"name": 3}')
    (one,) = experiments(sweep_grid.settings(tmp_path).paths)
    assert "not an experiment's record" in one["error"]


def test_show_describes_an_experiment_or_a_run_by_its_first_digits(command, paths):
    runs = show(paths, "g")["runs"]
    assert [run["status"] for run in runs] == ["finished"] * 4
    run = show(paths, runs[0]["id"][:9])
    assert run["rows"][0]["run_id"] == runs[0]["id"]
    assert any("epoch 2/2" in line for line in run["log"])
    text = command("show", runs[0]["id"])
    assert f"run {runs[0]['id']}: finished" in text
    assert "accuracy" in text
    assert runs[0]["id"] in command("show", "g")


@pytest.mark.parametrize("name", ["h", "ffffffff", "../g"])
def test_show_names_what_does_not_exist(paths, name):
    with pytest.raises(UserError, match=r"no experiment|is not a name for an experiment"):
        show(paths, name)


def test_report_writes_tables_skyline_and_page(command, swept):
    assert "report.html" in command("report", "g")
    folder = swept[0] / "experiments" / "g"
    names = ("table.md", "table.csv", "table.tex", "report.md", "report.html", "skyline.png", "skyline.pdf")
    assert all((folder / name).stat().st_size for name in names)
    assert "labels" in (folder / "table.md").read_text()
    assert "no experiment 'h'" in command("report", "h", code=2)


def test_best_and_compare_read_the_models_of_a_sweep(command):
    best = json.loads(command("best", "--task", "sst-2", "--max-bytes", 10**6, "--json"))
    families = [one["family"] for one in best["candidates"]]
    assert len(families) == 2
    assert "95 % CI" in command("compare", *families)
    assert "the smallest is" in command("best", "--task", "sst-2", "--max-bytes", 10, code=2)
    assert "usage: experiment.py compare A B [flags]" in command("compare", families[0], code=2)


def test_estimates_come_from_the_most_similar_runs(swept, paths, tmp_path):
    tasks = distinct(plan_runs(plan_grid(swept[1], sweep_grid.settings(swept[0]))))
    runs = [task.record for task in tasks]
    estimator = Estimator(paths)
    one, all_four = estimator.seconds(runs[:1]), estimator.seconds(runs)
    assert 0 < one < all_four < 100
    assert all_four == pytest.approx(sum(estimator.seconds([run]) for run in runs))
    assert Estimator(sweep_grid.settings(tmp_path).paths).seconds(runs) is None


@pytest.mark.parametrize("change", [{"student_arch": "rnn"}, {"embedding_type": "char"}, {"batch_size": 4}], ids=str)
def test_runs_of_another_kind_estimate_nothing_unless_they_are_of_the_same_sweep(swept, tmp_path, change):
    """A sweep of 15 minutes was said to take 4 hours, by the runs of another experiment."""
    asked = sweep_grid.settings(tiny.copy_workspace(swept[0], tmp_path / "workspace"))
    plan = plan_grid(sweep_grid.write_grid(tmp_path, "other", settings=change), asked)
    task, *_ = tasks = distinct(plan_runs(plan))
    runs = [task.record for task in tasks]
    assert Estimator(asked.paths, runs).seconds(runs) is None
    first, same_cell, *_, other_cell = runs
    assert first.settings["only_original_data"] == same_cell.settings["only_original_data"]
    assert first.settings["only_original_data"] != other_cell.settings["only_original_data"]
    task.save(status="finished", seconds=3.0 * first.work)
    assert Estimator(asked.paths).seconds([same_cell]) == pytest.approx(3 * same_cell.work)
    assert Estimator(asked.paths).seconds([other_cell]) is None
    assert Estimator(asked.paths, runs).seconds([other_cell]) == pytest.approx(3 * other_cell.work)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (5400, "1 h 30 min"), (200_000, "2 d 7 h")],
)
def test_durations_are_readable(seconds, text):
    assert duration(seconds) == text
