"""Augmentation of training text after TinyBERT's Algorithm 1 (Jiao et al., 2020; section 4.1.3 of the thesis).

For every word of a sentence K candidates are found: words the masked language model holds as one piece are masked and
predicted, words of several pieces get their nearest neighbours in GloVe. Each of N variants then replaces every word
with probability p by a random candidate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.data.split import Split, read_row_group, split_table
from common.data.text import match_key
from common.launch.shards import PartFunction
from common.progress import Advance, in_proportion, nothing
from common.seeds import derive
from compression.augmentation.candidates import MaskedCandidates, Span
from compression.augmentation.glove import Neighbours, load_glove
from compression.augmentation.words import in_case_of, replaceable_places, split_pieces

Texts = tuple[str, ...]
"""A row's one sentence, or the two of a pair."""


@dataclasses.dataclass(frozen=True)
class AugmentWork:
    """Augmenting parts of a train split. Memory: the models, held-out rows, and one part."""

    masked_lm: str | None
    """Masked language model; without one every word is replaced by GloVe neighbours."""
    glove: Path | None
    """GloVe vectors as text; None means the packaged ones."""
    candidates: int
    """K."""
    variants: int
    """N."""
    probability: float
    """p."""
    fraction: float
    """Share of variants to keep (the thesis keeps a quarter for QQP and MNLI)."""
    held_out: tuple[Path, ...]
    """Split files whose rows no variant may equal."""
    seed: int
    cpu: bool
    downloads: Path
    """Where fetched models lie."""

    def open(self) -> PartFunction:
        """Load the models and the held-out rows."""
        source = CandidateSource(self._masked_candidates(), Neighbours(load_glove(self.glove), self.candidates))
        held_out = {key for path in self.held_out for key in _keys(path)}

        def augmented(rows: Split, first_row: int, advance: Advance) -> pa.Table:
            return split_table(augment(rows, first_row, source, self, held_out, advance))

        return augmented

    def _masked_candidates(self) -> MaskedCandidates | None:
        if not self.masked_lm:
            return None
        from common.devices import pick_device
        from common.teachers.load import load_masked_lm

        model = load_masked_lm(self.masked_lm, pick_device(self.cpu), self.downloads)
        return MaskedCandidates(model, self.candidates)


class CandidateSource:
    """Which words may replace a word: Algorithm 1's choice between the masked language model and GloVe."""

    def __init__(self, masked: MaskedCandidates | None, neighbours: Neighbours) -> None:
        self._masked, self._neighbours = masked, neighbours

    def find(
        self, texts: Sequence[str], advance: Advance = nothing
    ) -> Iterator[tuple[list[str], dict[int, list[str]]]]:
        """For each text its pieces, and by the place of a piece its candidates; other pieces stay as they are.

        Every sentence is masked in its own context, as TinyBERT does. advance: hears of texts.
        """
        pieces = [split_pieces(text) for text in texts]
        spans = [_spans(words) for words in pieces]
        whole: list[dict[Span, list[str]]] = [{} for _ in texts]
        if self._masked:
            whole = self._masked.find(texts, [list(places.values()) for places in spans], advance)
        split = [
            {place: words[place].lower() for place, span in places.items() if span not in known}
            for words, places, known in zip(pieces, spans, whole, strict=True)
        ]
        near = self._neighbours.of(word for words in split for word in words.values())
        for words, places, known, others in zip(pieces, spans, whole, split, strict=True):
            found = {place: near[others[place]] if place in others else known[span] for place, span in places.items()}
            yield words, {place: [in_case_of(words[place], c) for c in some] for place, some in found.items() if some}


def _spans(pieces: list[str]) -> dict[int, Span]:
    """Place and span of every replaceable word."""
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    return {place: (ends[place] - len(pieces[place]), ends[place]) for place in replaceable_places(pieces)}


def augment(
    rows: Split,
    first_row: int,
    source: CandidateSource,
    settings: AugmentWork,
    held_out: set[Texts],
    advance: Advance = nothing,
) -> Split:
    """Up to N variants of every row, in row order, each different from its source, its fellows and held-out rows.

    Both sentences of a pair are varied together. A variant keeps its source's label and names its row of train, where
    row 0 of `rows` is `first_row`. Draws depend on (seed, row of train) alone.
    held_out: match keys of rows that must not appear.
    """
    texts = list(dict.fromkeys(text for sentences in rows.sentences() for text in sentences))
    told = 0

    def tell(count: int) -> None:
        nonlocal told
        told += count
        advance(count)

    known = dict(zip(texts, source.find(texts, in_proportion(tell, len(rows), len(texts))), strict=True))
    made: list[list[str]] = [[] for _ in rows.sentences()]
    sources: list[int] = []
    for row, sentences in enumerate(zip(*rows.sentences(), strict=True)):
        for variant in _variants(sentences, [known[text] for text in sentences], first_row + row, settings):
            if tuple(map(match_key, variant)) not in held_out:
                sources.append(row)
                for column, text in zip(made, variant, strict=True):
                    column.append(text)
    advance(len(rows) - told)
    places = np.array(sources, np.int64)
    return Split(made[0], made[1] if len(made) == 2 else None, rows.labels[places], places + first_row)


def _variants(
    sentences: Texts, known: list[tuple[list[str], dict[int, list[str]]]], row: int, settings: AugmentWork
) -> Iterator[Texts]:
    words = sum(len(candidates) for _, candidates in known)
    rng = np.random.default_rng(derive("augment", settings.seed, row))
    # All draws of a row at once: [N, words], so that a variant's do not depend on those before it being kept.
    kept = rng.random(settings.variants) < settings.fraction
    replaced = rng.random((settings.variants, words)) < settings.probability
    picked = rng.random((settings.variants, words))
    seen = {sentences}
    for number in np.flatnonzero(kept & replaced.any(1)):
        draws = iter(zip(replaced[number].tolist(), picked[number].tolist(), strict=True))
        variant = tuple(_vary(pieces, candidates, draws) for pieces, candidates in known)
        if variant not in seen:
            seen.add(variant)
            yield variant


def _vary(pieces: list[str], candidates: dict[int, list[str]], draws: Iterator[tuple[bool, float]]) -> str:
    varied = list(pieces)
    for (place, choice), (replace, pick) in zip(candidates.items(), draws, strict=False):
        if replace:
            varied[place] = choice[int(pick * len(choice))]
    return "".join(varied)


def _keys(path: Path) -> Iterator[Texts]:
    for part in range(pq.ParquetFile(path).num_row_groups):
        for texts in zip(*read_row_group(path, part).sentences(), strict=True):
            yield tuple(map(match_key, texts))
