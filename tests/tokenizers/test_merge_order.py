"""Merges in groups: an order that hardly changes tokens, and that a packed file stores in fewer bytes."""

import numpy as np
import packed_students
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from compression.packing import pack_student
from compression.runtime import load
from compression.runtime.native import load_native
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.merge_order import choices_of_parts, group_sizes, grouped_order, most_frequent_parts

TEXTS = [text for text, _ in tiny.sentences(100)]


def merged(pairs):
    """Merges of symbols by number, of the letters a to d and the merges before, without repetitions."""
    symbols = list("abcd")
    for left, right in pairs:
        merge = symbols[left % len(symbols)] + symbols[right % len(symbols)]
        if merge not in symbols:
            symbols.append(merge)
    return symbols[4:]


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), max_size=200))
def test_a_group_is_sorted_by_left_parts_of_earlier_groups(pairs):
    merges = merged(pairs)
    order = grouped_order("abcd", merges)
    assert sorted(order) == sorted(merges)
    assert grouped_order("abcd", order) == order
    sizes = group_sizes("abcd", order)
    assert sum(sizes) == len(order)
    assert all(size <= max(16, sum(sizes[:number]) // 4) for number, size in enumerate(sizes))
    parts, start = most_frequent_parts(choices_of_parts("abcd", order, sizes)).tolist(), 0
    symbols = ["a", "b", "c", "d", *order]
    for size in sizes:
        group = parts[start : start + size]
        assert [left for left, _ in group] == sorted(left for left, _ in group)
        for number, (left, right) in enumerate(group, start):
            assert max(left, right) < 4 + start
            assert symbols[left] + symbols[right] == order[number]
        start += size


def test_merges_without_parts_stay_as_they_are():
    assert grouped_order("ab", ["ab", "abba", "bb"]) == ["ab", "abba", "bb"]


def test_nearly_all_words_have_the_same_tokens():
    plain, grouped = (BpeTokenizer(packed_students.pieces(400, grouped), 64) for grouped in (False, True))
    words = sorted({word for text in TEXTS for word in text.split()})
    same = 0
    for word in words:
        tokens = [[tokenizer.pieces[i] for i in tokenizer.encode([word]).ids.ravel()] for tokenizer in (plain, grouped)]
        same += tokens[0] == tokens[1]
    assert same >= 0.95 * len(words)
    assert sorted(plain.pieces) == sorted(grouped.pieces)


@pytest.mark.parametrize("share", [0, 0.3])
def test_a_file_is_smaller_and_all_readers_split_text_alike(tmp_path, c_library, share):
    sizes = {}
    for grouped in (False, True):
        model = packed_students.unused(packed_students.pieces(400, grouped), share)
        rows = BpeTokenizer(model, 64).vocab_size
        folder = packed_students.write_student(tmp_path / str(grouped), "ffn", "bpe", model=model, vocab_size=rows)
        sizes[grouped] = len(pack_student(folder))
        file = packed_students.write_packed(folder)
        expected = packed_students.torch_logits(folder, TEXTS)
        assert np.allclose(load(file).logits(TEXTS), expected, atol=1e-4)
        assert np.allclose(load_native(file).logits(TEXTS), expected, atol=1e-3)
    assert sizes[True] < sizes[False] - 100
