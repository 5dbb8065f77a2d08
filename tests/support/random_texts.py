"""Random texts of all scripts, each from its number alone."""

import random

from unicode_torture import TORTURE

LONG = 100_000
COMMON = """the a is not and of it was film movie dull gorgeous boring best worst never good bad how do i what can why
are you get does gene protein patients with cancer disease aspirin induced human receptor , . ? ! 's -"""
WORDS = [*COMMON.split(), *dict.fromkeys(word for text in TORTURE for word in text.split() if len(word) < 100)]
SCRIPTS = [
    [*range(0x20, 0x7F)],
    [*range(0xA0, 0x370)],  # Latin
    [*range(0x300, 0x370), *range(0x1AB0, 0x1B00), *range(0x20D0, 0x2100), *range(0xFE20, 0xFE30)],  # marks
    [*range(0x370, 0x590)],  # Greek, Cyrillic, Armenian
    [*range(0x590, 0x900), *range(0xFB1D, 0xFE00), *range(0xFE70, 0xFF00), *range(0x1E800, 0x1EF00)],  # right to left
    [*range(0x900, 0x1100)],
    [*range(0x1100, 0x1200), *range(0xAC00, 0xD7FC)],  # Hangul, in parts and whole
    [*range(0x1200, 0x2000)],
    [*range(0x20), *range(0x7F, 0xA1), *range(0x2000, 0x2070), 0xFEFF, *range(0xFFF0, 0xFFFE)],  # controls and spaces
    [*range(0x2070, 0x3400)],
    [*range(0x3400, 0xAC00)],
    [0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF, *range(0xF8F0, 0xF900)],  # next to surrogates, ends of planes
    [*range(0xF900, 0xFB1D), *range(0xFE00, 0xFE70), *range(0xFF00, 0xFFF0)],  # compatibility
    [*range(0x1F000, 0x1FB00), 0x200D, 0xFE0F, 0x20E3, *range(0x1F1E6, 0x1F200), *range(0xE0020, 0xE0080)],  # emoji
    [*range(0x10000, 0x1F000)],
    [*range(0xD800), *range(0xE000, 0x110000)],
]


def random_text(number: int) -> str:
    """Return the text with a number: up to twenty words, of which a third are new; one in ten thousand is LONG.

    A new word has letters of one script, in half of the words with marks, controls or other letters among them.
    """
    draw = random.Random(number)

    def word(length: int) -> str:
        script = draw.choice(SCRIPTS)
        others = draw.choice(SCRIPTS) if draw.random() < 0.5 else script
        return "".join(chr(draw.choice(script if draw.random() < 0.7 else others)) for _ in range(length))

    if number % 10_000 == 9_999:
        return word(LONG)
    words = range(draw.randint(0, 20))
    return " ".join(word(draw.randint(1, 8)) if draw.random() < 1 / 3 else draw.choice(WORDS) for _ in words)
