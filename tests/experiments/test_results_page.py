"""Archives of finished experiments, and the page that is made of them: the committed one, and small ones made here."""

import json
import shutil
from pathlib import Path

import pivot_rows
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from common.errors import UserError
from common.store.files import read_json, write_json
from compression.experiments.archive import ArchiveSettings, archive, made_from
from compression.experiments.chain import plan_file
from compression.experiments.jobs import told
from compression.experiments.report.archived import Archived, portable, read_finished
from compression.experiments.report.merged import merged
from compression.experiments.report.points import PACKED, panels, skyline
from compression.experiments.report.record import ExperimentRecord, RecordedRun, read_record, write_record
from compression.experiments.report.results import read_results, write_results
from compression.experiments.report.results_page import TEMPLATE, Page, write_page
from compression.experiments.report.size_table import size_table

RESULTS = tiny.ROOT / "docs" / "results"
ARCHIVES = [path.parent for path in sorted(RESULTS.glob("*/experiment.json"))]


def description(path: Path) -> str:
    with Image.open(path) as image:
        return image.text["Description"]


# The committed page.


def test_the_committed_page_is_what_its_runs_give(tmp_path):
    copied = shutil.copytree(RESULTS, tmp_path / "results", ignore=shutil.ignore_patterns("*.png"))
    page, *pictures = write_page(copied)
    assert page == tmp_path / "results.md"
    assert page.read_bytes() == (tiny.ROOT / "docs" / "results.md").read_bytes()
    # Pictures by what they say they show: other versions of a font draw other pixels.
    assert {path.name for path in pictures} == {path.name for path in RESULTS.glob("*.png")}
    assert [description(path) for path in pictures] == [description(RESULTS / path.name) for path in pictures]


@pytest.mark.parametrize("folder", ARCHIVES, ids=lambda folder: folder.name)
def test_committed_archives_are_whole_and_of_no_machine(folder):
    one = read_finished(folder)
    told_of = one.record.model_dump(mode="json")
    assert portable(told_of, Path("/nowhere")) == told_of
    assert [portable(row, Path("/nowhere")) for row in one.rows] == list(one.rows)
    source = one.record.definition.split()[0]
    assert not source.endswith(".yaml") or (folder / source).is_file()


# Archiving.


@pytest.fixture
def experiment(swept, tmp_path):
    """A copy of the sweep's experiment alone, in a workspace of a test's own."""
    folder = tmp_path / "workspace" / "experiments" / "g"
    folder.mkdir(parents=True)
    for name in ("experiment.json", "results.json"):
        shutil.copyfile(swept[0] / "experiments" / "g" / name, folder / name)
    return folder


def settings(experiment: Path, file: Path | None) -> ArchiveSettings:
    return ArchiveSettings(workspace=experiment.parent.parent, to=experiment.parent.parent / "archive", file=file)


def test_a_finished_sweep_is_archived_without_its_machine(swept, tmp_path):
    workspace, grid = swept
    done = tiny.run_command("experiment.py", "archive", "g", "--workspace", workspace, "--to", tmp_path, "--file", grid)
    assert (done.returncode, done.stdout) == (0, f"archived: {tmp_path / 'g'}\n")
    assert sorted(path.name for path in (tmp_path / "g").iterdir()) == ["experiment.json", "g.yaml", "results.json"]
    assert (tmp_path / "g" / "g.yaml").read_bytes() == grid.read_bytes()
    before, after = read_finished(workspace / "experiments" / "g"), read_finished(tmp_path / "g")
    assert after.record == before.record
    assert [row["run"] for row in after.rows] == [f"models/sst-2/{row['model']}" for row in before.rows]
    kept = [{name: row[name] for name in row if name not in ("run", "checksum")} for row in after.rows]
    assert kept == [{name: row[name] for name in row if name not in ("run", "checksum")} for row in before.rows]
    for path in (tmp_path / "g").iterdir():
        assert str(workspace.parent) not in path.read_text()


def test_what_is_unfinished_or_changed_is_not_archived(experiment, swept):
    wanted = settings(experiment, swept[1])
    rows, record = read_results(experiment / "results.json"), read_record(experiment)

    def refused(words: str) -> None:
        with pytest.raises(UserError, match=words):
            archive(wanted, ["g"])
        assert not wanted.to.exists()

    write_results(experiment / "results.json", rows[1:])
    refused("1 of 4 runs have no rows")
    (experiment / "results.json").unlink()
    refused("unfinished")
    write_json(experiment / "results.json", [{**row, "metrics": {"accuracy": 1.0}} for row in rows])
    refused("was changed after it was written")
    write_results(experiment / "results.json", rows)
    write_record(experiment, record.model_copy(update={"runs": record.runs[1:]}))
    refused("no longer its own")
    first = record.runs[0].model_copy(update={"settings": {**record.runs[0].settings, "epochs": 1}})
    write_record(experiment, record.model_copy(update={"runs": (first, *record.runs[1:])}))
    refused("was not made from")
    write_record(experiment, record)
    wanted = settings(experiment, None)
    refused("no g.yaml below")


def test_of_several_experiments_all_are_archived_or_none(experiment, swept):
    wanted = settings(experiment, swept[1])
    with pytest.raises(UserError, match="no experiment 'h'"):
        archive(wanted, ["g", "h"])
    assert not wanted.to.exists()
    archive(wanted, ["g"])
    assert archive(wanted, ["g"]) == [wanted.to / "g"]


def chain(folder: Path, definition: str, *flags: str) -> tuple[ExperimentRecord, Path]:
    """The record of a chain, and its file."""
    path = folder / "c.yaml"
    path.write_text(
        "name: c\nsettings: {task: sst-2}\njobs: [{preprocess: {}}, {compress: {epochs: 3}}, {evaluate: {}}]"
    )
    jobs = tuple({"job": job.kind, **told(job.given)} for job in plan_file(path, flags).jobs)
    return ExperimentRecord(name="c", title="c", kind="chain", definition=definition, jobs=jobs), path


def test_a_chain_was_made_from_its_file_and_flags(tmp_path):
    words = ["--alpha", "0.50", "--only-original-data", "--generate-loss", "processed", "tinybert", "--no-loadbar"]
    given = "c.yaml alpha=0.50 generate_loss=['processed', 'tinybert'] only_original_data=True"
    record, path = chain(tmp_path, given, *words)
    assert made_from(record, path) == [path]
    with pytest.raises(UserError, match="was not made from"):
        made_from(record.model_copy(update={"definition": "c.yaml alpha=0.50"}), path)
    assert made_from(record.model_copy(update={"definition": "preprocess compress alpha=1"})) == []


@pytest.mark.parametrize(("status", "archived"), [("COMPLETED", True), ("RUNNING", False), ("INTERRUPTED", False)])
def test_a_chain_whose_last_run_did_not_end_is_unfinished(tmp_path, status, archived):
    record, _ = chain(tmp_path, "preprocess compress evaluate")
    folder = tmp_path / "experiments" / "c"
    write_record(folder, record)
    write_results(folder / "results.json", [pivot_rows.row(None, 1, {"accuracy": 0.5})])
    write_json(folder / "tuning.json", {"host": "vm", "file": f"{tmp_path}/models/x.ftz"})
    for number, ended in (("9", "FAILED"), ("10", status)):
        write_json(folder / "sacred" / number / "run.json", {"status": ended})
    if archived:
        (made,) = archive(ArchiveSettings(workspace=tmp_path, to=tmp_path / "to"), ["c"])
        assert len(read_finished(made).rows) == 1
        assert read_json(made / "tuning.json") == {"file": "models/x.ftz"}
    else:
        with pytest.raises(UserError, match=f"last run is {status.lower()}"):
            read_finished(folder)


def test_paths_and_names_of_a_machine_go():
    before = {
        "definition": "packed.yaml data_dir=/data/of/me/glue table=~/x/y.csv lr=1/3",
        "data_dir": "glue/mine",
        "workspace": "/ws/runs/8",
        "run": "/elsewhere/workspace/models/sst-2/a+q",
        "given": [{"arch": "/home/me/roberta"}, {"task": "configs/tasks/x.yaml"}, {"task": "../own data/x.yaml"}],
        "bpe_model": "C:\\me\\bpe.model",
        "host": "vm",
        "seconds": {"train": 1.5, "started": "2026-11-21T22:53:28"},
        "labels": ["n/a", "* 1 point", 3, None],
    }
    assert portable(before, Path("/ws")) == {
        "definition": "packed.yaml data_dir=glue table=y.csv lr=1/3",
        "data_dir": "mine",
        "workspace": "runs/8",
        "run": "models/sst-2/a+q",
        "given": [{"arch": "roberta"}, {"task": "configs/tasks/x.yaml"}, {"task": "x.yaml"}],
        "bpe_model": "bpe.model",
        "seconds": {"train": 1.5},
        "labels": ["n/a", "* 1 point", 3, None],
    }


TEXTS = st.text(alphabet="ab /~.=\\:,'", max_size=12)
NAMES = st.sampled_from(["run", "data_dir", "task", "other"])
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(), lambda v: st.lists(v) | st.dictionaries(NAMES, v), max_leaves=6
)


@given(VALUES)
def test_what_is_portable_stays_as_it_is_and_has_no_path_from_a_root(value):
    once = portable(value, Path("/ab"))
    assert portable(once, Path("/ab")) == once
    assert not any(text.startswith("/") or " /" in text or "=/" in text for text in leaves(once))


def leaves(value) -> list[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value] if isinstance(value, str) else [text for one in inner for text in leaves(one)]


# Tables of several experiments.


def grid(name: str, cells: dict[str, dict], seeds=(1, 2, 3)) -> Archived:
    """A sweep along one axis: label -> fields of its rows, with a score that grows with the seed."""
    runs, rows = [], []
    for label, own in cells.items():
        for seed in seeds:
            runs.append(RecordedRun(id=f"{label}{seed}", cell={"size": label}, seed=seed, settings={}))
            score = own["score"] + seed / 100
            fields = {"model": f"ffn-{label}-s{seed}+q", "stage": "quantized", "bytes_packed": own["bytes"] + seed}
            fields |= {"run_id": f"{label}{seed}", "parameters": 5000, **own.get("more", {})}
            rows.append(pivot_rows.row({"size": label}, seed, {"accuracy": score}, **fields))
            rows.append({**rows[-1], "model": f"ffn-{label}-s{seed}", "stage": "distilled", "bytes_packed": 10**6})
    record = ExperimentRecord(name=name, title=name, kind="sweep", definition=name, runs=tuple(runs))
    return Archived(record, (pivot_rows.teacher({"accuracy": 0.9}), *rows))


def fasttext() -> Archived:
    own = {"stage": "peer", "bytes_packed": 31_000, "parameters": None, "teacher": None, "alpha": None}
    rows = [pivot_rows.row(None, seed, {"accuracy": 0.82}, model=f"fasttext-small-s{seed}", **own) for seed in (1, 2)]
    record = ExperimentRecord(name="peers", title="peers", kind="chain", definition="peers")
    return Archived(record, (*rows, pivot_rows.teacher({"accuracy": 0.9})))


SMALL = {"12k": {"score": 0.79, "bytes": 11_997}, "32k": {"score": 0.79, "bytes": 31_998}}


def test_a_table_by_size_tells_teachers_ours_peers_and_the_thesis_apart():
    targets = {"12 KB": {"accuracy": 0.81}, "32 KB": {"accuracy": 0.82}, "400 KB": {"accuracy": 0.885}}
    table = size_table(merged([grid("s", SMALL), fasttext()], "sst-2"), targets, quotes=["FFN-Hash25*+q", "TinyBERT-6"])
    assert table.splitlines() == [
        "| Size class | Model | Packed file | Parameters | Accuracy, % | Target |",
        "|---|---|---:|---:|---:|---|",
        "| teachers | minilm | 90 MB, weights | 22,000,000 | 90.00 (1) |  |",
        "|  | RoBERTa-large (quoted) | 1.43 GB, weights | 360,000,000 | 96.56 |  |",
        "| 12 KB | 12k | 12 KB | 5,000 | 81.00 ± 1.00 (3) | ≥ 81.00: reached |",
        # A seed is one byte larger than 32 KB: the family does not fit.
        "| 32 KB | fasttext-small | 31 KB | – | 82.00 ± 0.00 (2) |  |",
        "|  | FFN-Hash25\\*+q (quoted) | 27 KB, weights | – | 79.99 |  |",
        "|  | – | – | – | – | ≥ 82.00 |",
        "| 100 KB | 32k | 32 KB | 5,000 | 81.00 ± 1.00 (3) |  |",
        "| 400 KB | – | – | – | – | ≥ 88.50 |",
        "| larger | TinyBERT-6 (quoted) | 268 MB, weights | 67,000,000 | 93.00 |  |",
    ]


def test_a_target_that_is_missed_says_by_how_much_for_each_metric():
    one = grid("s", {"400k": {"score": 0.84, "bytes": 300_000}}, seeds=(1,))
    rows = tuple({**row, "task": "qqp", "metrics": {**row["metrics"], "f1": 0.80}} for row in one.rows)
    group = merged([Archived(one.record, rows)], "qqp")
    table = size_table(group, {"400 KB": {"accuracy": 0.85, "f1": 0.82}})
    assert "| 85.00 (1) | 80.00 (1) | accuracy ≥ 85.00: reached; f1 ≥ 82.00: missed by 2.00 |" in table


def test_of_a_chain_of_actions_the_last_model_stands_for_all():
    group = merged([grid("s", SMALL)], "sst-2")
    assert [family.name for family in group.families] == ["minilm", "12k", "32k"]
    assert all(row["model"].endswith("+q") for family in group.families[1:] for row in family.rows)


def test_one_cell_with_several_outcomes_tells_them_by_what_was_done():
    one = grid("s", {"12k": SMALL["12k"]}, seeds=(1,))
    more = tuple({**row, "model": "ffn-12k-s1+p", "stage": "pruned"} for row in one.rows[1:2])
    names = [family.name for family in merged([Archived(one.record, (*one.rows, *more))], "sst-2").families]
    assert names == ["minilm", "12k +q", "12k +p"]


def test_scores_of_several_test_splits_are_means_and_a_model_without_one_is_left_out():
    rows = [
        pivot_rows.row(None, seed, {"accuracy": score}, task="mnli", split=split, bytes_packed=9_000)
        for seed, split, score in ((1, "test_matched", 0.6), (1, "test_mismatched", 0.7), (2, "test_matched", 0.9))
    ]
    record = ExperimentRecord(name="m", title="m", kind="chain", definition="m")
    table = size_table(merged([Archived(record, tuple(rows))], "mnli"))
    assert "Accuracy, % (m+mm)/2" in table
    assert "| 65.00 (1) |" in table


def test_peers_are_drawn_by_packed_size_and_are_not_on_our_skyline():
    (panel,) = panels([merged([grid("s", SMALL), fasttext()], "sst-2")], size=PACKED)
    assert [(point.label, point.size) for point in panel.peers] == [("fasttext-small", 31_000)]
    assert [(point.label, point.kind) for point in skyline(panel.found)] == [("12k", "student"), ("minilm", "teacher")]
    assert panel.found[-1].about.splitlines()[-1] == "90 MB of weights"
    assert panel.found[0].about.splitlines()[-1] == "12 KB packed, 7,501 times smaller than minilm"


# Templates.


@pytest.fixture
def folder(tmp_path):
    """A folder of two archived experiments."""
    folder = tmp_path / "results"
    for one in (grid("s", SMALL), fasttext()):
        write_record(folder / one.record.name, one.record)
        write_results(folder / one.record.name / "results.json", one.rows)
    return folder


def test_a_page_of_prose_tables_and_pictures(folder):
    calls = '{{ by_size("s", "peers", task="sst-2") }}\n\n{{ families("peers", task="sst-2") }}\n\n'
    (folder / TEMPLATE).write_text(f'# Prose\n\n{calls}{{{{ skyline("s", "peers", task="sst-2", picture="sky") }}}}\n')
    paths = [folder.parent / "results.md", folder / "sky.png"]
    assert write_page(folder) == paths
    before = [path.read_bytes() for path in paths]
    done = tiny.run_command("experiment.py", "report", folder, "--json")
    assert json.loads(done.stdout) == list(map(str, paths))
    assert [path.read_bytes() for path in paths] == before
    page = (folder.parent / "results.md").read_text()
    assert page.startswith("# Prose\n\n| Size class |")
    assert page.endswith("\n\n![Scores on sst-2 against sizes](results/sky.png)\n")
    assert "| fasttext-small |" in page
    assert "fasttext-small 82.00 in 31 KB" in description(folder / "sky.png")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ('\n\n{{ tabel("s") }}', "line 3: 'tabel' is undefined"),
        ('{{ by_size("nope", task="sst-2") }}', "line 1: no experiment 'nope'"),
        ('{{ by_size("../s", task="sst-2") }}', "no name of a folder"),
        ('{{ by_size("s", task="cola") }}', "no model of cola"),
        ('{{ by_size("s", tsk="sst-2") }}', "by_size: task: Missing|by_size: tsk: Unexpected"),
        ('{{ by_size("s", task="sst-2", targets={"12KB": {"accuracy": 0.8}}) }}', "did you mean 12 KB"),
        ('{{ by_size("s", task="sst-2", targets={"12 KB": {"accuracy": 80}}) }}', "less than or equal to 1"),
        ('{{ by_size("s", task="sst-2", targets={"12 KB": {"f1": 0.8}}) }}', "no metric 'f1'"),
        ('{{ by_size("s", task="sst-2", quotes=["FFN-Hash26"]) }}', "did you mean FFN-Hash25"),
        ('{{ table("s") }}', "s has 0 tables"),
        ('{{ skyline("s", task="sst-2", picture="../x") }}', "no name of a picture"),
        ("\n{% for x in [1] %}{% endfor %}", "line 2: a template has prose and calls"),
        ("{{ table }}", "prose and calls"),
        ("{{ 1 + 1 }}", "prose and calls"),
        ('{{ table("s".upper()) }}', "prose and calls"),
        ('{{ table.__globals__("s") }}', "prose and calls"),
        ('{% include "x" %}', "prose and calls"),
        ("\n{{ table( }}", "line 2: unexpected"),
    ],
)
def test_what_is_wrong_in_a_template_is_said_with_its_line_and_nothing_is_written(folder, template, words):
    (folder / TEMPLATE).write_text('{{ skyline("s", task="sst-2", picture="sky") }}' + template)
    with pytest.raises(UserError, match=words):
        write_page(folder)
    assert not (folder / "sky.png").exists()
    assert not (folder.parent / "results.md").exists()


def test_edited_rows_make_no_page(folder):
    rows = read_results(folder / "s" / "results.json")
    write_json(folder / "s" / "results.json", [{**rows[0], "metrics": {"accuracy": 0.99}}, *rows[1:]])
    with pytest.raises(UserError, match="was changed after it was written"):
        Page(folder).render('{{ by_size("s", task="sst-2") }}')


def test_what_the_test_split_chose_is_marked(folder):
    chosen = grid("t", {"12k": {**SMALL["12k"], "more": {"select_on": "test"}}})
    write_record(folder / "t", chosen.record)
    write_results(folder / "t" / "results.json", chosen.rows)
    page = Page(folder).render('{{ by_size("t", task="sst-2") }}')
    assert "| 12k † |" in page
    assert "The test split itself chose these weights" in page


def test_a_folder_without_a_template_is_refused(folder):
    done = tiny.run_command("experiment.py", "report", folder)
    assert (done.returncode, done.stderr) == (2, f"error: {folder}: no {TEMPLATE} in it\n")
