"""The one reader of text, and the split files: nothing is lost, nothing shifts, errors name file and line."""

import numpy as np
import pytest
import tiny
import tiny_tags

from common.data.prepare import prepare
from common.data.readers.tables import read_source
from common.data.split import Split, load_split, read_metadata, read_split, write_split
from common.data.tasks import known_tasks, load_task
from common.data.text import match_key, normalise, split_words
from common.errors import UserError
from common.store.workspace import Workspace

SST, QQP, MNLI = (load_task(name) for name in ("sst-2", "qqp", "mnli"))
HEADER = "sentence\tlabel\n"


def written(tmp_path, text, name="train.tsv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_rows_come_stripped_normalised_and_in_order(tmp_path):
    path = written(tmp_path, HEADER + " a  fine\u00a0film . \t1\nno good\t0\ncafe\u0301\t1\n")
    split = read_source(path, SST)
    assert split.sentence1 == ["a fine film .", "no good", "caf\u00e9"]
    assert split.labels.tolist() == [1, 0, 1]
    assert split.source_rows.tolist() == [0, 1, 2]
    assert split.sentence2 is None


def test_empty_sentences_stay_in_place(tmp_path):
    split = read_source(written(tmp_path, HEADER + "one\t1\n\t0\n  \t1\ntwo\t0\n"), SST)
    assert split.sentence1 == ["one", "", "", "two"]
    assert split.labels.tolist() == [1, 0, 1, 0]
    assert split.source_rows.tolist() == [0, 1, 2, 3]


def test_an_empty_second_sentence_does_not_shift_the_label(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    split = read_source(written(tmp_path, header + "0\t1\t2\twhat ?\t\t1\n1\t3\t4\t\twhy ?\t0\n"), QQP)
    assert (split.sentence1, split.sentence2) == (["what ?", ""], ["", "why ?"])
    assert split.labels.tolist() == [1, 0]


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"])
def test_only_newlines_end_a_row(tmp_path, separator):
    path = written(tmp_path, HEADER + f"one{separator}half\t1\ntwo\t0\n")
    split = read_source(path, SST)
    assert split.sentence1 == ["one half", "two"]
    assert split.labels.tolist() == [1, 0]


def test_quotes_are_text_in_tsv(tmp_path):
    split = read_source(written(tmp_path, HEADER + '"an open quote\t1\nshe said "no"\t0\n'), SST)
    assert split.sentence1 == ['"an open quote', 'she said "no"']


def test_windows_line_ends_and_byte_order_mark(tmp_path):
    split = read_source(written(tmp_path, b"\xef\xbb\xbfsentence\tlabel\r\none\t1\r\ntwo\t0\r\n"), SST)
    assert split.sentence1 == ["one", "two"]
    assert split.labels.tolist() == [1, 0]


def test_no_newline_at_the_end(tmp_path):
    assert read_source(written(tmp_path, HEADER + "one\t1\ntwo\t0"), SST).sentence1 == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sentence\tlable\none\t1\n", "line 1: no column 'label' (found sentence, lable); did you mean lable?"),
        (HEADER + "one\t1\ntwo\n", "line 3: expected 2 columns, found 1"),
        (HEADER + "one\t1\ntwo\t0\tmore\n", "line 3: expected 2 columns, found 3"),
        (HEADER + "one\t1\ntwo\t2\n", "line 3: unknown label '2'; expected 0, 1"),
        (HEADER + "one\t1\n\t\ntwo\t0\n", "line 3"),
        (HEADER.encode() + b"one\t1\ncaf\xe9\t1\n", "line 3: not UTF-8"),
        (HEADER, "no rows"),
        ("", "an empty file"),
    ],
)
def test_errors_name_file_and_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(UserError) as error:
        read_source(path, SST)
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_a_bad_byte_far_into_the_file_is_found(tmp_path):
    rows = "".join(f"row {i}\t1\n" for i in range(5000))
    path = written(tmp_path, (HEADER + rows).encode() + b"\xff\t1\n" + rows.encode())
    with pytest.raises(UserError, match="line 5002: not UTF-8"):
        read_source(path, SST)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.tsv: no such file"):
        read_source(tmp_path / "none.tsv", SST)


def csv_task(tmp_path, **source):
    values = {"kind": "files", "files": {"all": "reviews.csv"}, **source}
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\nlabels: [bad, good]\nlabel_values: [neg, pos]\ncolumns: {sentence1: text, label: mood}\n"
        f"source: {values}\nvalidation: {{fraction: 0.2}}\ntest: {{fraction: 0.2}}\n"
    )
    return file


def test_csv_has_quotes_and_newlines_inside_cells(tmp_path):
    task = load_task(str(csv_task(tmp_path)))
    path = written(tmp_path, 'mood,text\npos,"fine, really\nfine"\nneg,"he said ""no"""\n', "reviews.csv")
    split = read_source(path, task)
    assert split.sentence1 == ["fine, really fine", 'he said "no"']
    assert split.labels.tolist() == [1, 0]


def test_malformed_csv_names_the_line(tmp_path):
    task = load_task(str(csv_task(tmp_path)))
    path = written(tmp_path, 'mood,text\npos,fine\npos,"open\n', "reviews.csv")
    with pytest.raises(UserError, match=r"reviews\.csv line \d"):
        read_source(path, task)


def test_rows_of_other_sources_are_left_out_but_rows_keep_their_numbers(tmp_path):
    task = load_task(str(csv_task(tmp_path, where={"source": "mine"})))
    path = written(tmp_path, "source,mood,text\nmine,pos,a\nother,what,b\nmine,neg,c\n", "reviews.csv")
    split = read_source(path, task)
    assert split.sentence1 == ["a", "c"]
    assert split.source_rows.tolist() == [0, 2]


def test_a_task_of_the_users_own_reads_the_files_beside_its_yaml(tmp_path):
    rows = "".join(f"{'pos' if y else 'neg'},{text.replace(',', ' ')}\n" for text, y in tiny.sentences(60))
    written(tmp_path, "mood,text\n" + rows, "reviews.csv")
    task = load_task(str(csv_task(tmp_path)))
    splits = prepare(Workspace(tmp_path / "workspace"), task, None, seed=1)
    assert set(splits) == {"train", "validation", "test"}


def test_a_task_of_the_users_own_reads_its_files_from_data_dir(tmp_path):
    rows = "".join(f"{'pos' if y else 'neg'},{text.replace(',', ' ')}\n" for text, y in tiny.sentences(60))
    (tmp_path / "elsewhere").mkdir()
    written(tmp_path / "elsewhere", "mood,text\n" + rows, "reviews.csv")
    task = load_task(str(csv_task(tmp_path)))
    splits = prepare(Workspace(tmp_path / "workspace"), task, tmp_path / "elsewhere", seed=1)
    assert set(splits) == {"train", "validation", "test"}
    assert all(len(split) for split in splits.values())


def test_mnli_has_two_test_splits(tmp_path, glue):
    splits = prepare(Workspace(tmp_path), MNLI, glue, seed=1)
    assert len(splits["test_matched"]) == len(splits["test_mismatched"]) == 20
    assert splits["train"].sentence2 is not None
    assert set(splits["train"].labels.tolist()) <= {0, 1, 2}


def example(pair=False):
    return Split(["a", "", "c"], ["x", "y", ""] if pair else None, np.array([0, -1, 1]), np.array([0, 1, 7]))


@pytest.mark.parametrize("pair", [False, True])
def test_a_split_comes_back_as_it_was_written(tmp_path, pair):
    path, split = tmp_path / "s.parquet", example(pair)
    write_split(path, split, {"task": "t"})
    back = read_split(path, "hint")
    assert (back.sentence1, back.sentence2) == (split.sentence1, split.sentence2)
    assert (back.labels == split.labels).all()
    assert (back.source_rows == split.source_rows).all()
    assert back.fingerprint() == split.fingerprint()
    assert read_metadata(path) == {"task": "t"}


def test_the_fingerprint_sees_text_order_and_labels():
    split = example()
    assert split.fingerprint() != split.take(np.array([1, 0, 2])).fingerprint()
    other = Split(split.sentence1, None, np.array([1, -1, 1]), split.source_rows)
    assert other.fingerprint() != split.fingerprint()
    assert other.text_fingerprint() == split.text_fingerprint()
    assert example(pair=True).text_fingerprint() != split.text_fingerprint()


def test_a_missing_split_says_what_to_run(tmp_path):
    with pytest.raises(UserError, match=r"run: python preprocess\.py --task sst-2"):
        load_split(Workspace(tmp_path), SST, "train")


@pytest.mark.parametrize("cut", [0, 4, 0.5, 0.99])
def test_a_damaged_split_file_is_named(tmp_path, cut):
    path = tmp_path / "data" / "sst-2" / "train.parquet"
    write_split(path, example(), {})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut) if isinstance(cut, float) else cut])
    with pytest.raises(UserError, match=r"train\.parquet"):
        load_split(Workspace(tmp_path), SST, "train")


def test_words():
    assert split_words("It's  FUN!") == ["it's", "fun", "!"]
    assert match_key("It's FUN , really !") == match_key("it's fun, REALLY")
    assert normalise("\u2028 a\tb\x85c ") == "a b c"


@pytest.mark.skipif(not tiny.GLUE.exists(), reason="GLUE is not here")
def test_real_glue_files_are_read_whole():
    rows = {
        ("sst-2", "SST-2/train.tsv"): 67_349,
        ("sst-2", "SST-2/dev.tsv"): 872,
        ("qqp", "QQP/dev.tsv"): None,
        ("mnli", "MNLI/dev_matched.tsv"): 9_815,
        ("mnli", "MNLI/dev_mismatched.tsv"): None,
    }
    for (task, name), count in rows.items():
        path = tiny.GLUE / name
        lines = path.read_bytes().count(b"\n") - 1
        split = read_source(path, load_task(task))
        assert len(split) == (lines if count is None else count), name
        assert split.source_rows.tolist() == list(range(len(split)))


def test_tasks_offered_are_those_with_a_file():
    glue = ["ax", "cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst-2", "sts-b", "wnli"]
    assert known_tasks() == sorted([*glue, "rotten-tomatoes", *tiny_tags.BIOMEDICAL])
