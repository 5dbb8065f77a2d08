"""predict.py with models that answer questions by parts of contexts."""

import csv
import io
import json

import numpy as np
import pytest
import tiny_questions
from random_students import ANSWERS, save

from common.errors import UserError
from common.kinds import registry
from common.kinds.spans import best_spans, texts_of, to_characters
from compression.inference.classifier import Classifier
from compression.inference.texts import Row, Texts
from compression.inference.writers import Options, make_writer
from compression.packing import pack_student
from compression.runtime import load

ROWS = [("how is it ?", "the film (1990) is wonderful!"), ("why ?", ""), ("wie?", "caf\u00e9 , b; c")]
ROWS += [("how ?", f"{'the film is fine . ' * 30}why ?")]  # in several windows


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {f1: save(tmp_path_factory.mktemp("answers") / f"with-{f1}", **ANSWERS, f1=f1) for f1 in (False, True)}


@pytest.mark.parametrize("unanswerable", [False, True])
def test_a_packed_file_and_its_student_answer_alike(folders, ask, tmp_path, unanswerable):
    folder, packed = folders[unanswerable], tmp_path / "student.fwt"
    packed.write_bytes(pack_student(folder, **({"threshold": 0.5} if unanswerable else {})))
    content = "".join(json.dumps({"question": q, "context": c}) + "\n" for q, c in ROWS).encode()
    task = str(tiny_questions.write_task(tmp_path / "task", unanswerable=unanswerable))
    answers = [
        list(map(json.loads, ask(model, content, "questions.jsonl", task=task).splitlines()))
        for model in (folder, packed)
    ]
    model, contexts = load(packed), [context for _, context in ROWS]
    chosen = best_spans(model.logits(ROWS), model.threshold)
    texts = [text or None for (text,) in texts_of(to_characters(chosen, contexts), contexts)]
    for own in answers:
        assert [each["predicted_answer"] for each in own] == texts == [each or None for each in model.predict(ROWS)]
        assert [each["context"] for each in own] == contexts
    first, second = ([each["probability"] for each in own] for own in answers)
    assert first == pytest.approx(second, abs=1e-4)


def written(kind, logits, threshold=None, context="a fine film"):
    texts = Texts(["question", "context"], iter(()))
    model = Classifier("m", "squad", ("start", "end"), True, registry.ANSWERS, lambda _: np.empty(0), threshold)
    header, write = make_writer(kind, texts, model, Options())
    row = Row(1, ("how ?", context), ["how ?", context])
    return header + write(row, np.log(np.array(logits, np.float32)).tolist(), None)


def test_the_probability_is_the_starts_times_the_ends():
    logits = [[4, 4], [1, 1], [5, 3], [2, 4], [np.nan, np.nan]]
    assert written("lines", logits) == f"fine film\t{5 / 8 * 4 / 8:.6f}\n"
    (row,) = csv.DictReader(io.StringIO(written("csv", logits, threshold=0.5)))
    assert (row["predicted_answer"], row["probability"]) == ("fine film", f"{5 / 12 * 4 / 12:.6f}")


def test_no_answer_is_given_below_the_threshold():
    logits = [[4, 4], [1, 1], [5, 3], [2, 4]]  # 20 against 16: a probability of 5 / 9
    assert json.loads(written("jsonl", logits, threshold=0.56)) == {
        "question": "how ?",
        "context": "a fine film",
        "predicted_answer": None,
        "probability": pytest.approx(1 / 9, abs=1e-6),
    }
    assert written("lines", logits, threshold=0.55).startswith("fine film\t")
    assert written("lines", logits, threshold=0.56).startswith("no answer\t")
    assert written("lines", [[2, 3]], context="") == "no answer\t1.000000\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"explain": True}, "--explain is for labels and scores of texts; with-False predicts answers"),
        ({"top": 2}, "--top is for labels with probabilities; with-False predicts answers"),
    ],
)
def test_flags_for_labels_are_refused(folders, ask, flags, message):
    with pytest.raises(UserError, match=message):
        ask(folders[False], b"why ?\tfilm\n", task="squad", **flags)
