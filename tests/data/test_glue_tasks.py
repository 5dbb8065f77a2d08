"""All of GLUE, in small: every official layout is read whole, and every kind of task goes through every stage."""

import numpy as np
import pytest
import tiny
import tiny_glue
import tiny_tags
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from common.data.data import load_split
from common.data.prepare import prepare
from common.data.reading import read_source
from common.data.tasks import known_tasks, load_task
from common.errors import UserError
from common.store.workspace import Workspace, read_json
from common.teachers.finetune import finetune
from common.teachers.logits import load_logits
from common.training.metrics import agreement, main_score, score
from common.training.models import read_config
from common.training.targets import choices, targets
from compression.analysis.analyze import AnalyzeSettings, analyze
from compression.augmentation.preprocess import preprocess
from compression.evaluation.evaluate import EvaluateSettings, evaluate, finished_rows
from compression.experiments.chain import plan_chain, run_plan
from compression.experiments.report import terminal_table
from compression.experiments.report.models_table import models_table, notes, summary
from compression.experiments.report.seed_groups import group_rows
from compression.experiments.report.skyline import draw_skylines
from compression.experiments.report.table import markdown_table
from compression.shrinking.chain import compress
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits


@pytest.mark.parametrize("name", ["cola", "mrpc", "sts-b", "qnli", "rte", "wnli"])
def test_every_row_of_the_official_layout_is_kept_in_place(tmp_path, glue, name):
    task = load_task(name)
    texts = [text for text, *_ in (tiny_glue.SINGLES if name == "cola" else tiny_glue.PAIRS)]
    for file, first, count in (("train.tsv", 0, 120), ("dev.tsv", 120, 40)):
        split = read_source(glue / task.source.folder / file, task)
        assert split.source_rows.tolist() == list(range(count))
        assert split.sentence1 == texts[first : first + count]
        assert split.labels.dtype == (np.float32 if name == "sts-b" else np.int64)
    splits = prepare(Workspace(tmp_path), task, glue, seed=1)
    assert len(splits["test"]) == 40
    assert len(splits["train"]) + len(splits["validation"]) <= 120
    assert min(len(splits["train"]), len(splits["validation"])) > 20


@pytest.mark.parametrize("name", ["qnli", "rte"])
def test_entailment_is_class_0_where_its_name_comes_first(glue, name):
    task = load_task(name)
    split = read_source(glue / task.source.folder / "train.tsv", task)
    assert split.labels.tolist() == [1 - y for *_, y in tiny_glue.PAIRS[:120]]


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


@pytest.mark.parametrize(("name", "said"), [("mrpc", "download_glue_data"), ("ax", "gluebenchmark.com/diagnostics")])
def test_files_without_an_archive_are_asked_for(tmp_path, name, said):
    with pytest.raises(UserError, match=f"--data-dir.*{said}"):
        prepare(Workspace(tmp_path), load_task(name), None, seed=1)
    with pytest.raises(UserError, match=f"no such file.*{said}"):
        prepare(Workspace(tmp_path), load_task(name), tmp_path, seed=1)


def test_mrpc_and_sts_b_share_sentences():
    assert load_task("mrpc").overlaps == ("sts-b",)
    assert load_task("sts-b").overlaps == ("mrpc",)


# One chain for regression, with every stage; the teacher is made once.


def settings_of(workspace, task, **more):
    values = {"student_arch": "ffn", "embedding_type": "hash", "epochs": 1, **more}
    return tiny.compress_settings(task=task, workspace=workspace, **tiny.small(**values))


def scored(workspace, task, name, **more):
    return evaluate(EvaluateSettings(task=task, workspace=workspace, model_name=name, cpu=True, loadbar=False, **more))


@pytest.fixture(scope="module")
def sts(tmp_path_factory, glue, encoder, glove):
    """Workspace with STS-B's splits, a teacher, augmented rows and logits over both."""
    workspace = tmp_path_factory.mktemp("sts") / "workspace"
    preprocess(tiny.prepare_settings(workspace, "sts-b", data_dir=glue))
    finetune(tiny.finetune_settings(workspace, "sts-b", encoder, max_epochs=3))
    made = {"augment": "tinybert", "glove": glove, "variants": 1, "generate_loss": ("processed", "tinybert")}
    preprocess(tiny.prepare_settings(workspace, "sts-b", precision="fp32", **made))
    return workspace


def test_a_regressions_teacher_has_one_output_on_the_scale_from_0_to_1(sts):
    task, paths = load_task("sts-b"), Workspace(sts)
    logits = load_logits(paths, task, "tiny-bert", "train", load_split(paths, task, "train"))
    assert logits.shape[1] == 1
    assert -0.5 < logits.mean() < 1.5  # labels go up to 5
    (row,) = scored(sts, "sts-b", "tiny-bert")
    assert list(row["metrics"]) == ["pearson", "spearman"]


@pytest.mark.parametrize(
    ("arch", "embedding", "alpha", "more"),
    [
        ("bilstm", "bpe", 0.0, {}),
        ("rnn", "char", 0.5, {"prune_aware": True}),
        ("ffn", "hash", 1.0, {"only_original_data": True}),
    ],
)
def test_a_regression_goes_through_every_stage(sts, arch, embedding, alpha, more):
    actions = ("distill", "prune", "quantize")
    settings = settings_of(
        sts,
        "sts-b",
        student_arch=arch,
        embedding_type=embedding,
        alpha=alpha,
        compression_actions=actions,
        ptq_classifier=True,
        **more,
    )
    folders = compress(settings)
    rows = [row for folder in folders for row in scored(sts, "sts-b", folder.name)]
    assert [row["stage"] for row in rows] == ["distilled", "pruned", "quantized"]
    for row in rows:
        assert list(row["metrics"]) == ["pearson", "spearman"]
        assert all(-1 <= value <= 1 for value in row["metrics"].values())
    assert rows == finished_rows_of(sts, "sts-b", folders)
    found = analyze(AnalyzeSettings(task="sts-b", workspace=sts, model_name=folders[-1].name, json_=True))
    assert found["bytes_model"] == rows[-1]["bytes_model"]


def finished_rows_of(workspace, task, folders):
    wanted = [EvaluateSettings(task=task, workspace=workspace, model_name=folder.name, cpu=True) for folder in folders]
    return [row for settings in wanted for row in finished_rows(settings)]


def test_a_regression_of_the_users_own_is_learned_on_its_own_scale(tmp_path):
    rows = "".join(f"{text.replace(',', '')},{(11, 15)[y]}\n" for text, y in tiny.sentences(240))
    (tmp_path / "stars.csv").write_text(f"text,stars\n{rows}")
    (tmp_path / "stars.yaml").write_text(
        "name: stars\nrange: [10, 15]\ncolumns: {sentence1: text, label: stars}\nsource: {files: {all: stars.csv}}\n"
    )
    workspace, task = tmp_path / "workspace", str(tmp_path / "stars.yaml")
    preprocess(tiny.prepare_settings(workspace, task))
    compress(settings_of(workspace, task, model_name="s", alpha=1.0, only_original_data=True, epochs=8))
    (row,) = scored(workspace, task, "s")
    assert row["metrics"]["pearson"] > 0.7
    loaded = load_task(task)
    split = load_split(Workspace(workspace), loaded, "test")
    student, tokenizer, _ = load_student(workspace / "models/stars/s", torch.device("cpu"))
    said = choices(loaded, student_logits(student, encode_split(tokenizer, split), torch.device("cpu")))
    assert abs(said - split.labels).mean() < 1.5


@pytest.mark.parametrize("loss", ["kl", "temperature-softmax"])
def test_losses_of_classes_are_refused_for_a_regression(sts, loss):
    with pytest.raises(UserError, match=f"--loss {loss} compares classes; sts-b is a regression: take mse"):
        compress(settings_of(sts, "sts-b", loss=loss))


@pytest.mark.parametrize("name", ["glue-glove", "glue-elmo"])
def test_a_glue_baseline_of_a_regression_has_one_output(sts, name):
    found = analyze(AnalyzeSettings(task="sts-b", workspace=sts, arch=name, named_params=True))
    assert [1] in [list(tensor["shape"]) for tensor in found["named_params"] if tensor["name"].endswith("bias")]


def test_a_regression_runs_as_an_experiment_with_a_report(tmp_path, sts):
    workspace = tiny.copy_workspace(sts, tmp_path / "workspace")
    words = ["--task", "sts-b", "--workspace", str(workspace), "--cpu", "--alpha", "1", "--only-original-data"]
    words += ["--student-arch", "ffn", "--embedding-type", "hash", "--vocab-size", "60", "--epochs", "1"]
    plan = plan_chain(["compress", "evaluate"], [*words, "--name", "regression"])
    run_plan(plan)
    text = (plan.workspace.experiment("regression") / "report.md").read_text()
    assert "Pearson × 100" in text
    assert "Best student: " in text


# Classification beside accuracy: CoLA, and twenty classes.


def test_cola_from_files_to_matthews(tmp_path, glue, encoder):
    preprocess(tiny.prepare_settings(tmp_path, "cola", data_dir=glue))
    finetune(tiny.finetune_settings(tmp_path, "cola", encoder))
    preprocess(tiny.prepare_settings(tmp_path, "cola", precision="fp32", generate_loss=("processed",)))
    compress(settings_of(tmp_path, "cola", model_name="s", only_original_data=True, epochs=4))
    rows = scored(tmp_path, "cola", "tiny-bert") + scored(tmp_path, "cola", "s")
    assert [list(row["metrics"]) for row in rows] == [["matthews"]] * 2
    assert rows[0]["metrics"]["matthews"] > 0.5
    assert "Matthews × 100" in terminal_table(rows)


def test_twenty_classes(tmp_path, encoder):
    things = [*tiny.GOOD, *tiny.BAD, *tiny.THINGS]
    rows = "".join(f"{things[i % 20]},number {i} is one {things[i % 20]}\n" for i in range(400))
    (tmp_path / "things.csv").write_text(f"thing,text\n{rows}")
    (tmp_path / "things.yaml").write_text(
        f"name: things\nlabels: [{', '.join(things)}]\ncolumns: {{sentence1: text, label: thing}}\n"
        "metrics: [f1_macro, accuracy, matthews]\nsource: {kind: files, files: {all: things.csv}}\n"
        "validation: {fraction: 0.1}\ntest: {fraction: 0.1}\n"
    )
    workspace, task = tmp_path / "workspace", str(tmp_path / "things.yaml")
    preprocess(tiny.prepare_settings(workspace, task))
    finetune(tiny.finetune_settings(workspace, task, encoder, max_epochs=2))
    preprocess(tiny.prepare_settings(workspace, task, precision="fp32", generate_loss=("processed",)))
    given = {"alpha": 0.5, "only_original_data": True, "epochs": 12, "loss": "kl", "model_name": "s"}
    folders = compress(settings_of(workspace, task, compression_actions=("distill", "quantize"), **given))
    rows = [row for folder in folders for row in scored(workspace, task, folder.name)]
    assert list(rows[0]["metrics"]) == ["f1_macro", "accuracy", "matthews"]
    assert rows[0]["metrics"]["f1_macro"] > 0.2  # by chance 0.05
    assert finished_rows_of(workspace, task, folders) == rows
    assert "F1 macro, %" in terminal_table(rows)
    yaml = tmp_path / "things.yaml"
    yaml.write_text(yaml.read_text().replace("f1_macro, accuracy", "accuracy, f1_macro"))
    assert finished_rows_of(workspace, task, folders) == []  # another metric is the main one now


@pytest.mark.parametrize("name", ["rte", "sts-b"])
def test_a_teacher_may_start_from_one_of_mnli(tmp_path, glue, encoder, name):
    for task in ("mnli", name):
        preprocess(tiny.prepare_settings(tmp_path, task, data_dir=glue))
    start = finetune(tiny.finetune_settings(tmp_path, "mnli", encoder, max_epochs=1))
    folder = finetune(tiny.finetune_settings(tmp_path, name, start, max_epochs=1, model_name="from-mnli"))
    assert read_config(folder).trained_on == tuple(sorted(("mnli", name)))
    assert read_config(folder).outputs == load_task(name).outputs
    (row,) = scored(tmp_path, name, "from-mnli")
    assert tuple(row["metrics"]) == load_task(name).all_metrics


# The diagnostic set, scored by models of MNLI.


@pytest.fixture(scope="module")
def mnli(tmp_path_factory, glue):
    """Workspace with MNLI's and the diagnostic set's rows and a student of MNLI."""
    workspace = tmp_path_factory.mktemp("mnli") / "workspace"
    for task in ("mnli", "ax"):
        preprocess(tiny.prepare_settings(workspace, task, data_dir=glue))
    compress(settings_of(workspace, "mnli", model_name="s", alpha=1.0, only_original_data=True))
    return workspace


def test_the_diagnostic_set_has_test_rows_alone(mnli):
    assert sorted(path.name for path in (mnli / "data/ax").glob("*.parquet")) == ["test.parquet"]
    split = load_split(Workspace(mnli), load_task("ax"), "test")
    assert len(split) == 30
    assert split.sentence2 is not None


def test_models_of_mnli_are_scored_on_it_and_keep_their_own_result(mnli):
    folder = mnli / "models/mnli/s"
    own = scored(mnli, "mnli", "s")
    (row,) = rows = scored(mnli, "ax", "s")
    assert (row["task"], row["split"], row["model"], row["rows"]) == ("ax", "test", "s", 30)
    assert list(row["metrics"]) == ["matthews"]
    assert read_json(folder / "result.json") == own
    assert read_json(folder / "result-ax.json") == rows
    for task, expected in (("mnli", own), ("ax", rows)):
        settings = EvaluateSettings(task=task, workspace=mnli, model_name="s", cpu=True)
        assert finished_rows(settings) == expected
    assert scored(mnli, "ax", str(folder))[0]["metrics"] == row["metrics"]
    text = terminal_table(own + rows)
    assert "mnli, test_matched" in text
    assert "ax, test (30 rows)" in text


def test_it_has_no_other_rows_and_no_models_of_its_own(mnli, encoder):
    use = "ax has no training rows, it scores models of mnli: use --task mnli"
    with pytest.raises(UserError, match=use):
        finetune(tiny.finetune_settings(mnli, "ax", encoder))
    with pytest.raises(UserError, match=use):
        compress(settings_of(mnli, "ax"))
    with pytest.raises(UserError, match=use):
        compress(settings_of(mnli, "ax", compression_actions=("prune",), load_trained_model="s"))
    with pytest.raises(UserError, match=use):
        preprocess(tiny.prepare_settings(mnli, "ax", augment="tinybert"))
    with pytest.raises(UserError, match="unknown rows 'processed'"):
        preprocess(tiny.prepare_settings(mnli, "ax", generate_loss=("processed",)))
    with pytest.raises(UserError, match="ax has no validation rows"):
        scored(mnli, "ax", "s", split="validation")
    assert not (mnli / "models/ax").exists()


def test_a_model_of_other_labels_is_refused(tmp_path, mnli):
    text = (tiny.ROOT / "configs/tasks/ax.yaml").read_text().replace("name: ax", "name: turned")
    (tmp_path / "turned.yaml").write_text(text.replace("[entailment, neutral,", "[neutral, entailment,"))
    with pytest.raises(UserError, match="s learned the labels entailment, neutral, contradiction, turned has neutral"):
        scored(mnli, str(tmp_path / "turned.yaml"), "s")


# Metrics worked out by hand.

COLA, STS = load_task("cola"), load_task("sts-b")
MANY = load_task("mnli").model_copy(update={"metrics": ("f1_macro", "matthews")})


def as_logits(predictions, classes):
    return np.eye(classes, dtype=np.float32)[predictions]


def test_matthews_by_hand():
    # 2 true positives, 1 false one, 1 false negative, 2 true ones: (2 * 2 - 1 * 1) / sqrt(3 * 3 * 3 * 3).
    labels, predictions = np.array([1, 1, 1, 0, 0, 0]), [1, 1, 0, 1, 0, 0]
    assert score(COLA, labels, as_logits(predictions, 2)) == {"matthews": pytest.approx(1 / 3)}
    assert main_score(COLA, labels, as_logits(1 - np.array(predictions), 2)) == pytest.approx(-1 / 3)


def test_f1_macro_is_the_mean_over_classes():
    # Class 0: precision 1, recall 1/2; class 1: precision 1/2, recall 1; class 2: never found.
    found = score(MANY, np.array([0, 0, 1, 2]), as_logits([0, 1, 1, 0], 3))
    # precision of class 0 is 1/2: one of the two rows called 0 is a 2.
    assert found["f1_macro"] == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)


def test_correlations_by_hand():
    labels, logits = np.float32([1, 2, 3, 4]), np.float32([[0.1], [0.3], [0.2], [0.8]])
    found = score(STS, labels, logits)
    # Deviations -1.5 -0.5 0.5 1.5 and -0.25 -0.05 -0.15 0.45.
    assert found["pearson"] == pytest.approx(
        (0.375 + 0.025 - 0.075 + 0.675) / (5 * (0.0625 + 0.0025 + 0.0225 + 0.2025)) ** 0.5
    )
    assert found["spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))  # two ranks differ by one


@pytest.mark.parametrize("task", [COLA, STS, MANY])
def test_constant_predictions_have_no_correlation(task):
    labels = np.float32([0, 2.5, 5]) if task.regression else np.array([0, 1, 1])
    found = score(task, labels, np.tile(np.eye(1, task.outputs, dtype=np.float32), (3, 1)))
    assert {found[name] for name in ("matthews", "pearson", "spearman") if name in found} == {0.0}


NUMBERS = st.floats(-100, 100, width=16)


@given(
    st.integers(3, 30).flatmap(lambda n: st.tuples(*[arrays.arrays(np.float32, n, elements=NUMBERS)] * 2)),
    st.floats(0.5, 4),
    st.floats(-10, 10),
)
def test_scaling_and_shifting_predictions_changes_no_correlation(columns, factor, shift):
    labels, predictions = columns
    before = score(STS, labels, predictions[:, None])
    after = score(STS, labels, (factor * predictions.astype(np.float64) + shift)[:, None])
    assert after["pearson"] == pytest.approx(before["pearson"], abs=1e-3)
    assert -1 - 1e-9 <= before["pearson"] <= 1 + 1e-9


def test_scores_are_learned_on_a_scale_from_0_to_1_and_told_on_their_own():
    labels = np.float32([0, 2.5, 5])
    assert targets(STS, labels).tolist() == [0, 0.5, 1]
    assert choices(STS, targets(STS, labels)[:, None]).tolist() == labels.tolist()
    assert targets(COLA, np.array([1, 0])).tolist() == choices(COLA, as_logits([1, 0], 2)).tolist() == [1, 0]


def test_agreement_is_of_the_students_choices_with_the_teachers():
    teacher, student = as_logits([0, 1, 1, 0], 2), as_logits([0, 1, 0, 0], 2)
    assert agreement(COLA, teacher, 7 * student) == {"agreement": pytest.approx(3 / 4)}
    assert agreement(STS, teacher[:, :1], 3 * teacher[:, :1] + 1) == {"agreement_pearson": pytest.approx(1)}


# How reports say it.


def report_row(name, metrics, **changes):
    known = {"task": "t", "split": "test", "model": name, "stage": "distilled", "rows": 9, "bytes_gzip": 2000}
    return {**known, "metrics": metrics, **changes}


def test_reports_name_each_metric_and_its_unit():
    metrics = {"matthews": -0.125, "f1_macro": 0.5, "pearson": 0.25, "spearman": 0.75, "agreement": 0.9}
    rows = [report_row("a", metrics), report_row("b", {**metrics, "matthews": 0.5}, bytes_gzip=9000)]
    groups = group_rows(rows)
    heads = ["Matthews × 100", "F1 macro, %", "Pearson × 100", "Spearman × 100", "Agreement with teacher, %"]
    table = markdown_table(models_table(groups[0]))
    assert " | ".join(heads) in table
    assert "-12.50 (1)" in table
    assert summary(groups[0]) == "Best student: b, Matthews 50.00, 9 KB gzipped."
    said = " ".join(notes(groups))
    assert "correlations, here times 100 as GLUE reports them" in said
    assert "Rows without labels" in said
    assert "times 100" not in " ".join(notes(group_rows([report_row("a", {"accuracy": 0.5})])))
    assert [axes.get_ylabel() for axes in draw_skylines(groups).axes] == heads


def test_the_tasks_own_order_of_metrics_is_kept():
    text = terminal_table([report_row("a", {"f1": 0.5, "accuracy": 0.25})])
    assert text.index("F1, %") < text.index("Accuracy, %")
    assert "Best student: a, F1 50.00 %" in text


# The real files.


@pytest.mark.skipif(not tiny.GLUE.exists(), reason="GLUE is not here")
@pytest.mark.parametrize("name", [name for name in known_tasks() if load_task(name).source.kind == "glue"])
def test_real_files_are_read_whole(name):
    task = load_task(name)
    official_rows = {"cola": (8551, 1043), "rte": (2490, 277), "wnli": (635, 71), "sts-b": (5749, 1500)}
    official_rows |= {"mrpc": (None, 408), "qnli": (None, 5463)}
    for place, file in enumerate(task.source.files.values()):
        path = tiny.GLUE / task.source.folder / file
        if not path.exists() or path.stat().st_size > 50e6:
            continue
        split = read_source(path, task)
        assert len(split) == path.read_bytes().count(b"\n") - (not task.source.header)
        assert split.source_rows.tolist() == list(range(len(split)))
        assert split.labelled.all()
        expected = official_rows.get(name, (None, None))[min(place, 1)]
        assert expected in (None, len(split)), file
