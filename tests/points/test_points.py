"""A sixth kind of task, in files of its own: from a CSV file to the scores of a packed file."""

import csv

import c_runtime
import numpy as np
import points_kind
import points_runtime
import pytest
import tiny
import yaml
from stages import score_of

from common.config import build
from common.data.prepare import prepare
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.kinds.registry import KINDS
from common.store.workspace import Workspace
from common.training.distillation_losses import check_loss
from compression.inference.predict import PredictSettings, predict
from compression.runtime import PackedError, load, native
from compression.runtime.kinds import KINDS as RUNTIME_KINDS
from compression.shrinking.chain import compress
from compression.shrinking.settings import CompressSettings

PLACES = {"north": (0.5, 1.0), "south": (0.5, 0.0), "west": (0.0, 0.5), "east": (1.0, 0.5)}


@pytest.fixture(scope="module", autouse=True)
def _registered():
    """A sixth kind adds itself to two registries."""
    KINDS["points"], RUNTIME_KINDS["points"] = points_kind.Points(), points_runtime.Points()
    yield
    del KINDS["points"], RUNTIME_KINDS["points"]


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """(workspace, the task's YAML file, the packed student)."""
    folder = tmp_path_factory.mktemp("points")
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row in range(120):
            name, (x, y) = list(PLACES.items())[row % 4]
            writer.writerow([f"number {row} goes {name}", f"{x} {y}"])
    task = {"name": "places", "kind": "points", "source": {"files": {"all": "rows.csv"}}}
    (folder / "places.yaml").write_text(yaml.safe_dump(task))
    name = str(folder / "places.yaml")
    prepare(Workspace(folder / "workspace"), load_task(name), None, tiny.SEED)
    settings = {"task": name, "workspace": folder / "workspace", "student_arch": "ffn", "embedding_type": "hash",
                "model_name": "s", "epochs": 60, "lr": 0.01, "alpha": 1.0, "only_original_data": True, "cpu": True,
                "compression_actions": ("distill", "pack"), "loadbar": False}  # fmt: skip
    compress(CompressSettings(**settings))
    return folder / "workspace", name, folder / "workspace" / "packed" / "places" / "s.fwt"


@pytest.mark.slow
def test_a_packed_file_is_scored(packed):
    workspace, task, path = packed
    assert score_of(workspace, "s", task, packed=True)["metrics"]["closeness"] > 0.7
    model = load(path)
    assert (model.kind, model.outputs, model.labels) == ("points", 2, ("x", "y"))
    assert model.predict(["it goes north"]) == [pytest.approx((0.5, 1.0), abs=0.3)]


@pytest.mark.slow
def test_predictions_have_a_column_for_each_number(packed, capsys):
    workspace, task, path = packed
    (workspace / "in.csv").write_text("text\nit goes east\n")
    for model in (str(path), "s"):
        predict(PredictSettings(model=model, task=task, workspace=workspace, input=workspace / "in.csv", cpu=True))
        (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
        assert (float(row["predicted_x"]), float(row["predicted_y"])) == pytest.approx((1.0, 0.5), abs=0.3)


@pytest.mark.slow
def test_runtimes_without_the_kind_refuse_its_files(packed, monkeypatch):
    _, _, path = packed
    monkeypatch.setattr(native, "LIBRARY", str(c_runtime.built("libfeatherweight.so")))
    with pytest.raises(PackedError, match="a kind of task that this version of the runtime does not know"):
        native.load_native(path)
    monkeypatch.delitem(RUNTIME_KINDS, "points")
    with pytest.raises(PackedError, match="a kind of task with the unknown number 100"):
        load(path)


def test_what_does_not_fit_is_refused():
    task = {"name": "places", "kind": "points", "source": {"files": {"all": "rows.csv"}}}
    with pytest.raises(UserError, match="metric accuracy is not one of this kind of task"):
        build(Task, task, {"metrics": ["accuracy"]})
    with pytest.raises(UserError, match="--loss kl is for classification"):
        check_loss(build(Task, task), "kl")
    with pytest.raises(UserError, match="'1' is not two numbers"):
        points_kind.Points().parser(None, ())("1")
    assert np.isnan(points_kind.Points().unknown_labels(2, (2,))).all()
