"""What experiment.py tells of a workspace: list, show, report, best and compare on the runs of a small sweep."""

import json

import pytest
import sweep_grid
import tiny

from common.errors import UserError
from common.store.settings import QuerySettings
from compression.experiments.sweep.board import spoken
from compression.experiments.sweep.estimate import Estimator
from compression.experiments.sweep.grid import load_grid
from compression.experiments.sweep.listing import experiments, show
from compression.experiments.sweep.plan import distinct, plan_runs


def command(workspace, *words):
    return tiny.run_command("experiment.py", *words, "--workspace", workspace)


def test_list_tells_how_far_every_experiment_is(swept, tmp_path):
    paths = QuerySettings(workspace=swept[0]).paths
    (one,) = experiments(paths)
    assert (one["name"], one["kind"], one["runs"], one["finished"], one["failed"]) == ("g", "sweep", 4, 4, 0)
    done = command(swept[0], "list")
    assert (done.returncode, "4/4" in done.stdout) == (0, True)
    assert json.loads(command(swept[0], "list", "--json").stdout) == [one]
    assert experiments(QuerySettings(workspace=tmp_path).paths) == []


def test_a_damaged_record_is_listed_as_such(swept, tmp_path):
    (tmp_path / "experiments" / "bad").mkdir(parents=True)
    (tmp_path / "experiments" / "bad" / "experiment.json").write_text('{"name": 3}')
    (one,) = experiments(QuerySettings(workspace=tmp_path).paths)
    assert "not an experiment's record" in one["error"]


def test_show_tells_of_an_experiment_and_of_a_run_by_its_first_digits(swept):
    paths = QuerySettings(workspace=swept[0]).paths
    runs = show(paths, "g")["runs"]
    assert [run["status"] for run in runs] == ["finished"] * 4
    told = show(paths, runs[0]["id"][:9])
    assert told["rows"][0]["run_id"] == runs[0]["id"]
    assert any("epoch 2/2" in line for line in told["log"])
    text = command(swept[0], "show", runs[0]["id"]).stdout
    assert f"run {runs[0]['id']}: finished" in text
    assert "accuracy" in text
    assert runs[0]["id"] in command(swept[0], "show", "g").stdout


@pytest.mark.parametrize("name", ["h", "ffffffff", "../g"])
def test_show_refuses_what_there_is_not(swept, name):
    with pytest.raises(UserError, match=r"no experiment|is not a name for an experiment"):
        show(QuerySettings(workspace=swept[0]).paths, name)


def test_report_writes_tables_skyline_and_page(swept):
    done = command(swept[0], "report", "g")
    assert done.returncode == 0, done.stderr
    folder = swept[0] / "experiments" / "g"
    names = ("table.md", "table.csv", "table.tex", "report.md", "report.html", "skyline.png", "skyline.pdf")
    assert all((folder / name).stat().st_size for name in names)
    assert "labels" in (folder / "table.md").read_text()
    assert command(swept[0], "report", "h").returncode == 2


def test_best_and_compare_read_what_the_sweep_made(swept):
    best = command(swept[0], "best", "--task", "sst-2", "--max-bytes", 10**6, "--json")
    assert best.returncode == 0, best.stderr
    families = [one["family"] for one in json.loads(best.stdout)["candidates"]]
    assert len(families) == 2
    compared = command(swept[0], "compare", *families)
    assert compared.returncode == 0, compared.stderr
    assert "95 % CI" in compared.stdout
    small = command(swept[0], "best", "--task", "sst-2", "--max-bytes", 10)
    assert (small.returncode, "the smallest is" in small.stderr) == (2, True)
    assert command(swept[0], "compare", families[0]).returncode == 2


def test_estimates_come_from_the_runs_most_alike(swept):
    workspace, path = swept
    settings = sweep_grid.settings(workspace)
    grid = load_grid(path, (), settings.flags)
    works = distinct(plan_runs(grid, settings.paths, "g", {}, (), 1))
    estimator = Estimator(settings.paths)
    one, all_four = estimator.seconds(works[:1]), estimator.seconds(works)
    assert 0 < one < all_four < 100
    assert all_four == pytest.approx(sum(estimator.seconds([work]) for work in works))
    assert Estimator(QuerySettings(workspace=path.parent / "empty").paths).seconds(works) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (5400, "1 h 30 min"), (200_000, "2 d 7 h")],
)
def test_times_are_said_in_words(seconds, text):
    assert spoken(seconds) == text
