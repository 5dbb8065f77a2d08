"""Rungs of a fit whose time is short."""

import numpy as np
import pytest

from common.data.split import Split
from common.data.tasks import load_task
from compression.experiments.fit import selection
from compression.experiments.fit.candidates import find_candidates
from compression.experiments.fit.halving import Cost
from compression.experiments.fit.plan import Speeds
from compression.experiments.fit.selection import Pool, Selection
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.stages import Stages
from compression.experiments.fit.state import Clock, State

ROWS = Split(["a text"] * 600, None, np.zeros(600, np.int64), np.arange(600))


def slow_selection(folder, monkeypatch, most_epochs, seconds):
    """A selection whose students take twice as long as estimated. Returns it, and a list of what it trains."""
    monkeypatch.setattr(selection, "load_split", lambda *names: ROWS)
    found = tuple(find_candidates(32_000, False, ["a", "b"], 10, 30_000))
    costs = {one.name: Cost(fixed=0.1, epoch=1.0) for one in found}
    about = {"init": "random", "own_init": "random", "batch_size": 32, "most_epochs": most_epochs}
    state = State(folder, "id")
    state.decide("pool", Pool, lambda: Pool(candidates=found, costs=costs, **about))
    stages = Stages(FitSettings(file="f.csv"), load_task("sst-2"), Clock(folder, seconds), state)
    speeds = Speeds(start=0.5, prepare=1000, words=10)
    chosen = Selection(stages, speeds, ROWS, taught=False, variants=0)
    trained = []

    def distilled(pool, candidate, plan, must):
        trained.append((candidate.name, plan.epochs, plan.share))
        seconds = 2 * costs[candidate.name].of(plan.epochs, plan.share)
        return plan.model_copy(update={"score": 0.5, "loss": 0.1, "seconds": seconds})

    monkeypatch.setattr(chosen, "_distilled", distilled)
    monkeypatch.setattr(chosen, "_quantized", lambda order, pool: order[0][1])
    return chosen, trained


@pytest.mark.parametrize(("most_epochs", "seconds", "rungs"), [(1, 1000, 1), (9, 1000, 3)])
def test_a_rung_like_the_one_before_trains_nothing_and_measures_nothing(
    tmp_path, monkeypatch, most_epochs, seconds, rungs
):
    chosen, trained = slow_selection(tmp_path, monkeypatch, most_epochs, seconds)
    chosen.run()
    assert len({(epochs, share) for _, epochs, share in trained}) == rungs
    assert len(set(trained)) == len(trained) == len(chosen.trained)
    assert 1.5 < chosen.slower <= 2.0
