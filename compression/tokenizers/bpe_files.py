"""Finding, downloading or training the files of byte-pair embeddings, all in BPEmb's format."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.progress import say
from common.reading import regular_file
from common.stopping import at_once
from common.store.files import fingerprint, sync, whole_file
from common.store.locks import only_one
from common.store.temporary import remove_leftovers_of, temporary
from compression.runtime import prepare
from compression.tokenizers.bpe_model import in_groups

CACHE = Path.home() / ".cache" / "bpemb" / "en"
"""bpemb's own downloads."""
_VERSION = 2
"""Of the training below; part of the files' names."""
_WORD2VEC_EPOCHS = 10
_COVERAGE = 0.9999
"""Share of the text's characters that are pieces. All 1,264 of QQP would leave no room for words in 2,500 pieces."""


def find_files(
    vocab_size: int,
    dim: int,
    source: str,
    sentences: list[str],
    folder: Path,
    for_vectors: list[str] | None = None,
    with_vectors: bool = True,
) -> tuple[Path, Path]:
    """Return (sentencepiece model, word2vec vectors of `dim`); without vectors, the second file need not exist.

    source: "train" trains both on `sentences` and keeps them in `folder`, the same bytes for the same text; "auto" does
    so if BPEmb's cache does not have its files; "bpemb" downloads them. for_vectors: text to train the vectors on, if
    not all sentences: a million augmented ones would take gigabytes as lists of pieces. Raises UserError.
    """
    if cached := cached_files(vocab_size, dim, source):
        return cached
    for_vectors = sentences if for_vectors is None else for_vectors
    stem = f"{fingerprint([_VERSION, fingerprint(sentences), fingerprint(for_vectors)])}.vs{vocab_size}"
    model_file, vector_file = folder / f"{stem}.model", folder / f"{stem}.d{dim}.w2v.bin"
    if model_file.exists() and (vector_file.exists() or not with_vectors):
        return model_file, vector_file
    what = f"byte pairs of {vocab_size} pieces"
    with only_one(folder.with_name(f"{folder.name}.vs{vocab_size}"), what, wait=True), at_once():
        if not model_file.exists():
            say(f"training a byte-pair vocabulary of {vocab_size} on {len(sentences):,} sentences")
            _train_pieces(list(map(prepare, sentences)), vocab_size, model_file)
        if with_vectors and not vector_file.exists():
            _train_vectors(list(map(prepare, for_vectors)), model_file, dim, vector_file)
    return model_file, vector_file


def cached_files(vocab_size: int, dim: int, source: str) -> tuple[Path, Path] | None:
    """Return BPEmb's files in its cache, if the source allows them and they exist; "bpemb" downloads them."""
    if source == "train":
        return None
    name = f"en.wiki.bpe.vs{vocab_size}"
    cached = CACHE / f"{name}.model", CACHE / f"{name}.d{dim}.w2v.bin"
    if all(path.exists() for path in cached):
        return cached
    return _download(vocab_size, dim) if source == "bpemb" else None


def read_vectors(path: Path, model_file: Path, dim: int) -> np.ndarray:
    """Return vectors in the order of the model's pieces, float32 [vocab_size, dim]. Raises UserError."""
    from bpemb import BPEmb

    for file in (model_file, path):
        regular_file(file)
    try:
        bpe = BPEmb(vs=None, dim=None, model_file=model_file, emb_file=path)
    except (OSError, RuntimeError, ValueError, EOFError) as error:
        raise UserError(f"{path}: not vectors in word2vec format ({error})") from error
    if bpe.vectors.shape != (bpe.vocab_size, dim):
        raise UserError(
            f"{path}: {bpe.vectors.shape[0]} vectors of {bpe.vectors.shape[1]}; "
            f"{model_file.name} and --embedding-dim ask for {bpe.vocab_size} of {dim}"
        )
    return bpe.vectors


def _download(vocab_size: int, dim: int) -> tuple[Path, Path]:
    """Download BPEmb's own files. Both are read before they get into the cache: BPEmb would keep a truncated file."""
    from bpemb import BPEmb

    with only_one(CACHE / f"vs{vocab_size}.d{dim}", f"BPEmb's files of {vocab_size} pieces", wait=True):
        if cached := cached_files(vocab_size, dim, "auto"):
            return cached
        remove_leftovers_of(CACHE)
        folder = temporary(CACHE)
        try:
            bpe = BPEmb(lang="en", vs=vocab_size, dim=dim, vs_fallback=False, cache_dir=folder)
            for path in (bpe.model_file, bpe.emb_file):
                sync(path)
                path.replace(CACHE / path.name)
        except Exception as error:  # bpemb does not catch its downloader's errors
            raise UserError(
                f"BPEmb files for {vocab_size} pieces of {dim} cannot be downloaded "
                f"({type(error).__name__}); --bpe-source train trains them on the task's text"
            ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return CACHE / bpe.model_file.name, CACHE / bpe.emb_file.name


def _train_pieces(sentences: Sequence[str], vocab_size: int, target: Path) -> None:
    """Write a model of `vocab_size` pieces, or of all that the sentences have if these are fewer."""
    try:
        model = _trained(sentences, vocab_size)
    except RuntimeError as error:
        most = re.search(r"<= (\d+)", str(error))
        if not most:
            raise UserError(f"--vocab-size {vocab_size}: {_reason(str(error))}") from error
        say(f"the text has only {most[1]} byte pairs: the vocabulary has these, not {vocab_size}")
        model = _trained(sentences, int(most[1]))
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as partial:
        partial.write_bytes(in_groups(model))


def _reason(error: str) -> str:
    """Return in one line why sentencepiece cannot train a vocabulary."""
    if least := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return f"the text has {least[1]} different characters, each of which is a piece"
    return f"no byte pairs can be trained: {error.split(')')[-1].strip() or error}"


def _trained(sentences: Iterable[str], vocab_size: int) -> bytes:
    """Return the bytes of a model trained on sentences. Raises RuntimeError if they have too few pieces."""
    import sentencepiece

    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=stream,
        model_type="bpe",
        vocab_size=vocab_size,
        character_coverage=_COVERAGE,
        num_threads=1,
        minloglevel=2,
    )
    return stream.getvalue()


def _train_vectors(sentences: list[str], model_file: Path, dim: int, target: Path) -> None:
    """Train skip-gram vectors of every piece; a piece that is not in the text keeps its random initial vector."""
    import sentencepiece
    from gensim.models import KeyedVectors, Word2Vec

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
    vocabulary = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    corpus = [pieces.encode(sentence, out_type=str) for sentence in sentences]
    # Fixed hashing and one worker: the same vectors on every run. Each piece is shown once so that none is missing.
    model = Word2Vec(vector_size=dim, sg=1, window=5, min_count=1, seed=1, workers=1, epochs=_WORD2VEC_EPOCHS)
    model.build_vocab([*corpus, vocabulary])
    model.train(corpus, total_examples=len(corpus), epochs=model.epochs)
    vectors = KeyedVectors(dim)
    vectors.add_vectors(vocabulary, [model.wv[piece] for piece in vocabulary])
    for index, piece in enumerate(vocabulary):
        vectors.set_vecattr(piece, "count", len(vocabulary) - index)  # saved by falling count, so in the pieces' order
    with whole_file(target) as partial:
        vectors.save_word2vec_format(str(partial), binary=True)
