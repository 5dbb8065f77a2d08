"""The commands end to end, as a user types them, and their errors."""

import contextlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import time

import pytest
import tiny

from common.store.files import read_json
from common.training.models import read_config
from compression.distillation.distill import distill

STUDENT = ["--embedding-dim", "6", "--cls-hidden-dim", "7", "--vocab-size", "60"]
CHAINS = {
    "sst-2": "--student-arch bilstm --embedding-type bpe --bpe-source train --prune-aware --encoder-hidden-dim 5",
    "qqp": "--student-arch ffn --embedding-type hash --alpha 0.5",
}


def in_a_process(*words):
    done = tiny.run_command(*words)
    assert done.returncode == 0, f"{words[0]}: {done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def in_this_process(*words):
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(sys, "argv", list(map(str, words)))
        runpy.run_path(str(tiny.ROOT / words[0]), run_name="__main__")
    return printed.getvalue()


RUNNERS = {"sst-2": in_a_process, "qqp": in_this_process}


def run_chain(task, workspace, glue, encoder, glove):
    """Run every stage as a command. Returns (task, workspace, output of evaluate)."""
    common, how = ["--task", task, "--workspace", workspace, "--no-loadbar"], ["--cpu", "--seed", 5]
    logits = ["--generate-loss", "processed", "tinybert", "--teacher-arch", "tiny-bert"]
    actions = ["--compression-actions", "distill", "prune", "quantize"]
    student = [*CHAINS[task].split(), *STUDENT]
    commands = [
        ["preprocess.py", "--glue-preprocess", "--data-dir", glue, "--seed", 5],
        ["finetune.py", "--arch", encoder, "--max-epochs", 2, "--batch-size", 16, "--lr", "1e-2", *how],
        ["preprocess.py", "--augment", "tinybert", "--variants", 2, "--glove", glove, *logits, *how],
        ["compress.py", *actions, "--epochs", 2, "--batch-size", 16, "--model-name", "s", *student, *how],
        ["evaluate.py", "--model-name", "s+p+q", "--json", "--cpu"],
    ]
    for script, *words in commands:
        printed = RUNNERS[task](script, *common, *words)
    return task, workspace, printed


@pytest.fixture(scope="module", params=CHAINS)
def chain(request, tmp_path_factory, glue, encoder, glove):
    return run_chain(request.param, tmp_path_factory.mktemp("chain") / "workspace", glue, encoder, glove)


@pytest.mark.slow
def test_every_stage_leaves_its_files(chain):
    task, workspace, _ = chain
    data, models = f"data/{task}", f"models/{task}"
    splits = {f"splits/{name}" for name in ("train", "validation", "test")}
    expected = {f"{data}/{name}.parquet" for name in (*splits, "augmented/tinybert")}
    expected |= {f"{data}/logits/tiny-bert/{name}.parquet" for name in ("train", "tinybert")}
    for name in ("tiny-bert", "s", "s+p", "s+p+q"):
        expected.add(f"{models}/{name}/manifest.json")
        weights = "huggingface/model.safetensors" if name == "tiny-bert" else "model.safetensors"
        expected.add(f"{models}/{name}/{weights}")
    expected |= {f"{models}/s/history.jsonl", f"scores/{task}/s+p+q/{task}/result.json"}
    assert [name for name in sorted(expected) if not (workspace / name).is_file()] == []
    assert not [*workspace.rglob("*partial*"), *workspace.rglob("*.work")]


@pytest.mark.slow
def test_evaluate_prints_rows_of_results_json(chain):
    task, workspace, printed = chain
    (row,) = json.loads(printed)
    assert row == read_json(tiny.scores(workspace, "s+p+q", task) / "result.json")[0]
    promised = (
        "task split model stage student_arch embedding_type embedding_dim vocab_size alpha augmented seed teacher "
        "parameters nonzero_parameters bytes_model bytes_gzip bytes_packed metrics seconds run config_hash"
    )
    assert set(promised.split()) <= set(row)
    known = {"task": task, "split": "test", "stage": "quantized", "seed": 5, "teacher": "tiny-bert"}
    assert known.items() <= row.items()
    assert row["augmented"] is True
    assert set(row["metrics"]) == ({"accuracy"} if task == "sst-2" else {"accuracy", "f1", "f1_at_threshold"})
    assert all(0 <= value <= 1 for value in row["metrics"].values())
    assert row["nonzero_parameters"] < row["parameters"]


@pytest.mark.slow
def test_a_killed_command_goes_on_to_the_same_bytes(prepared, tmp_path):
    given = tiny.small(student_arch="bilstm", embedding_type="char", model_name="s", epochs=25, patience=25)
    given = tiny.with_effect(**given)
    settings = tiny.compress_settings(
        task="sst-2", workspace=tiny.copy_workspace(prepared, tmp_path / "whole"), **given
    )
    whole = distill(settings)
    workspace = tiny.copy_workspace(prepared, tmp_path / "killed")
    words = ["compress.py", "--task", "sst-2", "--workspace", workspace, "--cpu", "--no-loadbar", "--seed", tiny.SEED]
    for name, value in given.items():
        words += ["--" + name.replace("_", "-"), value]
    command = [sys.executable, *map(str, words)]
    folder = workspace / "models" / "sst-2" / "s"
    process = subprocess.Popen(command, cwd=tiny.ROOT, env=tiny.environment(), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    state = "*.work/state.safetensors"
    while not list((workspace / "store").glob(state)) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not folder.exists()
    done = tiny.run_command(*words)
    assert done.returncode == 0, done.stderr
    assert "resuming from epoch" in done.stderr
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert read_config(folder) == read_config(whole)


@pytest.fixture
def refused(monkeypatch, capsys):
    """Run a script in this process, as its own main; returns its one line of error after checking its exit code."""

    def run(script, *words):
        monkeypatch.setattr(sys, "argv", [script, *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(tiny.ROOT / script), run_name="__main__")
        printed = capsys.readouterr()
        assert stop.value.code == 2
        errors = [line for line in printed.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        return errors[0]

    return run


@pytest.mark.parametrize("script", ["preprocess.py", "finetune.py", "compress.py", "evaluate.py", "analyze.py"])
def test_an_unknown_flag_suggests_the_nearest(refused, script):
    error = refused(script, "--task", "sst-2", "--model-nam", "x")
    assert error == "error: unknown flag --model-nam; did you mean --model-name? (see --help)"


@pytest.mark.slow
def test_an_error_is_one_line_on_stderr():
    done = tiny.run_command("compress.py", "--task", "sst-2", "--alhpa", "1")
    message = "error: unknown flag --alhpa; did you mean --alpha? (see --help)\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_an_unknown_task(refused, tmp_path):
    for script in ("preprocess.py", "finetune.py", "compress.py"):
        error = refused(script, "--task", "sst2", "--workspace", tmp_path)
        assert "unknown task 'sst2'; did you mean sst-2?" in error


def test_an_unknown_key_in_a_settings_file(refused, tmp_path):
    (tmp_path / "run.yaml").write_text("student-arhc: rnn\n")
    error = refused("compress.py", "--task", "sst-2", "--config", tmp_path / "run.yaml")
    assert "did you mean student_arch?" in error


def test_bad_values(refused, tmp_path):
    assert "--alpha" in refused("compress.py", "--task", "sst-2", "--alpha", "2")
    assert "--epochs" in refused("compress.py", "--task", "sst-2", "--epochs", "many")
    assert "unexpected argument" in refused("evaluate.py", "--task", "sst-2", "--model-name", "x", "y")
    assert "--model-name is required" in refused("evaluate.py", "--task", "sst-2")


def test_nothing_prepared_yet(refused, tmp_path):
    place = ["--task", "sst-2", "--workspace", tmp_path]
    for script in ("finetune.py", "compress.py"):
        assert "run: python preprocess.py --task sst-2" in refused(script, *place)
    assert "run: python preprocess.py --task sst-2" in refused("preprocess.py", *place, "--augment", "tinybert")
    assert "none has been trained yet" in refused("evaluate.py", *place, "--model-name", "x")
    assert not list(tmp_path.iterdir())


def test_missing_logits(refused, workspace):
    place = ["--task", "sst-2", "--workspace", workspace, "--cpu"]
    logits = workspace / "data/sst-2/logits/tiny-bert"
    (logits / "tinybert.parquet").unlink()
    assert "--generate-loss tinybert" in refused("compress.py", *place)
    (workspace / "data/sst-2/augmented/tinybert.parquet").unlink()
    assert "--augment tinybert" in refused("compress.py", *place)
    (logits / "train.parquet").unlink()
    assert "--generate-loss processed" in refused("compress.py", *place, "--only-original-data")


@pytest.fixture
def student(workspace):
    """Folder of a tiny student in the test's own workspace."""
    given = tiny.small(student_arch="ffn", embedding_type="hash", model_name="s", epochs=1)
    return distill(tiny.compress_settings(task="sst-2", workspace=workspace, **given))


def test_models_that_do_not_fit(refused, workspace, student):
    place = ["--task", "sst-2", "--workspace", workspace, "--cpu"]
    assert "there are: s, tiny-bert" in refused("evaluate.py", *place, "--model-name", "t")
    assert "has architecture ffn, not bilstm" in refused("evaluate.py", *place, "--model-name", "s", "--arch", "bilstm")
    other = ["--task", "qqp", "--workspace", workspace, "--cpu"]
    assert "there are: tiny-bert" in refused("evaluate.py", *other, "--model-name", "s")
    assert "was trained for task sst-2, not qqp" in refused("evaluate.py", *other, "--model-name", student)
    words = ["--compression-actions", "prune", "--load-trained-model"]
    assert "only students can be compressed" in refused("compress.py", *place, *words, "tiny-bert")
    assert "is not a name for a model" in refused("evaluate.py", *place, "--model-name", "..")
    teacher = ["--generate-loss", "processed", "--teacher-arch", "roberta"]
    assert "has architecture tiny-bert, not roberta" in refused("preprocess.py", *place, *teacher)


def test_damaged_models(refused, workspace, student):
    place = ["--task", "sst-2", "--workspace", workspace, "--cpu", "--model-name"]
    weights = student / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    assert "model.safetensors: damaged or truncated" in refused("evaluate.py", *place, "s")
    weights.unlink()
    assert "model.safetensors" in refused("evaluate.py", *place, "s")
    (student / "manifest.json").write_text("{}")
    assert "is not a model" in refused("evaluate.py", *place, "s")
    student.unlink()
    teacher = workspace / "models/sst-2/tiny-bert/huggingface/model.safetensors"
    teacher.write_bytes(teacher.read_bytes()[:-50])
    assert "tiny-bert" in refused("evaluate.py", *place, "tiny-bert")


@pytest.mark.parametrize("name", ["s", "tiny-bert"])
def test_a_model_of_an_overlapping_task_is_neither_scored_nor_trained_further(refused, workspace, student, name):
    folder = workspace / "models" / "sst-2" / name
    tiny.edit_facts(folder, task="rotten-tomatoes", trained_on=["rotten-tomatoes"])
    place = ["--task", "sst-2", "--workspace", workspace, "--cpu", "--no-loadbar"]
    error = refused("evaluate.py", *place, "--model-name", folder)
    assert "trained on rotten-tomatoes, whose sentences overlap those of sst-2" in error
    if name == "tiny-bert":
        assert "overlap" in refused("finetune.py", *place, "--arch", folder, "--model-name", "new")
        # The folder of its encoder is the same encoder.
        assert "overlap" in refused("finetune.py", *place, "--arch", folder / "huggingface", "--model-name", "new")
        assert "overlap" in refused("preprocess.py", *place, "--generate-loss", "processed", "--model-name", name)


def test_nothing_is_overwritten_without_force(refused, workspace, student):
    before = (student / "model.safetensors").read_bytes()
    place = ["--task", "sst-2", "--workspace", workspace, "--cpu", "--no-loadbar", "--model-name", "s"]
    assert "--force to replace it" in refused("compress.py", *place, "--student-arch", "ffn", *STUDENT)
    assert (student / "model.safetensors").read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_workspace_that_may_not_be_written(refused, tmp_path, glue):
    tmp_path.chmod(0o500)
    place = ["--task", "sst-2", "--workspace", tmp_path / "w", "--data-dir", glue]
    assert "Permission denied" in refused("preprocess.py", *place)


def test_a_workspace_that_is_a_file(refused, tmp_path, glue):
    (tmp_path / "w").write_text("")
    error = refused("preprocess.py", "--task", "sst-2", "--workspace", tmp_path / "w", "--data-dir", glue)
    assert str(tmp_path / "w") in error
    for command in ("list", "clean"):
        error = refused("experiment.py", command, "--workspace", tmp_path / "w")
        assert f"--workspace: a file, not a folder (got '{tmp_path / 'w'}')" in error


def test_predict_needs_open_streams(refused, monkeypatch):
    model = tiny.ROOT / "zoo" / "sst-2-12k.fwt"
    monkeypatch.setattr(sys, "stdin", None)
    assert refused("predict.py", "--model", model) == "error: stdin is closed; give a file with --input"


def test_predict_does_not_overwrite_what_it_reads(refused, tmp_path):
    model, texts = tmp_path / "model.fwt", tmp_path / "texts.txt"
    model.write_bytes((tiny.ROOT / "zoo" / "sst-2-12k.fwt").read_bytes())
    texts.write_text("a fine film\n")
    for file in (model, texts):
        before = file.read_bytes()
        error = refused("predict.py", "--model", model, "--input", texts, "--output", file)
        assert error == f"error: --output {file}: predict reads this file"
        assert file.read_bytes() == before


def python(code):
    """What a Python program in the project's folder prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=tiny.ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_settings_and_lists_load_without_heavy_libraries():
    """--help, a wrong flag and `experiment.py list` answer at once."""
    heavy = (
        "[name for name in ('torch', 'transformers', 'matplotlib', 'pandas', 'sacred', 'scipy') if name in sys.modules]"
    )
    assert python(f"import sys, experiment, predict; print({heavy})") == "[]"


@pytest.mark.slow
def test_the_core_needs_no_optional_library():
    """Every module imports, and the quickstart can be planned, where only the core's packages are installed."""
    assert (
        python("""
import importlib, pathlib, sys
for name in ("fairseq", "fairseq_cli", "ray", "submitit", "sqlalchemy", "pymongo", "onnx", "onnxruntime", "pytest"):
    sys.modules[name] = None  # as if it were not installed
for path in [*pathlib.Path("common").rglob("*.py"), *pathlib.Path("compression").rglob("*.py")]:
    if path != pathlib.Path("common/teachers/fairseq/task.py"):  # a class of fairseq's, imported with fairseq
        importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
from compression.experiments.jobs import plan_file
print(len(plan_file(pathlib.Path("configs/experiments/quickstart.yaml"), []).jobs))
""")
        == "8"
    )
