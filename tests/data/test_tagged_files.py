"""Files of tagged words, entities, and arrays of one value a word."""

import dataclasses

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from common.data.readers.tables import read_source
from common.data.split import read_split, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.kinds import registry
from common.kinds.iob import as_iob, entities
from common.kinds.ragged import padded

TAGS = ("O", "B-a", "I-a", "B-b", "I-b")
WORD = st.text(st.sampled_from("ab'-,3é漢"), min_size=1, max_size=5)


@st.composite
def texts(draw):
    """Words and valid tags."""
    before, words = "O", []
    for _ in range(draw(st.integers(1, 6))):
        allowed = [tag for tag in TAGS if tag[0] != "I" or before[1:] == tag[1:]]
        before = draw(st.sampled_from(allowed))
        words.append((draw(WORD), before))
    return words


def task_of(tags=TAGS, **changed):
    return load_task("ncbi-disease").model_copy(update={"labels": tags, **changed})


@hypothesis.settings(max_examples=30)
@hypothesis.given(st.lists(texts(), min_size=1, max_size=5))
def test_tagged_words_read_back_as_they_were_written(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("iob")
    pairs = [tuple(zip(*row, strict=True)) for row in rows]
    (folder / "some.tsv").write_text("".join(as_iob(*pair) for pair in pairs))
    split = read_source(folder / "some.tsv", task_of())
    assert split.sentence1 == [" ".join(words) for words, _ in pairs]
    assert [[TAGS[i] for i in row[row >= 0]] for row in split.labels] == [list(tags) for _, tags in pairs]
    write_split(folder / "some.parquet", split, {})
    again = read_split(folder / "some.parquet")
    assert np.array_equal(again.labels, split.labels)
    assert again.fingerprint() == split.fingerprint()
    wider = np.pad(split.labels, ((0, 0), (0, 2)), constant_values=-1)
    assert dataclasses.replace(split, labels=wider).fingerprint() == split.fingerprint()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tO\nb\tI-a\n", "line 2: I-a after O breaks the IOB scheme: an entity begins with B-a"),
        ("a\tI-a\n", "line 1: I-a at the start of a text"),
        ("a\tB-b\nb\tI-a\n", "line 2: I-a after B-b breaks"),
        ("a\tB-a\n\nb\tI-a\n", "line 3: I-a at the start of a text"),
        ("a\tB-A\n", "line 1: unknown tag 'B-A'; expected O, B-a, I-a, B-b, I-b; did you mean B-"),
        ("a\tO\nb\n", "line 2: expected a word and its tag, found 'b'"),
        ("a b\tO\n", "line 1: a word is empty or has a space in it: 'a b'"),
        ("a\u00a0b O\n", "line 1: a word is empty or has a space in it"),
        ("\n\n", "no rows of data"),
        ("long\tO\n" * 50_000, "line 40001: a text has more than 200,000 characters"),
        ("a\tO\n\xff\tO\n".encode("latin-1"), "line 2: not UTF-8"),
    ],
)
def test_a_file_that_breaks_the_scheme_is_named_with_the_line(tmp_path, content, message):
    path = tmp_path / "some.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        read_source(path, task_of())
    assert message in str(error.value)


def test_other_columns_and_lines_between_documents_are_ignored(tmp_path):
    (tmp_path / "c.txt").write_text("-DOCSTART- -X- O\n\nEU NNP B-a\nrejects VBZ O\n")
    split = read_source(tmp_path / "c.txt", task_of())
    assert split.sentence1 == ["EU rejects"]
    assert split.labels.tolist() == [[1, 0]]


@hypothesis.given(st.lists(st.sampled_from(TAGS), max_size=12))
def test_entities_are_seqevals(tags):
    theirs = [(kind, first, last + 1) for kind, first, last in get_entities(list(tags))]
    assert entities(tags) == theirs


def test_files_may_have_other_names_for_tags(tmp_path):
    (tmp_path / "s.tsv").write_text("a\tBEG\nb\tIN\nc\tOUT\n")
    task = task_of(("O", "B-a", "I-a"), label_values=("OUT", "BEG", "IN"))
    assert read_source(tmp_path / "s.tsv", task).labels.tolist() == [[1, 2, 0]]
    (tmp_path / "s.tsv").write_text("a\tOUT\nb\tIN\n")
    with pytest.raises(UserError, match="line 2: I-a after O breaks"):
        read_source(tmp_path / "s.tsv", task)


def test_padded_arrays_join_to_the_widest():
    first, second = padded(np.arange(3), np.array([1, 2]), -1), padded(np.arange(4), np.array([4]), -1)
    assert registry.TAGS.join([first, second]).tolist() == [[0, -1, -1, -1], [1, 2, -1, -1], [0, 1, 2, 3]]
    assert np.array_equal(registry.LABELS.join([np.arange(2), np.arange(1)]), [0, 1, 0])
