"""Write the Unicode tables of featherweight.h from this Python's unicodedata, between the marks in the file.

    python runtimes/c/unicode_tables.py

The tables hold what the tokenizers ask of Python's strings: lower case, white space, categories, decompositions and
compositions. They belong to one version of Unicode, which the file names; another Python may have another version.
"""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADER = Path(__file__).parent / "featherweight.h"
BEGIN, END = "/* unicode tables: begin */\n", "/* unicode tables: end */\n"
SPACE, ALNUM, DIGIT, MARK, PUNCTUATION, GONE, SEPARATOR, CASED, IGNORABLE, EXTENDS = (1 << bit for bit in range(10))
"""Flags of a code point, as in featherweight.h: str.isspace, str.isalnum, Nd, Mn, P*, Cc Cf Co, Zs, cased,
case-ignorable, M* and joiners."""
LEAF, MIDDLE = 8, 16
"""Code points per leaf, and leaves per block, of the three-stage lookup of a code point's record."""
BEYOND = 0x20000
"""From this code point on, records are stored for a few long ranges."""
LAST = 0x110000
CANONICAL = 1 << 21
MOST_ROWS, MOST_GAP = 200, 6
"""Most code points of a run of decompositions, and most consecutive ones without a decomposition within it."""
ABSENT, SLOPE = 4, 8
"""Flags of a column, added to its bytes per cell, 0 to 3: a cell of 0 is no part; values rise with the code points."""


def flags_of(code: int) -> int:
    """Return the flags of a code point."""
    character, category = chr(code), unicodedata.category(chr(code))
    flags = SPACE * character.isspace() | ALNUM * character.isalnum() | DIGIT * (category == "Nd")
    flags |= EXTENDS * (category[0] == "M" or character in "\u200c\u200d")
    flags |= MARK * (category == "Mn") | PUNCTUATION * (category[0] == "P") | GONE * (category in ("Cc", "Cf", "Co"))
    return flags | SEPARATOR * (category == "Zs") | CASED * is_cased(character) | IGNORABLE * is_ignorable(character)


def is_cased(character: str) -> bool:
    """Return whether a capital sigma after the character alone is a final one: it is cased and not ignorable."""
    return (character + "\u03a3").lower()[-1] == "\u03c2"


def is_ignorable(character: str) -> bool:
    """Return whether str.lower looks past the character when it decides whether a capital sigma is a final one."""
    return ("a" + character + "\u03a3").lower()[-1] == "\u03c2" and not is_cased(character)


def record_of(code: int) -> tuple[int, int]:
    """Return the flags of a code point, and the offset to its lower case, modulo 65,536.

    If the code point is not cased, the second value is its combining class. U+0130, whose lower case has two
    characters, is handled in the C code.
    """
    flags, lower, combining = flags_of(code), chr(code).lower(), unicodedata.combining(chr(code))
    change = ord(lower) - code if len(lower) == 1 else 0
    assert not (combining if flags & CASED else change)
    assert (code + change) >> 16 == code >> 16
    return flags, change & 0xFFFF if flags & CASED else combining


def stage(values: list[int], size: int) -> tuple[list[int], list[int]]:
    """Return the index of the block of `size` values at each place, and the distinct blocks, concatenated."""
    blocks: dict[tuple[int, ...], int] = {}
    indexes = [
        blocks.setdefault(tuple(values[start : start + size]), len(blocks)) for start in range(0, len(values), size)
    ]
    return indexes, [value for block in blocks for value in block]


def column(values: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Return the n-th parts of a run's decompositions, 0 where one has none, as a head (kind, base) and cells.

    Cells are differences from the base, of 1 to 3 bytes each; there are none if all parts are equal, or rise with the
    code points.
    """
    there = [value for value in values if value]
    absent = len(there) < len(values)
    rises = all(value == values[0] + place for place, value in enumerate(values))
    if not absent and (rises or min(there) == max(there)):
        kind, base, cells = SLOPE * rises, values[0], b""
    else:
        base = min(there) - absent
        width = (max(there) - base).bit_length() + 7 >> 3
        kind = width | ABSENT * absent
        cells = b"".join((value - base if value else 0).to_bytes(width, "little") for value in values)
    return bytes([kind | base >> 16 << 4, base & 255, base >> 8 & 255]), cells


def run_bytes(rows: list[list[int]]) -> bytes:
    """Return the decompositions of consecutive code points, empty where there is none."""
    heads, cells = zip(*map(column, itertools.zip_longest(*rows, fillvalue=0)), strict=True)
    return bytes([len(heads)]) + b"".join(heads) + b"".join(cells)


def decompositions() -> tuple[list[int], list[int], list[int]]:
    """Return runs of code points that decompose: first code points (with CANONICAL), starts of their bytes, all bytes.

    The runs are chosen to take the fewest bytes in total; after the last one come its end and LAST.
    """
    rows: list[tuple[int, bool, list[int]]] = []
    for code in range(LAST):
        parts = unicodedata.decomposition(chr(code)).split()
        if parts:
            canonical = not parts[0].startswith("<")
            rows.append((code, canonical, [int(part, 16) for part in parts[not canonical :]]))
    best, back = [0], [0]
    for end in range(1, len(rows) + 1):
        costs = [(best[start] + cost, start) for start, cost in run_costs(rows, end)]
        least, start = min(costs)
        best.append(least)
        back.append(start)
    bounds = [len(rows)]
    while bounds[-1]:
        bounds.append(back[bounds[-1]])
    bounds.reverse()
    keys, starts, joined = [], [], b""
    for start, end in itertools.pairwise(bounds):
        by_code = {code: parts for code, _, parts in rows[start:end]}
        first, last = rows[start][0], rows[end - 1][0]
        keys.append(first | CANONICAL * rows[start][1] | (last - first) << 22)
        starts.append(len(joined))
        joined += run_bytes([by_code.get(code, []) for code in range(first, last + 1)])
    return keys, starts, list(joined)


def run_costs(rows: list[tuple[int, bool, list[int]]], end: int) -> Iterator[tuple[int, int]]:
    """Yield (start, bytes) of the runs that end before a row."""
    last, canonical, _ = rows[end - 1]
    least: list[int] = []
    greatest: list[int] = []
    counts: list[int] = []
    slopes: list[set[int]] = []
    for start in range(end - 1, -1, -1):
        code, of_kind, parts = rows[start]
        after = rows[start + 1][0] if start + 1 < end else code + 1
        if of_kind != canonical or last - code >= MOST_ROWS or after - code > MOST_GAP:
            return
        if len(parts) > 8 and (start < end - 1 or len(counts) > len(parts)):
            return
        for place, value in enumerate(parts):
            if place == len(counts):
                least.append(value), greatest.append(value), counts.append(0), slopes.append(set())
            least[place], greatest[place] = min(least[place], value), max(greatest[place], value)
            counts[place] += 1
            if len(slopes[place]) < 2:
                slopes[place].add(value - code)
        count, cost = last - code + 1, 7
        for low, high, there, slope in zip(least, greatest, counts, slopes, strict=True):
            cost += 3
            if there < count or (low < high and len(slope) > 1):
                cost += count * ((high - low + (there < count)).bit_length() + 7 >> 3)
        yield start, cost


def compositions() -> tuple[list[int], list[int], list[int]]:
    """Return the second characters of compositions, the start of each one's list, and the lists: the lower 16 bits of
    the composed characters, in the order of the first characters."""
    by_second: dict[int, list[tuple[int, int]]] = {}
    for code in range(LAST):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first, second = (int(part, 16) for part in parts)
            if unicodedata.normalize("NFC", chr(first) + chr(second)) == chr(code):
                assert first >> 16 == code >> 16
                by_second.setdefault(second, []).append((first, code & 0xFFFF))
    lists = [sorted(by_second[second]) for second in sorted(by_second)]
    starts = [0, *itertools.accumulate(map(len, lists))]
    return sorted(by_second), starts, [code for pairs in lists for _, code in pairs]


def arrays() -> list[tuple[str, str, list[int]]]:
    """Return (C type, name, values) of all tables: those of larger cells first, so that there is no padding."""
    sys.path.insert(0, str(ROOT))
    from compression.runtime.tokenizers import normalisation

    records: dict[tuple[int, int], int] = {}
    values = [records.setdefault(record_of(code), len(records)) for code in range(LAST)]
    middle, leaves = stage(values[:BEYOND], LEAF)
    top, middle = stage(middle, MIDDLE)
    beyond = [
        code | values[code] << 24 for code in range(BEYOND, LAST) if code == BEYOND or values[code - 1] != values[code]
    ]
    assert len(records) < 256
    assert max(top) < 256
    runs, starts, columns = decompositions()
    assert len(columns) < 1 << 16
    seconds, second_starts, composed = compositions()
    later = normalisation._later_compositions()
    sequences = [[*map(ord, key), *[0] * (3 - len(key)), ord(value)] for key, value in sorted(later.items())]
    singles = sorted((ord(key), ord(value)) for key, value in normalisation._later_characters().items())
    nmt = normalisation._nmt_rules()
    return [
        ("uint32_t", "beyond", beyond),
        ("uint32_t", "runs", runs),
        ("uint32_t", "seconds", seconds),
        ("uint32_t", "later_singles", [number for pair in singles for number in pair]),
        ("uint32_t", "later_sequences", [number for row in sequences for number in row]),
        ("uint16_t", "records", [number for record in records for number in record]),
        ("uint16_t", "middle", middle),
        ("uint16_t", "starts", starts),
        ("uint16_t", "second_starts", second_starts),
        ("uint16_t", "composed", composed),
        ("uint16_t", "nmt_gone", sorted(ord(key) for key, value in nmt.items() if value == "")),
        ("uint16_t", "nmt_spaces", sorted(ord(key) for key, value in nmt.items() if value == " ")),
        ("uint16_t", "nmt_kept", sorted(ord(key) for key, value in nmt.items() if value is None)),
        ("uint8_t", "top", top),
        ("uint8_t", "leaves", leaves),
        ("uint8_t", "columns", columns),
    ]


def lines(values: list[int]) -> str:
    """Return numbers in lines of at most 120 characters."""
    done, line = [], ""
    for value in values:
        if len(line) + len(str(value)) + 1 > 118:
            done.append(line)
            line = ""
        line += f"{value},"
    return "\n".join([*done, line])


def tables() -> str:
    """Return the C text between the marks."""
    all_arrays = arrays()
    fields = "".join(f"  {kind} {name}[{len(values)}];\n" for kind, name, values in all_arrays)
    return (
        f'#define FW_UNICODE "{unicodedata.unidata_version}"\n'
        f"typedef struct {{\n{fields}}} fw__unicode_tables;\n"
        "#ifndef FW_TABLES_ELSEWHERE\n"
        "static const fw__unicode_tables fw__tables = {\n"
        + "".join(f"{{ /* {name} */\n{lines(values)}\n}},\n" for _, name, values in all_arrays)
        + "};\n#endif\n"
    )


def table_bytes(source: str) -> bytes:
    """Return the tables of the header's text for deflating: of the cells of four bytes the first byte of each, the
    second of each, ..., then those of two bytes in the same way, then those of one."""
    text = source.split(BEGIN)[1].split(END)[0]
    sizes = [int(bits) // 8 for bits in re.findall(r"^  uint(\d+)_t", text, re.MULTILINE)]
    cells: dict[int, list[int]] = {4: [], 2: [], 1: []}
    for size, values in zip(sizes, re.findall(r"/\*.*\*/\n([^}]*)", text), strict=True):
        cells[size] += map(int, values.split(",")[:-1])
    return b"".join(
        bytes(value >> 8 * place & 255 for value in values) for size, values in cells.items() for place in range(size)
    )


def with_tables(source: str) -> str:
    """Return the header's text with these tables."""
    before, rest = source.split(BEGIN)
    return before + BEGIN + tables() + END + rest.split(END)[1]


if __name__ == "__main__":
    HEADER.write_text(with_tables(HEADER.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{HEADER}: Unicode {unicodedata.unidata_version}")
