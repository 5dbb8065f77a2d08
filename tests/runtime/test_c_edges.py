"""Places of the C runtime that no ordinary file or text reaches, each by one made for it: C treats it as NumPy does."""

import ctypes
import struct
import zlib

import attacks
import damage
import numpy as np
import packed_students as made
import pytest
from c_parity import NEAR, both, refused

from compression.runtime import KRONECKER, PRODUCT, PackedError, native
from compression.runtime.entropy import BY_ROW, CONSTANT, RAW, frequencies
from compression.runtime.model import load_bytes
from compression.runtime.native import NativeModel, load_native
from compression.runtime.weights import AFFINE, CODEBOOK, PER_COLUMN, PER_ROW

pytestmark = pytest.mark.usefixtures("c_library")
NO_HEADER, NO_WORKSPACE = 5, 14
PLANES = bytes([0, 0, CONSTANT, 0, CONSTANT, 0, RAW, CONSTANT, 0x3F])
"""A matrix of float32 whose third bytes are stored as they are: every row has another number."""
BAD = bytes([0, 0]) + 3 * bytes([CONSTANT, 0xFF]) + bytes([CONSTANT, 0x7F])
"""A matrix that is not a number."""
BAD_CODE = bytes([CODEBOOK, 0, 1, CONSTANT, 9])
USED, UNKNOWN = 0, 2


def alike(data, texts):
    """Check that both readers give the same logits."""
    np.testing.assert_allclose(NativeModel(data).logits(texts), load_bytes(data).logits(texts), NEAR, NEAR)


def status_of(data):
    """Return what fw_open says to a file."""
    library = native._library()
    return library.fw_open(ctypes.create_string_buffer(library.fw_model_size()), data, len(data))


def bits(*values):
    """Return bytes of bits, the lowest first: (number, how many), or a code as a text, its first bit first."""
    text = "".join(value if isinstance(value, str) else f"{value[0]:0{value[1]}b}"[::-1] for value in values)
    return bytes(int(text[at : at + 8][::-1], 2) for at in range(0, len(text), 8))


FIXED, OTHER = [(1, 1), (1, 2)], [(1, 1), (2, 2)]
EMPTY_BLOCK = [(0, 1), (2, 2), (0, 5), (0, 5), (14, 4), (0, 3), (0, 3), (1, 3), (2, 3), *[(0, 3)] * 13, (2, 3),
               "0", (127, 7), "0", (107, 7), "11", "10", "0"]  # fmt: skip
"""A block whose code has a single symbol, its end."""
DEFLATED = {
    "no literals": [*OTHER, (31, 5), (0, 5), (0, 4)],
    "too many distances": [*OTHER, (0, 5), (31, 5), (0, 4)],
    "a length that does not exist": [*FIXED, "11000110", "00000"],
    "a distance that does not exist": [*FIXED, "0000001", "11110"],
    "the end in a length": [*FIXED, "110010000", "11000100"],
    "the end in a distance": [*FIXED, "0000001", "11101"],
    "the end in a repetition": [*OTHER, (0, 5), (0, 5), (0, 4), (0, 3), (1, 3), (1, 3), (0, 3), "1"],
}


@pytest.mark.parametrize("name", DEFLATED)
def test_deflate_that_breaks_off_or_names_what_does_not_exist(name):
    stored = bits(*DEFLATED[name])
    with pytest.raises(zlib.error):
        zlib.decompress(stored, -15)
    assert status_of(damage.assemble(attacks.CHARACTERS, b"", stored)) == NO_HEADER


def test_a_block_whose_code_has_one_symbol():
    header = attacks.CHARACTERS + attacks.ONES + attacks.REST
    length = len(header).to_bytes(2, "little")
    stored = bits(*EMPTY_BLOCK, (1, 1), (0, 2)) + length + bytes(255 - byte for byte in length) + header
    assert zlib.decompress(stored, -15) == header
    alike(damage.assemble(header, b"", stored), ["a film"])


def test_deflate_is_refused_wherever_it_ends():
    points = bytes([AFFINE, PER_ROW, RAW]) + np.random.default_rng(1).integers(0, 40, 3000, np.uint8).tobytes()
    header = attacks.rows(damage.written(3000)) + points
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED):
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9, strategy)
        stored = deflate.compress(header) + deflate.flush()
        for end in [*range(1, 120), len(stored) // 2]:
            assert status_of(damage.assemble(header, b"", stored[:end])) == NO_HEADER


def test_a_scale_and_a_zero_point_for_each_number():
    """Options that no command writes together: a scale for each row, and for each column."""
    points, codes = np.random.default_rng(2).integers(0, 40, (2, 24), np.uint8)
    table = bytes([AFFINE, PER_ROW | PER_COLUMN, RAW]) + points.tobytes() + bytes([RAW])
    floats = bytes([CONSTANT, 0, CONSTANT, 0, RAW, CONSTANT, 0x3F])  # the scales and two biases
    header = attacks.rows(b"\3", dim=8) + table + 3 * attacks.ONES + floats
    alike(damage.assemble(header, codes.tobytes() + bytes(range(26))), ["a film", "b c d e f"])


def test_settings_that_contradict_each_other():
    start, end = attacks.CHARACTERS[:2], attacks.CHARACTERS[attacks.LABELS + 1 :]
    name = attacks.CHARACTERS[3 : attacks.LABELS]
    for flags in (12, 12 | 16, 12 | 128, 12 | 16 | 128, 128, 128 | 8, 16):
        of_kind = bytes([flags, 1]) if flags & 12 == 12 else bytes([flags])
        for labels in (b"\0", b"\1\1a", b"\2\1a\1b", b"\3\1a\1b\1c"):
            header = start + of_kind + name + labels + end + attacks.ONES + attacks.REST
            data = damage.assemble(header, struct.pack("<2f", 1, 0.5)[: 4 * bool(flags & 16) + 4 * bool(flags & 128)])
            try:
                load_bytes(data)
            except PackedError:
                refused(data)
            else:
                alike(data, ["a film"])


def test_two_arrays_with_too_many_tables_of_which_one_is_wrong():
    tables = bytes([BY_ROW, 127]) + attacks.PLANE
    planes = tables + 127 * b"\0\1" + tables + 126 * b"\0\1" + b"\0\x40"
    refused(damage.assemble(attacks.forged("ffn", "char", 2) + b"\0\0" + planes, b""))


@pytest.mark.parametrize("length", [600, 3000])
def test_a_word_piece_that_is_too_long(length):
    refused(attacks.pieces(b"\0\1\0" + damage.written(length) + length * b"x"))
    refused(attacks.pieces(b"\0\1\0" + damage.written(length)))


def test_word_pieces_with_too_many_characters_together():
    first = b"\0" + damage.written(513) + 511 * b"x" + "\u0100".encode()
    more = (
        damage.written(511) + bytes([len(chr(code).encode())]) + chr(code).encode() for code in range(0x101, 0x4200)
    )
    refused(attacks.pieces(b"\0" + damage.written(0x4100) + first + b"".join(more)))


def test_a_factor_with_a_code_that_has_no_centroid():
    for left, right in ((BAD_CODE, attacks.ONES), (attacks.ONES, BAD_CODE)):
        refused(damage.assemble(attacks.CHARACTERS + bytes([PRODUCT, 1]) + left + right + attacks.REST, b""))
    for across, height in ((2, 2), (2, 1)):
        product = bytes([KRONECKER, 1, across, height])
        refused(damage.assemble(attacks.CHARACTERS + product + 2 * attacks.ONES + attacks.REST, b""))


def test_streams_of_too_few_states_and_of_arrays_without_numbers():
    coded = attacks.rows(damage.written(5000)) + attacks.CODES + attacks.ONES + attacks.REST
    refused(damage.assemble(coded, b"\1" + bytes(40)))
    nothing = bytes([0, 1, CONSTANT, 0]) + attacks.CODES[2:]
    share = int(frequencies(np.ones(2, np.int64))[0])
    state = ((1 << 16) // share << 13) + (1 << 16) % share
    header = attacks.CHARACTERS + nothing + attacks.CODES + attacks.ONES + attacks.ZEROS
    alike(damage.assemble(header, b"\1" + struct.pack("<I", state)), ["a film"])


def test_encoders_without_layers_and_words_with_a_threshold():
    for header in (
        attacks.forged("transformer", "char", 1, 1, (1, b"\0\1", 1, 0)),
        attacks.forged("conv", "char", 1, 1, (1, b"\1"), flags=2 | 4 | 128).replace(b"\1t\0", b"\1t\2\1a\1b"),
    ):
        refused(damage.assemble(header + 3 * attacks.ONES + attacks.REST, struct.pack("<f", 0.5)))


KINDS = {
    "rnn": (attacks.forged("rnn", "char", 1, 1, 1), 7),
    "gru": (attacks.forged("gru", "char", 1, 1, 1), 7),
    "composed": (attacks.forged("gru", "char", 1, 1, 1, flags=35, form=8), 12),
    "hashed": (attacks.forged("ffn", "hash", 1, vocabulary=b"\1\1"), 4),
    "transformer": (attacks.forged("transformer", "char", 1, 1, (1, b"\1\1", 1, 0)), 12),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_matrix_in_turn_is_not_a_number(kind):
    header, count = KINDS[kind]
    whole = [header, *[attacks.ONES] * count, attacks.ZEROS]
    load_bytes(damage.assemble(b"".join(whole), b""))
    NativeModel(damage.assemble(b"".join(whole), b""))
    for place in range(1, count + 1):
        refused(damage.assemble(b"".join([*whole[:place], BAD, *whole[place + 1 :]]), b""))


def pairs(vocabulary, rows, rest=b""):
    """Return a file of byte pairs whose symbols all have other numbers. rest: the stream of merges, if there are any,
    whose state has the first two bytes of the numbers."""
    header = attacks.forged("ffn", "bpe", vocabulary=vocabulary + damage.written(rows)) + PLANES + attacks.REST
    return damage.assemble(header, rest + bytes(3 * number % 128 for number in range(rows))[2 * bool(rest) :])


def states(state):
    """Return an array of one state for all symbols."""
    return bytes([CONSTANT, state])


def text_of(*texts):
    """Return texts as a file has them."""
    return b"".join(damage.written(len(text.encode())) + text.encode() for text in texts)


def joined(left, right, symbols=4, carried=3 << 8):
    """Return the stream of a single merge, of `symbols` symbols that are equally frequent."""
    frequency, state = frequencies(np.ones(symbols, np.int64), 16), (1 << 16) + carried
    for symbol in (right, left):
        whole, part = divmod(state, int(frequency[symbol]))
        state = (whole << 16) + part + int(frequency[:symbol].sum())
    return struct.pack("<I", state)


@pytest.mark.parametrize(
    ("literal", "left", "right"),
    [("", 0, 2), ("", 2, 0), ("x" * 300, 2, 2), ("xy", 0, 3), ("xy", 3, 0)],
    ids=["nothing behind", "nothing before", "too long", "itself behind", "itself before"],
)
def test_a_merge_that_cannot_be(literal, left, right):
    vocabulary = b"\0\0\0" + text_of("ab") + b"\2\1\0" + text_of(literal) + states(USED)
    refused(pairs(vocabulary, 5, joined(left, right)))
    if literal:
        alike(pairs(vocabulary, 5, joined(0, 1)), ["ab a", "ba", literal])
        header = attacks.forged("ffn", "bpe", vocabulary=vocabulary + b"\5") + attacks.ONES + attacks.REST
        alike(damage.assemble(header, joined(0, 1, carried=0)), ["ab"])
        refused(damage.assemble(header, joined(0, 1, carried=7)))


def test_merges_of_as_many_symbols_as_can_have_a_frequency():
    """The C runtime refused more than half of the frequencies' sum; the format allows seven eighths."""
    most = (1 << 16) - (1 << 13)
    for count in (40_000, most - 1, most):
        letters = "".join(chr(code) for code in range(0x100, 0x10000 + 0x900) if not 0xD800 <= code < 0xE000)[:count]
        data = pairs(
            b"\0\0\0" + text_of(letters) + b"\1\0" + states(USED), count + 2, joined(0, 0, min(count + 1, most))
        )
        if count == most:
            refused(data)
        else:
            alike(data, [2 * letters[0], letters[-1], letters[5:40]])


def test_a_space_that_is_no_symbol_or_has_no_row():
    for letters, state, rows in (("ab", USED, 3), ("ab\u2581", UNKNOWN, 1)):
        alike(pairs(b"\4\0\0" + text_of(letters) + b"\0\0" + states(state), rows), ["a b", "ab ab"])


@pytest.mark.parametrize("rows", [1, 4, 100])
def test_a_vocabulary_with_more_or_fewer_pieces_than_rows(rows):
    vocabulary = b"\4\0\0" + text_of("ab") + b"\0\0" + states(USED)
    alike(pairs(vocabulary, 3), ["ab"])
    refused(pairs(vocabulary, rows))


def test_a_literal_that_is_not_utf8_in_a_header_that_is_deflated():
    header = attacks.forged("ffn", "bpe", vocabulary=b"\0\0\0" + text_of("a") + b"\1\1\0\1\xff" + states(USED) + b"\3")
    header += attacks.ONES + attacks.REST
    refused(attacks.deflated(header, len(header)))


@pytest.mark.parametrize("flags", [0, 1, 2, 3])
def test_rules_that_repeat_delete_and_replace_controls(flags):
    rules = (
        ("aabba", "b"),
        ("aabba", "a"),
        ("\x01", "b"),
        ("b", ""),
        ("\u00e9", "ab"),
        ("babab", "a"),
        ("babab", None),
    )
    coded = b"".join(text_of(key) + (b"\0" if value is None else b"\1" + text_of(value)) for key, value in rules)
    refused(pairs(bytes([flags, 0, 1]) + text_of("", "a") + text_of("ab") + b"\0\0" + states(USED), 3))
    file = pairs(bytes([flags, 0, len(rules)]) + coded + text_of("ab\u2581") + b"\0\0" + states(USED), 4)
    alike(file, ["aabba", "aabba aabba b", "babab", "b", "bb", "", "a\x01b", "\u00e9", "x"])


def test_symbols_with_equal_hashes():
    """256 more in the first character is 103,168 less in the second one."""
    same = "a" + chr(103_168 + ord("a")), chr(ord("a") + 256) + "a"
    letters = "".join(dict.fromkeys("".join(same)))
    alone = b"\0\0\0" + text_of(letters) + b"\1\1\0" + text_of(same[0]) + states(USED)
    every = b"\0\0\0" + text_of(letters) + b"\2\2\0" + text_of(same[0]) + b"\0" + text_of(same[1]) + states(USED)
    merged = b"\0\0\0" + text_of(letters) + b"\2\1\0" + text_of(same[1]) + states(USED)
    later = b"\0\0\0" + text_of(letters) + b"\2\1\1" + text_of(same[1]) + states(USED)
    order = [letters.index(letter) for letter in same[0]]
    for file in (
        pairs(alone, 5),
        pairs(every, 6),
        pairs(merged, 6, joined(*order, symbols=5)),
        pairs(later, 6, joined(*order, symbols=4)),
    ):
        alike(file, [*same, "".join(same), "aa"])
    for one, other in (same, ("".join(same), "".join(same[::-1]))):
        literals = text_of(one + "x" * 600) + b"\0" + text_of(other + "x" * 600)
        alike(pairs(b"\0\0\0" + text_of(letters) + b"\2\2\0" + literals + states(USED), 6), [*same, "aa"])


def test_words_with_equal_hashes(tmp_path):
    """Of the cache of words: of other lengths, and of the same."""
    words = ["liquid", "costarring", "liquid", "costarring", "declinate", "macallums", "declinate", "macallums"]
    for number, (arch, embedding) in enumerate((("ffn", "hash"), ("bilstm", "bpe"))):
        theirs, ours = both(tmp_path / str(number), arch, embedding)
        np.testing.assert_allclose(ours.logits(words), theirs.logits(words), NEAR, NEAR)


def test_another_model_in_the_same_memory_does_not_use_the_words_of_the_first(tmp_path):
    library, room = native._library(), ctypes.create_string_buffer(1 << 16)
    library.fw_logits.argtypes = (ctypes.c_void_p, *(ctypes.c_char_p, ctypes.c_size_t) * 2)
    library.fw_logits.argtypes += (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    model, logits = ctypes.create_string_buffer(library.fw_model_size()), np.empty(3, np.float32)
    memory = np.empty(1 << 22, np.uint8)
    library.fw_start(room, len(room))
    for seed in (1, 2, 1):
        file = made.packed(tmp_path / str(seed), "bilstm", "hash", seed=seed)
        data = file.read_bytes()
        assert library.fw_open(model, data, len(data)) == 0
        assert library.fw_load(model, memory.ctypes.data, memory.size) == 0
        for _ in range(2):
            assert library.fw_logits(model, b"a film", 6, None, 0, room, len(room), logits.ctypes.data) == 0
            assert np.array_equal(logits, load_native(file).logits(["a film"])[0])


def test_a_file_or_memory_that_changes_after_it_was_checked(tmp_path):
    library = native._library()
    data = made.packed(tmp_path / "s", "ffn", "char", labels=["a" * 300, "b"]).read_bytes()
    file, model = ctypes.create_string_buffer(data, len(data)), ctypes.create_string_buffer(library.fw_model_size())
    memory = np.empty(1 << 20, np.uint8)
    opened = ctypes.cast(file, ctypes.c_char_p)
    assert library.fw_open(model, opened, len(data)) == 0
    file[12:60] = 48 * b"\xff"
    assert library.fw_load(model, memory.ctypes.data, memory.size) == NO_HEADER
    file[:] = data
    assert library.fw_open(model, opened, len(data)) == library.fw_load(model, memory.ctypes.data, memory.size) == 0
    memory[:] = 0xFF
    assert library.fw_label(model, 0, None) is None


def test_marks_at_the_start_of_a_text_in_the_wrong_order(tmp_path):
    theirs, ours = both(tmp_path, "conv", "char")
    np.testing.assert_allclose(*(model.logits(["\u0301\u0323 film"]) for model in (ours, theirs)), NEAR, NEAR)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("arch", ["conv", "transformer"])
def test_states_that_are_as_large_as_a_file_allows(tmp_path, arch, sign):
    def edit(tensors):
        for name, values in tensors.items():
            values[:] = 9e3 * sign if "blocks" in name and "down.weight" in name else 9e3
            if "convolution.weight" in name:  # values, and their gates
                values[: len(values) // 2] *= sign

    theirs, ours = both(tmp_path, arch, "char", edit=edit)
    expected = theirs.logits(["a film", "x"])
    np.testing.assert_allclose(ours.logits(["a film", "x"]), expected, NEAR, NEAR)


@pytest.mark.parametrize(
    ("arch", "embedding", "more"),
    [("ffn", "bpe", {}), ("ffn", "hash", {}), ("ffn", "ngrams", {}), ("conv", "wordpiece", {}), ("bilstm", "bpe", {}),
     ("transformer", "wordpiece", {"max_tokens": 20}), ("bilstm", "hash", {}),
     ("ffn", "hash", {"pair": True, "embedding_dim": 256}), ("conv", "char", {"kind": "tags", "cls_hidden_dim": 900}),
     ("bilstm", "char", made.ALIGNED | {"pair_encoder": "compose", "encoder_hidden_dim": 200}),
     ("conv", "char", made.ALIGNED | {"pair_encoder": "compose", "encoder_hidden_dim": 90})],
)  # fmt: skip
def test_workspaces_of_every_size(tmp_path, arch, embedding, more):
    """A text is answered as usual, or needs a larger workspace."""
    library = native._library()
    _, model = both(tmp_path, arch, embedding, **more)
    pointer, size_type = ctypes.c_void_p, ctypes.c_size_t
    library.fw_logits.argtypes = (pointer, *(ctypes.c_char_p, size_type) * 2, pointer, size_type, pointer)
    room, words, count = np.empty(40_064, np.uint8), (native._Word * 999)(), ctypes.c_size_t()
    at = room.ctypes.data + -room.ctypes.data % 64
    texts = ("films films", "a bad film " * 9, "films " * 90, "films " * 400, "caf\u00e9 " * 250, "", "\u4e2d\u6587")
    for text in texts:
        usual = model.logits([(text, "films") if model.pair else text])[0]
        logits, seen, coded = np.empty_like(usual), set(), text.encode()
        second = (b"films", 5) if model.pair else (None, 0)
        for size in range(0, 40_000, 64):
            library.fw_start(at, size)
            for _ in range(2):  # the second time words are in the cache
                if model.kind == "tags":
                    to = words, 999, ctypes.byref(count), logits.ctypes.data
                    status = library.fw_tag(model._block, coded, len(coded), at, size, *to)
                else:
                    text_and_second = coded, len(coded), *second
                    status = library.fw_logits(model._block, *text_and_second, at, size, logits.ctypes.data)
                assert status in (0, NO_WORKSPACE)
                assert status or np.allclose(logits, usual, atol=1e-5)
                seen.add(status)
        assert NO_WORKSPACE in seen
