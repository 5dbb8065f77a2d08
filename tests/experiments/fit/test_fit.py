"""`experiment.py fit` from a file to a packed file, stopped and resumed, with a tiny teacher."""

import json
import os
import subprocess
import time
from pathlib import Path

import fit_results
import own_task
import pytest
import tiny
import tiny_labels
from processes import run_script
from stops import stopped_in_step

import compression
from common.data.readers.any_table import file_identity
from common.errors import UserError
from common.stopping import OutOfTime, check, graceful, time_limit
from common.store.workspace import one_word
from compression.evaluation.packed import load_packed
from compression.experiments.fit import fit as fit_module
from compression.experiments.fit import run as run_module
from compression.experiments.fit import search
from compression.experiments.fit.fit import fit
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.stages import FUNCTIONS
from compression.experiments.report.results import read_results


def settings(folder, rows, encoder, minutes=10.0, **changed):
    own_task.write_csv(folder / "reviews.csv", rows)
    usual = {"max_bytes": 6000, "minutes": minutes, "encoder": str(encoder), "seed": tiny.SEED}
    usual |= {"workspace": folder / "workspace", "cpu": True, "loadbar": False, "output": folder / "reviews.fwt"}
    return FitSettings(file=folder / "reviews.csv", **{**usual, **changed})


def finished_result(settings):
    """A result whose packed file is not there."""
    size = fit_results.packed(6000, packed=str(settings.workspace / "packed" / settings.experiment / "ffn-6000.fwt"))
    return fit_results.result(size, name=settings.experiment, file=str(settings.file))


@pytest.mark.slow
def test_a_file_becomes_a_packed_file(tmp_path, encoder, short_fits):
    given = settings(tmp_path, own_task.labelled_rows(300), encoder)
    result = fit(given)
    assert result.bytes == (tmp_path / "reviews.fwt").stat().st_size <= 6000
    assert result.metrics["accuracy"] > 0.8
    assert {baseline.name for baseline in result.baselines} >= {"tf-idf with a linear model"}
    assert "2 labels (verdict: thumbs down, thumbs up)" in result.task
    assert result.teacher.startswith("linear")  # the encoder's weights are random
    assert "frozen" in result.teacher
    assert result.rows["train"] + result.rows["validation"] + result.rows["test"] <= 300
    model = load_packed(tmp_path / "reviews.fwt")
    assert tuple(model.labels) == own_task.NAMES
    folder = given.paths.experiment(given.experiment)
    (row,) = read_results(folder / "results.json")
    assert row["metrics"] == result.metrics
    assert row["bytes_packed"] == result.bytes
    assert "tf-idf with a linear model: accuracy on test" in (folder / "report.md").read_text()
    assert "tf-idf with a linear model: accuracy on test" in (folder / "report.html").read_text()
    jobs = json.loads((folder / "experiment.json").read_text())["jobs"]
    assert [job["job"] for job in jobs][:3] == ["preprocess", "finetune", "preprocess"]
    assert any(job.get("alpha") == 0.5 and job.get("teacher") == "linear" for job in jobs)
    assert len({student.candidate.student for student in result.tried}) > 2


@pytest.mark.slow
def test_a_fit_that_is_out_of_time_before_its_first_student_teaches_it_something(tmp_path, encoder):
    """On a busy machine it learned for one epoch, and was worse than always the same label."""
    result = fit(settings(tmp_path, own_task.labelled_rows(300), encoder, minutes=0.01))
    assert result.teacher.startswith("none")
    assert len(result.tried) == 1
    assert result.metrics["accuracy"] > 0.8


@pytest.mark.slow
def test_a_text_may_have_several_labels(tmp_path, encoder, short_fits):
    """The commands at the end answer when pasted. A busy machine has no time for a good student."""
    tiny_labels.write_rows(tmp_path / "topics.jsonl", tiny_labels.labelled(200))
    given = settings(tmp_path, [], encoder, minutes=0.4).model_copy(update={"file": tmp_path / "topics.jsonl"})
    result = fit(given)
    assert "any number of 3 labels (label: house, praise, work)" in result.task
    assert result.metric == "f1_micro"
    assert set(result.metrics) == set(result.baselines[0].metrics) == {"f1_micro", "f1_macro", "subset_accuracy"}
    assert result.baselines[0].name == "tf-idf with a linear model"
    assert result.baselines[0].metrics["f1_micro"] > 0.9
    model = load_packed(tmp_path / "reviews.fwt")
    assert model.kind == "multilabel"
    assert tuple(model.labels) == ("house", "praise", "work")
    assert result.bytes <= 6000
    assert "f1_micro on test" in result.text()
    for command in result.commands[:2]:
        answer = subprocess.run(command, shell=True, cwd=tiny.ROOT, capture_output=True, text=True, check=True)
        assert " house 0." in answer.stdout.replace("\t", " ")


@pytest.mark.slow
def test_the_same_command_finds_everything_finished(tmp_path, short_fits, capsys):
    own_task.write_csv(tmp_path / "reviews.csv", own_task.labelled_rows(200))
    output = tmp_path / "small.fwt"
    words = ["fit", tmp_path / "reviews.csv", "--max-bytes", 4000, "--minutes", 0.3, "--output", output, "--cpu"]
    words += ["--no-loadbar", "--workspace", tmp_path / "workspace", "--json"]
    assert run_script("experiment.py", *words) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["teacher"].startswith("linear (")
    assert sum(label["rows"] for label in first["per_label"]) == first["rows"]["test"]
    assert sum(sum(answers.values()) for answers in first["confusion"].values()) == first["rows"]["test"]
    page = Path(first["report"]).read_text()
    assert "Answering only when sure" in page
    assert run_script("experiment.py", "report", first["name"], "--workspace", tmp_path / "workspace", "--json") == 0
    assert Path(first["report"]).read_text() == page
    capsys.readouterr()
    assert output.stat().st_size == first["bytes"] <= 4000
    output.unlink()
    packed = Path(first["packed"])
    content = packed.read_bytes()
    packed.unlink()
    (report := Path(first["report"])).unlink()  # as if the disk was full, or the fit was killed, before it was written
    for changed in (None, content[:-1], content[:-1] + b"?"):  # the bytes that were chosen are packed again
        if changed is not None:
            packed.write_bytes(changed)
        assert run_script("experiment.py", *words) == 0
        second = capsys.readouterr()
        assert json.loads(second.out) == first
        assert "up to date" in second.err
        assert packed.read_bytes() == output.read_bytes() == content
        assert report.exists()
    given = {"max_bytes": 4000, "minutes": 0.3, "cpu": True, "loadbar": False, "workspace": tmp_path / "workspace"}
    result = compression.fit(file=tmp_path / "reviews.csv", **given)
    assert (result.bytes, result.metrics) == (first["bytes"], first["metrics"])
    assert run_script("experiment.py", "list", "--workspace", tmp_path / "workspace") == 0
    assert "reviews-4000-0.3min" in capsys.readouterr().out
    own_task.write_csv(tmp_path / "reviews.csv", own_task.labelled_rows(220))
    assert run_script("experiment.py", *words) == 2
    assert "the file has changed since" in capsys.readouterr().err
    assert run_script("experiment.py", *words, "--force") == 0
    assert "was built with other settings" not in capsys.readouterr().err  # no candidate is lost for its name


def test_a_fit_whose_student_is_gone_begins_again(tmp_path, monkeypatch, capsys):
    given = settings(tmp_path, own_task.labelled_rows(60), "none")
    experiment, models = given.paths.experiment(given.experiment), given.workspace / "models" / given.experiment
    experiment.mkdir(parents=True)
    models.mkdir(parents=True)
    identity = file_identity(given.file)
    finished = finished_result(given)
    decisions = {"identity": identity, "trained ffn-1": {}, "packed ffn-6000": {}, "result": finished.model_dump()}
    (experiment / "fit.json").write_text(json.dumps(decisions))
    (experiment / "clock.json").write_text("600.0")
    for name in ("linear", "ffn-1", "mine"):
        (models / name).symlink_to("nowhere")
    begun = []

    def run_fit(settings, contents, folder, kept, clock):
        begun.append((kept.values, clock.before))
        return finished

    monkeypatch.setattr(run_module, "run_fit", run_fit)
    monkeypatch.setattr(fit_module, "write_output", lambda packed, output: None)
    fit(given)
    assert begun == [({"identity": identity}, 0.0)]
    assert [path.name for path in models.iterdir()] == ["mine"]
    assert "starting from the beginning" in capsys.readouterr().err


@pytest.mark.slow
def test_a_stopped_fit_goes_on_with_its_decisions_and_its_time(tmp_path, encoder, short_fits):
    given = settings(tmp_path, own_task.labelled_rows(200), encoder, minutes=4.0)
    folder = given.paths.experiment(given.experiment)
    with stopped_in_step(60):
        fit(given)
    before, used = json.loads((folder / "fit.json").read_text()), json.loads((folder / "clock.json").read_text())
    assert "result" not in before
    result = fit(given)
    after = json.loads((folder / "fit.json").read_text())
    stages = before.pop("stages")
    assert {name: after[name] for name in before} == before
    assert result.seconds > used > 0
    record = json.loads((folder / "experiment.json").read_text())
    assert record["jobs"][: len(stages["jobs"])] == stages["jobs"]
    assert result.stages["splits"] >= stages["seconds"]["splits"]


@pytest.mark.slow
def test_a_fit_stopped_before_it_recorded_a_packed_student_finds_it(tmp_path, encoder, short_fits, monkeypatch):
    """Less time is left after the stop, so that the students would be trained for fewer epochs."""
    given = settings(tmp_path, own_task.labelled_rows(200), encoder, minutes=4.0)
    validated, stopped = search.Search._validated, []

    def stop(self, name):
        if name.endswith("-packed") and not stopped:
            stopped.append(name)
            raise KeyboardInterrupt
        return validated(self, name)

    monkeypatch.setattr(search.Search, "_validated", stop)
    with pytest.raises(KeyboardInterrupt):
        fit(given)
    packed = given.paths.packed(given.experiment, stopped[0]).stat().st_mtime_ns
    result = fit(given)
    assert given.paths.packed(given.experiment, stopped[0]).stat().st_mtime_ns == packed
    assert f"packed {stopped[0]}" in json.loads((given.paths.experiment(given.experiment) / "fit.json").read_text())
    assert result.bytes <= 6000


@pytest.mark.slow
@pytest.mark.parametrize("pair", [False, True])
def test_numbers_are_a_regression(tmp_path, encoder, short_fits, pair):
    rows = [(text, str(round(len(text) / 7, 1))) for text, _ in tiny.sentences(200)]
    given = settings(tmp_path, rows, encoder, minutes=0.4)
    if pair:
        both = [(a, b, str(label + i % 30 / 30)) for i, (a, b, label) in enumerate(tiny.pairs(200))]
        own_task.write_csv(tmp_path / "reviews.csv", both, ("one", "two", "score"))
        given = given.model_copy(update={"text": ("one", "two"), "symmetric": True})
    result = fit(given)
    assert result.metric == "pearson"
    assert [baseline.name for baseline in result.baselines] == ["tf-idf with a linear model"]
    assert result.bytes <= 6000
    done = subprocess.run(result.commands[1], shell=True, cwd=tiny.ROOT, capture_output=True, text=True, check=True)
    assert abs(float(done.stdout.split("\t")[0])) < 30


@pytest.mark.slow
def test_a_dry_run_shows_file_and_students_and_leaves_nothing(tmp_path, encoder, capsys):
    whole = tiny_labels.labelled(200)
    tiny_labels.write_rows(tmp_path / "topics.jsonl", whole + [(" ".join(t.split()[1:]), names) for t, names in whole])
    words = ["fit", tmp_path / "topics.jsonl", "--minutes", 5, "--encoder", encoder, "--cpu", "--dry-run"]
    assert run_script("experiment.py", *words, "--workspace", tmp_path / "workspace") == 0
    printed = capsys.readouterr().out
    assert "any number of 3 labels" in printed
    assert (
        "Many rows are parts of longer ones: whole texts are held out, and their parts are removed from train."
        in printed
    )
    assert "n-grams" in printed
    assert not list((tmp_path / "workspace").glob("experiments/*"))


def test_a_bad_file_gives_one_line_and_exit_code_2(tmp_path, capsys):
    own_task.write_csv(tmp_path / "few.csv", own_task.labelled_rows(3))
    words = ["fit", tmp_path / "few.csv", "--minutes", 1, "--workspace", tmp_path / "workspace"]
    assert run_script("experiment.py", *words) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert "3 rows with a label; fit needs 50 or more" in error


def test_an_output_that_cannot_be_written_is_refused_at_once(tmp_path):
    own_task.write_csv(tmp_path / "reviews.csv", own_task.labelled_rows(60))
    about = {"file": tmp_path / "reviews.csv", "workspace": tmp_path / "workspace"}
    os.mkfifo(tmp_path / "pipe")
    bad = {tmp_path: "a folder", tmp_path / "none" / "x.fwt": "no folder", tmp_path / "pipe": "not a regular file"}
    bad |= {Path(): "a folder", Path("/"): "a folder"}
    bad |= {tmp_path / f"{'x' * 250}.fwt": "File name too long", Path("/proc/x.fwt"): "No such file"}
    for output, message in bad.items():
        with pytest.raises(UserError, match=f"--output .*: {message}"):
            fit(FitSettings(**about, output=output))
    with pytest.raises(UserError, match=r"--output .*reviews\.csv: fit reads this file"):
        fit(FitSettings(**about, output=tmp_path / "reviews.csv"))
    with pytest.raises(UserError, match=r"xxxx\.\.\. is not a name for an experiment: it is longer than 150 bytes"):
        fit(FitSettings(**about, name="x" * 300))
    assert not (tmp_path / "workspace").exists()


def test_a_long_name_of_a_file_gives_a_short_name_of_its_experiment():
    for letter in "xय":
        name = FitSettings(file=Path(f"{letter * 70}.csv")).experiment
        assert one_word(name, "an experiment") == f"{(letter * 70).encode()[:80].decode(errors='ignore')}-32000-15min"


@pytest.mark.slow
def test_a_side_task_that_fails_loses_nothing(tmp_path, encoder, monkeypatch, capsys):
    """Words of one sign are no words for tf-idf; there are no fonts for pictures; then the report fails."""
    signs = {"up": "\U0001f600", "down": "\U0001f620"}
    rows = [(signs[name] + " " + "\U0001f697" * (i % 9), name) for i in range(80) for name in signs]
    monkeypatch.setattr("compression.experiments.fit.baselines._fasttext", lambda *splits: 1 / 0)
    monkeypatch.setattr(
        "compression.experiments.report.draw_reliability", lambda *results: Path("no font").read_bytes()
    )
    given = settings(tmp_path, rows, encoder, minutes=0.5, max_bytes=4000)
    result = fit(given)
    assert (tmp_path / "reviews.fwt").stat().st_size == result.bytes
    absent = [baseline for baseline in result.baselines if not baseline.metrics]
    assert absent[-1].name == "fastText"
    assert absent[-1].details == "ZeroDivisionError: division by zero"
    assert "fastText: absent (ZeroDivisionError: division by zero)." in result.text()
    assert "a picture could not be made: FileNotFoundError" in capsys.readouterr().err
    assert (given.paths.experiment(given.experiment) / "report.html").exists()
    (tmp_path / "reviews.fwt").unlink()
    monkeypatch.setitem(FUNCTIONS, "evaluate", lambda settings: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fit(given.model_copy(update={"name": "again"}))
    assert load_packed(tmp_path / "reviews.fwt").labels


@pytest.mark.slow
def test_a_fit_that_reads_stops_at_once(tmp_path, encoder, monkeypatch):
    """Also in the middle of a step that lasts."""
    monkeypatch.setattr(
        "compression.experiments.fit.run.learnable", lambda *file: (os.kill(os.getpid(), 15), time.sleep(60))
    )
    given, began = settings(tmp_path, own_task.labelled_rows(120), encoder), time.monotonic()
    with graceful(), pytest.raises(KeyboardInterrupt):
        fit(given)
    assert time.monotonic() - began < 30


def test_a_size_too_small_for_any_student_is_refused_at_once(tmp_path):
    own_task.write_csv(tmp_path / "reviews.csv", own_task.labelled_rows(60))
    about = {"file": tmp_path / "reviews.csv", "workspace": tmp_path / "workspace", "minutes": 1}
    with pytest.raises(UserError, match="--max-bytes 200: too small for any student; give"):
        fit(FitSettings(**about, max_bytes=200))


def test_single_texts_have_no_order(tmp_path):
    own_task.write_csv(tmp_path / "reviews.csv", own_task.labelled_rows(60))
    about = {"file": tmp_path / "reviews.csv", "workspace": tmp_path / "workspace", "minutes": 1}
    with pytest.raises(UserError, match=r"--symmetric is for pairs of texts; .*csv has one text a row"):
        fit(FitSettings(**about, symmetric=True))


def test_work_is_stopped_by_a_time_limit_and_a_request_stays_a_request():
    with pytest.raises(OutOfTime), time_limit(0):
        check()
    with time_limit(1000):
        check()
    with pytest.raises(KeyboardInterrupt), time_limit(1000):
        raise KeyboardInterrupt
    check()
