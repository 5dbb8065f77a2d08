"""What tells texts apart: nothing that differs leaves train, and nothing that is the same stays in two splits."""

from pathlib import Path

import numpy as np
import pytest

from common.data.overlap import carve, near_keys, text_keys, touching
from common.data.prepare import make_splits, prepare
from common.data.readers.tables import read_source
from common.data.split import Split, read_report
from common.data.tasks import Carve, load_task
from common.data.text import near_key, text_key, words_in
from common.errors import UserError
from common.store.workspace import Workspace

FIELD = Path(__file__).parents[1] / "field"
SAME = [
    ("don't stop", "don’t stop"),
    ('he said "yes"', "He said “yes”"),
    ("«oui» ‹non›", "\"oui\" 'non'"),
    ("well-known", "well‑known"),
    ("2010-2020", "2010–2020"),
    ("good -- really", "good — really"),
    ("wait...", "wait…"),
    ("10 km", "10\u00a0km"),
    ("ＡＢＣ１２３！", "abc123!"),
    ("ﾃｽﾄ", "テスト"),
    ("so\u200b good\ufeff", "so good"),
    ("❤️ it", "❤ it"),
    ("cafe\u0301", "Café"),
    ("Straße", "STRASSE"),
    ("this film , good", "This film, good"),
]
DIFFERENT = [
    ("वह आया", "वह आयी"),
    ("কর", "কার"),
    ("தமிழ", "தமிழ்"),
    ("שָׁלוֹם", "שִׁלוֹם"),
    ("عَلَم", "عِلْم"),
    ("มา", "ม้า"),
    ("ok :)", "ok :("),
    ("C++", "C#"),
    ("+1", "-1"),
    ("$5", "€5"),
    ("a < b", "a > b"),
    ("really?", "really!"),
    ("😀", "😡"),
    ("👨‍👩‍👧", "👨‍👩‍👦"),
    ("10²", "102"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_typography_case_and_white_space_do_not_tell_texts_apart(first, second):
    assert text_key(first) == text_key(second)


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_marks_and_signs_tell_texts_apart(first, second):
    assert text_key(first) != text_key(second)


def test_near_texts_have_one_key():
    assert near_key("ok :)") == near_key("OK :(") == "ok"
    assert near_key("वह आया") == near_key("वह आयी")


def test_words_are_counted_without_signs():
    assert [words_in(text_key(text)) for text in ("so good :)", "「今日は」", "हूँ !")] == [2, 1.5, 1]


def one_split(texts, labels=None):
    return Split(texts, None, np.array(labels or [0] * len(texts)), np.arange(len(texts)))


def touched(text, held_out):
    return len(touching(text_keys(one_split([text])), text_keys(one_split([held_out])))) > 0


def test_a_part_of_a_held_out_text_touches_it():
    assert touched("the film is good.", "I say the film is good, and long")
    assert touched("-- the film is good --", "I say: the film is good")
    assert touched("我非常喜欢这部电影", "昨天的我非常喜欢这部电影啊")
    assert touched("it's a good film", "so it’s a good film")


def test_signs_are_compared_in_parts_too_and_do_not_count_as_words():
    assert not touched("the film is good :(", "I say the film is good :) today")
    assert not touched("the film is good?", "the film is good.")
    assert not touched(':) " so !', 'yes :) " so ! yes')
    assert not touched("我喜欢", "昨天我喜欢你")


def test_near_texts_are_drawn_together_unless_they_are_many():
    texts = [f"{word} number {i} {sign}" for i, word in enumerate("abcdefghij" * 5) for sign in (":)", ":(")]
    split = one_split(texts)
    carved, kept = carve(split, Carve(rows=20), 1, text_keys(split), near_keys(split))
    assert len(carved) == 20
    assert len(carved) + len(kept) == 100
    assert {row ^ 1 for row in carved.tolist()} == set(carved.tolist())
    split = one_split([f"good {sign * count}" for sign in "?!:;" for count in range(1, 26)])
    carved, kept = carve(split, Carve(rows=20), 1, text_keys(split), near_keys(split))
    assert (len(carved), len(kept)) == (20, 80)


def field_splits(tmp_path, name, labels, columns=("text", "label")):
    text, label = columns
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"name: mine\nlabels: [{labels}]\ncolumns: {{sentence1: {text}, label: {label}}}\n"
        f"source: {{files: {{all: {FIELD / name}}}}}\n",
        encoding="utf-8",
    )
    task = load_task(str(path))
    splits = prepare(Workspace(tmp_path / "w"), task, None, seed=1)
    report = read_report(Workspace(tmp_path / "w"), "mine")
    whole = report["read"]["all"]
    assert sum(map(len, splits.values())) + sum(report["dropped"].values()) == whole["rows"]
    assert report["dropped"]["repeated"] == whole["repeated"]
    assert [entry["rows"] for entry in report["overlaps"]] == [0, 0, 0]
    return splits


@pytest.mark.parametrize(
    ("name", "labels", "columns"),
    [
        ("hindi-gender.csv", "m, f", ("text", "label")),
        ("tweets.csv", "happy, sad", ("text", "label")),
        ("emoticons.csv", "happy, sad", ("text", "label")),
        ("emoji-only.csv", "angry, glad", ("text", "label")),
    ],
)
def test_no_row_leaves_train_because_of_signs_or_marks(tmp_path, name, labels, columns):
    splits = field_splits(tmp_path, name, labels, columns)
    keys = set(text_keys(read_source(FIELD / name, load_task(str(tmp_path / "mine.yaml"))))[0])
    assert sum(map(len, splits.values())) >= len(keys)
    for split in splits.values():
        assert set(split.labels) == {0, 1}


def test_contradictory_rows_stay_and_are_shown(tmp_path):
    rows = [f"row number {i} of words,{'yes' if i % 2 else 'no'}" for i in range(40)]
    rows += ["so\u200b so,yes", "So so,no", "it’s fine,yes", "it's fine,no", "it's fine,no"]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    (tmp_path / "mine.yaml").write_text("name: mine\nlabels: ['no', 'yes']\nsource: {files: {all: rows.csv}}\n")
    splits = prepare(Workspace(tmp_path / "w"), load_task(str(tmp_path / "mine.yaml")), None, seed=1)
    report = read_report(Workspace(tmp_path / "w"), "mine")
    whole = report["read"]["all"]
    assert (whole["contradictory"], whole["repeated"], report["dropped"]["repeated"]) == (2, 1, 1)
    assert whole["contradiction"] == ["'so\\u200b so' -> 'yes'", "'So so' -> 'no'"]
    for key in ("so so", "it's fine"):
        homes = [name for name, split in splits.items() if key in map(text_key, split.sentence1)]
        assert len(homes) == 1


def test_an_error_about_a_missing_label_says_why(tmp_path):
    held = [f"the rare text number {i} of them" for i in range(3)]
    rows = [f"row number {i} of words,common" for i in range(40)] + [f"{text},rare" for text in held]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    (tmp_path / "test.csv").write_text("\n".join(["text,label", *(f"{text.upper()},rare" for text in held)]))
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nlabels: [common, rare]\nsource: {files: {train: rows.csv, test: test.csv}}\n"
    )
    task = load_task(str(tmp_path / "mine.yaml"))
    read = {name: read_source(tmp_path / file, task) for name, file in (("train", "rows.csv"), ("test", "test.csv"))}
    with pytest.raises(UserError, match=r"label 'rare' is left .*\(3 are texts of test or parts of them, for example"):
        make_splits(read, task, 1)


def test_a_backtick_is_a_quote_in_every_text():
    assert text_key("a ` fine ' film") == text_key("a ' fine ' film")
    assert text_key("a ` fine ' soufflé") == text_key("a ' fine ’ soufflé")
