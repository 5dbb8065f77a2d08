"""Comparisons of models, families and experiments from a workspace of three seeds."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tiny
from stages import score_of

from common.data.prepare import prepare
from common.data.split import Split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.files import read_json
from common.store.workspace import Workspace
from common.training.metrics import score
from compression.distillation.distill import distill
from compression.evaluation.predictions import read_predictions, write_predictions
from compression.experiments.compare import CompareSettings, Comparison, Effect, Line, compare
from compression.experiments.comparison_text import comparison_text, verdict
from compression.experiments.report.record import ExperimentRecord, write_record
from compression.experiments.report.results import write_results
from compression.experiments.significance import holm, paired_t

pytestmark = pytest.mark.slow
SEEDS = (1, 2, 3)
A, B = "ffn-hash6-a0-orig", "ffn-hash6-a1-orig"


@pytest.fixture(scope="module")
def families(prepared, tmp_path_factory):
    """sst-2 in which A has seeds 1, 2, 3 and B 1, 2, 3 and 4, evaluated."""
    workspace = tiny.copy_workspace(prepared, tmp_path_factory.mktemp("families") / "workspace")
    small = {"student_arch": "ffn", "embedding_type": "hash", "only_original_data": True}
    for alpha, seed in [(0.0, seed) for seed in SEEDS] + [(1.0, seed) for seed in (*SEEDS, 4)]:
        epochs = 8 - seed if alpha else 14 + 6 * seed
        values = {**tiny.small(**small), "alpha": alpha, "seed": seed, "epochs": epochs, "lr": 0.03}
        score_of(workspace, distill(tiny.compress_settings(task="sst-2", workspace=workspace, **values)).name)
    # Else there is nothing to see in a comparison.
    assert len({result(workspace, f"{name}-s{seed}")["metrics"]["accuracy"] for name in (A, B) for seed in SEEDS}) > 3
    return workspace


def compared(workspace, a, b, **given):
    return compare(CompareSettings(workspace=workspace, **given), a, b)


def result(workspace, name):
    return read_json(tiny.scores(workspace, name) / "result.json")[0]


def test_families_are_compared_seed_by_seed(families):
    found = compared(families, A, B)
    (line,) = found.lines
    assert (line.task, line.split, line.seeds) == ("sst-2", "test", SEEDS)
    pairs = [tuple(result(families, f"{name}-s{seed}")["metrics"]["accuracy"] for name in (A, B)) for seed in SEEDS]
    effect = line.effects[0]
    assert (effect.metric, effect.scores) == ("accuracy", tuple(pairs))
    assert effect.interval == paired_t([a - b for a, b in pairs], 0.95)
    for seed, test in zip(SEEDS, line.tests, strict=True):
        a, b = (_choices(families, f"{name}-s{seed}") for name in (A, B))
        right = [both.choices == both.labels for both in (a, b)]
        assert (test.seed, test.b) == (seed, (right[0] & ~right[1]).sum())
        assert (test.b - test.c) / len(a.labels) == pytest.approx(pairs[SEEDS.index(seed)][0] - pairs[seed - 1][1])
    assert found.notes == (f"only {B} has seed 4: left out",)
    assert found.overall is None
    text = comparison_text(found)
    assert text.splitlines()[-1] == verdict(found)
    assert max(map(len, text.splitlines()[:-1])) <= 110
    json.dumps(dataclasses.asdict(found))


def _choices(workspace, name):
    return read_predictions(tiny.scores(workspace, name), result(workspace, name))


def test_swapped_families_swap_everything(families):
    one, other = compared(families, A, B), compared(families, B, A)
    assert one.verdict.mean == pytest.approx(-other.verdict.mean)
    assert one.verdict.interval.low == pytest.approx(-other.verdict.interval.high)
    tests = [[(t.seed, t.b, t.c, t.p_value) for t in found.lines[0].tests] for found in (one, other)]
    assert tests[0] == [(seed, c, b, p) for seed, b, c, p in tests[1]]


def test_a_family_is_not_better_than_itself(families):
    found = compared(families, A, A)
    assert {(test.b, test.c, test.p_value) for test in found.lines[0].tests} == {(0, 0, 1.0)}
    assert found.verdict.interval.p_value == 1.0
    assert verdict(found).startswith("no significant difference over these seeds (A − B: +0.0 points")


def test_single_models_are_compared_over_test_rows(families):
    found = compared(families, f"{A}-s1", f"{B}-s1")
    (line,) = found.lines
    assert line.seeds == (1,)
    assert line.effects[0].interval.method == "bootstrap over test rows"
    assert len(line.tests) == 1
    # Named outright, two models of different seeds are compared too.
    assert compared(families, f"{A}-s1", f"{B}-s2").lines[0].seeds == ("1 / 2",)
    # A family and a single model have one seed in common.
    assert compared(families, A, f"{B}-s2").lines[0].seeds == (2,)
    assert "1 seed, over test rows" in verdict(found)


@pytest.mark.parametrize(
    ("gains", "text"),
    [
        ((1, 2, 3), "no significant difference over these seeds (A − B: +2.0 points, 95 % CI -0.5 to +4.5, 3 seeds)"),
        ((1.9, 2, 2.1), "A is better than B by 2.0 points (95 % CI 1.8 to 2.2, 3 seeds)"),
        ((-1.9, -2, -2.1), "B is better than A by 2.0 points (95 % CI 1.8 to 2.2, 3 seeds)"),
    ],
)
def test_the_verdict_in_words(gains, text):
    interval = paired_t([gain / 100 for gain in gains], 0.95)
    scores = tuple((0.5 + gain / 100, 0.5) for gain in gains)
    effect = Effect("accuracy", 0.5 + sum(gains) / 300, 0.5, scores, interval)
    line = Line("sst-2", "test", "", {}, SEEDS, (effect,), ())
    assert verdict(Comparison("a", "b", 0.95, (line,), None, ())) == text


@pytest.mark.parametrize(
    ("a", "b", "given", "message"),
    [
        (
            A,
            "ffn-hash6-a1-aug",
            {},
            f"no model and no family of models 'ffn-hash6-a1-aug' in any task; did you mean {B}",
        ),
        (f"{B}-s4", A, {}, rf"the same task, split and seed to compare \(seeds: {B}-s4 has 4 and {A} has 1, 2, 3"),
        (A, B, {"task": "qqp"}, f"no model and no family of models '{A}' in qqp"),
        (A, B, {"metric": "acuracy"}, "sst-2, test: no metric 'acuracy'; did you mean accuracy"),
        (A, B, {"split": "dev"}, "sst-2 has no test split 'dev'"),
        ("tiny-bert", B, {}, "tiny-bert has no scores of the current model"),
    ],
)
def test_errors(families, a, b, given, message):
    with pytest.raises(UserError, match=message):
        compared(families, a, b, **given)


def test_names_in_two_tasks_need_the_task(families, tmp_path):
    workspace = tiny.copy_workspace(families, tmp_path / "workspace")
    for name in (A, B):
        shutil.copytree(workspace / f"models/sst-2/{name}-s1", workspace / f"models/qqp/{name}-s1")
    with pytest.raises(UserError, match=r"are in several tasks: give --task \(qqp, sst-2\)"):
        compared(workspace, A, B)
    assert compared(workspace, A, B, task="sst-2").lines[0].seeds == SEEDS
    shutil.rmtree(workspace / f"models/qqp/{B}-s1")
    for seed in (*SEEDS, 4):
        (workspace / f"models/sst-2/{A}-s{seed}").unlink(missing_ok=True)
    with pytest.raises(UserError, match=f"different tasks cannot be compared: {A} is of qqp; {B} is of sst-2"):
        compared(workspace, A, B)


def test_predictions_of_other_data_are_refused(families, glue, tmp_path):
    workspace = tiny.copy_workspace(families, tmp_path / "workspace")
    other = shutil.copytree(glue / "SST-2", tmp_path / "glue/SST-2")
    (other / "dev.tsv").write_text("".join((glue / "SST-2/dev.tsv").open().readlines()[:21]))
    prepare(Workspace(workspace), load_task("sst-2"), other.parent, tiny.SEED)
    message = f"{A}-s1 has no scores of the current model on the current data; run: python evaluate"
    with pytest.raises(UserError, match=message):
        compared(workspace, A, B)
    for seed in SEEDS:
        score_of(workspace, f"{A}-s{seed}")
    # In experiments rows are compared as they are; these are of the old and the new data.
    record(workspace, "new", [result(workspace, f"{A}-s1")])
    record(workspace, "old", [result(families, f"{A}-s1")])
    with pytest.raises(UserError, match="were scored on other data of sst-2, test"):
        compared(workspace, "new", "old")


def record(workspace, name, rows):
    folder = workspace / "experiments" / name
    write_record(folder, ExperimentRecord(name=name, title=name, kind="sweep", definition="x"))
    write_results(folder / "results.json", rows)


def cells(workspace, model, seeds):
    """Rows of two cells, of which the second has scores that are 0.1 and 0.01 * seed better."""
    rows = []
    for seed in seeds:
        row = result(workspace, f"{model}-s{seed}")
        better = {"accuracy": row["metrics"]["accuracy"] + 0.1 + 0.01 * seed}
        rows += [{**row, "cell": {"lr": "low"}}, {**row, "cell": {"lr": "high"}, "metrics": better}]
    return rows


def test_experiments_are_compared_cell_by_cell(families, tmp_path):
    workspace = tiny.copy_workspace(families, tmp_path / "workspace")
    teacher = {**result(workspace, f"{A}-s1"), "stage": "teacher", "seed": 0}
    extra = {**result(workspace, f"{A}-s1"), "cell": {"lr": "other"}}
    record(workspace, "one", [*cells(workspace, A, SEEDS), teacher, extra])
    record(workspace, "two", [*cells(workspace, B, (*SEEDS, 4)), teacher])
    found = compared(workspace, "one", "two")
    assert [line.cell for line in found.lines] == [{"lr": "low"}, {"lr": "high"}]
    shown = [line.split()[0] for line in comparison_text(found).splitlines() if " accuracy " in line]
    assert shown == ["low", "high", "all"]
    assert all(line.seeds == SEEDS for line in found.lines)
    means = [line.effects[0].mean for line in found.lines]
    assert found.overall.mean == pytest.approx(sum(means) / 2)
    low, high = (line.effects[0].scores for line in found.lines)
    per_seed = [sum(a - b for a, b in pairs) / 2 for pairs in zip(low, high, strict=True)]
    assert found.overall.interval.low == pytest.approx(paired_t(per_seed, 0.95).low)
    raw = [test.p_value for line in found.lines for test in line.tests]
    assert [test.p_holm for line in found.lines for test in line.tests] == holm(raw)
    assert [line.effects[0].p_holm for line in found.lines] == pytest.approx(
        holm([line.effects[0].interval.p_value for line in found.lines])
    )
    assert any("only one has other distilled sst-2 test" in note for note in found.notes)
    text = comparison_text(found)
    assert max(map(len, text.splitlines()[:-1])) <= 110
    assert "mean over all lines" in text.splitlines()[-1]


def test_a_plus_in_a_models_own_name_is_no_action(families, tmp_path):
    """c+extra was taken for what an action had made of c, and left out of comparisons with c."""
    workspace = tiny.copy_workspace(families, tmp_path / "workspace")
    for name, source in (("c", A), ("c+extra", B)):
        for seed in SEEDS:
            own = tiny.small(student_arch="ffn", embedding_type="hash", only_original_data=True, seed=seed)
            given = {**own, "alpha": float(source == B), "model_name": f"{name}-s{seed}", "epochs": 1}
            score_of(workspace, distill(tiny.compress_settings(task="sst-2", workspace=workspace, **given)).name)
        record(workspace, f"of-{name[-1]}", [result(workspace, f"{name}-s{seed}") for seed in SEEDS])
    (line,) = compared(workspace, "of-c", "of-a").lines
    assert (line.stage, line.seeds) == ("distilled", SEEDS)
    (line,) = compared(workspace, "c", "c+extra").lines  # families
    assert line.seeds == SEEDS


def test_models_of_an_experiment_may_be_gone(families, tmp_path):
    workspace = tiny.copy_workspace(families, tmp_path / "workspace")
    for name, model in (("one", A), ("two", B)):
        record(workspace, name, [{**row, "run": "nowhere"} for row in cells(workspace, model, SEEDS)])
    assert len(compared(workspace, "one", "two").lines[0].tests) == 3  # found in the workspace all the same
    shutil.rmtree(tiny.scores(workspace, f"{A}-s1").resolve())
    found = compared(workspace, "one", "two")
    assert [len(line.tests) for line in found.lines] == [2, 2]
    assert any(f"the predictions of {A}-s1 no longer exist" in note for note in found.notes)


def test_models_of_chains_are_paired_by_name(families):
    rows = [{**result(families, f"{name}-s{seed}"), "run": "gone"} for name in (A, B) for seed in SEEDS]
    record(families, "chain", rows)
    found = compared(families, "chain", "chain")
    assert [line.cell for line in found.lines] == [{"model": A}, {"model": B}]
    # With one family each, the same task, split, stage and seed is enough.
    record(families, "first", rows[:3])
    record(families, "second", rows[3:])
    assert [(line.cell, line.seeds) for line in compared(families, "first", "second").lines] == [({}, SEEDS)]


def test_a_regression_has_intervals_but_no_mcnemar(families, tmp_path):
    task, rng = load_task("sts-b"), np.random.default_rng(5)
    labels = rng.uniform(0, 5, 40).astype(np.float32)
    split = Split(["a"] * 40, ["b"] * 40, labels, np.arange(40))
    for name, noise in (("close", 0.05), ("far", 0.5)):
        logits = (labels / 5 + rng.normal(0, noise, 40)).astype(np.float32)[:, None]
        own = {"task": "sts-b", "model": name, "run": str(tmp_path / "models/sts-b" / name), "data": "d"}
        own |= {"evaluation": name, "metrics": score(task, labels, logits)}
        row = result(families, f"{A}-s1") | own
        write_predictions(tmp_path / "store" / name, task, row, split, logits)
        record(tmp_path, name, [row])
    found = compared(tmp_path, "close", "far")
    (line,) = found.lines
    assert line.tests == ()
    assert [effect.metric for effect in line.effects] == ["pearson", "spearman"]
    assert all(effect.interval.low > 0 for effect in line.effects)
    assert any("no McNemar test for sts-b" in note for note in found.notes)
    assert verdict(found).startswith("A is better than B by")
    assert comparison_text(found)


def test_an_experiment_and_a_model_are_not_compared(families, tmp_path):
    workspace = tiny.copy_workspace(families, tmp_path / "workspace")
    record(workspace, "one", cells(workspace, A, SEEDS))
    with pytest.raises(UserError, match="one is an experiment: compare it with another one"):
        compared(workspace, "one", A)
    record(workspace, "two", cells(workspace, A, (1,)))
    with pytest.raises(UserError, match="experiment two has no scores of students on qqp"):
        compared(workspace, "two", "two", task="qqp")
    (workspace / "experiments/two/results.json").write_text("[{}]")
    with pytest.raises(UserError, match="row 1 has no 'task'"):
        compared(workspace, "one", "two")


def test_predictions_are_checked_when_read(families, tmp_path):
    folder = shutil.copytree(tiny.scores(families, f"{A}-s1"), tmp_path / "scores")
    row = result(families, f"{A}-s1")
    both = read_predictions(folder, row)
    assert (both.choices.dtype, both.labels.dtype, len(both.labels)) == (np.int64, np.int64, row["rows"])
    assert (both.choices == both.labels).mean() == pytest.approx(row["metrics"]["accuracy"])
    for changed in ({"data": "0" * 16}, {"config_hash": "0" * 16}):
        with pytest.raises(UserError, match="predictions of another model or of other data"):
            read_predictions(folder, row | changed)
    path = folder / "predictions-test.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="damaged"):
        read_predictions(folder, row)
    path.unlink()
    with pytest.raises(UserError, match=f"no such file; run: python evaluate.py --task sst-2 --model-name {A}-s1"):
        read_predictions(folder, row)
