"""The flags of tables C.1 to C.5 of the thesis, with its spelling."""

import pytest
import tiny

from common.config import flag, parse_flags
from common.teachers.settings import FinetuneSettings
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.settings import PreprocessSettings
from compression.evaluation.settings import EvaluateSettings
from compression.shrinking.settings import CompressSettings

TABLES = {
    "C.1": (
        FinetuneSettings,
        ["--task sst-2 --arch roberta_large --batch-size 16 --max-epochs 10 --cpu --fp16 --seed 3"],
    ),
    "C.2": (
        PreprocessSettings,
        [
            "--task qqp --model-name mine --teacher-arch roberta_large --glue-preprocess --augment tinybert "
            "--generate-loss processed tinybert --cpu --loadbar --seed 3",
            "--task sst-2 --model-name mine --teacher-arch roberta_base --augment --cpu --loadbar --seed 3",
        ],
    ),
    "C.3": (
        CompressSettings,
        [
            "--task mnli --compression-actions distill --student-arch rnn --cpu --seed 3 --loadbar --epochs 2 "
            "--alpha 0.5 --only-original-data",
            "--task mnli --student-arch ffn --seed-name simone",
            "--task sst-2 --compression-actions prune --load-trained-model it --prune-magnitude --prune-threshold 0.1",
            "--task sst-2 --compression-actions prune --load-trained-model it --prune-topv --prune-local",
            "--task sst-2 --compression-actions quantize --load-trained-model it --ptq-embedding --dq-encoder "
            "--dq-classifier",
            "--task sst-2 --compression-actions quantize --load-trained-model it --ptq-classifier",
        ],
    ),
    "C.4": (EvaluateSettings, ["--task sst-2 --model-name mine --arch base --cpu --loadbar"]),
    "C.5": (
        AnalyzeSettings,
        [
            "--task sst-2 --model-name mine --arch large --model-size --model-disk-size --theoretical-size "
            "--weight-hist --weight-thresholds --named-params --pie-chart --save-pdf"
        ],
    ),
}


def flags_of(table):
    return {word for line in TABLES[table][1] for word in line.split() if word.startswith("--")}


@pytest.mark.parametrize("table", TABLES)
def test_every_flag_is_accepted_as_the_thesis_writes_it(table):
    settings_class, lines = TABLES[table]
    for line in lines:
        settings = parse_flags(settings_class, line.split(), "test")
        given = {flag(name) for name in settings.model_fields_set}
        assert {word for word in line.split() if word.startswith("--")} - {"--seed-name"} <= given


@pytest.mark.parametrize("table", TABLES)
def test_the_table_of_flags_in_the_documentation_is_complete(table):
    text = (tiny.ROOT / "docs" / "reproducing.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith(f"| {table} |")]
    assert {word for row in rows for word in row[2].replace("`", "").replace(",", " ").split()} == flags_of(table)
