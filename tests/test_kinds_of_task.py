"""Every kind of GLUE task through every stage: regression, Matthews, many classes, the diagnostic set."""

import pivot_rows
import pytest
import tiny
from own_task import write_csv, write_yaml
from stages import logits_of, score_of, scored

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.files import read_json
from common.store.store import Store
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.logits import load_logits
from common.training.models import find_model, read_config
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.preprocess import preprocess
from compression.evaluation.evaluate import saved_rows
from compression.experiments.jobs import plan_chain
from compression.experiments.report import terminal_table
from compression.experiments.report.columns import models_table, summary
from compression.experiments.report.pictures import draw_skylines
from compression.experiments.report.results import group_rows
from compression.experiments.report.table import markdown_table
from compression.experiments.run import run
from compression.shrinking.chain import compress

pytestmark = pytest.mark.slow


def settings_of(workspace, task, **more):
    values = {"student_arch": "ffn", "embedding_type": "hash", "epochs": 1, **more}
    return tiny.compress_settings(task=task, workspace=workspace, **tiny.small(**values))


def saved_rows_of(workspace, task, folders):
    paths = Store(workspace)
    models = [find_model(paths, load_task(task), folder.name) for folder in folders]
    return [row for folder, config in models for row in saved_rows(paths, load_task(task), folder, config)]


@pytest.fixture(scope="module")
def sts(tmp_path_factory, glue, encoder, glove):
    """Workspace with STS-B's splits, a teacher, augmented rows and logits over both."""
    workspace = tmp_path_factory.mktemp("sts") / "workspace"
    preprocess(tiny.prepare_settings(workspace, "sts-b", data_dir=glue))
    finetune(tiny.finetune_settings(workspace, "sts-b", encoder, max_epochs=3))
    stages = {"augment": "tinybert", "glove": glove, "variants": 1, "generate_loss": ("processed", "tinybert")}
    preprocess(tiny.prepare_settings(workspace, "sts-b", precision="fp32", **stages))
    return workspace


def test_a_regressions_teacher_has_one_output_on_the_scale_from_0_to_1(sts):
    task, paths = load_task("sts-b"), Workspace(sts)
    logits = load_logits(paths, task, "tiny-bert", "train")
    assert logits.shape[1] == 1
    assert -0.5 < logits.mean() < 1.5  # labels go up to 5
    row = score_of(sts, "tiny-bert", "sts-b")
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
    given = {"student_arch": arch, "embedding_type": embedding, "alpha": alpha, "ptq_classifier": True, **more}
    folders = compress(settings_of(sts, "sts-b", compression_actions=actions, **given))
    rows = [row for folder in folders for row in scored(sts, folder.name, "sts-b")]
    assert [row["stage"] for row in rows] == ["distilled", "pruned", "quantized"]
    assert [row["actions"] for row in rows] == [list(actions[:count]) for count in (1, 2, 3)]
    keys = [row["config_hash"] for row in rows]
    assert [row["made_from"] for row in rows] == [[], keys[:1], keys[1::-1]]
    for row in rows:
        assert list(row["metrics"]) == ["pearson", "spearman"]
        assert all(-1 <= value <= 1 for value in row["metrics"].values())
    assert rows == saved_rows_of(sts, "sts-b", folders)
    found = analyze(AnalyzeSettings(task="sts-b", workspace=sts, model_name=folders[-1].name, json_=True))
    assert found["bytes_model"] == rows[-1]["bytes_model"]


def test_a_regression_of_the_users_own_is_learned_on_its_own_scale(tmp_path):
    write_csv(tmp_path / "stars.csv", [(text, (11, 15)[y]) for text, y in tiny.sentences(240)])
    task = write_yaml(tmp_path, {"all": "stars.csv"}, "stars", labels=None, kind="numbers", range=[10, 15])
    workspace = tmp_path / "workspace"
    preprocess(tiny.prepare_settings(workspace, task))
    compress(settings_of(workspace, task, model_name="s", alpha=1.0, only_original_data=True, epochs=8))
    row = score_of(workspace, "s", task)
    assert row["metrics"]["pearson"] > 0.7
    loaded = load_task(task)
    split = load_split(Workspace(workspace), loaded, "test")
    predicted = loaded.kind.choices(loaded, logits_of(workspace / "models/stars/s", split))
    assert abs(predicted - split.labels).mean() < 1.5


@pytest.mark.parametrize("loss", ["kl", "temperature-softmax"])
def test_losses_of_classes_are_refused_for_a_regression(sts, loss):
    with pytest.raises(UserError, match=f"--loss {loss} is for classification; sts-b is of kind numbers: use mse"):
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
    run(plan)
    text = (plan.workspace.experiment("regression") / "report.md").read_text()
    assert "Pearson × 100" in text
    assert "Best student: " in text


def test_cola_from_files_to_matthews(tmp_path, glue, encoder):
    preprocess(tiny.prepare_settings(tmp_path, "cola", data_dir=glue))
    finetune(tiny.finetune_settings(tmp_path, "cola", encoder))
    preprocess(tiny.prepare_settings(tmp_path, "cola", precision="fp32", generate_loss=("processed",)))
    compress(settings_of(tmp_path, "cola", model_name="s", only_original_data=True, epochs=4))
    rows = scored(tmp_path, "tiny-bert", "cola") + scored(tmp_path, "s", "cola")
    assert [list(row["metrics"]) for row in rows] == [["matthews"]] * 2
    assert rows[0]["metrics"]["matthews"] > 0.5
    assert "Matthews × 100" in terminal_table(rows)


def test_twenty_classes(tmp_path, encoder):
    things = [*tiny.GOOD, *tiny.BAD, *tiny.THINGS]
    write_csv(tmp_path / "things.csv", [(f"number {i} is one {things[i % 20]}", things[i % 20]) for i in range(400)])
    given = {"labels": things, "validation": {"fraction": 0.1}, "test": {"fraction": 0.1}}
    about = {"folder": tmp_path, "files": {"all": "things.csv"}, "name": "things", **given}
    task = write_yaml(**about, metrics=["f1_macro", "accuracy", "matthews"])
    workspace = tmp_path / "workspace"
    preprocess(tiny.prepare_settings(workspace, task))
    finetune(tiny.finetune_settings(workspace, task, encoder, max_epochs=2))
    preprocess(tiny.prepare_settings(workspace, task, precision="fp32", generate_loss=("processed",)))
    given = {"alpha": 0.5, "only_original_data": True, "epochs": 12, "loss": "kl", "model_name": "s"}
    folders = compress(settings_of(workspace, task, compression_actions=("distill", "quantize"), **given))
    rows = [row for folder in folders for row in scored(workspace, folder.name, task)]
    assert list(rows[0]["metrics"]) == ["f1_macro", "accuracy", "matthews"]
    assert rows[0]["metrics"]["f1_macro"] > 0.2  # by chance 0.05
    assert saved_rows_of(workspace, task, folders) == rows
    assert "F1 macro, %" in terminal_table(rows)
    write_yaml(**about, metrics=["accuracy", "f1_macro", "matthews"])
    assert saved_rows_of(workspace, task, folders) == []  # another metric is the main one now


@pytest.mark.parametrize("name", ["rte", "sts-b"])
def test_a_teacher_may_start_from_one_of_mnli(tmp_path, glue, encoder, name):
    for task in ("mnli", name):
        preprocess(tiny.prepare_settings(tmp_path, task, data_dir=glue))
    start = finetune(tiny.finetune_settings(tmp_path, "mnli", encoder, max_epochs=1))
    folder = finetune(tiny.finetune_settings(tmp_path, name, start, max_epochs=1, model_name="from-mnli"))
    assert read_config(folder).trained_on == tuple(sorted(("mnli", name)))
    assert read_config(folder).outputs == load_task(name).outputs
    row = score_of(tmp_path, "from-mnli", name)
    assert tuple(row["metrics"]) == load_task(name).all_metrics


@pytest.fixture(scope="module")
def mnli(tmp_path_factory, glue):
    """Workspace with MNLI's and the diagnostic set's rows and a student of MNLI."""
    workspace = tmp_path_factory.mktemp("mnli") / "workspace"
    for task in ("mnli", "ax"):
        preprocess(tiny.prepare_settings(workspace, task, data_dir=glue))
    compress(settings_of(workspace, "mnli", model_name="s", alpha=1.0, only_original_data=True))
    return workspace


def test_models_of_mnli_are_scored_on_the_diagnostic_set_and_keep_their_own_result(mnli):
    assert sorted(path.name for path in (mnli / "data/ax/splits").glob("*.parquet")) == ["test.parquet"]
    split = load_split(Workspace(mnli), load_task("ax"), "test")
    assert len(split) == 30
    assert split.sentence2 is not None

    folder = mnli / "models/mnli/s"
    own = scored(mnli, "s", "mnli")
    (row,) = rows = scored(mnli, "s", "ax")
    assert (row["task"], row["split"], row["model"], row["rows"]) == ("ax", "test", "s", 30)
    assert list(row["metrics"]) == ["matthews"]
    assert read_json(mnli / "scores/mnli/s/mnli/result.json") == own
    assert read_json(mnli / "scores/mnli/s/ax/result.json") == rows
    for task, expected in (("mnli", own), ("ax", rows)):
        assert saved_rows_of(mnli, task, [folder]) == expected
    assert scored(mnli, str(folder), "ax")[0]["metrics"] == row["metrics"]
    text = terminal_table(own + rows)
    assert "mnli, test_matched" in text
    assert "ax, test (30 rows)" in text


def test_the_diagnostic_set_has_no_other_rows_and_no_models(mnli, encoder):
    use = "ax has no training rows; it only scores models of mnli: use --task mnli"
    for stage, settings in (
        (finetune, tiny.finetune_settings(mnli, "ax", encoder)),
        (finetune, tiny.finetune_settings(mnli, "ax", encoder, ensemble=("s", "t"))),
        (compress, settings_of(mnli, "ax")),
        (compress, settings_of(mnli, "ax", compression_actions=("prune",), load_trained_model="s")),
        (preprocess, tiny.prepare_settings(mnli, "ax", augment="tinybert")),
    ):
        with pytest.raises(UserError, match=use):
            stage(settings)
    with pytest.raises(UserError, match="unknown rows 'processed'"):
        preprocess(tiny.prepare_settings(mnli, "ax", generate_loss=("processed",)))
    with pytest.raises(UserError, match="ax has no validation rows"):
        scored(mnli, "s", "ax", split="validation")
    assert not (mnli / "models/ax").exists()


def test_a_model_of_other_labels_is_refused(tmp_path, mnli):
    text = (tiny.ROOT / "configs/tasks/ax.yaml").read_text().replace("name: ax", "name: turned")
    (tmp_path / "turned.yaml").write_text(text.replace("[entailment, neutral,", "[neutral, entailment,"))
    with pytest.raises(UserError, match="s learned the labels entailment, neutral, contradiction, turned has neutral"):
        scored(mnli, "s", str(tmp_path / "turned.yaml"))


def report_row(name, metrics, **changes):
    return pivot_rows.row(None, 1, metrics, **{"model": name, "teacher": None, "bytes_gzip": 2000, **changes})


def test_reports_name_each_metric_and_its_unit():
    metrics = {"matthews": -0.125, "f1_macro": 0.5, "pearson": 0.25, "spearman": 0.75, "agreement": 0.9}
    rows = [report_row("a", metrics), report_row("b", {**metrics, "matthews": 0.5}, bytes_gzip=9000)]
    groups = group_rows(rows)
    heads = ["Matthews × 100", "F1 macro, %", "Pearson × 100", "Spearman × 100", "Agreement with teacher, %"]
    table = markdown_table(models_table(groups[0]))
    assert " | ".join(heads) in table
    assert "-12.50 (1)" in table
    assert summary(groups[0]) == "Best student (highest on test): b, Matthews 50.00, 9 KB gzipped."
    text = " ".join(models_table(groups[0]).notes)
    assert "correlations, here times 100 as GLUE reports them" in text
    assert "Rows without labels" in text
    (other,) = group_rows([report_row("a", {"accuracy": 0.5})])
    assert "times 100" not in " ".join(models_table(other).notes)
    assert [axes.get_ylabel() for axes in draw_skylines(groups).axes] == heads
    text = terminal_table([report_row("a", {"f1": 0.5, "accuracy": 0.25})])
    assert text.index("F1, %") < text.index("Accuracy, %")
    assert "Best student (highest on test): a, F1 50.00 %" in text
