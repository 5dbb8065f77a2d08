"""Words of texts in any script: the rule, and the rule of older files."""

import tracemalloc

import pytest
import unicode_torture
from hypothesis import given
from hypothesis import strategies as st

from compression.runtime.tokenizers.bytelevel import gpt2_words
from compression.runtime.words import split_words, stands_alone, word_spans

WORDS = {
    "It's  FUN, isn't it?": ["it's", "fun", ",", "isn't", "it", "?"],
    "It’s": ["it's"],
    "C++ -1 :) <3": ["c", "+", "+", "-", "1", ":", ")", "<", "3"],
    "वह जाती हूँ।": ["वह", "जाती", "हूँ", "।"],  # Hindi
    "আমি বাংলায় গাই": ["আমি", "বাংলায়", "গাই"],  # Bengali
    "தமிழ் மொழி": ["தமிழ்", "மொழி"],  # Tamil
    "שָׁלוֹם עוֹלָם": ["שָׁלוֹם", "עוֹלָם"],  # Hebrew
    "مُحَمَّدٌ رَسُولٌ": ["مُحَمَّدٌ", "رَسُولٌ"],  # Arabic
    "می‌خواهم": ["می‌خواهم"],  # Persian, with a joiner
    "ดีมาก": ["ดี", "ม", "า", "ก"],  # Thai: a letter and its marks
    "ខ្មែរ ມື້ မြန်မာ": ["ខ្", "មែ", "រ", "ມື້", "မြ", "န်", "မာ"],  # Khmer, Lao, Burmese
    "今日は10時、晴れ!": ["今", "日", "は", "10", "時", "、", "晴", "れ", "!"],  # Japanese
    "我爱NLP。": ["我", "爱", "nlp", "。"],  # Chinese
    "한국어 문장": ["한국어", "문장"],  # Korean has spaces
    "❤️👍🏽": ["❤️", "👍", "🏽"],
    "cafe\u0301 ½x": ["cafe\u0301", "½x"],
    "\u0301a": ["\u0301", "a"],
}


@pytest.mark.parametrize("text", WORDS)
def test_words(text):
    assert split_words(text) == WORDS[text]


def test_answers_are_divided_at_apostrophes():
    text = "Ann’s $5.3bn 漢字 हूँ"
    parts = [text[start:end] for start, end in word_spans(text)]
    assert parts == ["Ann", "’", "s", "$", "5", ".", "3bn", "漢", "字", "हूँ"]


def test_marks_are_signs_by_the_rule_of_older_files():
    assert split_words("हूँ It’s 漢字", plain=True) == ["ह", "ू", "ँ", "it’s", "漢字"]
    assert word_spans("हू漢字", plain=True) == [(0, 1), (1, 2), (2, 4)]


@given(st.text(st.characters(max_codepoint=127)))
def test_both_rules_are_the_same_for_ascii(text):
    assert split_words(text) == split_words(text, plain=True) == split_words(f"{text} é")[:-1]
    assert word_spans(text) == word_spans(text, plain=True)


@given(st.one_of(st.text(), st.sampled_from(unicode_torture.TORTURE)))
def test_every_character_but_white_space_is_in_one_word(text):
    lower = text.lower().replace("\u2019", "'")
    assert "".join(split_words(text)) == "".join(lower.split())
    assert "".join(text[start:end] for start, end in word_spans(text)) == "".join(text.split())


def test_digits_do_not_stand_alone():
    assert [stands_alone(character) for character in "ก๑漢aあ한"] == [True, False, True, False, True, False]


@pytest.mark.parametrize("divide", [split_words, gpt2_words])
def test_a_service_that_reads_every_character_does_not_grow(divide):
    tracemalloc.start()
    for first in range(0x80, 0x20000, 0x100):
        divide("".join(map(chr, range(first, first + 0x100))))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 7_000_000  # 9.4 MB with a class kept for each
