"""Teachers of a fit: those that are stopped before they are finished, and texts without variants to read."""

import own_task
import pytest
import tiny
from stops import stopped_in_step

from common.data.split import load_split
from common.stopping import OutOfTime
from common.training.models import read_config
from compression.experiments.fit.contents.read import read_contents
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.stages import Stages
from compression.experiments.fit.state import Clock, State
from compression.experiments.fit.task import write_task
from compression.experiments.fit.teachers import _Teachers


def stages_of(rows, tmp_path, encoder="none"):
    """The stages of a fit to these rows, whose splits are there."""
    own_task.write_csv(tmp_path / "reviews.csv", rows)
    settings = FitSettings(
        file=tmp_path / "reviews.csv", encoder=encoder, workspace=tmp_path / "w", cpu=True, seed=tiny.SEED
    )
    folder = settings.paths.experiment(settings.experiment)
    task = write_task(folder, settings.experiment, read_contents(settings))
    stages = Stages(settings, task, Clock(folder, 60), State(folder, "id"))
    stages.run("splits", "preprocess")
    return stages


@pytest.mark.slow
@pytest.mark.parametrize(("step", "epochs"), [(2, 0), (5, 1), (14, 3)])
def test_a_stopped_fine_tuning_ends_with_the_best_of_its_epochs(tmp_path, encoder, monkeypatch, step, epochs):
    stages = stages_of(own_task.labelled_rows(200), tmp_path, str(encoder))
    flags = {"arch": stages.settings.encoder, "model_name": "fine-tuned", "max_epochs": 4, "patience": 4}
    run = stages.run

    def run_out_of_time(*stage, **given):
        monkeypatch.setattr(stages, "run", run)
        with stopped_in_step(step):  # an epoch has 4 steps: 120 rows
            run(*stage, **given)
        raise OutOfTime

    monkeypatch.setattr(stages, "run", run_out_of_time)
    assert stages.train("teachers", "finetune", 60, flags) == epochs
    teacher = stages.settings.paths.model(stages.task.name, "fine-tuned")
    assert teacher.exists() == (epochs > 0)
    if epochs:
        assert len((teacher / "history.jsonl").read_text().splitlines()) == epochs
        assert read_config(teacher).settings["max_epochs"] == 4


def test_texts_that_are_too_short_to_be_edited_have_no_variants(tmp_path, capsys):
    names = [f"{first}{last}" for first in "bdfglmnprs" for last in ("ana", "eno", "ilo", "oda", "uri", "ado")]
    stages = stages_of([(name, own_task.NAMES[name.endswith("o")]) for name in names], tmp_path)
    teachers = _Teachers(stages, load_split(stages.settings.paths, stages.task, "train"))
    assert teachers.read_variants("linear", 5) == 0
    assert "no new rows" in capsys.readouterr().err
