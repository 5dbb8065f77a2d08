"""A loss, a launcher, a method of augmentation, a quantizer and a decomposition are one record each."""

import subprocess
import sys

import pytest
import tiny

from common.training.models import read_config

pytestmark = pytest.mark.slow


def run(*words, after=""):
    """Run a script, the first word, as if the records of toy_choices were in the registries. Returns what it prints."""
    script, *flags = map(str, words)
    code = f"import sys, toy_choices; toy_choices.register(); import {script}; from common.cli import run_script; "
    code += f"sys.argv = {[f'{script}.py', *flags]!r}; run_script({script}.main); {after}"
    path = {"PYTHONPATH": str(tiny.ROOT / "tests/support")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tiny.ROOT, env=tiny.environment(**path), capture_output=True, text=True)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_records_are_in_help():
    code, text = run("compress", "--help")
    assert code == 0
    for part in ("mae: absolute error of logits", "signs: signs and zeros", "first: the first columns", ",mae}"):
        assert part in text
    code, text = run("preprocess", "--help")
    assert code == 0
    assert "edited-once: one edited variant" in text
    assert "in-turn: one job after another" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("preprocess --augment edited-once --partners 3", "--partners has no effect without --augment neighbours"),
        ("preprocess --augment edited-once --workers 2", "--workers has no effect with --augment edited-once"),
        (
            "preprocess --generate-loss processed --launcher in-turn --slurm a=b",
            "has no effect without --launcher slurm",
        ),
        ("compress --loss mae --temperature 2", "--temperature has no effect without --loss temperature-softmax or kl"),
        (
            "compress --compression-actions quantize --load-trained-model x --quantizer signs --bits 4",
            "--quantizer signs has 3 values: leave --bits out",
        ),
        (
            "compress --compression-actions quantize --load-trained-model x --quantizer signs --granularity column",
            "--quantizer signs is for each row or for the whole matrix, not for columns",
        ),
    ],
)
def test_records_refuse_settings(words, message):
    script, *flags = words.split()
    code, text = run(script, "--task", "sst-2", *flags)
    assert code == 2
    assert message in text


def test_records_work(workspace):
    common = ("--task", "sst-2", "--workspace", workspace, "--cpu", "--no-loadbar", "--seed", tiny.SEED)
    words = "--augment edited-once --generate-loss edited-once --launcher in-turn --precision fp32"
    code, text = run("preprocess", *common, *words.split(), after="print(len(toy_choices.RAN), 'jobs')")
    assert (code, text.split("jobs")[0][-2:]) == (0, "1 ")
    assert (workspace / "data/sst-2/logits/tiny-bert/edited-once.parquet").exists()
    flags = [word for name, value in tiny.small(epochs=1).items() for word in (f"--{name.replace('_', '-')}", value)]
    unused = ("--layers", "--heads", "--iterations", "--intermediate-dim")
    flags = [word for i, word in enumerate(flags) if not {word, flags[i - 1]} & set(unused)]
    actions = ("--compression-actions", "distill", "factorize", "quantize", "--rank", "2", "--model-name", "toy")
    toys = ("--augmented", "edited-once", "--loss", "mae", "--decomposition", "first", "--quantizer", "signs")
    code, text = run("compress", *common, *flags, *actions, *toys)
    assert code == 0, text
    folder = next(path for path in (workspace / "models/sst-2").iterdir() if path.name.startswith("toy+f21+qs"))
    config = read_config(folder)
    assert config.distillation["loss"] == "mae"
    assert {matrix["quantizer"] for matrix in config.compression["quantized"].values()} == {"signs"}
    assert set(config.compression["rank"].values()) == {2}
