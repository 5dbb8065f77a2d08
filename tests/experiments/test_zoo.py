"""The zoo of this repository is what its cards say, and `zoo/publish.py` adds to a zoo."""

import dataclasses
import hashlib
import json
import shlex
import statistics

import numpy as np
import pytest
import tiny
import yaml
from learned_rows import distillation_set
from shrunk import shrunk
from stages import score_of
from sweep_grid import METHODS, planned, sweep, write_grid
from sweep_grid import settings as sweep_settings

from card import ZOO, TaskNotes, read_card, read_cards
from common.config import build, load_yaml
from common.data.prepare import prepare, source_files
from common.data.readers.tables import read_source
from common.data.split import load_split, read_split, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.seeds import DEFAULT_SEED
from common.store.files import read_json
from common.store.workspace import Workspace
from compression.evaluation.models import F1_AT_THRESHOLD
from compression.evaluation.packed_scores import labelled_score, packed_logits
from compression.experiments.report.results import read_results
from compression.runtime import is_name, load
from publish import PublishSettings, main, publish
from readme import readme

CARDS = read_cards(ZOO)
MOST_BYTES = 3_000_000
SHARED = [tiny.ROOT.parent / "shared" / name for name in ("glue", "ner", "qa")]


def test_every_model_has_a_card_and_the_zoo_is_small():
    names = {path.stem for path in ZOO.glob("*.fwt")}
    assert names == {path.stem for path in ZOO.glob("*.json")} == {card.name for card in CARDS}
    assert all(map(is_name, names))
    files = [path for path in ZOO.iterdir() if path.is_file() and path.suffix != ".py"]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


def test_the_page_is_current():
    assert (ZOO / "README.md").read_text(encoding="utf-8") == readme(CARDS)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_a_card_describes_its_file(card):
    data = (ZOO / f"{card.name}.fwt").read_bytes()
    assert (card.bytes, card.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    model, task = load(card.name), load_task(card.task)
    assert (model.name, model.task, model.labels) == (card.name, task.models_task, card.labels)
    assert card.range == task.range
    assert card.notes == build(TaskNotes, load_yaml(ZOO / "tasks.yaml")[card.task.replace("-", "_")])
    kinds = {"tags": "words", "answers": "answers"}
    assert card.kind == kinds.get(model.kind, "pairs" if model.pair else "texts")
    assert set(card.test) == set(task.test_splits)
    metrics = (*task.all_metrics, *([] if model.threshold is None else [F1_AT_THRESHOLD]))
    assert all(tuple(scores.metrics) == metrics for scores in card.test.values())


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_the_command_of_a_card_can_be_pasted(card):
    python, script, word, file, *rest = shlex.split(card.command)
    assert (python, script, word) == ("python", "experiment.py", "sweep")
    assert set(rest[::2]) <= {"--set"}
    assert planned(tiny.ROOT / file, rest[1::2]).cells


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_a_card_has_the_scores_of_its_file(card, tmp_path):
    task, workspace = load_task(card.task), Workspace(tmp_path)
    folder = next((path for path in SHARED if (path / task.source.folder).is_dir()), None)
    if folder is None:
        pytest.skip(f"no copy of {task.source.folder} next to the repository")
    if task.test:  # drawn from the file of train
        prepare(workspace, task, None, DEFAULT_SEED)
    files = {} if task.test else source_files(task.source, folder, workspace)
    for name, scores in card.test.items():
        split = load_split(workspace, task, name) if task.test else read_source(files[name], task, labelled=True)
        if split.fingerprint() != scores.data:
            pytest.skip(f"{name} of {card.task} has other rows than the card's")
        assert len(split) == scores.rows
        model = load(card.name)
        found = labelled_score(task, split, packed_logits(model, split), model.temperature, model.threshold)
        assert found == pytest.approx(scores.metrics)  # matrix products differ in their last bits between processors


def test_a_teacher_that_was_imported_without_answers_for_test_has_no_score():
    (card,) = (card for card in CARDS if card.name == "qqp-12k")
    assert (card.teacher.name, card.teacher.metrics) == ("minilm-all", {})
    assert _line(card).endswith("| minilm-all in 90.9 MB |")
    of_unknown_size = card.teacher.model_copy(update={"bytes": None})
    assert _line(card.model_copy(update={"teacher": of_unknown_size})).endswith("| minilm-all |")


def _line(card):
    return next(line for line in readme([card]).splitlines() if line.startswith(f"| `{card.name}`"))


@pytest.fixture
def zoo(tmp_path):
    """An empty zoo with notes on sst-2."""
    notes = {
        "title": "Films",
        "question": "Good?",
        "data": "tiny",
        "source": "here",
        "licence": "none",
        "use": "tests",
        "limits": ["tests"],
    }
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "tasks.yaml").write_text(yaml.safe_dump({"sst-2": notes}))
    return tmp_path / "zoo"


@pytest.fixture(scope="module")
def packed(swept, tmp_path_factory):
    """A copy of the swept workspace, its students packed."""
    workspace = tiny.copy_workspace(swept[0], tmp_path_factory.mktemp("packed") / "workspace")
    for row in read_results(workspace / "experiments/g/results.json"):
        shrunk(workspace, "pack", row["model"])
    return workspace


@pytest.fixture(scope="module")
def workspace(packed, tmp_path_factory):
    """The same, and the teacher was scored too."""
    workspace = tiny.copy_workspace(packed, tmp_path_factory.mktemp("scored") / "workspace")
    score_of(workspace, "tiny-bert")
    return workspace


def settings(workspace, zoo, **given):
    return build(PublishSettings, {"workspace": workspace, "zoo": zoo, "name": "tiny-1k", **given})


def test_a_model_of_a_sweep_is_published(workspace, zoo, monkeypatch, capsys):
    words = ["--name", "tiny-1k", "--model", "6, teacher", "--zoo", zoo, "--workspace", workspace]
    monkeypatch.setattr("sys.argv", ["publish.py", "g", *map(str, words)])
    main()
    path = zoo / "tiny-1k.fwt"
    assert capsys.readouterr().out == f"published: {path}, {path.stat().st_size:,} bytes\n"
    card, model = read_card(zoo / "tiny-1k.json"), load(path)
    rows = [row for row in read_results(workspace / "experiments/g/results.json") if row["alpha"] == 0]
    best = max(rows, key=lambda row: row["validation"]["accuracy"])
    own = load(workspace / f"packed/sst-2/{best['model']}.fwt")
    texts = ["a wonderful film"]
    assert model.probabilities(texts).tolist() == own.probabilities(texts).tolist()
    scores = [row["metrics"]["accuracy"] for row in rows]
    assert (model.name, card.name, card.task, card.seed) == ("tiny-1k", "tiny-1k", "sst-2", best["seed"])
    assert card.test["test"].metrics == pytest.approx(best["metrics"])
    assert card.test["test"].data == best["data"]
    assert card.family.seeds == (1, 2)
    assert card.family.metrics["accuracy"].mean == pytest.approx(statistics.fmean(scores))
    assert card.family.metrics["accuracy"].sd == pytest.approx(statistics.stdev(scores))
    assert card.teacher.name == best["teacher"] == "tiny-bert"
    assert card.training.augmented_rows > card.training.rows
    assert card.training.augmentation["variants"] == 2
    assert card.notes.limits == ("tests",)
    assert card.command == "python experiment.py sweep g.yaml"
    assert (zoo / "README.md").read_text() == readme([card])
    assert "| `tiny-1k` |" in readme([card])
    assert str(workspace.parent) not in (zoo / "tiny-1k.json").read_text()


@pytest.mark.parametrize("method", METHODS)
def test_a_card_counts_the_rows_that_the_student_learned_from(prepared, zoo, tmp_path, method):
    workspace = tiny.copy_workspace(prepared, tmp_path / "workspace")
    train = workspace / "data/sst-2/splits/train.parquet"
    split = read_split(train)
    write_split(train, dataclasses.replace(split, labels=np.where(np.arange(len(split)) < 9, -1, split.labels)), {})
    few = {"bootstrap_data_ratio": 0.75, "min_confidence": 0.6} if method == "teacher" else {}
    given = {**METHODS[method], **few, "downsample_data": 0.5}
    sweep(write_grid(tmp_path, settings=given, axes={"embedding_dim": [6]}, seeds=[1]), sweep_settings(workspace))
    (row,) = read_results(workspace / "experiments/g/results.json")
    shrunk(workspace, "pack", row["model"])
    score_of(workspace, "tiny-bert")
    publish(settings(workspace, zoo), "g")
    training = read_card(zoo / "tiny-1k.json").training
    asked = tiny.compress_settings(task="sst-2", workspace=workspace, seed=1, **given)
    learned = len(distillation_set(asked, load_task("sst-2")).split)
    own = round(len(split) / 2)
    counts = {"teacher": (own, learned - own), "labels": (learned, None)}
    assert (training.rows, training.augmented_rows) == counts[method]


def test_one_model_is_published_by_its_name(workspace, zoo):
    rows = read_results(workspace / "experiments/g/results.json")
    worst = min((row for row in rows if row["alpha"] == 1), key=lambda row: row["validation"]["accuracy"])
    publish(settings(workspace, zoo, model=worst["model"]), "g")
    card = read_card(zoo / "tiny-1k.json")
    assert (card.seed, card.teacher, card.training.augmented_rows) == (worst["seed"], None, None)
    first = {path.name: path.read_bytes() for path in zoo.iterdir()}
    publish(settings(workspace, zoo, model=worst["model"]), "g")
    assert {path.name: path.read_bytes() for path in zoo.iterdir()} == first


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "../tiny"}, r"--name \.\./tiny: a name has only letters, digits, points and hyphens"),
        ({}, "--model: the experiment's students of sst-2 are 6, labels; 6, teacher"),
        ({"model": "6, teachers"}, "6, labels; 6, teacher; did you mean 6, teacher?"),
        ({"model": "6, teacher", "task": "sst"}, "--task: the experiment has models of sst-2; did you mean sst-2?"),
    ],
)
def test_what_cannot_be_published_is_refused(workspace, zoo, given, words):
    with pytest.raises(UserError, match=words):
        publish(settings(workspace, zoo, **given), "g")
    assert [path.name for path in zoo.iterdir()] == ["tasks.yaml"]


def test_a_task_without_notes_is_refused(workspace, zoo):
    (zoo / "tasks.yaml").write_text("{}")
    with pytest.raises(UserError, match=r"tasks\.yaml: has no notes on sst-2 \(title, question, data"):
        publish(settings(workspace, zoo, model="6, teacher"), "g")


def test_a_teacher_without_scores_is_named(packed, zoo):
    command = "python evaluate.py --task sst-2 --model-name tiny-bert"
    with pytest.raises(UserError, match=f"there are no scores of its teacher; run: {command}"):
        publish(settings(packed, zoo, model="6, teacher"), "g")


def test_a_model_that_is_not_packed_is_refused(swept, zoo):
    command = "python compress.py --task sst-2 --compression-actions pack --load-trained-model ffn-hash6"
    with pytest.raises(UserError, match=rf"\.fwt: no such file; run: {command}"):
        publish(settings(swept[0], zoo, model="6, teacher"), "g")


def test_a_malformed_card_is_refused(tmp_path):
    card = read_json(ZOO / f"{CARDS[0].name}.json")
    (tmp_path / "x.json").write_text(json.dumps({**card, "bytes": "many"}))
    with pytest.raises(UserError, match=r"x\.json: not a card of the zoo: bytes: "):
        read_cards(tmp_path)
