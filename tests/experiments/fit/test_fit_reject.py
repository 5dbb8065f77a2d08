"""`fit --reject`: packed files that give some texts no label, and what the result says of them."""

import json
from pathlib import Path

import own_task
import pytest
import tiny_labels
from processes import run_script

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from compression.experiments.fit.contents.read import read_contents
from compression.experiments.fit.settings import FitSettings
from compression.runtime import load


def test_other_kinds_are_refused_at_once(tmp_path):
    own_task.write_csv(tmp_path / "numbers.csv", [(f"some words here {i}", f"{i / 8}") for i in range(60)])
    tiny_labels.write_rows(tmp_path / "several.jsonl", tiny_labels.labelled(60))
    (tmp_path / "tags.conll").write_text("word O\nJoan B-PER\n\n" * 60)
    for name, kind in {
        "numbers.csv": "of kind numbers",
        "several.jsonl": "of kind multilabel",
        "tags.conll": "tags",
    }.items():
        with pytest.raises(UserError, match=rf"^--reject is for .*{name} (is|has) {kind}$"):
            read_contents(FitSettings(file=tmp_path / name, reject=0.9))


@pytest.mark.slow
def test_the_result_says_what_is_answered(tmp_path, short_fits, capsys):
    """A fifth of the labels is wrong, so that not every answer can be right."""
    rows = own_task.labelled_rows(400)
    others = dict(zip(own_task.NAMES, own_task.NAMES[::-1], strict=True))
    rows = [(text, others[label] if number % 5 == 0 else label) for number, (text, label) in enumerate(rows)]
    own_task.write_csv(tmp_path / "reviews.csv", rows)
    workspace = tmp_path / "workspace"
    words = ["fit", tmp_path / "reviews.csv", "--max-bytes", 3000, 5000, "--minutes", 0.4, "--reject", 0.85, "--cpu"]
    words += ["--no-loadbar", "--workspace", workspace, "--json", "--name", "reviews"]
    assert run_script("experiment.py", *words) == 0
    result = json.loads(capsys.readouterr().out)
    task = load_task(str(workspace / "experiments" / "reviews" / "task.yaml"))
    test = load_split(Workspace(workspace), task, "test")
    for size in result["sizes"]:
        model = load(size["packed"])
        assert size["bytes"] == Path(size["packed"]).stat().st_size <= size["max_bytes"]
        answers = model.predict(test.sentence1)
        right = [answer == task.labels[label] for answer, label in zip(answers, test.labels, strict=True) if answer]
        scores = size["at_threshold"]
        assert scores["probability"] == model.threshold
        assert scores["share"] == pytest.approx(len(right) / len(test), abs=1.5 / len(test))
        assert scores["accuracy"] == pytest.approx(sum(right) / len(right), abs=1.5 / len(right))
        share, accuracy = (100 * scores[name] for name in ("share", "accuracy"))
        sentence = f"Answers {share:.1f} % of the test texts, {accuracy:.1f} % of these right"
        assert sentence in (page := Path(result["report"]).read_text())
    best = result["sizes"][result["chosen"]]
    assert f"Recommended: {best['bytes']:,} bytes ({Path(best['packed']).relative_to(workspace)})." in page
    packed = Path(result["packed"])
    content = packed.read_bytes()
    packed.unlink()
    assert run_script("experiment.py", *words) == 0  # it is packed again, with its threshold
    assert json.loads(capsys.readouterr().out) == result
    assert packed.read_bytes() == content
    assert run_script("experiment.py", *words, "--reject", 0.9) == 2
    assert "reviews" in capsys.readouterr().err
