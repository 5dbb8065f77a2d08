"""Files of questions in SQuAD's form, spans of characters and words, and splits that share no context."""

import json

import numpy as np
import pytest
import tiny_questions
import yaml
from hypothesis import given
from hypothesis import strategies as st

from common.config import build
from common.data.overlap import near_keys
from common.data.prepare import prepare
from common.data.readers.questions import questions_split
from common.data.split import load_split, read_report, read_split, write_split
from common.data.tasks import Task, load_task
from common.data.text import near_key
from common.errors import UserError
from common.kinds.spans import (
    best_spans,
    of_present_words,
    texts_of,
    to_characters,
    to_words,
    within_words,
    word_spans,
)
from common.store.workspace import Workspace
from compression.runtime.spans import LONGEST_ANSWER

CONTEXT = "The $5.3bn film, “Ann's  caf\u0065\u0301”, is\nby A. B. Smith."


def file_of(folder, *questions, context=CONTEXT):
    return tiny_questions.write_questions(folder / "q.json", [{"context": context, "qas": list(questions)}])


def asked(answer=None, start=None, context=CONTEXT, **more):
    """A question with this answer."""
    answers = [] if answer is None else [{"text": answer, "answer_start": start or context.index(answer)}]
    return {"id": "1", "question": "What?", "answers": answers, **more}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("$5.3bn", "$5.3bn"),
        ("Ann's  caf\u0065\u0301", "Ann's caf\u00e9"),
        ("\nby A. B.", "by A. B."),
        ("Smith", "Smith"),
    ],
)
def test_answers_move_with_the_normalised_context(tmp_path, answer, text):
    split = questions_split(file_of(tmp_path, asked(answer)), load_task_of({}))
    assert split.sentence2 == ["The $5.3bn film, “Ann's caf\u00e9”, is by A. B. Smith."]
    assert texts_of(split.labels, split.sentence2) == [[text]]


def test_a_split_of_questions_reads_back_as_it_was_written(tmp_path):
    several = asked("film")
    several["answers"].append({"text": "$5.3bn film", "answer_start": 4})
    unlabelled = {"question": "Who?"}
    split = questions_split(
        file_of(tmp_path, several, asked(is_impossible=True), unlabelled), load_task_of({"unanswerable": True})
    )
    assert split.labels.tolist() == [[[11, 15], [4, 15]], [[0, 0], [-1, -1]], [[-1, -1], [-1, -1]]]
    assert split.labelled.tolist() == [True, True, False]
    assert split.source_rows.tolist() == [0, 1, 2]
    for rows in (split, split.take(np.array([2]))):
        write_split(tmp_path / "q.parquet", rows, {})
        again = read_split(tmp_path / "q.parquet")
        assert (again.sentence1, again.sentence2) == (rows.sentence1, rows.sentence2)
        assert again.fingerprint() == rows.fingerprint()
        assert again.labelled.tolist() == rows.labelled.tolist()
    assert read_split(tmp_path / "q.parquet").kind.always_pairs


FAULTS = [
    ({"data": 1}, "q.json: 'data' is not a list (1)"),
    ([], "q.json: expected an object with 'data', as in SQuAD's JSON, found '[]'"),
    ({"version": "1.1"}, "q.json: no 'data' (found version)"),
    ({"data": []}, "q.json: no questions"),
    ({"data": [{"title": "a"}]}, "q.json data[0]: no 'paragraphs' (found title)"),
    ({"data": [{"paragraphs": [{"qas": []}]}]}, "q.json data[0].paragraphs[0]: no 'context' (found qas)"),
    ({"data": [{"paragraphs": [{"context": "a\0", "qas": [{}]}]}]}, "paragraphs[0]: context: a sentence contains a"),
]
QUESTION_FAULTS = [
    ({"answers": []}, "qas[0]: no 'question' (found answers)"),
    (asked("film", 5), "answer 'film' is not at character 5 of its context; the context has '5.3b' there"),
    (asked("film", -38), "answer 'film' is not at character -38"),
    (asked("film", 1000), "is not at character 1000 of its context; the context has '' there"),
    (asked("", 3), "an answer is empty"),
    (asked("caf\u0065"), "answer 'cafe' starts or ends within a character"),
    (asked(), "no answers; with unanswerable: true in the task's YAML file a question may have none"),
    (asked("film", is_impossible=True), "it has answers, but is_impossible is true"),
    ({"question": "a", "answers": {"text": "film"}}, "'answers' is not a list"),
    ({"question": "a", "answers": [{"text": "film"}]}, "no 'answer_start' (found text)"),
    ({"question": "a", "answers": [{"text": "film", "answer_start": "11"}]}, "'answer_start' is not a number (11)"),
    ({"question": "a", "answers": [{"text": "film", "answer_start": True}]}, "'answer_start' is not a number (True)"),
    ({"question": ["a"], "answers": []}, "'question' is not a text"),
]


@pytest.mark.parametrize(("content", "message"), FAULTS)
def test_a_file_of_another_form_is_refused_with_the_place(tmp_path, content, message):
    (tmp_path / "q.json").write_text(json.dumps(content))
    with pytest.raises(UserError) as error:
        questions_split(tmp_path / "q.json", load_task_of({}))
    assert message in str(error.value)


@pytest.mark.parametrize(("question", "message"), QUESTION_FAULTS)
def test_a_faulty_question_is_refused_with_the_place(tmp_path, question, message):
    with pytest.raises(UserError) as error:
        questions_split(file_of(tmp_path, question), load_task_of({}))
    assert "q.json data[0].paragraphs[0].qas[0]: " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"), [(b"{", "not JSON"), (b'{"a": "\xff"}', "not UTF-8"), (b"[" * 100_000, "not JSON")]
)
def test_what_is_not_json_is_refused(tmp_path, content, message):
    (tmp_path / "q.json").write_bytes(content)
    with pytest.raises(UserError, match=rf"q\.json: {message}"):
        questions_split(tmp_path / "q.json", load_task_of({}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": ["yes", "no"]}, "has no labels: an answer"),
        ({"range": [0, 1]}, "range is for tasks of kind numbers"),
        ({"columns": {"sentence1": "question", "sentence2": "context"}}, "which has no columns"),
        ({"symmetric": True}, "cannot be exchanged"),
        ({"metrics": ["f1"]}, "not one of this kind of task (answer_f1, exact_match)"),
        ({"kind": "labels", "labels": ["a", "b"], "unanswerable": True}, "unanswerable is for tasks of kind answers"),
    ],
)
def test_a_faulty_task_of_spans_is_refused(tmp_path, changed, message):
    path = tiny_questions.write_task(tmp_path, 4, **changed)
    with pytest.raises(UserError) as error:
        load_task(str(path))
    assert message in str(error.value)


def test_words_are_runs_of_letters_and_digits_or_one_sign():
    text = "It’s $5.3bn_ — 漢字!"
    assert [text[a:b] for a, b in word_spans(text)] == ["It", "’", "s", "$", "5", ".", "3bn", "_", "—", "漢", "字", "!"]
    assert word_spans(" ").shape == (0, 2)


@given(st.text(st.sampled_from("ab1 .'é_"), max_size=20), st.data())
def test_words_and_characters_of_answers_fit(text, data):
    words = word_spans(text)
    chosen = np.zeros((1, 2), np.int64)
    if len(words):
        first = data.draw(st.integers(1, len(words)))
        chosen[0] = first, data.draw(st.integers(first, len(words)))
    answers = to_characters(chosen, [text])
    assert to_words(answers, [text]).tolist() == chosen.tolist()
    # An answer within words takes them whole.
    if len(words):
        start = data.draw(st.integers(*(words[chosen[0, 0] - 1] - [0, 1]).tolist()))
        end = data.draw(st.integers(*(words[chosen[0, 1] - 1] + [1, 0]).tolist()))
        if start < end:
            assert to_words(np.array([[[start, end]]]), [text]).tolist() == chosen.tolist()


def test_the_best_answer_has_the_largest_sum_of_its_logits():
    nan = np.nan
    logits = np.array(
        [
            [[9, 9], [1, 0], [5, 2], [0, 4], [nan, nan]],  # words 2 to 3: 5 + 4
            [[0, 0], [1, 5], [2, 1], [nan, nan], [nan, nan]],  # an end before its start is none: word 1, 6
            [[2, 2], [1, 1], [1, 1], [1, 1], [1, 1]],  # of equal ones the shortest, then the first
            [[-5, -5], [nan, nan], [nan, nan], [nan, nan], [nan, nan]],  # a context without words
        ],
        np.float32,
    )
    assert best_spans(logits, None).tolist() == [[2, 3], [1, 1], [1, 1], [0, 0]]
    assert best_spans(logits, 0.5).tolist() == [[0, 0], [1, 1], [0, 0], [0, 0]]


def test_an_answer_has_at_most_thirty_words():
    logits = np.zeros((1, LONGEST_ANSWER + 3, 2), np.float32)
    logits[0, 1, 0] = logits[0, -1, 1] = 5
    first, last = best_spans(logits, None)[0]
    assert (first, last) == (1, 1)
    logits[0, -3, 1] = 4
    assert best_spans(logits, None).tolist() == [[1, LONGEST_ANSWER]]


def test_the_confidence_in_an_answer_is_that_of_its_start_times_that_of_its_end():
    logits = np.log(np.array([[[2, 2], [3, 1], [1, 1]], [[1, 1], [1, 1], [np.nan, np.nan]]], np.float32))
    task = load_task_of({})
    assert task.kind.confidence(task, logits) == pytest.approx([3 / 4 * 1 / 2, 1])
    task = load_task_of({"unanswerable": True})
    assert task.kind.confidence(task, logits) == pytest.approx([2 / 6 * 2 / 4, 1 / 4])


def load_task_of(changed):
    return build(Task, {"name": "q", "kind": "answers", "source": {"files": {"all": "a.json"}}, **changed})


def test_splits_share_no_context(tmp_path):
    whole = tiny_questions.paragraphs(40, unanswerable=True)
    tiny_questions.write_questions(tmp_path / "q.json", whole)
    task = {"name": "films", "kind": "answers", "unanswerable": True, "source": {"files": {"all": "q.json"}}}
    (tmp_path / "films.yaml").write_text(yaml.safe_dump(task))
    paths, task = Workspace(tmp_path / "w"), load_task(str(tmp_path / "films.yaml"))
    splits = prepare(paths, task, None, seed=1)
    contexts = {name: set(split.sentence2) for name, split in splits.items()}
    assert sum(map(len, contexts.values())) == len(set.union(*contexts.values())) == 40
    assert sum(map(len, splits.values())) == 120
    assert all(len(splits[name]) == 3 * len(contexts[name]) == 12 for name in ("validation", "test"))
    train = load_split(paths, task, "train")
    assert np.array_equal(train.labels, splits["train"].labels)
    report = read_report(paths, "films")
    assert report["splits"]["train"]["labels"]["no answer"] == {"rows": 32, "share": 0.3333}
    assert near_keys(train)[0] == [near_key(context) for context in train.sentence2]


def test_questions_about_a_held_out_context_leave_train(tmp_path):
    path = tiny_questions.write_task(tmp_path, 16)
    whole = tiny_questions.paragraphs(16)
    again = {**whole[-1], "context": whole[-1]["context"].upper(), "qas": [{"question": "Which?"}]}
    tiny_questions.write_questions(tmp_path / "train.json", [*whole[:8], again])
    splits = prepare(Workspace(tmp_path / "w"), load_task(str(path)), None, seed=1)
    assert {name: len(split) for name, split in splits.items()} == {"train": 16, "validation": 8, "test": 8}
    assert read_report(Workspace(tmp_path / "w"), "films")["dropped"] == {"validation": 0, "test": 1}


@pytest.mark.parametrize(
    ("context", "answer"),
    [
        ("東京は日本の首都です。", "日本"),
        ("กรุงเทพมีวัดดีมาก", "วัดดี"),
        ("这家公司成立于1998年", "1998"),
        ("अनु दिल्ली में", "दिल्ली"),
    ],
)
def test_answers_are_found_at_letters_where_there_are_no_spaces(context, answer):
    start = context.index(answer)
    answers = np.array([[[start, start + len(answer)]]])
    assert texts_of(to_characters(to_words(answers, [context]), [context]), [context]) == [[answer]]
    assert within_words(answers, [context]) == 0


def test_answers_within_words_are_counted():
    answers = np.array([[[0, 4]], [[1, 4]], [[5, 8]], [[0, 0]]])
    assert within_words(answers, ["film makers"] * 4) == 2
    assert within_words(np.array([[[0, 1]]]), ["हूँ"]) == 1


def test_logits_of_the_words_of_older_files_become_those_of_the_present_words():
    older = np.arange(12, dtype=np.float32).reshape(6, 2)[None]  # none, a, mark, b, two ideographs, x
    present = of_present_words(older, ["aूb 漢字 x"])[0]
    assert present.tolist() == [[0, 1], [2, 7], [8, 0], [0, 9], [10, 11]]
