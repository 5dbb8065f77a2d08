"""Counterfactual probes: the same answers from the same texts, differences where groups differ, and wrong files."""

import json

import numpy as np
import pytest
import tiny
import yaml
from processes import run_script

from common.config import CONFIG_DIR
from common.data.tasks import load_task
from common.errors import UserError
from compression.evaluation.probe import probe, probe_text, read_probe
from compression.evaluation.settings import EvaluateSettings
from compression.runtime import load

TEMPLATES = ["{name} is great .", "a film by {name} ."]
GROUPS = {"a": {"name": ["ann", "eve"]}, "b": {"name": ["bob", "tim"]}}


def write(folder, templates=TEMPLATES, groups=GROUPS):
    path = folder / "probe.yaml"
    path.write_text(yaml.safe_dump({"templates": templates, "groups": groups}, sort_keys=False))
    return path


def probed(path, task="sst-2", model="sst-2-12k", **given):
    return probe(EvaluateSettings(task=task, model_name=model, probe=path, **given))


def test_differences_are_those_of_the_models_probabilities(tmp_path):
    (found,) = probed(write(tmp_path))
    texts = {group: [t.format(name=name) for t in TEMPLATES for name in GROUPS[group]["name"]] for group in "ab"}
    model = load(tiny.ROOT / "zoo" / "sst-2-12k.fwt")
    first, second = (model.probabilities(texts[group]) for group in "ab")
    by_template = (first - second).reshape(2, 2, 2).mean(1)
    mean, error = found["differences"]["positive"]
    assert mean == pytest.approx(by_template[:, 1].mean(), abs=1e-6)
    assert error == pytest.approx(by_template[:, 1].std(ddof=1) / np.sqrt(2), abs=1e-6)
    assert found["differences"]["negative"][0] == pytest.approx(-mean, abs=1e-6)
    assert found["changed"] == np.mean(first.argmax(1) != second.argmax(1))
    assert (found["groups"], found["texts"]) == (["a", "b"], 4)
    row = np.abs(first - second).max(1).argmax()
    assert found["largest"]["texts"] == [(texts["a"][row],), (texts["b"][row],)]
    assert abs(found["largest"]["difference"]) == pytest.approx(np.abs(first - second).max(), abs=1e-6)


@pytest.mark.parametrize("model", ["sst-2-9k", "sst-2-12k", "sst-2-32k", "sst-2-100k"])
def test_of_two_labels_the_differences_of_the_second_are_told(tmp_path, model):
    (found,) = probed(write(tmp_path), model=model)
    assert found["largest"]["label"] == "positive"


def test_equal_words_have_equal_answers_and_groups_are_compared_in_twos(tmp_path):
    groups = {"a": GROUPS["a"], "b": GROUPS["b"], "as a": GROUPS["a"]}
    found = {tuple(row["groups"]): row for row in probed(write(tmp_path, groups=groups))}
    assert list(found) == [("a", "b"), ("a", "as a"), ("b", "as a")]
    assert found["a", "as a"]["changed"] == 0
    assert found["a", "as a"]["differences"]["positive"] == (0, 0)
    assert found["b", "as a"]["differences"]["positive"][0] == -found["a", "b"]["differences"]["positive"][0]


def test_pairs_have_two_templates(tmp_path):
    path = write(tmp_path, templates=[["who is {name} ?", "where does {name} live ?"]])
    (found,) = probed(path, "qqp", "qqp-400k")
    assert found["differences"]["duplicate"][1] is None  # one template has no deviation
    assert all(len(texts) == 2 for texts in found["largest"]["texts"])
    with pytest.raises(UserError, match="sst-2 reads single texts, not"):
        probed(path)
    with pytest.raises(UserError, match=r"qqp reads pairs, not '{name} is great .'"):
        probed(write(tmp_path), "qqp", "qqp-400k")


def test_scores_differ_as_those_that_predict_prints(tmp_path):
    templates, groups = [["{who} sits .", "a man sits ."]], {"a": {"who": ["a man"]}, "b": {"who": ["no dog"]}}
    (found,) = probed(write(tmp_path, templates, groups), "sts-b", "sts-b-400k")
    one, other = load(tiny.ROOT / "zoo" / "sts-b-400k.fwt").predict(
        [("a man sits .", "a man sits ."), ("no dog sits .", "a man sits .")]
    )
    assert found["differences"]["score"][0] == pytest.approx(5 * (one - other), abs=1e-5)  # scores are from 0 to 5


def test_filled_templates_are_normalized(tmp_path):
    plain, spaced = (probed(write(tmp_path, [text])) for text in ("{name} is great .", "  {name}  is great .\n"))
    assert plain[0]["differences"] == spaced[0]["differences"]


def test_another_architecture_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"sst-2-12k\.fwt: a bilstm, not a transformer"):
        probed(write(tmp_path), arch="transformer")


@pytest.mark.slow
def test_a_teacher_is_probed_as_its_student_is(workspace, tmp_path, capsys):
    words = ["--task", "sst-2", "--model-name", "tiny-bert", "--workspace", workspace, "--cpu", "--no-loadbar"]
    assert run_script("evaluate.py", *words, "--probe", write(tmp_path), "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["texts"] == 4
    assert run_script("evaluate.py", *words, "--probe", write(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("tiny-bert on sst-2: a against b, 4 pairs of texts\n")
    assert "  positive: " in printed
    assert "  negative: " not in printed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"templates": ["nothing to fill ."]}, "must contain a slot of the groups: name"),
        ({"templates": ["{nam} is great ."]}, "must contain a slot of the groups: name"),
        ({"groups": {"a": {"name": ["ann"]}}}, "groups"),
        ({"groups": {"a": {"name": ["ann"]}, "b": {"name": ["bob", "tim"]}}}, "b has other slots than a, or another"),
        (
            {"groups": {"a": {"name": ["ann"], "x": []}, "b": {"name": ["bob"], "x": []}}},
            "must have the same number of words",
        ),
        ({"groups": {"a": {}, "b": {}}}, "must have the same number of words"),
    ],
)
def test_a_file_that_is_no_probe_is_refused(tmp_path, change, message):
    path = write(tmp_path, **change)
    with pytest.raises(UserError, match=message) as error:
        probed(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_tasks_without_one_label_a_text_are_refused(tmp_path):
    for task in ("ncbi-disease", "squad"):
        with pytest.raises(UserError, match=f"one label or number per text, which {task} is not"):
            probed(write(tmp_path), task)


@pytest.mark.parametrize("path", sorted((CONFIG_DIR / "probes").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_probes_are_of_reviews(path):
    found = read_probe(path, load_task("sst-2"))
    texts = [found.texts(group) for group in found.groups]
    assert len({len(each) for each in texts}) == 1
    assert not set(texts[0]) & set(texts[1])
    assert probe_text(probed(path)).count("pairs of texts") == len(texts) * (len(texts) - 1) // 2
