"""analyze.py's work on tiny students: every count is known beforehand."""

import json
import math
from pathlib import Path

import eight_bits
import pytest
import tiny
import torch

from common.config import build
from common.errors import UserError
from common.training.models import weights_file
from compression.analysis import glue_baselines
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.analysis.tensors import coo_bytes
from compression.analysis.text import describe
from compression.evaluation.weights import part_of
from compression.packing import pack_student
from compression.students.embeddings import load_tokenizer
from compression.students.settings import StudentSettings
from compression.students.student import Student

EMBEDDING, ENCODER, CLASSIFIER = 33 * 4, 2 * (3 * 4 + 3 * 3 + 3 + 3), 6 * 5 + 5 + 5 * 2 + 2
"""Weights of the RNN below: 33 characters of 4, two directions of 3 units, a classifier of 6 -> 5 -> 2."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved RNN student whose embedding has 32 zeros."""
    return save(tmp_path, quantized=False)


def save(workspace: Path, quantized: bool) -> Path:
    settings = StudentSettings(embedding_type="char", embedding_dim=4, encoder_hidden_dim=3, cls_hidden_dim=5)
    torch.manual_seed(0)
    student = Student("rnn", settings, outputs=2, pair=False)
    with torch.no_grad():
        student.embedding.table.weight.value[:8] = 0
        if quantized:
            eight_bits.quantize(student)
    facts = {"stage": "quantized" if quantized else "pruned", "arch": "rnn"}
    folder = workspace / "models" / "sst-2" / "tiny"
    tokenizer = load_tokenizer(settings, folder)
    return tiny.save_student(folder, student, tokenizer, **facts, student=settings.model_dump(mode="json"))


def ask(workspace: Path, **flags: object) -> dict:
    return analyze(AnalyzeSettings(task="sst-2", workspace=workspace, model_name="tiny", **flags))


def test_without_flags_the_three_sizes(folder: Path, tmp_path: Path):
    assert {"model_size", "model_disk_size", "theoretical_size"} <= set(ask(tmp_path))
    assert "named_params" not in ask(tmp_path)


@pytest.mark.parametrize("quantized", [False, True])
def test_bytes_of_tensors_and_header_sum_to_the_file(tmp_path: Path, quantized: bool):
    path = weights_file(save(tmp_path, quantized))
    result = ask(tmp_path, model_size=True, named_params=True, model_disk_size=True)
    listed = sum(tensor["bytes"] for tensor in result["named_params"])
    size = result["model_size"]
    assert listed == size["bytes"]["tensors"] == sum(part["bytes"] for part in size["parts"].values())
    assert listed == sum(of["bytes"] for of in size["stored"].values())
    assert listed + size["bytes"]["header"] == path.stat().st_size == result["model_disk_size"]["bytes"]


@pytest.mark.parametrize("quantized", [False, True])
def test_weights_and_zeros_by_part(tmp_path: Path, quantized: bool):
    save(tmp_path, quantized)
    parts = ask(tmp_path, model_size=True)["model_size"]["parts"]
    counts = {name: part["parameters"] for name, part in parts.items()}
    assert counts == {"embedding": EMBEDDING, "encoder": ENCODER, "classifier": CLASSIFIER}
    if not quantized:
        assert parts["embedding"]["nonzero"] == EMBEDDING - 32
        assert parts["embedding"]["sparsity"] == 32 / EMBEDDING


def test_a_quantized_model_stores_bytes(tmp_path: Path):
    save(tmp_path, quantized=True)
    stored = ask(tmp_path, model_size=True)["model_size"]["stored"]
    assert stored["uint8"]["bytes"] == stored["uint8"]["count"] > EMBEDDING


def test_coordinate_form_is_equation_6_5():
    assert coo_bytes(dimensions=2, bytes_per_element=4, nonzero=100) == (2 * 8 + 4) * 100
    # Equation 6.7: with two dimensions and four bytes the forms are even at a fifth of the weights.
    assert coo_bytes(2, 4, 100) == 500 * 4


def test_theoretical_size(folder: Path, tmp_path: Path):
    size = ask(tmp_path, theoretical_size=True)["theoretical_size"]
    table = next(row for row in size["tensors"] if row["name"] == "embedding.table.weight")
    assert (table["dense"], table["coo"]) == (4 * EMBEDDING, 20 * (EMBEDDING - 32))
    assert table["coo_pays_below"] == EMBEDDING / 5
    assert size["total"]["smaller"] == "dense"
    assert size["total"]["dense"] == 4 * (EMBEDDING + ENCODER + CLASSIFIER)
    assert 0 < size["gzip"] < weights_file(folder).stat().st_size


def test_thresholds_count_zeros_and_what_is_smaller(folder: Path, tmp_path: Path):
    rows = ask(tmp_path, weight_thresholds=True)["weight_thresholds"]
    table = next(row for row in rows if row["name"] == "embedding.table.weight")
    assert list(table["below"]) == ["0.001", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5"]
    counts = list(table["below"].values())
    assert counts == sorted(counts)
    assert counts[0] >= 32
    assert table["share"]["0.5"] == table["below"]["0.5"] / EMBEDDING


@pytest.mark.slow
def test_pictures_are_written(folder: Path, tmp_path: Path):
    result = ask(tmp_path, weight_hist=True, pie_chart=True, save_pdf=True, out=tmp_path / "pictures")
    written = {path.name: path.read_bytes()[:4] for path in (tmp_path / "pictures").iterdir()}
    assert written == {
        "weight_hist.png": b"\x89PNG",
        "weight_hist.pdf": b"%PDF",
        "pie_chart.png": b"\x89PNG",
        "pie_chart.pdf": b"%PDF",
    }
    assert len(result["weight_hist"]) == len(result["pie_chart"]) == 2


def test_pictures_go_below_the_workspace(folder: Path, tmp_path: Path):
    paths = ask(tmp_path, pie_chart=True)["pie_chart"]
    assert paths == [str(tmp_path / "analysis" / "sst-2" / "tiny" / "pie_chart.png")]


def test_json_has_the_sizes_of_results_json(folder: Path, tmp_path: Path):
    result = json.loads(json.dumps(ask(tmp_path, json_=True, named_params=True)))
    assert result["parameters"] == EMBEDDING + ENCODER + CLASSIFIER
    assert result["nonzero_parameters"] <= result["parameters"] - 32
    assert result["bytes_model"] == weights_file(folder).stat().st_size
    assert {"bytes_gzip", "bytes_packed", "model", "stage", "task"} <= set(result)


def test_text_says_what_the_result_says(folder: Path, tmp_path: Path):
    text = describe(ask(tmp_path, model_size=True, named_params=True, weight_thresholds=True, theoretical_size=True))
    assert "all weights in one file" in text
    assert "33 x 4" in text
    assert "|w| < 0.001" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"model_name": "huge"}, "no model 'huge'"),
        ({"model_name": "tiny", "arch": "bilstm"}, "architecture rnn, not bilstm"),
        ({}, "--model-name is required"),
        ({"model_name": "tiny", "save_pdf": True}, "--save-pdf"),
        ({"model_name": "tiny", "arch": "glue-elmo"}, "leave --model-name out"),
        ({"arch": "glue-glove", "weight_hist": True}, "--weight-hist needs weights"),
        ({"arch": "glue-glove", "bytes": True}, "--bytes needs weights"),
    ],
)
def test_mistakes_are_refused(folder: Path, tmp_path: Path, flags: dict, message: str):
    with pytest.raises(UserError, match=message):
        analyze(build(AnalyzeSettings, {"task": "sst-2", "workspace": tmp_path, **flags}))


def test_a_truncated_file_is_refused(folder: Path, tmp_path: Path):
    path = weights_file(folder)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="damaged or truncated"):
        ask(tmp_path)


@pytest.mark.parametrize(
    ("arch", "task", "total", "thesis"),
    [
        ("glue-glove", "sst-2", 737_448_194, 2950),
        ("glue-glove", "qqp", 742_056_194, 2968),
        ("glue-elmo", "sst-2", 171_049_058, 684),
        ("glue-elmo", "qqp", 175_657_058, 703),
    ],
)
def test_glue_baselines_have_the_thesis_sizes(tmp_path: Path, arch: str, task: str, total: int, thesis: int):
    result = analyze(AnalyzeSettings(task=task, workspace=tmp_path, arch=arch))
    assert result["parameters"] == total
    assert result["model_size"]["bytes"]["computed"] == 4 * total
    assert result["model_size"]["thesis_megabytes"] == thesis == round(4 * total / 1e6)
    assert f"{thesis:,} MB" in describe(result)


def test_elmo_has_its_published_number_of_weights():
    shapes = glue_baselines.glue_shapes("glue-elmo", False, 2)
    assert sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("embedding.")) == 93_600_864


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("bert.embeddings.word_embeddings.weight", "embeddings"),
        ("bert.encoder.layer.0.attention.self.key.bias", "encoder"),
        ("bert.pooler.dense.weight", "head"),
        ("classifier.out_proj.weight", "head"),
        ("distilbert.transformer.layer.0.ffn.lin1.weight", "encoder"),
        ("lm_head.dense.weight", "head"),
    ],
)
def test_parts_of_teachers(name: str, part: str):
    assert part_of(name, "teacher") == part


@pytest.mark.parametrize("quantized", [False, True])
def test_packed_bytes_sum_to_the_packed_file(tmp_path: Path, quantized: bool):
    folder = save(tmp_path, quantized)
    result = json.loads(json.dumps(ask(tmp_path, bytes=True)))
    packed, rows = result["bytes"], {row["name"]: row for row in result["bytes"]["tensors"]}
    assert sum(row["bytes"] for row in packed["tensors"]) == packed["file"] == len(pack_student(folder))
    assert sum(row["share"] for row in packed["tensors"]) == pytest.approx(1)
    for row in packed["tensors"]:
        assert sum(stream["bytes"] for stream in row["streams"]) == row["bytes"]
    assert rows["embedding.table.weight"]["weights"] == EMBEDDING
    assert rows["embedding.table.weight"]["bits_per_weight"] == 8 * rows["embedding.table.weight"]["bytes"] / EMBEDDING
    assert rows["encoder.forward_rnn.bias"]["weights"] == 3
    # All but one bias of two a direction: their sum is what is packed.
    assert sum(row["weights"] for row in packed["tensors"]) == EMBEDDING + ENCODER + CLASSIFIER - 2 * 3
    assert rows["header"]["bits_per_weight"] is None
    assert [Path(path).name for path in result["treemap"]] == ["treemap.png"]
    assert Path(result["treemap"][0]).read_bytes()[:4] == b"\x89PNG"
    assert f"the packed file: {packed['file']:,} bytes" in describe(result)
