"""The runtime without PyTorch: tokenizers equal to their libraries', texts of every kind, files that are wrong."""

import functools
import subprocess
import sys
import time

import numpy as np
import packed_students as made
import pytest
import sentencepiece
import tiny
from hypothesis import example, given, settings
from hypothesis import strategies as st
from unicode_torture import TORTURE

from common.data.text import normalise, split_words
from compression.packing import pack_student, write_packed
from compression.packing.normalisation import base_rules, differences, express, read_rules
from compression.packing.sentencepiece_file import UNUSED, read_pieces
from compression.runtime import (
    IDENTITY,
    NFKC,
    NMT_NFKC,
    PackedError,
    load,
    load_bytes,
    prepare,
    tidy,
)

LETTERS = st.text(
    st.sampled_from("the film wonderful\u0301\u00e9\u2581\u2603 0.,!\ud55c\u1112\u1161\u11ab\uff41\u200b")
)
TEXT = st.one_of(st.text(), LETTERS, st.sampled_from([text for text, _ in tiny.sentences(50)]))
MODELS = {
    "usual": {},
    "identity": {"normalization_rule_name": "identity"},
    "nfkc": {"normalization_rule_name": "nfkc"},
    "spaces kept": {"remove_extra_whitespaces": False},
    "no prefix": {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "across words": {"split_by_whitespace": False},
}


def with_unused(model, share, seed=1):
    """A model with some of its pieces marked UNUSED."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    rng = np.random.default_rng(seed)
    for piece in proto.pieces:
        if piece.type == 1 and rng.random() < share:
            piece.type = UNUSED
    return proto.SerializeToString()


@functools.cache
def tokenizers(kind, share=0.0):
    """(what sentencepiece makes of a text, what the runtime makes of it), both as rows of the student's table."""
    import tempfile
    from pathlib import Path

    model = with_unused(made.pieces(**MODELS[kind]), share)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    unused = [theirs.is_unused(i) for i in range(theirs.get_piece_size())]
    row_of = np.where(unused, 0, np.cumsum(np.logical_not(unused)) - 1)
    with tempfile.TemporaryDirectory() as folder:
        # Each row of the table holds its own number: the packed table is in an order of its own.
        rows = len(unused) - sum(unused)
        numbered = np.zeros((rows, made.DIM), np.float32)
        numbered[:, 0] = np.arange(rows)
        edit = lambda tensors: tensors.update({"embedding.table.weight.value": numbered})  # noqa: E731
        student = made.write_student(Path(folder) / "s", "ffn", "bpe", model=model, edit=edit, vocab_size=rows)
        packed = pack_student(student)
    own = load_bytes(packed)
    student_row = own._tokens.table[:, 0].astype(int)
    return (
        lambda text: [int(row_of[i]) for i in theirs.encode(prepare(text))],
        lambda text: [int(student_row[row]) for row in own._tokens.encode(text)],
    )


def whole(text):
    """Text that UTF-8 can hold, as sentencepiece needs it."""
    return "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_byte_pairs_are_sentencepieces_on_torture(kind, share):
    theirs, own = tokenizers(kind, share)
    for text in [*TORTURE, *(text for text, _ in tiny.sentences(60))]:
        assert own(text) == theirs(text), ascii(text)


@pytest.mark.parametrize("kind", MODELS)
@given(text=TEXT)
@settings(max_examples=150)
def test_byte_pairs_are_sentencepieces_on_any_text(kind, text):
    theirs, own = tokenizers(kind, 0.0)
    assert own(whole(text)) == theirs(whole(text))


@given(text=TEXT)
@example("the the film of the theatre")
@settings(max_examples=300)
def test_pieces_out_of_use_are_split_as_sentencepiece_splits_them(text):
    for kind in ("usual", "across words"):
        for share in (0.2, 0.7):
            theirs, own = tokenizers(kind, share)
            assert own(whole(text)) == theirs(whole(text))


def test_rules_of_normalisation_are_all_known(tmp_path):
    for name, base in (("nmt_nfkc", NMT_NFKC), ("nfkc", NFKC)):
        (tmp_path / name).write_bytes(made.pieces(normalization_rule_name=name))
        charsmap = read_pieces((tmp_path / name).read_bytes()).charsmap
        rules = read_rules(charsmap)
        assert len(rules) > 200_000
        assert rules == base_rules(base)
        assert express(charsmap) == (base, {})
    own = {**base_rules(NMT_NFKC), "a": "b", "qu": "kw"}
    del own["\u00bd"]
    assert differences(own) == (NMT_NFKC, {"a": "b", "qu": "kw", "\u00bd": None})
    assert base_rules(IDENTITY) == {}
    assert differences({"x": "y"}) == (IDENTITY, {"x": "y"})


def test_rules_of_a_models_own_are_followed(tmp_path):
    (tmp_path / "rules.tsv").write_text("61 62\t78\n65\t\n2603\t73 6E 6F 77\n")
    model = made.pieces(normalization_rule_tsv=str(tmp_path / "rules.tsv"))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    packed = load_bytes(pack_student(made.write_student(tmp_path / "s", "ffn", "bpe", model=model)))
    clean = packed._tokens.encode.__self__.normaliser
    for text in ("abe able cab \u2603", "the cabbage", *(whole(text) for text in TORTURE if len(text) < 90)):
        assert len(packed._tokens.encode(text)) == len(theirs.encode(prepare(text)))
    assert clean("ab cab e\u2603", True) == "x cx snow"


def test_a_long_word_takes_no_more_than_its_length():
    _, own = tokenizers("usual")
    texts = ["wonderful" * (n // 9) for n in (20_000, 100_000)]
    seconds = []
    for text in texts:
        start = time.process_time()
        assert own(text)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 15 * seconds[0] + 1


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Packed students by embedding, one of convolutions, one of attention, and their folders."""
    folder = tmp_path_factory.mktemp("packed")
    found = {}
    for name, embedding, arch in (("bpe", "bpe", "bilstm"), ("hash", "hash", "ffn"), ("char", "char", "rnn"),
                                  ("windows", "bpe", "conv"), ("wordpiece", "wordpiece", "transformer")):  # fmt: skip
        student = made.write_student(folder / name, arch, embedding, "affine-row", pooling="max")
        found[name] = load(write_packed(student)), student
    return found


@pytest.mark.parametrize("embedding", ["hash", "char", "wordpiece"])
@given(text=TEXT)
@settings(max_examples=60)
def test_words_and_letters_are_the_projects(models, embedding, text):
    model, folder = models[embedding]
    texts = [whole(text), *TORTURE[:20]]
    assert np.abs(model.logits(texts[:1]) - made_logits(folder)(texts[0])).max() < 1e-4


@functools.cache
def made_logits(folder):
    import torch

    from compression.students.batch import Batch
    from compression.students.saved import load_student

    student, tokenizer, _ = load_student(folder, torch.device("cpu"))

    def logits(text):
        with torch.inference_mode():
            return student(Batch.of(tokenizer.encode([text]), np.arange(1), torch.device("cpu"))).numpy()

    return logits


@pytest.mark.parametrize("name", [*made.EMBEDDINGS, "windows"])
def test_torture_in_one_batch_is_torture_one_by_one(models, name):
    model, folder = models[name]
    together = model.logits(TORTURE)
    assert np.isfinite(together).all()
    for row, text in zip(together, TORTURE, strict=True):
        assert np.abs(row - model.logits([text])[0]).max() < 1e-5
        assert np.abs(row - made_logits(folder)(text)[0]).max() < 1e-4
    assert model.logits([]).shape == (0, 3)


def test_words_beyond_number_are_forgotten_again(models):
    model, _ = models["hash"]
    texts = [" ".join(f"w{i}x{j}" for j in range(40)) for i in range(60)]
    before = model.logits(texts[:1])
    model._tokens.most = 500
    try:
        again = model.logits(texts * 20)
    finally:
        del model._tokens.most
    assert np.abs(again[::60] - before).max() < 1e-6
    assert len(model._tokens._rows) < 60 * 40 + 1


def test_lone_surrogates_are_replacement_characters(models):
    for model, _ in models.values():
        assert np.array_equal(model.logits(["a \ud800 b\udfff"]), model.logits(["a \ufffd b\ufffd"]))
        assert np.array_equal(model.logits(["\ud83d\ude00"]), model.logits(["\U0001f600"]))


def test_what_is_no_text_is_refused(models):
    model, _ = models["hash"]
    for texts in ([1], [None], [("a", "b")], [["a", "b"]], [("a",), 3]):
        with pytest.raises(PackedError, match="reads single texts"):
            model.logits(texts)


def test_probabilities_are_the_softmax(models):
    model, _ = models["char"]
    found = model.probabilities(TORTURE)
    powers = np.exp(model.logits(TORTURE).astype(np.float64))
    assert np.abs(found - powers / powers.sum(1, keepdims=True)).max() < 1e-6


@given(st.text())
def test_tidy_and_words_are_the_projects(text):
    from compression import runtime

    assert tidy(text) == normalise(text)
    assert runtime._WORD.findall(text.lower()) == split_words(text)


# Files that are wrong


def test_wrong_files_are_named_in_one_line(models, tmp_path):
    _, folder = models["hash"]
    data = (folder / "hash.fwt").read_bytes()
    wrong = {
        b"": "an empty file",
        data[:3]: "no packed student",
        b"PK\x03\x04" + data: "no packed student",
        data[:-1]: "truncated, or something was appended",
        data[:40]: "truncated, or something was appended",
        data + b"\n": "truncated, or something was appended",
        data[:3] + b"\x02" + data[4:]: "version 2 of the format; this runtime reads version 1",
        data[:60] + bytes([data[60] ^ 1]) + data[61:]: "checksum is wrong",
    }
    for content, message in wrong.items():
        path = tmp_path / "x.fwt"
        path.write_bytes(content)
        with pytest.raises(PackedError, match=message) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
    with pytest.raises(PackedError, match=r"nothing\.fwt: No such file"):
        load(tmp_path / "nothing.fwt")
    with pytest.raises(PackedError, match="directory"):
        load(tmp_path)


# The command line


def run(*words, given=None):
    command = [sys.executable, "-m", "compression.runtime", *map(str, words)]
    return subprocess.run(command, cwd=tiny.ROOT, env=tiny.environment(), input=given, capture_output=True, timeout=60)


def test_the_command_prints_labels_and_probabilities(models):
    model, folder = models["bpe"]
    done = run(folder / "bpe.fwt", "A wonderful  film", "caf\u00e9")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    for line, row in zip(lines, model.probabilities(["A wonderful film", "caf\u00e9"]), strict=True):
        label, *shares = line.split("\t")
        assert label == model.labels[row.argmax()]
        assert shares == [f"{name} {share:.6f}" for name, share in zip(model.labels, row, strict=True)]
    assert run(folder / "bpe.fwt", given="A wonderful film\ncaf\u00e9\n".encode()).stdout == done.stdout


def test_the_command_reads_pairs(tmp_path):
    path = write_packed(made.write_student(tmp_path / "two", "ffn", "hash", pair=True))
    done = run(path, "how are you", "how do you do")
    assert done.returncode == 0
    assert run(path, given=b"how are you\thow do you do\n").stdout == done.stdout
    for words, lines, message in (
        (["one"], None, b"error: two reads pairs of texts: give an even number of them\n"),
        ([], b"a\tb\nc\n", b"error: line 2: 1 texts; two reads two with a tab between them\n"),
    ):
        done = run(path, *words, given=lines)
        assert (done.returncode, done.stderr) == (2, message)


def test_mistakes_are_one_line_and_exit_code_2(models, tmp_path):
    _, folder = models["char"]
    (tmp_path / "cut.fwt").write_bytes((folder / "char.fwt").read_bytes()[:-9])
    done = run(tmp_path / "cut.fwt", "x")
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"error: {tmp_path}/cut.fwt: ")
    assert done.stderr.count(b"\n") == 1
    done = run(folder / "char.fwt", given=b"fine\n\xff\xfe bad\n")
    assert (done.returncode, done.stderr) == (2, b"error: line 2: not UTF-8\n")
    assert run(folder / "char.fwt", given=b"\n\x00\n").stdout.count(b"\n") == 2
    assert run("--help").stdout.startswith(b"usage: ")


def test_a_reader_that_has_enough_is_no_error(models):
    _, folder = models["char"]
    command = [sys.executable, "-m", "compression.runtime", str(folder / "char.fwt")]
    process = subprocess.Popen(
        command,
        cwd=tiny.ROOT,
        env=tiny.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    process.stdin.write(b"a good film\n" * 5000)
    process.stdin.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""


def test_the_runtime_loads_numpy_and_nothing_else(models):
    _, folder = models["bpe"]
    script = (
        f"import sys, runpy; sys.path.append({str(site())!r}); sys.argv = ['runtime.py', sys.argv[1], 'a film'];"
        "runpy.run_path('compression/runtime.py', run_name='__main__');"
        "print(sorted({name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)"
        " - {'numpy'}))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script, str(folder / "bpe.fwt")],
        cwd=tiny.ROOT, env=tiny.environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['__main__']" or done.stdout.splitlines()[-1] == "[]"


def site():
    from pathlib import Path

    return Path(np.__file__).parent.parent
