"""Augmentation of training text after TinyBERT's Algorithm 1 (Jiao et al., 2020; section 4.1.3 of the thesis).

Every word of a sentence has K candidates: predictions of a masked language model for words that are one piece of its
vocabulary, and nearest neighbours in GloVe for words of several pieces. Each of N variants then replaces every word
with probability p by a random candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from common.config import Settings
from common.data.split import Split, split_table
from common.data.text import near_key
from common.devices import pick_device
from common.launch.shards import PartFunction
from common.progress import Advance, in_proportion, nothing
from common.seeds import derive
from common.teachers.load import load_masked_lm
from compression.augmentation.candidates import MaskedCandidates, Span
from compression.augmentation.fresh import held_out_keys
from compression.augmentation.glove import Neighbours, load_glove
from compression.augmentation.words import count_words, in_case_of, replaceable_indices, split_pieces

Texts = tuple[str, ...]
"""A row's sentence, or the two sentences of a pair."""


class Variation(Settings):
    """How rows are varied."""

    variants: int
    """N."""
    replace_probability: float
    """p."""
    candidates: int
    """K."""
    fraction: float = 1.0
    """Share of variants to keep (the thesis keeps a quarter for QQP and MNLI)."""
    seed: int
    least_words: int = 1
    """Minimum number of words of a row, in both texts of a pair together, for it to have variants."""
    sides: str = "both"
    """Texts of a pair in which words are replaced: both, or one."""


def open_variants(
    how: Variation, masked_lm: str | None, glove: Path | None, held_out: tuple[Path, ...], cpu: bool, downloads: Path
) -> PartFunction:
    """Load the models and the held-out rows. Returns the function that varies a part of the rows of train.

    masked_lm: masked language model; if None, every word is replaced by GloVe neighbours; glove: text file of vectors,
    None for the packaged ones; held_out: split files whose texts must not appear in variants; downloads: folder of
    downloaded models. Only the models, the held-out rows and one part are in memory.
    """
    masked = None
    if masked_lm:
        masked = MaskedCandidates(load_masked_lm(masked_lm, pick_device(cpu), downloads), how.candidates)
    source = CandidateSource(masked, Neighbours(load_glove(glove), how.candidates))
    keys = held_out_keys(held_out)

    def augmented(rows: Split, first_row: int, advance: Advance) -> pa.Table:
        return split_table(augment(rows, first_row, source, how, keys, advance))

    return augmented


class CandidateSource:
    """Source of candidates: Algorithm 1's choice between the masked language model and GloVe."""

    def __init__(self, masked: MaskedCandidates | None, neighbours: Neighbours) -> None:
        self._masked, self._neighbours = masked, neighbours

    def find(
        self, texts: Sequence[str], advance: Advance = nothing
    ) -> Iterator[tuple[list[str], dict[int, list[str]]]]:
        """Yield the pieces of each text, and index -> candidates for the pieces that have any.

        Words are masked in the context of their own sentence, as in TinyBERT. advance: called with numbers of texts.
        """
        pieces = [split_pieces(text) for text in texts]
        spans = [_spans(words) for words in pieces]
        whole: list[dict[Span, list[str]]] = [{} for _ in texts]
        if self._masked:
            whole = self._masked.find(texts, [list(by_index.values()) for by_index in spans], advance)
        parsed = list(zip(pieces, spans, whole, strict=True))
        # Words without a prediction consist of several pieces of the masked language model.
        near = self._neighbours.of(
            words[i].lower()
            for words, by_index, predicted in parsed
            for i, span in by_index.items()
            if span not in predicted
        )
        for words, by_index, predicted in parsed:
            candidates = {}
            for i, span in by_index.items():
                likely = predicted[span] if span in predicted else near[words[i].lower()]
                if likely:
                    candidates[i] = [in_case_of(words[i], word) for word in likely]
            yield words, candidates


def _spans(pieces: list[str]) -> dict[int, Span]:
    """Return index -> span of every replaceable piece."""
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    return {index: (ends[index] - len(pieces[index]), ends[index]) for index in replaceable_indices(pieces)}


def augment(
    rows: Split,
    first_row: int,
    source: CandidateSource,
    settings: Variation,
    held_out: set[str],
    advance: Advance = nothing,
) -> Split:
    """Return up to N variants of every row, in row order, without duplicates and copies of the row.

    Both sentences of a pair are varied together, or with sides "one" only one of them, drawn for each variant. A
    variant has the label of its source and its row number in train, where row 0 of `rows` is `first_row`. Draws depend
    only on (seed, row of train).
    held_out: near keys of texts that must not appear; advance: called with numbers of rows.
    """
    texts = list(dict.fromkeys(rows.texts()))
    advanced = 0

    def count(number: int) -> None:
        nonlocal advanced
        advanced += number
        advance(number)

    candidates = dict(zip(texts, source.find(texts, in_proportion(count, len(rows), len(texts))), strict=True))
    columns: list[list[str]] = [[] for _ in rows.sentences()]
    sources: list[int] = []
    for row, sentences in enumerate(zip(*rows.sentences(), strict=True)):
        if count_words(sentences) < settings.least_words:
            continue
        for variant in _variants(sentences, [candidates[text] for text in sentences], first_row + row, settings):
            if held_out.isdisjoint(map(near_key, variant)):
                sources.append(row)
                for column, text in zip(columns, variant, strict=True):
                    column.append(text)
    advance(len(rows) - advanced)
    indices = np.array(sources, np.int64)
    return Split(
        columns[0], columns[1] if len(columns) == 2 else None, rows.labels[indices], indices + first_row, rows.kind
    )


def _variants(
    sentences: Texts, parsed: list[tuple[list[str], dict[int, list[str]]]], row: int, settings: Variation
) -> Iterator[Texts]:
    words = sum(len(candidates) for _, candidates in parsed)
    rng = np.random.default_rng(derive("augment", settings.seed, row))
    # All draws of a row are made at once, [N, words], so a variant does not depend on which others are kept.
    kept = rng.random(settings.variants) < settings.fraction
    replaced = rng.random((settings.variants, words)) < settings.replace_probability
    picked = rng.random((settings.variants, words))
    if settings.sides == "one":
        side = np.repeat(np.arange(len(parsed)), [len(candidates) for _, candidates in parsed])
        replaced &= side == rng.integers(len(parsed), size=(settings.variants, 1))
    seen = {sentences}
    for number in np.flatnonzero(kept & replaced.any(1)):
        draws = iter(zip(replaced[number].tolist(), picked[number].tolist(), strict=True))
        variant = tuple(_vary(pieces, candidates, draws) for pieces, candidates in parsed)
        if variant not in seen:
            seen.add(variant)
            yield variant


def _vary(pieces: list[str], candidates: dict[int, list[str]], draws: Iterator[tuple[bool, float]]) -> str:
    varied = list(pieces)
    for (index, choice), (replace, pick) in zip(candidates.items(), draws, strict=False):
        if replace:
            varied[index] = choice[int(pick * len(choice))]
    return "".join(varied)
