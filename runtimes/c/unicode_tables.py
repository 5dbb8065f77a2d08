"""Write the Unicode tables of featherweight.h from this Python's unicodedata, between the marks in the file.

    python runtimes/c/unicode_tables.py

The tables hold what the tokenizers ask of Python's strings: lower case, white space, categories, decompositions and
compositions. They are those of one version of Unicode, which the file names; another Python may have another.
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADER = Path(__file__).parent / "featherweight.h"
BEGIN, END = "/* unicode tables: begin */\n", "/* unicode tables: end */\n"
SPACE, ALNUM, DIGIT, MARK, PUNCTUATION, GONE, SEPARATOR, CASED, IGNORABLE = (1 << bit for bit in range(9))
"""Flags of a code point, as in featherweight.h: str.isspace, str.isalnum, Nd, Mn, P*, Cc Cf Co, Zs, cased,
case-ignorable."""
BLOCK = 128
LAST = 0x110000
CANONICAL = 1 << 21


def flags_of(code: int) -> int:
    """Return the flags of a code point."""
    character, category = chr(code), unicodedata.category(chr(code))
    found = SPACE * character.isspace() | ALNUM * character.isalnum() | DIGIT * (category == "Nd")
    found |= MARK * (category == "Mn") | PUNCTUATION * (category[0] == "P") | GONE * (category in ("Cc", "Cf", "Co"))
    return found | SEPARATOR * (category == "Zs") | CASED * is_cased(character) | IGNORABLE * is_ignorable(character)


def is_cased(character: str) -> bool:
    """Return whether a capital sigma after the character alone is a final one: it is cased and not ignorable."""
    return (character + "\u03a3").lower()[-1] == "\u03c2"


def is_ignorable(character: str) -> bool:
    """Return whether str.lower looks past the character when it decides whether a capital sigma is a final one."""
    return ("a" + character + "\u03a3").lower()[-1] == "\u03c2" and not is_cased(character)


def properties() -> tuple[list[tuple[int, int, int]], list[int], list[int]]:
    """Return the distinct records (flags, combining class, distance to the lower case), and two stages of indexes."""
    records: dict[tuple[int, int, int], int] = {}
    blocks: dict[tuple[int, ...], int] = {}
    stage1 = []
    for start in range(0, LAST, BLOCK):
        block = []
        for code in range(start, start + BLOCK):
            lower = chr(code).lower() if not 0xD800 <= code < 0xE000 else chr(code)
            # U+0130 has two characters in lower case, which the code knows.
            record = flags_of(code), unicodedata.combining(chr(code)), ord(lower) - code if len(lower) == 1 else 0
            block.append(records.setdefault(record, len(records)))
        stage1.append(blocks.setdefault(tuple(block), len(blocks)))
    return list(records), stage1, [index for block in blocks for index in block]


def decompositions() -> tuple[list[int], list[int], list[int]]:
    """Return keys (code point, CANONICAL), where each begins in a list of UTF-16 units, and the list; of one level."""
    keys, starts, units = [], [], []
    for code in range(LAST):
        parts = unicodedata.decomposition(chr(code)).split()
        if parts:
            canonical = not parts[0].startswith("<")
            text = "".join(chr(int(part, 16)) for part in parts[not canonical :])
            coded = text.encode("utf-16-le")
            keys.append(code | CANONICAL * canonical)
            starts.append(len(units))
            units += [int.from_bytes(coded[i : i + 2], "little") for i in range(0, len(coded), 2)]
    return keys, [*starts, len(units)], units


def compositions(keys: list[int]) -> list[int]:
    """Return the indexes of keys that are composed of two characters, sorted by these."""
    found = []
    for index, key in enumerate(keys):
        character = chr(key & (CANONICAL - 1))
        parts = unicodedata.decomposition(character).split()
        pair = "".join(chr(int(part, 16)) for part in parts) if key & CANONICAL else ""
        if len(pair) == 2 and unicodedata.normalize("NFC", pair) == character:
            found.append((pair, index))
    return [index for _, index in sorted(found)]


def array(kind: str, name: str, values: list[int]) -> str:
    """Return the definition of an array, in lines of at most 120 characters."""
    lines, line = [], ""
    for value in values:
        if len(line) + len(str(value)) + 1 > 118:
            lines.append(line)
            line = ""
        line += f"{value},"
    return f"static const {kind} {name}[{len(values)}] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


def tables() -> str:
    """Return the C text between the marks."""
    sys.path.insert(0, str(ROOT))
    from compression.runtime.tokenizers import normalisation

    records, stage1, stage2 = properties()
    keys, starts, units = decompositions()
    assert len(records) < 256
    assert max(stage1) < 256
    assert len(units) < 1 << 16
    later = normalisation._later_compositions()
    sequences = [[*map(ord, key), *[0] * (3 - len(key)), ord(value)] for key, value in sorted(later.items())]
    singles = sorted((ord(key), ord(value)) for key, value in normalisation._later_characters().items())
    nmt = normalisation._nmt_rules()
    parts = [
        f'#define FW_UNICODE "{unicodedata.unidata_version}"\n',
        "typedef struct { int32_t lower; uint16_t flags; uint8_t combining; } fw__record;\n",
        "static const fw__record fw__records[] = {\n"
        + "\n".join(f"{{{lower},{flags},{combining}}}," for flags, combining, lower in records)
        + "\n};\n",
        array("uint8_t", "fw__stage1", stage1),
        array("uint8_t", "fw__stage2", stage2),
        array("uint32_t", "fw__keys", keys),
        array("uint16_t", "fw__starts", starts),
        array("uint16_t", "fw__units", units),
        array("uint16_t", "fw__pairs", compositions(keys)),
        array("uint32_t", "fw__later_singles", [number for pair in singles for number in pair]),
        array("uint32_t", "fw__later_sequences", [number for row in sequences for number in row]),
        array("uint16_t", "fw__nmt_gone", sorted(ord(key) for key, value in nmt.items() if value == "")),
        array("uint16_t", "fw__nmt_spaces", sorted(ord(key) for key, value in nmt.items() if value == " ")),
        array("uint16_t", "fw__nmt_kept", sorted(ord(key) for key, value in nmt.items() if value is None)),
    ]
    return "".join(parts)


def with_tables(source: str) -> str:
    """Return the header's text with these tables."""
    before, rest = source.split(BEGIN)
    return before + BEGIN + tables() + END + rest.split(END)[1]


if __name__ == "__main__":
    HEADER.write_text(with_tables(HEADER.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{HEADER}: Unicode {unicodedata.unidata_version}")
