"""Grid files: cells, rules, overrides, and mistakes, which are found before anything runs."""

import itertools

import hypothesis
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sweep_grid import METHODS, planned

from common.config import CONFIG_DIR
from common.errors import UserError
from common.seeds import DEFAULT_SEED, NAMED_SEEDS
from common.store.workspace import default_root
from compression.distillation.distill import student_name
from compression.experiments.sweep.grid import parse_assignments

GRID = {
    "name": "g",
    "settings": {"task": "sst-2", "epochs": 3},
    "axes": {"student_arch": ["bilstm", "ffn"], "embedding_dim": [6, 8], "method": METHODS},
}


def write(folder, **changes):
    path = folder / "grid.yaml"
    contents = {key: value for key, value in {**GRID, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump(contents, sort_keys=False))
    return path


def settings_of(cell):
    return cell.jobs[0].settings()


def test_a_grid_is_the_product_of_its_axes_and_seeds_in_their_order(tmp_path):
    grid = planned(write(tmp_path, seeds=["hadfield", 5]))
    wanted = itertools.product(("bilstm", "ffn"), ("6", "8"), ("labels", "teacher"), (NAMED_SEEDS["hadfield"], 5))
    assert [(*cell.labels.values(), cell.seed) for cell in grid.cells] == list(wanted)
    assert grid.record.axes == {
        "student_arch": ("bilstm", "ffn"),
        "embedding_dim": ("6", "8"),
        "method": tuple(METHODS),
    }
    first = settings_of(grid.cells[0])
    assert (first.student_arch, first.embedding_dim, first.alpha, first.only_original_data) == ("bilstm", 6, 1, True)
    assert (first.epochs, first.seed, first.task) == (3, NAMED_SEEDS["hadfield"], "sst-2")


def test_without_seeds_the_default_seed_is_used(tmp_path):
    assert {cell.seed for cell in planned(write(tmp_path)).cells} == {DEFAULT_SEED}


def test_rules_set_and_skip_by_axis_label_and_by_setting(tmp_path):
    rules = [
        {"when": {"student_arch": "ffn"}, "set": {"lr": 0.5}},
        {"when": {"method": "teacher", "embedding_dim": [8]}, "skip": True},
        {"when": {"alpha": 1}, "set": {"batch-size": 7}},
    ]
    cells = planned(write(tmp_path, rules=rules)).cells
    assert not [cell for cell in cells if cell.labels["method"] == "teacher" and cell.labels["embedding_dim"] == "8"]
    assert len(cells) == 6
    for cell in cells:
        settings = settings_of(cell)
        assert (settings.lr == 0.5) == (cell.labels["student_arch"] == "ffn")
        assert (settings.batch_size == 7) == (cell.labels["method"] == "labels")


def test_rules_match_the_defaults_of_settings_that_are_not_given(tmp_path):
    rules = [
        {"when": {"embedding_type": "hash", "alpha": [0, 1]}, "set": {"lr": 0.5}},
        {"when": {"loss": "kl"}, "skip": True},
        {"when": {"augmented": "tinybert", "weight_decay": 0, "alpha": 1.0}, "set": {"patience": 2}},
    ]
    cells = planned(write(tmp_path, rules=rules)).cells
    assert len(cells) == 8
    assert [settings_of(cell).patience == 2 for cell in cells] == [cell.labels["method"] == "labels" for cell in cells]
    for cell in cells:  # an FFN hashes words by default
        assert (settings_of(cell).lr == 0.5) == (cell.labels["student_arch"] == "ffn")


def test_set_fixes_settings_above_rules_and_gives_axes_other_values(tmp_path):
    path = write(tmp_path, rules=[{"when": {"student_arch": "ffn"}, "set": {"lr": 0.5, "epochs": 9}}])
    words = ["epochs=2", "task=rotten-tomatoes", "embedding_dim=[10]", "method=labels", "seeds=[simone]"]
    grid = planned(path, words)
    assert len(grid.cells) == 2
    for cell in grid.cells:
        settings = settings_of(cell)
        assert (settings.epochs, settings.task, settings.embedding_dim) == (2, "rotten-tomatoes", 10)
        assert (cell.labels["method"], cell.seed) == ("labels", NAMED_SEEDS["simone"])


def test_shared_jobs_run_once_per_task_without_the_settings_of_runs(tmp_path):
    shared = [{"preprocess": {"augment": "tinybert"}}, {"finetune": {"arch": "minilm"}}, {"evaluate": None}]
    axes = {"task": ["sst-2", "qqp"], "alpha": [1]}
    path = write(tmp_path, settings={"batch_size": 9, "variants": 4}, shared=shared, axes=axes)
    grid = planned(path, ["lr=0.5", "max_epochs=1"])
    assert list(grid.shared) == ["sst-2", "qqp"]
    for task, jobs in grid.shared.items():
        assert [job.kind for job in jobs] == ["preprocess", "finetune", "evaluate"]
        preprocess, finetune, _ = (job.flags for job in jobs)
        every = {"workspace": str(default_root()), "loadbar": True, "task": task}
        assert preprocess == {"variants": 4, "augment": "tinybert", **every}
        assert finetune == {"arch": "minilm", "max_epochs": 1, **every}
    assert {settings_of(cell).batch_size for cell in grid.cells} == {9}


def test_the_split_that_chooses_weights_is_the_same_for_teachers_and_students(tmp_path):
    grid = planned(write(tmp_path, shared=[{"finetune": None}]), ["select_on=test"])
    ((teacher,),) = grid.shared.values()
    assert {teacher.flags["select_on"], *(settings_of(cell).select_on for cell in grid.cells)} == {"test"}


def test_a_teacher_for_every_seed(tmp_path):
    shared = [{"finetune": {"arch": "folder/encoder", "each_seed": True}}, {"finetune": {"each_seed": False}}]
    shared.append({"finetune": {"model_name": "big", "each_seed": True}})
    grid = planned(write(tmp_path, shared=shared, seeds=[1, "bennington"]))
    (jobs,) = grid.shared.values()
    named = [(job.flags.get("model_name"), job.flags.get("seed")) for job in jobs]
    assert named == [
        ("encoder-s1", 1),
        ("encoder-s3201976", 3201976),
        (None, None),
        ("big-s1", 1),
        ("big-s3201976", 3201976),
    ]
    with pytest.raises(UserError, match="unknown setting"):
        planned(write(tmp_path, shared=[{"evaluate": {"each_seed": True}}]))
    shared = [{"finetune": {"frozen": True, "each_seed": True}}]
    ((job,),) = planned(write(tmp_path, shared=shared, seeds=[1]), ["arch=minilm"]).shared.values()
    assert job.flags["model_name"] == "minilm-frozen-s1"


def test_a_shared_job_for_some_of_the_tasks(tmp_path):
    shared = [{"preprocess": {"augment": "tinybert", "for-tasks": ["sst-2", "cola"]}}, {"evaluate": None}]
    axes = {"task": ["sst-2", "qqp"], "alpha": [1]}
    grid = planned(write(tmp_path, shared=shared, axes=axes))
    assert {task: [job.kind for job in jobs] for task, jobs in grid.shared.items()} == {
        "sst-2": ["preprocess", "evaluate"],
        "qqp": ["evaluate"],
    }
    for tasks, message in (("sst-2", "'sst-2' is not a list of tasks"), (["sst2"], "did you mean sst-2")):
        shared[0]["preprocess"]["for-tasks"] = tasks
        with pytest.raises(UserError, match=message):
            planned(write(tmp_path, shared=shared, axes=axes))


@pytest.mark.parametrize(("names", "shared_name"), [("four", "four"), (["four"], None), (["four", "near"], None)])
def test_several_names_of_augmented_rows_are_those_of_runs_alone(tmp_path, names, shared_name):
    shared = [{"preprocess": {"augment": "neighbours"}}]
    path = write(tmp_path, settings={"augmented": names}, shared=shared, axes={"task": ["qqp"], "alpha": [1]})
    grid = planned(path)
    assert grid.augmented == (("four",) if isinstance(names, str) else tuple(names))
    ((job,),) = grid.shared.values()
    assert job.flags.get("augmented") == shared_name
    assert job.settings().augmented == (shared_name or "neighbours")
    assert {settings_of(cell).augmented for cell in grid.cells} == {grid.augmented}


def test_settings_and_rules_of_a_base_file_apply(tmp_path):
    base = {"seeds": [3], "settings": {"epochs": 8, "lr": 0.1}, "rules": [{"when": {"alpha": 0}, "set": {"lr": 0.2}}]}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    rules = [{"when": {"alpha": 0, "student_arch": "ffn"}, "set": {"lr": 0.3}}]
    grid = planned(write(tmp_path, base="base.yaml", rules=rules))
    assert grid.record.seeds == (3,)
    rates = {(cell.labels["student_arch"], cell.labels["method"]): settings_of(cell).lr for cell in grid.cells}
    assert rates == {
        ("bilstm", "labels"): 0.1,
        ("bilstm", "teacher"): 0.2,
        ("ffn", "labels"): 0.1,
        ("ffn", "teacher"): 0.3,
    }
    assert {settings_of(cell).epochs for cell in grid.cells} == {3}


def test_a_base_may_have_a_base_and_its_axes_can_be_overridden(tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({"seeds": [3], "settings": {"task": "sst-2"}}))
    middle = {"base": "base.yaml", "axes": {"student_arch": ["ffn", "rnn"], "alpha": [0, 1]}}
    (tmp_path / "middle.yaml").write_text(yaml.safe_dump(middle))
    (tmp_path / "top.yaml").write_text(yaml.safe_dump({"base": "middle.yaml", "name": "top", "axes": {"alpha": [0.5]}}))
    grid = planned(tmp_path / "top.yaml")
    assert grid.record.seeds == (3,)
    assert [cell.labels for cell in grid.cells] == [{"student_arch": arch, "alpha": "0.5"} for arch in ("ffn", "rnn")]


def test_of_several_bases_the_last_one_overrides(tmp_path):
    settings = {"task": "sst-2", "epochs": 2}
    first = {"axes": {"alpha": [0, 1]}, "settings": settings, "rules": [{"when": {"alpha": 1}, "skip": True}]}
    second = {"axes": {"student_arch": ["rnn"]}, "settings": {"epochs": 4}, "seeds": [5]}
    for name, contents in (("first", first), ("second", second), ("top", {"base": ["first.yaml", "second.yaml"]})):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**contents, "name": name}))
    grid = planned(tmp_path / "top.yaml")
    assert (grid.record.name, grid.record.seeds) == ("top", (5,))
    assert list(grid.record.files) == ["top.yaml", "first.yaml", "second.yaml"]
    assert [cell.labels for cell in grid.cells] == [{"alpha": "0", "student_arch": "rnn"}]
    assert {settings_of(cell).epochs for cell in grid.cells} == {4}


@pytest.mark.parametrize("folder", [".", "../grids"])
def test_a_file_that_is_its_own_base_is_refused(tmp_path, folder):
    tmp_path = tmp_path / "grids"
    tmp_path.mkdir()
    for name, base in (("one", "two"), ("two", "one")):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"base": f"{folder}/{base}.yaml", "name": name}))
    with pytest.raises(UserError, match=r"one\.yaml: this file is its own base"):
        planned(tmp_path / "one.yaml")


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({"axes": {"embeding_dim": [6]}}, [], "a run has no setting 'embeding_dim'; did you mean embedding_dim"),
        ({"axes": {"alpha": []}}, [], "alpha has no values"),
        ({"axes": {"alpha": [0, 0.0]}}, [], "alpha has a value twice"),
        ({"shared": [{"finetune": {"arch": None, "each_seed": True}}]}, [], "finetune: --arch"),
        ({"axes": {"alpha": [0, 1], "m": {"x": {"alpha": 1}}}}, [], "axes: alpha and m both set alpha"),
        ({"axes": {"alpha": [0, 2]}}, [], "cell alpha 2: --alpha: .*less than or equal to 1"),
        ({"axes": {"m": {"x": {"alhpa": 1}}}}, [], "cell m x: unknown setting 'alhpa'; did you mean alpha"),
        ({"axes": {"m": {"x": {"prune_topv": True, "prune_magnitude": True}}}}, [], "cell m x: .*exclude each other"),
        ({"settings": {"task": "sst-2", "epoch": 2}}, [], "no job has a setting 'epoch'; did you mean epochs"),
        ({"settings": {}}, [], "no task is given"),
        ({"table": {"rows": ["alpha"]}}, [], "table.columns is required"),
        ({"table": {"rows": ["alpha"], "colums": ["seed"]}}, [], "unknown setting .table.colums."),
        ({"rules": [{"when": {"metod": "labels"}, "skip": True}]}, [], "'metod' is neither an axis nor a setting"),
        ({"rules": [{"when": {"method": "label"}, "skip": True}]}, [], "axis method has no value 'label'; did you"),
        ({"rules": [{"when": {"student_arch": "ffm"}, "skip": True}]}, [], "student_arch cannot be 'ffm'"),
        ({"rules": [{"when": {"alpha": 0}}]}, [], "either `set` or `skip: true`"),
        ({"rules": [{"when": {"alpha": 0}, "set": {"lrr": 1}}]}, [], "no job has a setting 'lrr'"),
        ({"seeds": ["benington"]}, [], "unknown seed 'benington'; did you mean bennington"),
        ({"shared": [{"finetun": {}}]}, [], "unknown job 'finetun'"),
        ({"shared": [{"finetune": {"max_epoch": 1}}]}, [], "unknown setting 'max_epoch'; did you mean max_epochs"),
        ({"jobs": [{"evaluate": {}}]}, [], "is a list of jobs: python experiment.py run"),
        ({"chains": [["prune"]]}, [], "load-trained-model"),
        ({"quote": {"table": "7.9"}}, [], "7.9"),
        ({"table": {"rows": ["student"], "columns": ["method"]}}, [], "table: 'student' is not an axis; did you mean"),
        (
            {"rules": [{"when": {"student_arch": ["bilstm", "ffn"]}, "skip": True}]},
            [],
            "every cell of the grid is skipped",
        ),
        ({"axes": {"seed": [1, 2]}}, [], "a grid cannot set seed: give `seeds`"),
        ({"axes": {"m": {"x": {"model-name": "a"}}}}, [], "a grid cannot set model_name"),
        ({"settings": {"task": "sst-2", "load_trained_model": "x"}}, [], "a grid cannot set load_trained_model"),
        ({"settings": ["a"]}, [], "settings"),
        ({"rules": [{"when": {"method": [["a"]]}, "skip": True}]}, [], "axis method has no value"),
        ({"seeds": ["9" * 30]}, [], "unknown seed"),
        ({}, ["seed=5"], "a grid cannot set seed"),
        ({}, ["embedding_dim=[]"], "no values"),
        ({}, ["seeds=2021-13-45"], "--set seeds=2021-13-45"),
        ({}, ["task=5"], "unknown task '5'"),
        ({"base": "nowhere.yaml"}, [], "nowhere.yaml: no such file"),
        ({}, ["task=sst-2", "task=qqp"], "--set gives task twice: sst-2 and qqp"),
        ({}, ["epochs"], "--set takes KEY=VALUE, not 'epochs'"),
        ({}, ["epochs=[1"], "--set epochs=\\[1"),
        ({}, ["epoch=2"], "no job has a setting 'epoch'; did you mean epochs"),
        ({}, ["method=label"], "--set method: no value 'label'; did you mean labels"),
        ({}, ["student_arch=lstm"], "cell student_arch lstm"),
    ],
)
def test_a_faulty_grid_is_refused_in_one_line(tmp_path, changes, words, message):
    with pytest.raises(UserError, match=message) as error:
        planned(write(tmp_path, **changes), words)
    assert "\n" not in str(error.value)


@hypothesis.settings(max_examples=30)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.integers() | st.booleans() | st.floats(0, 9)))
def test_assignments_are_read_as_yaml(values):
    assert parse_assignments([f"{key}={yaml.safe_dump(value).split()[0]}" for key, value in values.items()]) == values


THESIS = CONFIG_DIR / "experiments" / "thesis"
RUNS = {
    "table_7_1": 352,
    "table_7_1_sst_2": 108,
    "table_7_2": 256,
    "table_7_3": 256,
    "table_7_5": 120,
    "table_7_5_mnli": 6,
    "table_7_5_qqp": 6,
    "table_7_5_sst_2": 40,
    "table_7_6": 96,
    "table_7_6_sst_2": 16,
    "table_a_1": 96,
    "table_a_1_sst_2": 16,
    "table_a_2": 96,
    "table_a_2_sst_2": 16,
    "table_b_1": 0,
    "table_b_1_sst_2": 0,
}


@pytest.mark.parametrize("path", sorted(THESIS.glob("table_*.yaml")), ids=lambda path: path.stem)
def test_every_table_of_the_thesis_can_be_planned(path):
    grid = planned(path)
    assert len(grid.cells) == RUNS[path.stem]
    assert all(job.kind in ("preprocess", "finetune", "evaluate") for jobs in grid.shared.values() for job in jobs)
    for cell in grid.cells[:: len(grid.record.seeds)]:
        settings = settings_of(cell)
        larger = 5 if path.stem.endswith("_sst_2") else 1
        # The star of table 6.1, 256 for QQP and MNLI, is not at the FFN's 50.
        small = settings.task == "sst-2" or settings.student_arch == "ffn"
        assert settings.batch_size == (50 * larger if small else 256)
        assert settings.optimizer == ("adadelta" if settings.student_arch == "bilstm" else "adam")
        assert settings.lr == (1 if settings.student_arch == "bilstm" else 1e-4 * larger)
        assert (settings.schedule, settings.max_grad_norm) == ("constant", 0)
        assert settings.weight_decay == (1e-5 if settings.student_arch == "rnn" else 0)
        assert settings.encoder_hidden_dim in ((150, 100) if settings.task == "sst-2" else (300, 200, 150))


@pytest.mark.parametrize("path", sorted(THESIS.parent.glob("sweeps/*.yaml")), ids=lambda path: path.stem)
def test_every_sweep_can_be_planned(path):
    assert planned(path).cells


def test_table_7_1_has_the_cells_of_the_thesis():
    grid = planned(THESIS / "table_7_1.yaml", ["seeds=[1]", "task=rotten-tomatoes", "epochs=2"])
    rows = dict.fromkeys(tuple(cell.labels.values())[:4] for cell in grid.cells)
    assert len(rows) == 22
    assert list(rows)[-1] == ("ffn", "char", "100", "5000")
    assert ("ffn", "hash", "25", "2500") in rows
    assert {settings_of(cell).epochs for cell in grid.cells} == {2}


def test_the_sweep_of_sharing_has_a_student_for_each_part_and_width():
    grid = planned(THESIS.parent / "sweeps" / "sharing.yaml")
    shapes = [(s.student_arch, s.share, s.embedding_dim) for s in map(settings_of, grid.cells)]
    shared = [("transformer", share) for share in ("none", "attention", "feed-forward")] + [("recursive", "none")]
    assert shapes == [(*each, width) for each in shared for width in (64, 128, 384)]


def test_the_sweep_of_packed_students_has_ten_students_in_four_ways():
    grid = planned(THESIS.parent / "sweeps" / "packed.yaml", ["task=rotten-tomatoes"])
    assert len(grid.cells) == 40
    ways = {cell.labels["quantized"]: settings_of(cell) for cell in grid.cells}
    assert [(way.bits, way.max_loss) for way in ways.values()] == [(8, None), (8, None), (4, None), (8, 1)]
    names = {student_name(settings_of(cell)) for cell in grid.cells}
    assert len(names) == 9  # FFN-Hash25 and its smaller twin differ in the number of hashes alone
