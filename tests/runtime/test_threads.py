"""Threads that share a model get the answers of one thread, also while caches of words are replaced."""

import itertools
import os
import pickle
import random
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import packed_students as made
import pytest

from compression.runtime import ByteLevelPairs, BytePairs, HashedWords, NGrams, WordPieces, load
from compression.runtime.native import load_native
from compression.tokenizers.bpe import BpeTokenizer

THREADS, ROUNDS = 6, 15
PARTS = ("th", "e", "fi", "lm", "wo", "nd", "er", "ful", "caf", "\u00e9", "st", "or", "y")


@pytest.fixture(autouse=True)
def _threads_change_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def _small_caches(monkeypatch):
    """Caches that are full after a few words."""
    monkeypatch.setattr(HashedWords, "most_values", 400)
    for tokenizer in (BytePairs, ByteLevelPairs, WordPieces, NGrams):
        monkeypatch.setattr(tokenizer, "most_words", 3)


def texts_of(seed):
    """Return texts of new words and a few that all texts have, with accents."""
    r = random.Random(seed)
    words = ["".join(r.choices(PARTS, k=3)) for _ in range(40)]
    return [" ".join(r.choices([*words, "film", "wonderful", "caf\u00e9", "the"], k=30)) for _ in range(4)]


def ask_in_threads(model, items):
    """Return the answers to all items, each asked for by one of several threads that begin together."""
    barrier = threading.Barrier(THREADS)

    def ask(thread):
        barrier.wait()
        return [model.logits(item) for item in items[thread::THREADS]]

    with ThreadPoolExecutor(THREADS) as pool:
        of_threads = list(pool.map(ask, range(THREADS)))
    return [of_threads[number % THREADS][number // THREADS] for number in range(len(items))]


def check(shared, alone, pair=False):
    """Check the answers of a model that threads share against those of another that one thread uses."""
    items = [texts_of(seed) for seed in range(THREADS * ROUNDS)]
    if pair:
        items = [list(zip(texts, texts[::-1], strict=True)) for texts in items]
    for item, logits in zip(items, ask_in_threads(shared, items), strict=True):
        np.testing.assert_allclose(logits, alone.logits(item), atol=1e-4)


@pytest.mark.parametrize(
    ("arch", "embedding"),
    [
        *((arch, embedding) for arch in ("ffn", "conv") for embedding in (*made.EMBEDDINGS, "bytelevel")),
        ("ffn", "ngrams"),
    ],
)
@pytest.mark.usefixtures("_small_caches")
def test_embeddings(tmp_path, embedding, arch):
    path = made.packed(tmp_path / "s", arch, embedding, max_tokens=64)
    check(load(path), load(path))


@pytest.mark.parametrize("kind", [made.ALIGNED, made.ALIGNED | {"kind": "answers", "labels": ["start", "end"]},
                                  {"kind": "tags"}])  # fmt: skip
@pytest.mark.usefixtures("_small_caches")
def test_kinds_of_models(tmp_path, kind):
    path = made.packed(tmp_path / "s", "bilstm", "hash", max_tokens=20, **kind)
    check(load(path), load(path), "pair" in kind)


@pytest.mark.usefixtures("_small_caches")
def test_byte_pairs_that_a_text_splits_in_two_ways(tmp_path):
    model = made.unused(made.pieces(), 0.4)
    vocab_size = BpeTokenizer(model, 64).vocab_size
    path = made.packed(tmp_path / "s", "ffn", "bpe", model=model, vocab_size=vocab_size)
    check(load(path), load(path))


@pytest.mark.parametrize("embedding", ["hash", "char"])
def test_the_c_runtime(tmp_path, c_library, embedding):
    path = made.packed(tmp_path / "s", "bilstm", embedding)
    check(load_native(path), load(path))


def test_a_workspace_is_used_by_one_call_at_a_time(tmp_path, c_library):
    model = load_native(made.packed(tmp_path / "s", "ffn", "hash"))
    ask_in_threads(model, [texts_of(seed) for seed in range(50)])
    assert 1 <= len(model._workspaces) <= THREADS
    model.logits(["a film"])
    assert 1 <= len(model._workspaces) <= THREADS


@pytest.mark.parametrize("name", ["sst-2-12k", "bc2gm"])
def test_the_workspace_of_a_long_text_is_not_kept(c_library, name):
    model = load_native(name)
    for text in ("a film", 100_000 * "\u4e2d", "a film"):
        model.predict([text])
        assert sum(workspace.nbytes for workspace in model._workspaces) <= 4 << 20


@pytest.mark.parametrize("reader", [load, load_native])
def test_a_model_can_be_pickled(tmp_path, c_library, reader):
    model = reader(made.packed(tmp_path / "s", "ffn", "hash"))
    copied = pickle.loads(pickle.dumps(model))
    assert repr(copied) == repr(model)
    assert np.array_equal(copied.logits(["a wonderful film"]), model.logits(["a wonderful film"]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_can_be_forked_while_another_thread_adds_words():
    words, stop = HashedWords(10, np.ones((2, 6), np.float32), np.ones((30, 1), np.float32), 512), threading.Event()

    def add():
        for number in itertools.count():
            words.encode(f"w{number}")
            if stop.is_set():
                return

    thread = threading.Thread(target=add)
    thread.start()
    for _ in range(20):
        process = os.fork()
        if not process:
            signal.alarm(20)  # ends a process that waits forever
            words.encode("another word")
            os._exit(0)
        assert os.waitpid(process, 0)[1] == 0
    stop.set()
    thread.join()
