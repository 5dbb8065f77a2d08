"""Packed files by path and by name of the zoo: scored, analysed and asked as the students they were packed from."""

import io
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import tiny
from shrunk import compressed

from common.errors import UserError
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.analysis.text import describe
from compression.evaluation.evaluate import evaluate
from compression.evaluation.settings import EvaluateSettings
from compression.inference.predict import PredictSettings, predict
from compression.runtime import native, zoo


@pytest.fixture(scope="module")
def packed(prepared, tmp_path_factory):
    """(workspace, name of a student, zoo with it under the name first-1k)."""
    folder = tmp_path_factory.mktemp("packed")
    workspace = tiny.copy_workspace(prepared, folder / "workspace")
    name = compressed(workspace, "distill", "quantize", "pack", student_arch="bilstm", bits=4, epochs=2)[-1].name
    (folder / "zoo").mkdir()
    (folder / "zoo" / "first-1k.fwt").write_bytes((workspace / f"packed/sst-2/{name}.fwt").read_bytes())
    return workspace, name, folder / "zoo"


@pytest.fixture(autouse=True)
def its_zoo(packed, monkeypatch):
    monkeypatch.setattr(zoo, "FOLDERS", (str(packed[2]),))


def scored(place, model, **given):
    settings = {"task": "sst-2", "workspace": place[0], "cpu": True, **given}
    return evaluate(EvaluateSettings(model_name=str(model), **settings))


def test_a_packed_file_is_scored_as_its_student(packed):
    _, name, folder = packed
    (whole,) = scored(packed, name)
    for model in ("first-1k", folder / "first-1k.fwt"):
        (row,) = scored(packed, model)
        assert (row["model"], row["stage"], row["metrics"]) == ("first-1k", "packed", whole["metrics"])
        assert (row["rows"], row["data"], row["bytes_packed"]) == (whole["rows"], whole["data"], whole["bytes_packed"])
    (row,) = scored(packed, "first-1k", split="validation", time=True)
    assert row["metrics"] == whole["validation"]
    measured = ["sentences_per_second", "milliseconds_for_one", "joules_for_one", "peak_memory"]
    assert list(row["speed"]) == ["runtime", *measured]


def test_the_c_runtime_scores_and_answers_as_numpy(packed, c_library, tmp_path, capsys):
    (row,), (of_numpy,) = (scored(packed, "first-1k", runtime=runtime) for runtime in ("c", "numpy"))
    assert (row["metrics"], row["rows"]) == (of_numpy["metrics"], of_numpy["rows"])
    assert row["ece"] == pytest.approx(of_numpy["ece"], abs=1e-4)
    (tmp_path / "texts.txt").write_text("a gorgeous , witty film\n\nna\u00efve \u2603\n", encoding="utf-8")
    lines = []
    for runtime in ("c", "numpy"):
        predict(PredictSettings(model="first-1k", input=tmp_path / "texts.txt", runtime=runtime, workspace=packed[0]))
        lines.append([line.split("\t") for line in capsys.readouterr().out.splitlines()])
    for ours, theirs in zip(*lines, strict=True):
        assert ours[0] == theirs[0]
        values = ([float(cell.split()[-1]) for cell in cells[1:]] for cells in (ours, theirs))
        assert next(values) == pytest.approx(next(values), abs=1e-4)


def test_the_c_runtime_times_a_student(packed, c_library):
    (row,) = scored(packed, packed[1], time=True, runtime="c")
    assert row["speed"]["runtime"] == "c"
    assert row["speed"]["peak_memory"] > 0


def test_the_c_runtime_is_for_packed_files(packed, tmp_path, monkeypatch):
    (tmp_path / "texts.txt").write_text("a film\n")
    with pytest.raises(UserError, match=r"--runtime c is for packed files; .* is a saved model"):
        predict(PredictSettings(model=packed[1], input=tmp_path / "texts.txt", runtime="c", workspace=packed[0]))
    monkeypatch.setattr(native, "LIBRARY", str(tmp_path / "nothing.so"))
    with pytest.raises(UserError, match=r"first-1k\.fwt: the C runtime is not built; run: make -C .*runtimes/c"):
        scored(packed, "first-1k", runtime="c")


def test_the_bytes_of_a_file_sum_to_its_size(packed, tmp_path):
    workspace, name, folder = packed

    def asked(model):
        settings = {"task": "sst-2", "workspace": workspace, "bytes": True, "out": tmp_path}
        return analyze(AnalyzeSettings(model_name=str(model), **settings))

    by_name, by_path, student = asked("first-1k"), asked(folder / "first-1k.fwt"), asked(name)
    assert by_name["bytes"] == by_path["bytes"]
    rows = {row["name"]: row for row in by_name["bytes"]["tensors"]}
    size = (folder / "first-1k.fwt").stat().st_size
    assert sum(row["bytes"] for row in rows.values()) == by_name["bytes"]["file"] == size
    for row in student["bytes"]["tensors"]:
        if row["weights"]:
            tables = [of for of in row["streams"] if of["coder"] == "deflate"]  # which count for the header here
            found = {(of["stream"], of["coder"]): of["bytes"] for of in rows[row["name"]]["streams"]}
            streams = {(of["stream"], of["coder"]): of["bytes"] for of in row["streams"] if of not in tables}
            assert found == pytest.approx(streams, abs=12)
            if row["name"] != "embedding.table.weight":  # pieces that no text reaches are not packed
                assert rows[row["name"]]["weights"] == row["weights"]
    assert f"the packed file: {size:,} bytes" in describe(by_name)
    with pytest.raises(UserError, match="--pie-chart needs a model's folder"):
        analyze(AnalyzeSettings(task="sst-2", workspace=workspace, model_name="first-1k", bytes=True, pie_chart=True))


def ask(packed, monkeypatch, capsys, **given):
    stdin = SimpleNamespace(buffer=io.BytesIO(b"a wonderful film\n"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    predict(PredictSettings(workspace=packed[0], cpu=True, json_=True, **given))
    return json.loads(capsys.readouterr().out)


def test_predict_takes_a_name(packed, monkeypatch, capsys):
    found = ask(packed, monkeypatch, capsys, model="first-1k")
    assert found == ask(packed, monkeypatch, capsys, model="first-1k", task="sst-2")
    assert found == ask(packed, monkeypatch, capsys, model=str(packed[2] / "first-1k.fwt"))


def test_a_model_of_the_workspace_comes_first(packed, monkeypatch, capsys):
    """Also for predict without a task, which looks through all tasks."""
    folder = packed[2]
    (folder / "tiny-bert.fwt").write_bytes((folder / "first-1k.fwt").read_bytes())
    try:
        whole = ask(packed, monkeypatch, capsys, model="tiny-bert", task="sst-2")
        assert whole != ask(packed, monkeypatch, capsys, model="first-1k")
        with pytest.raises(UserError, match=r"several tasks \(qqp, sst-2\) have a model named 'tiny-bert'"):
            ask(packed, monkeypatch, capsys, model="tiny-bert")
        with pytest.raises(UserError, match=r"tiny-bert\.fwt: no such file; run: python compress\.py"):
            scored(packed, "tiny-bert", packed=True)
        monkeypatch.setattr("common.installed.FROM_WHEEL", True)
        with pytest.raises(UserError, match=r"tiny-bert\.fwt: no such file; run: featherweight compress --task"):
            scored(packed, "tiny-bert", packed=True)
    finally:
        (folder / "tiny-bert.fwt").unlink()


@pytest.mark.parametrize("given", [{}, {"task": "sst-2"}])
def test_predict_names_the_nearest_model_of_workspace_and_zoo(packed, monkeypatch, capsys, given):
    with pytest.raises(UserError, match=r"no model 'first-2k' .*; did you mean first-1k\? \(zoo: first-1k\)"):
        ask(packed, monkeypatch, capsys, model="first-2k", **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"model": "first-2k"},
            r"no model 'first-2k' in .*; it is not in the zoo either; did you mean first-1k\? \(zoo: first-1k\)",
        ),
        ({"model": "../zoo/first-1k"}, "no model"),
        ({"model": "first-1k", "task": "qqp"}, r"first-1k\.fwt was trained for task sst-2, not qqp"),
        ({"model": "nothing.fwt"}, r"nothing\.fwt: no such file"),
    ],
)
def test_what_cannot_be_scored_is_refused(packed, given, words):
    with pytest.raises(UserError, match=words):
        scored(packed, **given)


def test_a_packed_file_is_scored_without_pytorch(packed):
    workspace, _, folder = packed
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    words = ["evaluate.py", "--task", "sst-2", "--workspace", workspace]
    command = [sys.executable, "-c", code, *words, "--model-name", folder / "first-1k.fwt"]
    environment = tiny.environment(PYTHONPATH=str(tiny.ROOT))
    done = subprocess.run(list(map(str, command)), cwd=tiny.ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "False\n")
    size = (folder / "first-1k.fwt").stat().st_size
    assert done.stdout.startswith("first-1k on sst-2 test (60 rows): accuracy 0.")
    assert done.stdout.endswith(f"; {size:,} bytes\n")
