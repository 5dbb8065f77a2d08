"""A packed student, and how its file is loaded."""

from __future__ import annotations

import os
import reprlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar, Union

import numpy as np

from .alignment import Alignment
from .encoders import ENCODERS
from .header import Header, Tokenizer
from .reader import PackedError, Reader
from .shapes import TRANSFORMERS
from .spans import merge_windows, windows_of
from .tokenizers.hash import HashedWords
from .words import tidy, word_spans
from .zoo import packed_file

MAGIC = b"FWT"
VERSION = 2
MOST_FILE = 1 << 27
MOST_HEADER = 1 << 22
_TEXTS_AT_ONCE, _TOKENS_AT_ONCE, _VALUES_AT_ONCE = 1024, 1 << 14, 1 << 23

Loaded = TypeVar("Loaded")
Texts = Union[Iterable[str], Iterable[tuple[str, str]]]
"""A list of texts, or of pairs, or any other iterable of them that is not a string, a dictionary or a table."""
Sentences = tuple[str, ...]
"""A text, or the two texts of a pair."""


class Model:
    """A packed student. Any number of threads may use it at the same time.

    name, task: its name, and the task it was trained for. packed: its file. bytes: the file's size. labels: empty for
    numbers. pair: whether it reads two texts.
    kind: what it predicts: "labels", one a text; "multilabel", any number of labels, each with its own probability;
    "numbers", one a text; "tags", one for each word (between single spaces); "answers" to a question, the first text:
    parts of its context, the second text (the labels are then start and end). arch: one of ARCHS. embedding: one of
    EMBEDDINGS. temperature: logits are divided by it before probabilities are computed; 1 if none was fitted.
    rejects: whether a text has no label if the most probable one is less probable than the threshold. threshold: for
    other models of two labels, the probability of the second one that gave the best F1 on validation as threshold; for
    questions, the least probability of an answer; None if there is none.
    """

    def __init__(self, header: Header, weights: dict[str, np.ndarray], packed: bytes) -> None:
        self.packed, self.bytes = packed, len(packed)
        self.name, self.task, self.labels, self.pair = header.name, header.task, header.labels, header.pair
        self.arch, self.embedding, self.max_tokens = header.arch, header.embedding, header.max_tokens
        self.outputs, self.kind, self._kind = header.outputs, header.kind.name, header.kind
        self.rejects, self._by_word = header.kind.rejects, header.by_word
        self.temperature, self.threshold = header.temperature, header.threshold
        self._table = weights["embedding.table.weight"]
        self._tokenizer = _tokenizer(header, weights)
        make_encoder, of_encoder = ENCODERS[header.arch], _part(weights, "encoder.")
        self._encoder = make_encoder(of_encoder, header.size)
        if header.size.align:
            of_composition = _part(of_encoder, "alignment.composition.")
            composition = make_encoder(of_composition, header.size) if header.size.compose else None
            self._encoder = Alignment(of_encoder, header.size, self._encoder, composition)
        self.plain_words = header.plain_words
        self._symmetric, self._spans = header.size.symmetric, header.size.spans
        self._layers = [
            (np.ascontiguousarray(weights[f"classifier.{i}.weight"].T), weights[f"classifier.{i}.bias"]) for i in (0, 3)
        ]
        # Fewer if vectors are long, so that the memory of a batch does not depend on the sizes in a file.
        longest = max(self._table.shape[1], *(length for layer, _ in self._layers for length in layer.shape))
        self._texts_at_once = min(_TEXTS_AT_ONCE, max(1, _VALUES_AT_ONCE // longest))
        self._tokens_at_once = min(_TOKENS_AT_ONCE, max(1, _VALUES_AT_ONCE // longest))

    def __repr__(self) -> str:
        labels = reprlib.repr(self.labels)
        return f"{type(self).__name__}(name={self.name!r}, task={self.task!r}, labels={labels}, bytes={self.bytes})"

    def logits(self, texts: Texts) -> np.ndarray:
        """Return logits, float32 [texts, outputs]; for a regression the score, scaled to [0, 1].

        If words have labels: [texts, words, outputs], NaN after a text's last word. If questions are answered, the
        logits of "no answer" come before those of the words, and contexts longer than max_tokens are read in windows.
        Raises PackedError as `predict` does.
        """
        return self._logits(read_texts(texts, self.pair))

    def _logits(self, texts: list[Sentences]) -> np.ndarray:
        tokenizer = self._tokenizer  # another thread may replace it
        parts = [np.zeros((0, self.outputs), np.float32)]
        counts: list[int] = []  # for each text, or window of a context: how many rows of logits it has
        windows: list[int] = []  # for each text
        ids: list[int] = []
        lengths: list[int] = []
        words: list[int] = []
        for number, text in enumerate(texts, 1):
            read = self._windows(tokenizer, text)
            windows.append(len(read))
            for window, sentences in enumerate(read, 1):
                for side, (of_sentence, starts) in enumerate(sentences):
                    if side == self.pair:
                        words += [-1] * self._spans + [len(ids) + start for start in starts]
                        counts.append(self._spans + len(starts))
                    ids += of_sentence
                    lengths.append(len(of_sentence))
                full = len(lengths) >= self._texts_at_once * (1 + self.pair) or len(ids) > self._tokens_at_once
                if full or (number == len(texts) and window == len(read)):
                    table = tokenizer.table() if isinstance(tokenizer, HashedWords) else self._table
                    parts.append(self._forward(table, np.array(ids), np.array(lengths), np.array(words)))
                    ids, lengths, words = [], [], []
            if isinstance(tokenizer, HashedWords) and tokenizer.full and not ids:  # no id is left that will be read
                tokenizer = self._tokenizer = tokenizer.without_words()
        logits = np.concatenate(parts)
        if not self._by_word:
            return logits
        of_text = np.array(counts, np.int64)
        if self._spans:
            logits, of_text = merge_windows(logits, of_text, np.array(windows, np.int64))
        mask = np.arange(of_text.max(initial=0)) < of_text[:, None]
        by_text = np.full((*mask.shape, self.outputs), np.nan, np.float32)
        by_text[mask] = logits
        return by_text

    def predict(self, texts: Texts) -> list[Any]:
        """Return the answer to each text (or pair), by the model's kind: its label, or its number.

        The label is None if the model rejects the text. multilabel: a list of the labels with a probability of at least
        0.5; tags: a list of tags; answers: the answer's text, empty if there is none. Raises PackedError if `texts` is
        not a list or another iterable of texts (or of pairs), with the position, from 1, and the type of an item that
        is not one.
        """
        return self._kind.answers(self, texts)

    def lines(self, texts: Texts) -> Iterator[str]:
        """Return what the command line prints for each text (or pair). Raises PackedError as `predict` does."""
        return self._kind.lines(self, texts)

    def probabilities(self, texts: Texts) -> np.ndarray:
        """Return the softmax of the tidied texts' logits divided by the temperature, or if multilabel, the sigmoid.

        float32 [texts, labels]; for numbers the number itself, [texts, 1]. Raises PackedError as `predict` does, and
        for a model that answers questions.
        """
        return self._kind.probabilities(self._logits(self.tidied(texts)), self.temperature)

    def tidied(self, texts: Texts) -> list[Sentences]:
        """Return the texts, or the pairs of them, as `predict` reads them. Raises PackedError as `predict` does."""
        return [tuple(map(tidy, sentences)) for sentences in read_texts(texts, self.pair)]

    def _windows(self, tokenizer: Tokenizer, sentences: Sentences) -> list[list[tuple[Sequence[int], list[int]]]]:
        """Return what is read of a text: a list of its sentences, encoded, or one for each window of a context."""
        if not self._spans:
            return [[self._encode(tokenizer, sentence, self.max_tokens) for sentence in sentences]]
        question = self._encode(tokenizer, sentences[0], self.max_tokens)
        ids, starts = self._encode(tokenizer, sentences[1])
        return [
            [question, (ids[tokens], [start - tokens.start for start in starts[words]])]
            for tokens, words in windows_of(starts, len(ids), self.max_tokens)
        ]

    def _encode(self, tokenizer: Tokenizer, sentence: str, most: int | None = None) -> tuple[Sequence[int], list[int]]:
        """Return the ids of a sentence, and if words have logits, the index of each word's first token.

        most: number of tokens at which the sentence is cut, if any. A word that is cut off has the last token's index.
        """
        if not self._by_word:
            return tokenizer.encode(sentence)[:most] or [0], []
        ids: list[int] = []
        starts: list[int] = []
        parts = (
            [sentence[a:b] for a, b in word_spans(sentence, self.plain_words)] if self._spans else sentence.split(" ")
        )
        for word in parts:
            starts.append(len(ids))
            ids += tokenizer.encode(tokenizer.word_format.format(word))[: self.max_tokens] or [0]
        ids = ids[:most] or [0]
        return ids, [min(start, len(ids) - 1) for start in starts]

    def _forward(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray, words: np.ndarray) -> np.ndarray:
        if self._spans:
            encoded = self._encoder.words(table, ids, lengths, words)
        elif self._by_word:
            encoded = self._encoder.states(table, ids, lengths)[words]
        else:
            encoded = self._encoder(table, ids, lengths)
        if self.pair and self.arch not in TRANSFORMERS and not self._spans:
            u, v = encoded[::2], encoded[1::2]
            encoded = np.concatenate([*([u + v] if self._symmetric else [u, v]), np.abs(u - v), u * v], 1)
        (first, first_bias), (last, last_bias) = self._layers
        hidden = encoded @ first
        hidden += first_bias
        return np.maximum(hidden, 0, out=hidden) @ last + last_bias


def _part(weights: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def _tokenizer(header: Header, weights: dict[str, np.ndarray]) -> Tokenizer:
    if header.tokenizer is not None:
        return header.tokenizer
    table, importance = weights["embedding.table.weight"], weights["embedding.importance.weight"]
    return HashedWords(header.vocab_size, table, importance, header.max_tokens, header.plain_words)


def read_texts(texts: Any, pair: bool) -> list[Sentences]:
    """Return texts, or pairs of them, as tuples of strings that UTF-8 can hold.

    Raises PackedError as `Model.predict` does.
    """
    sentences: list[Sentences] = []
    for number, item in enumerate(items_of(texts, "pairs of texts" if pair else "texts"), 1):
        parts = tuple(item) if pair and isinstance(item, (tuple, list)) else (item,)
        if len(parts) != 1 + pair or not all(isinstance(text, str) for text in parts):
            raise PackedError(f"item {number} {_fault(item, pair)}")
        sentences.append(tuple(map(_without_surrogates, parts)))
    return sentences


def items_of(values: Any, what: str) -> Iterator:
    """Return the items of a list, or of another iterable. Raises PackedError for what is not a list of items.

    The items of a string are its letters, those of a dictionary its keys, and those of a table its columns' names.
    """
    try:
        items = iter(values)
    except TypeError:
        items = None
    if items is None or isinstance(values, (str, bytes, Mapping, Set)) or hasattr(values, "columns"):
        raise PackedError(f"expected a list of {what}, not {type_of(values)}")
    return items


def _fault(item: Any, pair: bool) -> str:
    """Return how an item differs from a text, or from a pair of texts."""
    if not pair or not isinstance(item, (tuple, list)):
        return f"is {type_of(item)}, not a {'pair of texts' if pair else 'text'}"
    if len(item) != 2:
        return f"has {len(item)} texts instead of two"
    place = int(isinstance(item[0], str))
    return f"has {type_of(item[place])} as its {('first', 'second')[place]} text"


def type_of(value: Any) -> str:
    """Return the name of a value's type with its article, for messages."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _without_surrogates(text: str) -> str:
    # UTF-8 cannot hold halves of surrogate pairs: they become the replacement character.
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def load(model: str | os.PathLike) -> Model:
    """Return the model of a packed file, given by its path or by its name in the zoo (sst-2-12k).

    Raises PackedError for an unknown name, or if the file is malformed (the message then begins with the path).
    """
    return read_with(load_bytes, model)


def read_with(read: Callable[[bytes], Loaded], model: str | os.PathLike) -> Loaded:
    """Return the result of `read` for the bytes of a packed file. Raises PackedError as `load` does."""
    path = packed_file(model)
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_FILE + 1)
    except OSError as error:
        raise PackedError(f"{os.fspath(path)}: {error.strerror or error}") from None
    if len(data) > MOST_FILE:
        raise PackedError(f"{os.fspath(path)}: larger than any packed student")
    try:
        loaded = read(data)
    except PackedError as error:
        raise PackedError(f"{os.fspath(path)}: {error}") from None
    loaded.name = loaded.name or os.path.splitext(os.path.basename(path))[0]  # only older files have a name
    return loaded


def load_bytes(data: bytes) -> Model:
    """Return the model of a packed file's bytes. Raises PackedError if they are malformed."""
    header, reader = open_packed(data)
    header.read_streams(reader)
    return Model(header, header.weights(), data)


def open_packed(data: bytes) -> tuple[Header, Reader]:
    """Return a packed file's header, and a reader of what follows it. Raises PackedError."""
    if len(data) < 16 or data[:3] != MAGIC or not data[3]:
        raise PackedError("not a packed student" if data else "an empty file")
    if data[3] > VERSION:
        raise PackedError(f"made by a newer version of Featherweight, in format {data[3]}; this one reads {VERSION}")
    length = int.from_bytes(data[4:8], "little")
    if length != len(data):
        raise PackedError(f"{len(data):,} bytes instead of {length:,}: truncated, or something was appended")
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise PackedError("the checksum is wrong: the file is damaged")
    reader = Reader(memoryview(data)[8:-4])
    stored, size = reader.number(), reader.number(MOST_HEADER)
    return Header(Reader(_inflate(bytes(reader.take(stored)), size))), reader


def _inflate(stored: bytes, size: int) -> bytes:
    """Return the header of `size` bytes, stored unchanged if its length is the same, else as raw deflate."""
    if len(stored) == size:
        return stored
    inflater = zlib.decompressobj(-15)
    try:
        header = inflater.decompress(stored, size + 1)
    except zlib.error as error:
        raise PackedError(f"the header cannot be read ({error})") from None
    if len(header) != size or not inflater.eof or inflater.unused_data:
        raise PackedError("the header does not have the declared length")
    return header
