"""Flags without effect, such as those of an action that is not asked for, are refused in one line."""

import pytest
import yaml
from sweep_grid import planned

from common.config import parse_flags
from common.errors import UserError
from common.teachers.settings import FinetuneSettings
from common.teachers.settings import defaults_for as teacher_defaults
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.settings import PreprocessSettings
from compression.evaluation.settings import EvaluateSettings
from compression.experiments.jobs import plan_chain, plan_file
from compression.experiments.sweep.grid import SweepSettings
from compression.shrinking.settings import CompressSettings
from compression.shrinking.settings import defaults_for as student_defaults

PRETRAIN = "--compression-actions pretrain --corpus c.txt --teacher minilm "
DISTILL = "--compression-actions distill "
OF_A_STUDENT = "--load-trained-model s --compression-actions "
TUNED = OF_A_STUDENT + "quantize --tune-epochs 1 "
ALIGNED = "--student-arch transformer --embedding-type wordpiece --align-hidden 1 "
WITHOUT = "has no effect without --compression-actions "


def parsed(cls, words):
    defaults = {CompressSettings: student_defaults, FinetuneSettings: teacher_defaults}
    task = [] if cls is SweepSettings else ["--task", "sst-2"]
    return parse_flags(cls, [*task, *words.split()], "test", defaults.get(cls, lambda given: {}))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (PRETRAIN + "--temperature 2", "--temperature " + WITHOUT + "distill"),
        (PRETRAIN + "--alpha 1", "--alpha " + WITHOUT + "distill"),
        (PRETRAIN + "--align-hidden 1 --align-first 2", "--align-first " + WITHOUT + "distill"),
        (PRETRAIN + "--only-original-data", "--only-original-data " + WITHOUT + "distill"),
        (PRETRAIN + "--select-on test", "--select-on " + WITHOUT + "distill"),
        (PRETRAIN + "--bits 4", "--bits " + WITHOUT + "quantize"),
        (PRETRAIN + "--start-from g", "--start-from " + WITHOUT + "distill"),
        (PRETRAIN + "--adapter-tuning", "--adapter-tuning needs --start-from"),
        (PRETRAIN + "--output-weight 0 --output-temperature 2", "--output-temperature has no effect with --output-w"),
        (PRETRAIN + "--hidden-loss cosine", "--hidden-loss has no effect without --align-hidden, --align-last or"),
        (DISTILL + "--sentence-order-weight 1", "--sentence-order-weight " + WITHOUT + "pretrain"),
        (DISTILL + "--output-temperature 2", "--output-temperature " + WITHOUT + "pretrain"),
        (OF_A_STUDENT + "quantize --init-from-teacher first", "--init-from-teacher " + WITHOUT + "pretrain or distill"),
        (OF_A_STUDENT + "quantize --align-last 1", "--align-last " + WITHOUT + "pretrain or distill, or --tune-epochs"),
        (TUNED + "--align-hidden 1 --guide student", "--align-hidden has no effect with --guide student"),
        (TUNED + "--hidden-loss cosine", "--hidden-loss has no effect without --align-hidden, --align-last or"),
        (TUNED + "--attention-loss kl --align-hidden 1", "--attention-loss has no effect without --align-attention"),
        (TUNED + "--layer-map last --align-last 1", "--layer-map has no effect without --align-hidden or --align-att"),
        (TUNED + "--align-hidden 1 --align-first 1", "--align-first " + WITHOUT + "distill"),
        (DISTILL + "--corpus c.txt", "--corpus " + WITHOUT + "pretrain"),
        (DISTILL + "--rank 4", "--rank " + WITHOUT + "factorize"),
        (DISTILL + "--prune-topv", "--prune-topv " + WITHOUT + "prune, or --prune-aware"),
        (DISTILL + "--prune-aware --prune-units 0.5", "--prune-units " + WITHOUT + "prune"),
        (DISTILL + "--ptq-embedding", "--ptq-embedding " + WITHOUT + "quantize"),
        (DISTILL + "--max-bytes 9000", "--max-bytes " + WITHOUT + "quantize"),
        (DISTILL + "--tune-epochs 2", "--tune-epochs " + WITHOUT + "factorize, prune or quantize"),
        (DISTILL + "--temperature 2", "--temperature has no effect without --loss temperature-softmax or kl"),
        (DISTILL + "--augmented a --only-original-data", "--augmented has no effect with --only-original-data"),
        (DISTILL + "--min-confidence 0.9 --only-original-data", "--min-confidence has no effect with --only-original"),
        (DISTILL + "--attention-loss kl", "--attention-loss has no effect without --align-attention"),
        (DISTILL + ALIGNED + "--attention-states scores", "--attention-states has no effect without --align-attention"),
        (OF_A_STUDENT + "prune --tune-epochs 2 --average-epochs 2", "--average-epochs " + WITHOUT + "distill"),
        (OF_A_STUDENT + "prune --tune-epochs 2 --word-dropout 0.1", "--word-dropout " + WITHOUT + "distill"),
        (PRETRAIN + "--word-dropout 0.1", "--word-dropout " + WITHOUT + "distill"),
        (PRETRAIN + "--average-epochs 2", "--average-epochs " + WITHOUT + "distill"),
        (DISTILL + "--prune-aware --average-epochs 2", "--average-epochs and --prune-aware exclude each other"),
        (
            DISTILL + "--student-arch ffn --encoder-hidden-dim 9",
            "--encoder-hidden-dim has no effect with --student-arch ffn",
        ),
        (DISTILL + "--student-arch ffn --hidden-dim 9", "--hidden-dim has no effect with --student-arch ffn"),
        (DISTILL + "--student-arch ffn --pooling last", "--pooling has no effect as last with --student-arch ffn"),
        (DISTILL + "--kernel-width 3", "--kernel-width has no effect with --student-arch bilstm"),
        (DISTILL + "--student-arch recursive --layers 2", "--layers has no effect with --student-arch recursive"),
        (DISTILL + "--student-arch transformer --iterations 2", "--iterations has no effect with --student-arch trans"),
        (DISTILL + "--heads 2", "--heads has no effect with --student-arch bilstm"),
        (DISTILL + "--hash-ratio 5", "--hash-ratio has no effect with --embedding-type bpe"),
        (DISTILL + "--embedding-type char --vocab-size 9", "--vocab-size has no effect with --embedding-type char"),
        (DISTILL + "--embedding-type hash --bpe-source train", "--bpe-source has no effect with --embedding-type hash"),
        (DISTILL + "--alpha 1 --only-original-data --loss kl", "--loss has no effect with --alpha 1 --only-original"),
        (DISTILL + "--alpha 1 --only-original-data --teacher t", "--teacher has no effect with --alpha 1 --only-orig"),
        (
            DISTILL + "--student-arch ffn --alpha 1 --only-original-data --temperature 2",
            "--temperature has no effect with --alpha 1",
        ),
        (DISTILL + ALIGNED + "--start-from g --init-from-teacher first", "--init-from-teacher has no effect with --st"),
        (OF_A_STUDENT + "quantize --kernel-width 3", "--kernel-width " + WITHOUT + "pretrain or distill"),
        (OF_A_STUDENT + "prune --bits 4", "--bits " + WITHOUT + "quantize"),
        (OF_A_STUDENT + "prune --epochs 2", "--epochs " + WITHOUT + "pretrain or distill"),
        (OF_A_STUDENT + "quantize --embedding-dim 9", "--embedding-dim " + WITHOUT + "pretrain or distill"),
        (OF_A_STUDENT + "quantize --hidden-dim 9", "--hidden-dim " + WITHOUT + "pretrain or distill"),
        (OF_A_STUDENT + "quantize --tune-epochs 1 --epochs 2", "--epochs " + WITHOUT + "pretrain or distill"),
        (OF_A_STUDENT + "quantize --alpha 1", "--alpha " + WITHOUT + "distill, or --tune-epochs"),
        (
            OF_A_STUDENT + "quantize --precision bf16",
            "--precision " + WITHOUT + "pretrain or distill, or --tune-epochs",
        ),
        (OF_A_STUDENT + "quantize --downsample-data 0.5", "--downsample-data " + WITHOUT + "distill or factorize, or"),
        (OF_A_STUDENT + "quantize --guide student", "--guide has no effect without --tune-epochs"),
        (OF_A_STUDENT + "quantize --calibration-rows 9", "--calibration-rows has no effect without --ptq-classifier"),
        (
            OF_A_STUDENT + "quantize --quantizer codebook --ranges minmax",
            "--ranges has no effect without --quantizer affine",
        ),
        (OF_A_STUDENT + "quantize --bits 16 --ranges minmax", "--ranges has no effect with --bits 16"),
        (OF_A_STUDENT + "quantize --start-from g", "--start-from " + WITHOUT + "distill"),
        (
            OF_A_STUDENT + "pack --model-name n",
            "--model-name " + WITHOUT + "pretrain, distill, factorize, prune or quantize",
        ),
        (OF_A_STUDENT + "pack --seed 3", "--seed " + WITHOUT + "pretrain, distill"),
        (OF_A_STUDENT + "export --seed-name simone", "--seed-name " + WITHOUT + "pretrain, distill"),
        (OF_A_STUDENT + "pack --cpu", "--cpu " + WITHOUT + "pretrain, distill"),
        (PRETRAIN + "--load-trained-model s", "--load-trained-model " + WITHOUT + "factorize"),
        (OF_A_STUDENT + "quantize --teacher t", "--teacher " + WITHOUT + "pretrain or distill, or --tune-epochs"),
    ],
)
def test_compress_refuses_flags_of_other_actions(words, message):
    with pytest.raises(UserError) as error:
        parsed(CompressSettings, words)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "words",
    [
        PRETRAIN + "--epochs 2 --align-hidden 1 --hidden-loss cosine --hidden-dim 12 --heads 3 --model-name g",
        PRETRAIN + "--layers 6 --no-segments --init-from-teacher every-other --output-weight 5 --output-temperature 2 "
        "--masked-lm-weight 2 --align-last 1 --hidden-loss cosine --weight-decay 0 --max-grad-norm 5",
        PRETRAIN + "--student-arch recursive --iterations 12 --adapters 0 --heads 12 --sentence-order-weight 1",
        DISTILL + ALIGNED + "--share attention --align-last 1 --init-from-teacher 0 2 4 1",
        DISTILL + "--prune-aware --prune-topv --prune-threshold 0.5 --teacher t --only-original-data --alpha 0.5",
        DISTILL + ALIGNED + "--align-attention 1 --attention-states scores --align-first 1 --layer-map last",
        "--loss kl --temperature 2 --augmented four five --bootstrap-data-ratio 0.5 --min-confidence 0.7",
        OF_A_STUDENT + "prune --prune-vocabulary 2 --only-original-data --seed-name feynman --student-arch bilstm",
        OF_A_STUDENT
        + "quantize --tune-epochs 1 --alpha 0.5 --batch-size 9 --teacher t --precision bf16 --model-name n",
        OF_A_STUDENT + "prune --prune-vocabulary 2 --downsample-data 0.5",
        TUNED + "--align-hidden 1 --align-attention 1 --align-embedding 1 --hidden-loss cosine --layer-map last",
        OF_A_STUDENT + "factorize prune --tune-epochs 1 --align-attention 1 --attention-loss kl",
        "--compression-actions distill quantize --tune-epochs 1 --guide student --align-hidden 1 --align-first 1",
        OF_A_STUDENT + "quantize --max-loss 1 --select-on test --no-loadbar --cpu",
        OF_A_STUDENT + "pack --student-arch ffn",
        # The thesis's table C.3, with all the flags of its three actions.
        "--compression-actions distill prune quantize --student-arch bilstm --cpu --seed-name simone --loadbar "
        "--epochs 2 --alpha 0 --only-original-data --prune-topv --prune-threshold 0.5 --prune-local --ptq-embedding "
        "--dq-encoder --ptq-classifier",
        "--compression-actions prune --student-arch bilstm --load-trained-model s --seed 3 --prune-magnitude "
        "--prune-threshold 0.1 --prune-local",
        "--compression-actions quantize --student-arch rnn --load-trained-model s --dq-classifier",
    ],
)
def test_compress_takes_flags_that_have_an_effect(words):
    parsed(CompressSettings, words)


AUGMENT, LOGITS = "--augment tinybert ", "--generate-loss processed "
NEAR, OF_A_FILE = "--augment neighbours ", "--augment file --augment-file f "
LAUNCHED = "--launcher processes, ray or slurm"


@pytest.mark.parametrize(
    ("cls", "words", "message"),
    [
        (PreprocessSettings, "--variants 3", "--variants has no effect without --augment"),
        (PreprocessSettings, LOGITS + "--masked-lm bert", "--masked-lm has no effect without --augment"),
        (PreprocessSettings, LOGITS + "--augmented a", "--augmented has no effect without --augment, or --generate-"),
        (PreprocessSettings, NEAR + "--variants 3", "--variants has no effect without --augment tinybert"),
        (PreprocessSettings, NEAR + "--sides one", "--sides has no effect without --augment tinybert"),
        (PreprocessSettings, NEAR + "--model-name t", "--model-name has no effect with --augment neighbours"),
        (PreprocessSettings, AUGMENT + "--partners 2", "--partners has no effect without --augment neighbours, rec"),
        (PreprocessSettings, AUGMENT + "--augment-file f", "--augment-file has no effect without --augment file"),
        (PreprocessSettings, "--augment file", "--augment file needs --augment-file"),
        (PreprocessSettings, "--augment tasks", "--augment tasks needs --augment-tasks"),
        (PreprocessSettings, AUGMENT + "--augment-tasks qqp", "--augment-tasks has no effect without --augment tasks"),
        (PreprocessSettings, OF_A_FILE + "--launcher ray", "--launcher has no effect with --augment file"),
        (PreprocessSettings, "--model-name t", "--model-name has no effect without --augment or --generate-loss"),
        (PreprocessSettings, AUGMENT + "--precision fp32", "--precision has no effect without --generate-loss"),
        (PreprocessSettings, AUGMENT + "--data-dir d", "--data-dir has no effect without --glue-preprocess"),
        (PreprocessSettings, "--launcher ray", "--launcher has no effect without --augment or --generate-loss"),
        (PreprocessSettings, AUGMENT + "--workers 2", f"--workers has no effect without {LAUNCHED}"),
        (PreprocessSettings, AUGMENT + "--slurm a=b", "--slurm has no effect without --launcher slurm"),
        (FinetuneSettings, "--as-is --lr 0.1", "--lr has no effect with --as-is"),
        (FinetuneSettings, "--as-is --fp16", "--fp16 has no effect with --as-is"),
        (FinetuneSettings, "--ensemble a b --max-tokens 9", "--max-tokens has no effect with --ensemble"),
        (FinetuneSettings, "--ensemble a b --arch minilm", "--arch has no effect with --ensemble"),
        (FinetuneSettings, "--adapters 4 --freeze-embeddings", "--freeze-embeddings has no effect with --adapters"),
        (
            AnalyzeSettings,
            "--model-name m --out o",
            "--out has no effect without --weight-hist, --pie-chart, --attention or --bytes",
        ),
        (AnalyzeSettings, "--model-name m --seed 3", "--seed has no effect on an analysis"),
        (AnalyzeSettings, "--model-name m --cpu", "--cpu has no effect without --attention"),
        (EvaluateSettings, "--model-name m --seed 3", "--seed has no effect on scores"),
        (EvaluateSettings, "--model-name m --packed --cpu", "--cpu has no effect with a packed file"),
        (PreprocessSettings, LOGITS + "--seed 3", "--seed has no effect with --generate-loss alone"),
        (PreprocessSettings, "--cpu", "--cpu has no effect without --augment or --generate-loss"),
        (FinetuneSettings, "--as-is --seed 3", "--seed has no effect with --as-is"),
        (FinetuneSettings, "--ensemble a b --cpu", "--cpu has no effect with --ensemble"),
        (EvaluateSettings, "--model-name m --runtime c", "--runtime has no effect without --packed"),
        (SweepSettings, "--launcher local --workers 2", f"--workers has no effect without {LAUNCHED}"),
    ],
)
def test_other_scripts_refuse_flags_without_effect(cls, words, message):
    with pytest.raises(UserError) as error:
        parsed(cls, words)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (PreprocessSettings, "--data-dir d --glue-preprocess"),
        (PreprocessSettings, "--data-dir d"),
        (PreprocessSettings, AUGMENT + "--variants 3 --sides one --augmented a --launcher processes --workers 2"),
        (PreprocessSettings, NEAR + "--partners 3 --launcher ray --workers 2"),
        (PreprocessSettings, NEAR + LOGITS + "--model-name t"),
        (PreprocessSettings, OF_A_FILE + "--augmented a --generate-loss a --model-name t"),
        (PreprocessSettings, "--generate-loss augmented --augmented a --model-name t --teacher-arch roberta_base"),
        (PreprocessSettings, "--generate-loss a --augmented a --launcher slurm --slurm a=b"),
        (FinetuneSettings, "--as-is --arch folder --max-tokens 9 --model-name t"),
        (FinetuneSettings, "--adapters 4 --lr 0.1"),
        (FinetuneSettings, "--arch roberta_base --batch-size 9 --max-epochs 2 --fp16 --cpu --seed 3"),
        (AnalyzeSettings, "--model-name m --out o --bytes"),
        (SweepSettings, "--launcher ray --workers 2"),
    ],
)
def test_other_scripts_take_flags_that_have_an_effect(cls, words):
    parsed(cls, words)


def test_values_of_a_settings_file_may_have_no_effect(tmp_path):
    """Commands share such files; a flag is for one command."""
    (tmp_path / "run.yaml").write_text("bits: 4\ntemperature: 2\n")
    settings = parsed(CompressSettings, f"--config {tmp_path / 'run.yaml'}")
    assert (settings.bits, settings.temperature) == (4, 2.0)


def test_a_flag_of_a_chain_has_an_effect_on_one_of_its_jobs(tmp_path):
    jobs = [{"preprocess": {}}, {"preprocess": {"augment": "tinybert"}}]
    jobs += [{"compress": {}}, {"compress": {"compression_actions": ["distill", "quantize"], "alpha": 0}}]
    file = tmp_path / "e.yaml"
    file.write_text(yaml.safe_dump({"name": "e", "settings": {"task": "sst-2", "rank": 4}, "jobs": jobs}))
    assert plan_file(file, ["--bits", "4", "--variants", "3"]).jobs[2].flags["bits"] == "4"
    for words in (["--rank", "4"], ["--masked-lm", "bert", "--tune-lr", "0.1"]):
        with pytest.raises(UserError, match=f"{words[-2]} has no effect without"):
            plan_file(file, words)
    with pytest.raises(UserError, match="--bits " + WITHOUT + "quantize"):
        plan_chain(["preprocess", "compress"], ["--task", "sst-2", "--bits", "4"])
    plan_chain(["preprocess", "compress", "evaluate"], ["--task", "sst-2", "--epochs", "4", "--time", "--arch", "ffn"])


def test_a_setting_of_a_sweep_has_an_effect_on_one_of_its_runs(tmp_path):
    axes = {"how": {"float": {}, "8 bits": {"compression_actions": ["distill", "quantize"]}}}
    grid = {"name": "g", "settings": {"task": "sst-2", "rank": 4}, "axes": axes, "shared": [{"preprocess": {}}]}
    (tmp_path / "g.yaml").write_text(yaml.safe_dump(grid))
    assert planned(tmp_path / "g.yaml", ["bits=4"]).record.settings["bits"] == 4
    for key, value in (("prune_topv", "true"), ("variants", 3)):
        with pytest.raises(UserError, match=f"--{key.replace('_', '-')} has no effect without"):
            planned(tmp_path / "g.yaml", [f"{key}={value}"])
