"""The C runtime answers as the NumPy runtime: students of every tokenizer and encoder, any text, any file."""

import ctypes
import ctypes.util
import importlib
import itertools
import struct
import unicodedata
import zlib
from pathlib import Path

import c_runtime
import damage
import numpy as np
import packed_students as made
import pytest
import tiny
from c_parity import NEAR, TEXTS, both, check, refused
from hypothesis import example, given, settings
from hypothesis import strategies as st

from card import ZOO, read_cards
from common.data.prepare import source_files
from common.data.readers.tables import read_source
from common.data.tasks import load_task
from common.store.workspace import Workspace
from compression.packing import pack_student
from compression.runtime import PackedError, load, native, zoo_file
from compression.runtime.model import load_bytes
from compression.runtime.native import NativeModel, load_native
from compression.runtime.shapes import ALIGNING
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.ngrams import NGramTokenizer

pytestmark = pytest.mark.usefixtures("c_library")
ALIGNED = {"pair": True, "pooling": "max", "pair_encoder": "align"}
COMPOSED = ALIGNED | {"pair_encoder": "compose"}
ARCHS = tuple(arch for arch in made.ARCHS if arch not in made.TRANSFORMERS)
NO_MEMORY = 13
ATTRIBUTES = ("name", "task", "labels", "pair", "kind", "arch", "embedding", "outputs", "max_tokens")
ATTRIBUTES += ("temperature", "threshold")
CARDS = [card for card in read_cards(ZOO) if card.kind != "answers"]
"""The C runtime refuses models that answer questions."""


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("embedding", made.EMBEDDINGS)
def test_answers_are_those_of_the_numpy_runtime(tmp_path, arch, embedding):
    number = ARCHS.index(arch) + len(ARCHS) * made.EMBEDDINGS.index(embedding)
    form, pooling = made.FORMS[number % len(made.FORMS)], ("max", "last")[number // 4 % 2]
    sizes = {"pooling": "max" if arch in ("ffn", "conv") else pooling, "pair": number % 3 == 0, "seed": number}
    theirs, ours = both(tmp_path, arch, embedding, form, **sizes)
    check(theirs, ours, TEXTS)
    for name in ATTRIBUTES:
        assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize("pooling", tiny.POOLINGS["ffn"])
@pytest.mark.parametrize("embedding", [*made.EMBEDDINGS, "ngrams"])
def test_a_bag_of_tokens_is_pooled_in_each_way(tmp_path, embedding, pooling):
    """Single texts, whose words are cached, and pairs; of a width that is cached, and of one that is not."""
    for number, sizes in enumerate(({}, {"pair": True}, {"embedding_dim": 129, "max_tokens": 9})):
        theirs, ours = both(tmp_path / str(number), "ffn", embedding, pooling=pooling, **sizes)
        check(theirs, ours, [*TEXTS, "", "film", "film film", "the film", "the " * 300, ""])


def test_a_file_of_another_pooling_is_refused_by_both(tmp_path):
    header, rest = damage.take_apart(pack_student(made.write_student(tmp_path / "s", "ffn", "hash", pooling="both")))
    assert (header[0], header[2] & 2) == (32, 2)
    for form, flags in ((48, header[2]), (32, header[2] ^ 2), (16, header[2] ^ 2), (0, header[2])):
        refused(damage.assemble(bytes([form, header[1], flags]) + header[3:], rest))


@pytest.mark.parametrize("arch", ["bilstm", "gru"])
@pytest.mark.parametrize("form", made.FORMS)
def test_matrices_of_every_form(tmp_path, arch, form):
    check(*both(tmp_path, arch, "hash", form, encoder_hidden_dim=9, cls_hidden_dim=20), TEXTS[:20])


@pytest.fixture
def compact(monkeypatch):
    """The library is the one whose weights stay codes."""
    monkeypatch.setattr(native, "LIBRARY", str(c_runtime.built("libfeatherweight.so", c_runtime.COMPACT)))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(made.FORMS)))
def test_codes_are_multiplied_as_codes(tmp_path, compact, number):
    """Every form, with tokenizers and encoders in turn; rows of one number, and of more than are converted at once."""
    arch, embedding = ARCHS[number % len(ARCHS)], made.EMBEDDINGS[(number + number // 4) % len(made.EMBEDDINGS)]
    sizes = {"pair": number % 2 == 1, "embedding_dim": (1, 7, 33)[number % 3], "encoder_hidden_dim": 1 + 5 * number}
    check(*both(tmp_path, arch, embedding, made.FORMS[number], pooling="max", **sizes), TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("embedding", [*made.EMBEDDINGS, "ngrams"])
def test_texts_in_ascii_without_tables_of_unicode(tmp_path, monkeypatch, embedding):
    monkeypatch.setattr(native, "LIBRARY", str(c_runtime.built("libfeatherweight.so", "CFLAGS=-DFW_ASCII")))
    theirs, ours = both(tmp_path, "ffn" if embedding == "ngrams" else "conv", embedding)
    rng = np.random.default_rng(5)
    texts = ["".join(map(chr, rng.integers(1, 128, 40))) for _ in range(100)]
    check(theirs, ours, [*texts, *("x" + chr(code) + "the film" for code in range(1, 128)), "The film's ' end '."])
    with pytest.raises(PackedError, match="the text is not ASCII"):
        ours.logits(["a caf\u00e9"])


@pytest.mark.slow
@pytest.mark.parametrize("how", ["align", "compose"])
def test_aligned_texts_with_codes(tmp_path, compact, how):
    check(*both(tmp_path, "bilstm", "hash", "affine-row", **ALIGNED | {"pair_encoder": how}), TEXTS)


@pytest.mark.slow
def test_unused_byte_pairs_and_a_whole_model_as_codes(tmp_path, compact):
    model = made.unused(made.pieces(), 0.4)
    check(*both(tmp_path, "ffn", "bpe", model=model, vocab_size=BpeTokenizer(model, 512).vocab_size), TEXTS)
    check(*both(tmp_path / "ngrams", "ffn", "ngrams", "affine-row", pooling="both"), TEXTS)
    path = zoo_file("sst-2-12k")
    check(load(path), load_native(path), TEXTS)


@pytest.mark.parametrize("name", ["sst-2-12k", "sst-2-32k"])
def test_memory_that_is_enough_to_decode_a_file(name):
    """What it says before it decodes the file is enough; what it says afterwards is too, and less is refused."""
    data, library = Path(zoo_file(name)).read_bytes(), native._library()
    library.fw_needed.argtypes, library.fw_needed.restype = (ctypes.c_void_p,), ctypes.c_size_t
    library.fw_used.argtypes, library.fw_used.restype = (ctypes.c_void_p,), ctypes.c_size_t
    model = ctypes.create_string_buffer(library.fw_model_size())

    def load_with(size):
        assert library.fw_open(model, data, len(data)) == 0
        memory = np.empty(size + 64, np.uint8)
        return library.fw_load(model, memory.ctypes.data + -memory.ctypes.data % 64, size)

    assert library.fw_open(model, data, len(data)) == 0
    enough = library.fw_memory_size(model)
    assert load_with(enough) == 0
    needed = library.fw_needed(model)
    assert library.fw_used(model) < needed < enough < library.fw_used(model) + 3 * len(data)
    assert load_with(needed) == 0
    for less in (0, 63, needed // 2, needed - 128):
        assert load_with(less) == NO_MEMORY


@pytest.mark.parametrize("arch", ["rnn", "bilstm", "gru", "conv"])
@pytest.mark.parametrize("embedding", made.EMBEDDINGS)
def test_words_are_labelled(tmp_path, arch, embedding):
    """Long texts are cut: words beyond have the state of the last token."""
    check(*both(tmp_path, arch, embedding, kind="tags", pooling="max", max_tokens=40), TEXTS)


@pytest.mark.parametrize(
    "kind", [{"labels": []}, {"labels": [], "pair": True}, {"kind": "multilabel"}, {"max_tokens": 3}]
)
def test_other_kinds_of_answers(tmp_path, kind):
    check(*both(tmp_path, "ffn", "char", **kind), TEXTS)


@pytest.mark.parametrize("kind", [{"kind": "tags", "embedding": name} for name in made.EMBEDDINGS] + [{}])
def test_texts_without_words(tmp_path, kind):
    """Of a model that labels words, one word without tokens."""
    theirs, ours = both(tmp_path, "conv", kind.pop("embedding", "hash"), **kind)
    check(theirs, ours, [""])
    check(theirs, ours, ["", "a film", " \t\u3000", ""])
    assert ours.logits([" \n"]).shape == theirs.logits([""]).shape


@pytest.mark.parametrize("arch", ARCHS)
def test_pairs_without_order(tmp_path, arch):
    theirs, ours = both(tmp_path, arch, "bpe", pair=True, symmetric=True)
    check(theirs, ours, TEXTS)
    pairs = list(itertools.pairwise(TEXTS))
    swapped = [pair[::-1] for pair in pairs]
    np.testing.assert_allclose(ours.logits(swapped), ours.logits(pairs), 1e-5, 1e-5)


@pytest.mark.parametrize(("how", "symmetric"), [("align", False), ("align", True), ("compose", True)])
@pytest.mark.parametrize("arch", ALIGNING)
@pytest.mark.parametrize("embedding", made.EMBEDDINGS)
def test_aligned_pairs(tmp_path, arch, embedding, how, symmetric):
    """Texts with some of the other's tokens, all, none; long ones; empty ones; in one form of matrix after another."""
    number = made.EMBEDDINGS.index(embedding) + 4 * symmetric + ALIGNING.index(arch)
    sizes = {"embedding_dim": 7 + 9 * symmetric, "encoder_hidden_dim": 5 + 4 * (number % 4)}
    form = made.FORMS[number % len(made.FORMS)]
    given = ALIGNED | sizes | {"symmetric": symmetric, "pair_encoder": how}
    theirs, ours = both(tmp_path, arch, embedding, form, **given)
    check(theirs, ours, [*TEXTS, "the " * 300, "the film " * 40, *TEXTS[:3], *TEXTS[:2]])
    pairs = [("a film", "a film"), ("", ""), ("a film", ""), ("the the film", "film the"), ("x" * 600, "why ?")]
    np.testing.assert_allclose(ours.logits(pairs), theirs.logits(pairs), NEAR / 100, NEAR)


def test_words_that_hash_to_the_same_rows_are_not_shared(tmp_path):
    """One row and one importance for all words: only what the other text has too makes a difference."""

    def edit(tensors):
        for name, value in tensors.items():
            if name.startswith("embedding"):
                value[:] = 1

    sizes = {"vocab_size": 10, "hash_ratio": 10, "edit": edit}
    theirs, ours = both(tmp_path, "conv", "hash", **ALIGNED, **sizes)
    pairs = [("a b c", "a b c"), ("a b c", "d e f"), ("a b c", "c x y")]
    expected = theirs.logits(pairs)
    assert np.abs(np.diff(expected, axis=0)).max(1).min() > 10 * NEAR
    np.testing.assert_allclose(ours.logits(pairs), expected, atol=NEAR)


@pytest.mark.parametrize("chosen", [None, 0.0, 0.25, 1.0])
def test_thresholds(tmp_path, chosen):
    student = made.write_student(tmp_path / "s", "ffn", "hash", labels=["no", "yes"], f1=chosen is not None)
    path = made.write_packed(student)
    if chosen is not None:
        header, rest = damage.take_apart(path.read_bytes())
        path.write_bytes(damage.assemble(header, rest[:4] + struct.pack("<f", chosen) + rest[8:]))
    assert load(path).threshold == load_native(path).threshold == chosen


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (("bilstm", "bytelevel"), "a vocabulary of byte-level pairs"),
        (("conv", "char"), "a model that answers questions"),
    ],
)
def test_files_that_only_numpy_reads_are_named(tmp_path, kind, reason):
    more = made.ALIGNED | {"kind": "tags", "labels": ["start", "end"]} if kind[0] == "conv" else {}
    path = made.packed(tmp_path / "s", *kind, **more)
    assert load(path).labels
    with pytest.raises(PackedError, match=f"{reason}: only the NumPy runtime reads it"):
        load_native(path)


@pytest.mark.parametrize("value", [-0.5, 1.5, float("nan")])
def test_what_is_no_threshold_is_refused(tmp_path, value):
    student = made.write_student(tmp_path / "s", "ffn", "hash", labels=["no", "yes"], f1=True)
    header, rest = damage.take_apart(pack_student(student))
    refused(damage.assemble(header, rest[:4] + struct.pack("<f", value) + rest[8:]))


FLAGS = {"pair": 1, "maximum": 2, "words": 4, "several": 8, "temperature": 16}
FLAGS |= {"align": 32, "symmetric": 64, "threshold": 128}


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("arch", made.ARCHS)
def test_flags_that_contradict_each_other_are_refused_by_both(tmp_path, arch, flag):
    pair = {**ALIGNED, "symmetric": True} if arch in ALIGNING else {"pair": True}
    refusals = 0
    for number, more in enumerate((pair, {"labels": ["no", "yes"]}, {"labels": []}, {"kind": "multilabel"})):
        header, rest = damage.take_apart(pack_student(made.write_student(tmp_path / str(number), arch, "char", **more)))
        changed = damage.assemble(header[:2] + bytes([header[2] ^ FLAGS[flag]]) + header[3:], rest)
        try:
            load_bytes(changed)
        except PackedError:
            refused(changed)
            refusals += 1
        else:
            NativeModel(changed)
    assert refusals or (flag == "maximum" and arch not in ALIGNING)


@pytest.mark.parametrize("more", [{"pair": True}, {}])
@pytest.mark.parametrize("arch", made.ARCHS)
def test_a_composition_without_alignment_is_refused(tmp_path, arch, more):
    header, rest = damage.take_apart(pack_student(made.write_student(tmp_path / "s", arch, "char", **more)))
    refused(damage.assemble(bytes([header[0] | 8]) + header[1:], rest))


def test_long_texts_are_not_aligned(tmp_path):
    data = pack_student(made.write_student(tmp_path / "s", "conv", "char", **ALIGNED, max_tokens=4096))
    header, rest = damage.take_apart(data)
    longer = damage.assemble(header.replace(damage.written(4096), damage.written(4097), 1), rest)
    for reader, message in ((load_bytes, "max_tokens is larger than 4,096"), (NativeModel, "more than|larger than")):
        assert reader(data).max_tokens == 4096
        with pytest.raises(PackedError, match=message):
            reader(longer)


@pytest.mark.parametrize("arch", ["bilstm", "gru", "conv"])
def test_sizes_beyond_a_vector_of_the_processor(tmp_path, arch):
    """Layers of a few numbers, of whole vectors, and of parts of one; windows that are longer than texts."""
    for number, hidden in enumerate((1, 16, 17, 40)):
        sizes = {"embedding_dim": 3 * hidden, "encoder_hidden_dim": hidden, "cls_hidden_dim": 2 * hidden + 1}
        theirs, ours = both(tmp_path / str(number), arch, "char", pooling="max", kernel_width=9, **sizes)
        check(theirs, ours, ["", "a", *TEXTS[-8:]])


BYTE_PAIRS = {
    "unused pieces": lambda folder: made.unused(made.pieces(), 0.4),
    "unused across words": lambda folder: made.unused(made.pieces(split_by_whitespace=False), 0.4),
    "identity": lambda folder: made.pieces(normalization_rule_name="identity"),
    "spaces kept": lambda folder: made.unused(made.pieces(remove_extra_whitespaces=False), 0.1),
    "no prefix": lambda folder: made.pieces(add_dummy_prefix=False, remove_extra_whitespaces=False),
    "own rules": lambda folder: made.pieces(normalization_rule_tsv=str(folder / "rules.tsv")),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BYTE_PAIRS)
def test_byte_pairs_of_every_kind(tmp_path, kind):
    (tmp_path / "rules.tsv").write_text("61 62\t78\n65\t\n2603\t73 6E 6F 77\n74 68 65 20 66 69\t41\n")
    model = BYTE_PAIRS[kind](tmp_path)
    theirs, ours = both(tmp_path, "ffn", "bpe", model=model, vocab_size=BpeTokenizer(model, 512).vocab_size)
    check(theirs, ours, [*TEXTS, "the fi \u2603", "cab the film abe \u2603\u2603", "the the film of the theatre"])


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Name -> both runtimes' model of each tokenizer; of byte pairs one with unused pieces too, and of hashed
    words one with the rule of older files."""
    folder = tmp_path_factory.mktemp("tokenizers")
    found = {embedding: both(folder / embedding, "conv", embedding) for embedding in made.EMBEDDINGS}
    model = made.unused(made.pieces(), 0.5)
    sizes = {"model": model, "vocab_size": BpeTokenizer(model, 512).vocab_size}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("compression.packing.pack"), "MARKED_WORDS", 0)
        found["plain words"] = both(folder / "plain", "conv", "hash")
    found["ngrams"] = both(folder / "ngrams", "ffn", "ngrams")
    return found | {"unused": both(folder / "unused", "ffn", "bpe", **sizes)}


CHARACTERS = st.text(
    st.sampled_from(
        "the film wonderful\u0301\u00e9\u2581\u2603 0.,!\ud55c\u1112\u1161\u11ab\uff41\u200b\u03a3A\u0130'_"
        "\u2019\u200d\u0939\u0942\u0901\u0e14\u0e35\u0e51\u6f22\u3042\u20e3\ufe0f"
    )
)


RARE = (
    "\u3400\u4dbf\u4dc0\uf8ff\uf900\ufaff\ufb00"
    "\U0002a6df\U0002a6e0\U0002b73f\U0002b740\U0002b81f\U0002b820\U0002b91f\U0002b920"
    "\U0002ceaf\U0002ceb0\U0002f7ff\U0002f800\U0002fa1f\U0002fa20"
    "\U000105d2\u0307\U000105d2\u0308\U0001611e\U0001611e\U0001611f"
    "\U0001611e\U0001611e\U00016120\U0001611e\U0001611e\u0041\U0001611e\U00016129\u0042"
)
"""The ends of blocks of ideographs; sequences with a rule of normalisation, and others that begin as they do."""


@pytest.mark.parametrize("name", [*made.EMBEDDINGS, "ngrams", "unused", "plain words"])
@example(text=RARE)
@given(text=st.one_of(st.text(st.characters(exclude_categories=["Cs"])), CHARACTERS))
@settings(max_examples=100)
def test_any_text_has_the_same_answer(tokenizers, name, text):
    check(*tokenizers[name], [text])


@pytest.mark.slow
def test_every_character_has_the_same_tokens(tokenizers):
    """Of ideographs, syllables, private and unassigned characters a few are enough: they are alike."""
    codes = [*range(1, 0x3400, 2), *range(0x3400, 0xD800, 97), *range(0xE000, 0xF900, 211), *range(0xF900, 0x1F000, 3)]
    codes += [*range(0x1F000, 0x20000, 7), *range(0x20000, 0x110000, 997), *range(0xE0000, 0xE0200)]
    chosen = [chr(code) for code in codes if unicodedata.category(chr(code)) != "Cn"]
    texts = ["x".join(chosen[i : i + 150]) for i in range(0, len(chosen), 150)]
    assert len(texts) > 80
    for theirs, ours in tokenizers.values():
        check(theirs, ours, texts)


@pytest.mark.slow
@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_models_of_the_zoo(card):
    theirs, ours = load(zoo_file(card.name)), load_native(zoo_file(card.name))
    texts = [*TEXTS, *(text for text, _ in tiny.sentences(100))]
    check(theirs, ours, texts)


@pytest.mark.slow
@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_rows_of_the_zoos_tasks(card, tmp_path):
    task = load_task(card.task)
    folders = (tiny.ROOT.parent / "shared" / name for name in ("glue", "ner"))
    folder = next((path for path in folders if (path / task.source.folder).is_dir()), None)
    if folder is None:
        pytest.skip(f"no copy of {task.source.folder} next to the repository")
    files = source_files(task.source, folder, Workspace(tmp_path))
    file = files.get(task.test_splits[0]) or files["all"]  # test may be drawn from all rows
    split = read_source(file, task, labelled=True)
    rows = list(zip(*split.sentences(), strict=True))[:: len(split) // 300]
    texts = rows if task.pair else [text for (text,) in rows]
    theirs, ours = load(zoo_file(card.name)), load_native(zoo_file(card.name))
    expected, found = theirs.logits(texts), ours.logits(texts)
    np.testing.assert_allclose(found, expected, atol=NEAR)
    real = ~np.isnan(expected[..., 0])
    assert np.array_equal(found[real].argmax(-1), expected[real].argmax(-1))


@pytest.mark.parametrize("kind", [{"kind": "tags"}, {"pair": True, "symmetric": True}, ALIGNED, COMPOSED])
@pytest.mark.parametrize("embedding", made.EMBEDDINGS)
def test_the_workspace_that_it_asks_for_is_enough(tmp_path, monkeypatch, embedding, kind):
    _, ours = both(tmp_path, "conv", embedding, max_tokens=4000, encoder_hidden_dim=500, **kind)
    check_workspace(ours, monkeypatch)


@pytest.fixture
def ngrams_of_one_bit(monkeypatch):
    """Every n-gram has a token: its fingerprint has one bit."""
    letters = {zlib.crc32(letter.encode()) & 1: letter for letter in "abcdefgh"}
    monkeypatch.setattr(made, "ngrams", lambda vocab, most: NGramTokenizer([letters[0], letters[1]], 1, most))


@pytest.mark.parametrize("pooling", tiny.POOLINGS["ffn"])
def test_tokens_of_cached_words_are_those_of_the_text(tmp_path, ngrams_of_one_bit, pooling):
    """Several words without spaces between them, pairs across spaces, and texts that are cut off at any token."""
    theirs, ours = both(tmp_path, "ffn", "ngrams", max_tokens=40, vocab_size=3, pooling=pooling)
    text = "A b.C Don't film,films? ... w1ne-2 Ab " + "x" * 22 + " " + "y," * 15
    check(theirs, ours, [text[start:end] for start in range(0, 40, 3) for end in range(start + 1, len(text))])


@pytest.mark.parametrize("pair", [False, True])
def test_the_workspace_for_ngrams_is_enough(tmp_path, monkeypatch, ngrams_of_one_bit, pair):
    _, ours = both(tmp_path, "ffn", "ngrams", max_tokens=4000, vocab_size=3, pair=pair, pooling="both")
    check_workspace(ours, monkeypatch)


def check_workspace(ours, monkeypatch):
    """Texts of many tokens for their bytes: compatibility characters, marks, ideographs, single letters and signs."""
    parts = ("\ufdfa", "\u4e2d", "\ud55c", "\u00bc\u1e9b\u0323", "!a", "\u2603 ", "\U0001d160")
    for text in ["", "a", 150 * "a ", *(25 * part for part in parts)]:
        size = ours._c.fw_workspace_size(ours._block, len(text.encode()))
        monkeypatch.setattr(native, "_FIRST_WORKSPACE", size)
        ours._workspaces.clear()
        assert np.isfinite(ours.logits([(text, text) if ours.pair else text])).all()
        assert [workspace.size for workspace in ours._workspaces] == [size]


def test_texts_that_are_larger_than_the_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "_FIRST_WORKSPACE", 1 << 12)
    for number, kind in enumerate(({}, {"kind": "tags"}, ALIGNED, COMPOSED)):
        theirs, ours = both(tmp_path / str(number), "bilstm", "bpe", **kind)
        check(theirs, ours, ["the " * 2000 + "film", "a film", "wonderful" * 900])


def test_what_it_does_not_read_is_named(tmp_path):
    path = made.packed(tmp_path / "s", "ffn", "char")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PackedError, match=r"s\.fwt: the file's length is not the one it says"):
        load_native(path)
