"""Small packed files that try what has broken loaders of other formats, and the table of them in tests/runtime/attacks.

    python tests/support/attacks.py

writes the files and the table.
"""

import struct
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from damage import assemble, written

from compression.runtime import KRONECKER, PRODUCT, PackedError
from compression.runtime.entropy import BY_ROW, CODED, CONSTANT, RAW
from compression.runtime.model import MAGIC, MOST_HEADER, VERSION, load_bytes
from compression.runtime.shapes import ARCHS, EMBEDDINGS
from compression.runtime.weights import AFFINE, CODEBOOK, PER_ROW

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "runtime" / "attacks"
NGRAMS = 8
PLANE = bytes([CONSTANT, 0])
ONES = bytes([0, 0]) + bytes([CONSTANT, 0, CONSTANT, 0, CONSTANT, 0x80, CONSTANT, 0x3F])
"""A matrix of float32 0x3f800000, not masked: four constant planes, which take no bytes whatever its size."""
ZEROS = 4 * PLANE
"""The shared floats, all zero."""
STATES = struct.pack("<2I", 0x10C000, 0x100000)
"""The states of two merges."""
MINUS_ONE = b"\xff\xff\xff\xff\x0f"
"""2^32 - 1 as a number of the file: -1 in a signed integer of 32 bits."""
LARGEST = 1 << 25
"""The largest number that a file may have."""


def forged(arch, embedding, dim=1, units=1, encoder=(), vocabulary=b"", flags=0, form=0):
    """The first fields of a header. encoder, vocabulary: their bytes, or numbers. form: added to the architecture's."""
    number = NGRAMS if embedding == "ngrams" else EMBEDDINGS.index(embedding)
    header = bytes([ARCHS.index(arch) + form, number, flags]) + b"\x03big\x01t" + bytes([0, 5])
    parts = (dim, units, *(encoder if isinstance(encoder, tuple) else (encoder,)), vocabulary)
    return header + b"".join(part if isinstance(part, bytes) else written(part) for part in parts)


def sealed(body, length=None):
    """A file with these bytes after its length, which may be another than the real one, and the right checksum."""
    length = len(body) + 12 if length is None else length
    data = MAGIC + bytes([VERSION]) + length.to_bytes(4, "little") + body
    return data + zlib.crc32(data).to_bytes(4, "little")


def deflated(header, size):
    """A file whose header is deflated, and claims to be of this size."""
    deflate = zlib.compressobj(9, wbits=-15)
    stored = deflate.compress(header) + deflate.flush()
    return sealed(written(len(stored)) + written(size) + stored)


CHARACTERS = forged("ffn", "char")
LABELS = 9
"""Where the number of labels is in such a header."""
REST = 2 * ONES + ZEROS
"""The matrices of the classifier, and the shared floats."""
CODES = bytes([0, 0, CODED, 1, 4, 0]) + 3 * PLANE
"""A matrix of float32 whose lowest bytes are coded, with a table of two symbols."""
RANK = written(LARGEST)
TABLES = forged("transformer", "char", 2, 1, (2, b"\x7f\x01", 2, 2)) + 1_000 * (
    bytes([PRODUCT, 1]) + 2 * (bytes([0, 0]) + 4 * (bytes([BY_ROW, 127]) + PLANE + 127 * b"\0\1"))
)
SUM = forged("transformer", "char", 1, 1, (1 << 12, b"\xff\1", 1, 0)) + 2000 * ONES + ZEROS
RULE = forged("ffn", "bpe", vocabulary=b"\0\0\1\1a\1" + written(10**6) + 10**6 * b"b")
NESTED = CHARACTERS + bytes([PRODUCT, 1]) * 30_000
NAN = struct.pack("<f", float("nan"))


def tokens(header, number):
    """The header with another number of tokens."""
    return header.replace(b"t\0\x05", b"t\0" + number)


def pieces(vocabulary):
    """A file of word pieces."""
    return assemble(forged("ffn", "wordpiece", vocabulary=vocabulary) + ONES + REST, b"")


def pairs(vocabulary):
    """A file of byte pairs."""
    return assemble(forged("ffn", "bpe", vocabulary=vocabulary) + ONES + REST, b"")


def rows(first, dim=1):
    """The header of a file of hashed words, up to its table. first: rows of the table, as the file has them."""
    return forged("ffn", "hash", dim, vocabulary=b"\1" + first)


# fmt: off
ATTACKS = {
    "Products of dimensions that wrap": {
        "wrap-table": ("a table of 2^18 x 2^14 numbers: 2^32, which is 0 in 32 bits",
                       assemble(rows(written(1 << 18), 1 << 14) + 2 * ONES + REST, b"")),
        "wrap-rank": ("a product of rank 2^25 whose left factor has 128 rows: 2^32 numbers",
                      assemble(forged("ffn", "char", 1, 128) + ONES + bytes([PRODUCT]) + RANK + 3 * ONES + ZEROS, b"")),
        "wrap-window": ("a convolution of 255 x 2^14 inputs and 2^15 outputs: 2^37 weights",
                        assemble(forged("conv", "char", 1 << 14, 1, (1 << 14, b"\xff"), flags=2) + 2 * ONES + REST,
                                 b"")),
        "wrap-heads": ("255 attention heads of 2^14 numbers: a layer of 4 million outputs",
                       assemble(forged("transformer", "char", 1, 1, (1, b"\1\xff", 1, 0, 1 << 14), form=128)
                                + 20 * ONES + ZEROS, b"")),
        "wrap-positions": ("positions of 2^25 tokens, of 2^14 numbers each: 2^39",
                           assemble(tokens(forged("transformer", "char", 1, 1, (1 << 14, b"\1\1", 1, 0)), RANK)
                                    + 20 * ONES + ZEROS, b"")),
        "wrap-sum": ("255 layers of matrices of 2^24 numbers each: less than a file may have, and 2^32 in sum",
                     deflated(SUM, len(SUM))),
    },
    "Types that are not checked before they choose a reader": {
        "type-of-matrix": ("a matrix of form 6; there are 0 to 5", assemble(CHARACTERS + b"\6" + ONES + REST, b"")),
        "type-of-matrix-255": ("a matrix of form 255, -1 in a signed byte",
                               assemble(CHARACTERS + b"\xff" + ONES + REST, b"")),
        "type-of-array": ("an array stored in way 5; there are 0 to 4",
                          assemble(CHARACTERS + bytes([0, 0, 5]) + ONES + REST, b"")),
        "type-of-classes": ("classes of rows that have classes themselves",
                            assemble(CHARACTERS + bytes([0, 0, BY_ROW, 1, BY_ROW, 1]) + ONES + REST, b"")),
        "type-of-encoder": ("architecture 7; there are 0 to 6", assemble(b"\7" + CHARACTERS[1:] + ONES + REST, b"")),
        "type-of-embedding": ("embedding 255; there are 0 to 8",
                              assemble(CHARACTERS[:1] + b"\xff" + CHARACTERS[2:] + ONES + REST, b"")),
        "type-of-task": ("kind of task 200, which no reader knows",
                         assemble(CHARACTERS[:2] + bytes([12, 200]) + CHARACTERS[3:] + ONES + REST, b"")),
        "type-of-code": ("code 9 of a codebook of two numbers",
                         assemble(CHARACTERS + bytes([CODEBOOK, 0, 1, CONSTANT, 9]) + REST, b"")),
        "type-of-class": ("rows of class 9, with one table",
                          assemble(CHARACTERS + bytes([0, 0, BY_ROW, 1, CONSTANT, 9, 1, 4, 0]) + 3 * PLANE + REST,
                                   written(33) + 33 * b"\0\0\1\0")),
    },
    "Numbers that are negative in signed integers": {
        "negative-pieces": ("2^32 - 1 word pieces: -1 in 32 bits", pieces(b"\0" + MINUS_ONE)),
        "negative-shared": ("a word piece that shares -1 characters with the one before it",
                            pieces(b"\0\2\0\1a" + MINUS_ONE + b"\1b")),
        "negative-length": ("a word piece of -1 bytes", pieces(b"\0\1\0" + MINUS_ONE)),
        "negative-merges": ("-1 merges of byte pairs", pairs(b"\0\0\0\1a" + MINUS_ONE)),
        "negative-literals": ("-1 merges that are stored as text", pairs(b"\0\0\0\1a\2" + MINUS_ONE)),
        "negative-literal": ("a merge that is stored as text, -1 behind the one before it",
                             pairs(b"\0\0\0\1a\2\2\0\1b" + MINUS_ONE + b"\1c")),
        "negative-group": ("a group of merges that is -1 smaller than the largest",
                           pairs(b"\x10\0\0\2ab\2\0" + PLANE + MINUS_ONE)),
        "negative-rules": ("-1 rules of normalisation", pairs(b"\0\0" + MINUS_ONE)),
        "negative-rows": ("-1 rows of a table", assemble(rows(MINUS_ONE) + 2 * ONES + REST, b"")),
        "negative-ngrams": ("-1 n-grams",
                            assemble(forged("ffn", "ngrams", vocabulary=b"\x20" + MINUS_ONE) + ONES + REST, b"")),
        "negative-in-64-bits": ("a number of ten bytes: -1 in 64 bits",
                                assemble(rows(9 * b"\xff" + b"\1") + 2 * ONES + REST, b"")),
    },
    "What ends the process where it is an assertion, a division or a recursion": {
        "abort-empty": ("a file without bytes", b""),
        "abort-short": ("a file that ends after its version", MAGIC + bytes([VERSION])),
        "abort-no-header": ("a header of no bytes", sealed(b"\0\0\0\0")),
        "abort-cut": ("a header that ends within a number", assemble(CHARACTERS[:LABELS] + b"\x80", b"")),
        "abort-recursion": ("products of products, 30,000 deep", deflated(NESTED, len(NESTED))),
        "abort-no-heads": ("a transformer of 0 heads, by which its width is divided",
                           assemble(forged("transformer", "char", 1, 1, (1, b"\1\0", 1, 0)) + 20 * ONES + ZEROS, b"")),
        "abort-no-height": ("blocks of 0 rows, by which rows are divided",
                            assemble(CHARACTERS + bytes([KRONECKER, 1, 1, 0]) + 2 * ONES + REST, b"")),
        "abort-no-lanes": ("a coded stream of 0 states", assemble(CHARACTERS + CODES + REST, b"\0")),
        "abort-no-frequencies": ("a table whose frequencies are all 0",
                                 assemble(CHARACTERS + CODES.replace(b"\1\4\0", b"\1\0\0") + REST,
                                          b"\x21" + 33 * b"\0\0\1\0")),
        "abort-no-labels": ("any number of labels, of which there are 0",
                            assemble(CHARACTERS[:2] + b"\x08" + CHARACTERS[3:] + ONES + REST, b"")),
        "abort-no-kernel": ("a convolution whose window has 0 tokens",
                            assemble(forged("conv", "char", 1, 1, (1, b"\0"), flags=2) + 2 * ONES + REST, b"")),
        "abort-utf8": ("a name that is not UTF-8", assemble(CHARACTERS.replace(b"big", b"b\xffg") + ONES + REST, b"")),
        "abort-nan": ("weights that are not numbers", assemble(CHARACTERS + ONES.replace(b"\x3f", b"\x7f").replace(
            b"\x80", b"\xff") + REST, b"")),
        "abort-temperature": ("a temperature that is not a number",
                              assemble(CHARACTERS[:2] + b"\x10" + CHARACTERS[3:LABELS] + b"\2\1a\1b"
                                       + CHARACTERS[LABELS + 1:] + ONES + REST, NAN)),
        "abort-later-merge": ("a merge of byte pairs that has a later one as a part",
                              assemble(forged("ffn", "bpe", vocabulary=b"\0\0\0\2ab\2\0" + PLANE + b"\5") + ONES + REST,
                                       STATES)),
        "abort-one-symbol": ("a group of merges of which one symbol can be a part",
                             assemble(forged("ffn", "bpe", vocabulary=b"\x10\0\0\1a\2\0" + PLANE + b"\0" + 2 * PLANE
                                             + b"\4") + ONES + REST, STATES)),
    },
    "Sizes so near the maximum that a padding, or a place, wraps": {
        "padding-length": ("a file of 2^32 - 1 bytes, by its own length", sealed(b"\0\0\0\0", 0xFFFFFFFF)),
        "padding-header": ("a header of 2^25 bytes, as it is stored", sealed(RANK + RANK + CHARACTERS)),
        "padding-header-largest": ("a header of 2^32 - 1 bytes", sealed(MINUS_ONE + MINUS_ONE + CHARACTERS)),
        "padding-text": ("a name of 2^25 bytes", assemble(CHARACTERS[:3] + RANK + CHARACTERS[4:], b"")),
        "padding-raw": ("2^25 - 100 zero points, stored as they are",
                        assemble(rows(written(LARGEST - 100)) + bytes([AFFINE, PER_ROW, RAW]) + ONES + REST, b"")),
        "padding-tables": ("127 tables that end beyond the header",
                           assemble(CHARACTERS + bytes([0, 0, BY_ROW, 127]) + PLANE + b"\xff", b"")),
        "padding-lanes": ("33 states of a stream, of which two are there",
                          assemble(CHARACTERS + CODES + REST, b"\x21" + 8 * b"\1")),
        "padding-words": ("a stream that ends in the middle of what its states read",
                          assemble(CHARACTERS + CODES + REST, b"\1\0\0\1\0\0")),
    },
    "Headers that ask for gigabytes": {
        "gigabytes-groups": ("65 groups of a merge each, of which there are at most 64", pairs(
            b"\x10\0\0\2ab\x64\0" + PLANE + b"".join(bytes([max(16, n // 4) - 1]) for n in range(65)))),
        "gigabytes-inflated": ("33 KB that inflate to 32 MB", deflated(bytes(LARGEST), LARGEST)),
        "gigabytes-inflated-beyond": ("17 KB that inflate to 16 MB, and say 4",
                                      deflated(bytes(4 * MOST_HEADER), MOST_HEADER)),
        "gigabytes-constant": ("matrices of one repeated number: 100 bytes that stand for 1 GB",
                               assemble(forged("ffn", "char", 1 << 14, 1 << 14) + 3 * ONES + ZEROS, b"")),
        "gigabytes-width": ("vectors of 2^25 numbers", assemble(forged("ffn", "char", LARGEST) + ONES + REST, b"")),
        "gigabytes-coded": ("2^24 coded numbers in a stream of a few bytes",
                            assemble(rows(written(1 << 24)) + CODES + ONES + REST, b"\1\0\0\1\0")),
        "gigabytes-tables": ("1,000 arrays of 127 tables each", deflated(TABLES, len(TABLES))),
        "gigabytes-aligned": ("aligned texts of 2^25 tokens: 2^50 scores",
                              assemble(tokens(forged("conv", "char", 1, 1, (1, b"\1"), flags=35), RANK)
                                       + 2 * ONES + REST, b"")),
        "gigabytes-labels": ("65,536 labels of which none is there",
                             assemble(CHARACTERS[:LABELS] + written(1 << 16) + CHARACTERS[LABELS + 1:], b"")),
        "gigabytes-rule": ("a rule of normalisation that writes a megabyte for a letter", deflated(RULE, len(RULE))),
    },
    "Settings and vocabularies that contradict each other": {
        "settings-groups": ("merges in groups, of which one is stored as text",
                            pairs(b"\x10\0\0\2ab\2\1\0\2ab" + PLANE)),
        "settings-bucket": ("a left part in bucket 65,535, of 4", assemble(forged(
            "ffn", "bpe", vocabulary=b"\x10\0\0\2ab\2\0" + PLANE + b"\0" + 2 * bytes([CONSTANT, 255]) + b"\5")
            + ONES + REST, STATES)),
        "settings-words": ("a label for each word of an FFN, which has no words",
                           assemble(CHARACTERS[:2] + b"\4" + CHARACTERS[3:] + ONES + REST, b"")),
        "settings-questions": ("questions, with no labels for their answers",
                               assemble(forged("conv", "char", 1, 1, (1, b"\1"), flags=39)[:LABELS] + b"\1\1a"
                                        + CHARACTERS[LABELS + 1:] + b"\1\1" + 3 * ONES + REST, b"")),
        "settings-threshold": ("a threshold for a score", assemble(CHARACTERS[:2] + b"\x80" + CHARACTERS[3:] + ONES
                                                                   + REST, bytes(4))),
        "settings-heads": ("2 attention heads for 3 units",
                           assemble(forged("transformer", "char", 1, 1, (3, b"\1\2", 1, 0)) + 20 * ONES + ZEROS, b"")),
        "settings-mask": ("a mask, and values that are coded by row",
                          assemble(CHARACTERS + b"\0\1" + PLANE + bytes([BY_ROW, 1]) + PLANE + b"\1\4\0" + 3 * PLANE
                                   + REST, b"")),
        "vocabulary-flags": ("byte-level pairs, and a flag of other pairs", pairs(b"\x0a" + b"\1a\0\0")),
        "vocabulary-literal": ("the text of merge 3, of 2 merges", pairs(b"\0\0\0\1a\2\1\2\1b" + PLANE + b"\4")),
        "vocabulary-repeated": ("two merges of the same text",
                                pairs(b"\0\0\0\1a\2\2\0\2bc\0\2bc" + PLANE + b"\4")),
        "vocabulary-repeated-long": ("two merges of the same text, longer than a merge of symbols may be",
                                     pairs(b"\0\0\0\1a\2\2" + 2 * (b"\0" + written(600) + 600 * b"x") + PLANE + b"\4")),
        "vocabulary-order": ("word pieces that are not sorted", pieces(b"\0\2\0\1b\0\1a")),
    },
}
# fmt: on
"""What each class of attacks has: the name of a file, what it tries, and its bytes."""


def table():
    """Return the text of README.md: every attack, and what a reader says to it."""
    lines = [
        "# Attacks",
        "",
        "Packed files that try what has broken loaders of other formats, above all those of GGUF in 2026.",
        "All readers refuse them (NumPy, the joined file, C, WebAssembly), with one line and in bounded memory;",
        "`tests/runtime/test_attacks.py` checks it. `python tests/support/attacks.py` writes the files and this page.",
    ]
    for title, files in ATTACKS.items():
        lines += ["", f"## {title}", "", "| file | what it tries | what happens |", "|---|---|---|"]
        lines += [f"| `{name}.fwt` | {tries} | {refusal(data)} |" for name, (tries, data) in files.items()]
    return "\n".join(lines) + "\n"


def refusal(data):
    """Return what the NumPy runtime says to a file; raises ValueError if it is a model."""
    try:
        load_bytes(data)
    except PackedError as error:
        return str(error)
    raise ValueError("a model")


def main():
    """Write the files and the table."""
    FOLDER.mkdir(exist_ok=True)
    for files in ATTACKS.values():
        for name, (_, data) in files.items():
            (FOLDER / f"{name}.fwt").write_bytes(data)
    (FOLDER / "README.md").write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    main()
