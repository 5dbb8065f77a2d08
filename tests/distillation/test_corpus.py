"""Plain text to pre-train on: read in windows, each text once, and what is held out is apart from what is learned."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.data.split import ROW_GROUP_ROWS, Split, write_split
from common.errors import UserError
from common.kinds.ragged import EncodedText
from compression.distillation.corpus import joined_lengths, learned_and_held_out, read_corpus, windows
from compression.tokenizers.wordpiece import WordPieceTokenizer

TOKENIZER = WordPieceTokenizer(["[UNK]", "a"], True, 5)


def test_a_corpus_is_read_line_by_line_in_windows_of_max_tokens(tmp_path):
    lines = ["a" + " a" * more for more in (2, 6, 0, 9)]
    (tmp_path / "some.txt").write_text("\n\n".join(lines))
    assert read_corpus([tmp_path / "some.txt"], TOKENIZER, tmp_path / "ids").lengths.tolist() == [3, 5, 2, 1, 5, 5]


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    size=st.integers(1, 9),
    overlap=st.integers(0, 8),
    most=st.integers(0, 4),
)
def test_windows_advance_share_tokens_and_miss_none(lengths, size, overlap, most):
    """Of token i of a text the id is i, so that a window's ids are the places of its tokens."""
    overlap = min(overlap, size - 1)
    text = EncodedText.from_lists([range(length) for length in lengths], 1, (0,), 99)
    found = windows(text, size, overlap, most)
    places = np.split(found.ids[:, 0], found.offsets[1:-1])
    expected = []
    for length in lengths:
        starts = [start for start in range(0, length, size - overlap) if start == 0 or start + overlap < length]
        expected += [list(range(start, min(start + size, length))) for start in starts[: most or None]]
    assert [each.tolist() for each in places] == expected


def test_windows_of_a_corpus_overlap_and_have_a_most(tmp_path):
    (tmp_path / "some.txt").write_text("a" + " a" * 12)
    found = read_corpus([tmp_path / "some.txt"], TOKENIZER, tmp_path / "ids", overlap=2, most=3)
    assert found.lengths.tolist() == [5, 5, 5]
    assert isinstance(found.ids, np.memmap)


def test_texts_of_a_corpus_are_joined_up_to_max_tokens(tmp_path):
    (tmp_path / "some.txt").write_text("a a\na a\na\na a\na a a a a a\n")
    joined = read_corpus([tmp_path / "some.txt"], TOKENIZER, tmp_path / "ids", join=True)
    assert joined.lengths.tolist() == [5, 2, 5, 1]
    apart = read_corpus([tmp_path / "some.txt"], TOKENIZER, tmp_path / "apart")
    assert apart.lengths.tolist() == [2, 2, 1, 2, 5, 1]
    assert np.array_equal(joined.ids, apart.ids)


@given(lengths=st.lists(st.integers(1, 9), min_size=1), size=st.integers(9, 20))
def test_joined_windows_are_as_long_as_can_be(lengths, size):
    joined = joined_lengths(np.array(lengths), size)
    ends = set(np.cumsum(lengths).tolist())
    assert set(np.cumsum(joined).tolist()) <= ends
    assert max(joined) <= size
    firsts = [lengths[np.flatnonzero(np.cumsum(lengths) == end)[0] + 1] for end in np.cumsum(joined)[:-1]]
    assert all(length + first > size for length, first in zip(joined, firsts, strict=False))


@given(lengths=st.lists(st.integers(1, 300), min_size=1, max_size=9), size=st.integers(1, 9), overlap=st.integers(0, 8))
def test_windows_that_are_learned_share_no_tokens_with_held_out_ones(lengths, size, overlap):
    """A token's id is its place in all texts."""
    overlap = min(overlap, size - 1)
    places = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    found = windows(EncodedText.of([each[:, None] for each in places]), size, overlap, 0)
    learned, held_out = learned_and_held_out(len(found), size, overlap)
    assert len(held_out) >= 1
    assert len(learned) >= 0.8 * len(found)
    if len(found) > 50:
        tokens = [np.concatenate([found[row] for row in rows])[:, 0] for rows in (learned, held_out)]
        assert not np.intersect1d(*tokens).size


@pytest.mark.parametrize("count", [1, 50, 51, 130, 60_000])
def test_without_an_overlap_every_fiftieth_window_is_held_out(count):
    learned, held_out = learned_and_held_out(count, 128, 0)
    assert held_out.tolist() == list(range(0, count, 50))[:1000]
    assert learned.tolist() == [row for row in range(count) if count <= 50 or row not in set(held_out.tolist())]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\n \n", "no text"), (b"fine\na \xff b\n", r"line 2: not UTF-8 text")],
)
def test_a_corpus_without_text_is_refused(tmp_path, content, message):
    (tmp_path / "some.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_corpus([tmp_path / "some.txt"], TOKENIZER, tmp_path / "ids")


def test_tasks_rows_are_read_to_the_last_one_and_each_text_once(tmp_path):
    numbers = np.arange(ROW_GROUP_ROWS + 1)  # two row groups
    for name, texts in (("first", ["a a"] + [f"a {number}" for number in numbers[1:]]), ("second", ["a a", "a a a"])):
        rows = np.arange(len(texts))
        (tmp_path / name).mkdir()
        write_split(tmp_path / name / "train.parquet", Split(texts, ["a"] * len(texts), rows, rows), {})
    found = read_corpus(
        [tmp_path / name / "train.parquet" for name in ("first", "second")], TOKENIZER, tmp_path / "ids"
    )
    assert len(found) == len(numbers) + 1 + 1
    assert found.lengths.tolist()[-1] == 3
