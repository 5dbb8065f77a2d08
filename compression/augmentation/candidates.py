"""Likely replacements of words by masked language modelling, in batches of masked sentences."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch

from common.progress import Advance, in_proportion, nothing
from common.teachers.huggingface.masked_lm import HuggingFaceMaskedLM, Pieces

BATCH_PIECES, BATCH_ROWS = 8192, 512
"""Maximum pieces and rows of a batch: enough to keep a processor busy, while the logits take about 100 MB."""
TIE = 2e-4
"""If scores are closer than this, 20 times the rounding seen between batches, the sentence is run again alone."""

Span = tuple[int, int]
"""Indices of a word's first character and of the character after its last."""
Query = tuple[int, int, Span]
"""A word to mask: its sentence's index, its piece's index in the sentence, and its span."""


class MaskedCandidates:
    """Finds the k most likely words in place of each word of a sentence.

    The result does not depend on how sentences are batched, although the last digits of a model's scores do, because
    matrix products of different shapes round differently:
    - sentences of equal length are batched, so that there is no padding;
    - a word's candidates are in the vocabulary's order, not ranked by score;
    - if the k-th and the next best score are closer than TIE, the masked sentence is run again alone.
    All arithmetic is float32.
    """

    def __init__(self, model: HuggingFaceMaskedLM, k: int, batch_pieces: int = BATCH_PIECES) -> None:
        self.model, self.k, self.batch_pieces = model, k, batch_pieces
        self._forms = [word.lower() if len(word) > 1 and word.isalpha() else "" for word in model.words()]
        self._spellings: dict[str, str] = {}
        self._pieces: dict[str, list[int]] = {}
        for piece, (word, form) in enumerate(zip(model.words(), self._forms, strict=True)):
            if form:
                # great, Great and GREAT are one word, written in lower case if the vocabulary has that form.
                self._spellings[form] = form if word == form else self._spellings.get(form, word)
                self._pieces.setdefault(form, []).append(piece)
        self._order = {form: i for i, form in enumerate(self._spellings)}
        self._forbidden = torch.tensor([0.0 if form else -math.inf for form in self._forms])
        # The best pieces up to this number contain at least k + 1 different words.
        most = max(map(len, self._pieces.values()), default=1)
        self._shortlist = min((k + 1) * most, len(self._forms))

    def find(
        self, sentences: Sequence[str], words: Sequence[Sequence[Span]], advance: Advance = nothing
    ) -> list[dict[Span, list[str]]]:
        """Return up to k candidates of each word that is one piece of the model, a dict for each sentence.

        words: spans of each sentence's words; words of several pieces and truncated words are not in the result.
        advance: called with numbers of sentences, in proportion to the finished words.
        """
        candidates: list[dict[Span, list[str]]] = [{} for _ in sentences]
        encoded = self.model.encode(sentences)
        queries = [
            (sentence, index, span)
            for sentence, (pieces, spans) in enumerate(zip(encoded, words, strict=True))
            for index, span in _whole(pieces, spans)
        ]
        advance_words = in_proportion(advance, len(sentences), len(queries))

        def length_of(query: Query) -> int:
            return len(encoded[query[0]].ids)

        for length, same in itertools.groupby(sorted(queries, key=length_of), key=length_of):
            size = min(BATCH_ROWS, max(1, self.batch_pieces // length))
            while batch := list(itertools.islice(same, size)):
                ids = np.array([encoded[sentence].ids for sentence, _, _ in batch], np.int64)
                indices = np.array([index for _, index, _ in batch])
                masked = [sentences[sentence][slice(*span)] for sentence, _, span in batch]
                for (sentence, _, span), forms in zip(batch, self._best(ids, indices, masked), strict=True):
                    candidates[sentence][span] = [self._spellings[form] for form in forms]
                advance_words(len(batch))
        return candidates

    @torch.inference_mode()
    def _best(self, ids: np.ndarray, indices: np.ndarray, words: list[str]) -> list[list[str]]:
        """Return candidates for the piece at `indices` of each row of `ids` [batch, length], without `words`."""
        rows = np.arange(len(ids))
        masked = ids.copy()
        masked[rows, indices] = self.model.mask_id
        scores = self.model.predict(masked, indices)  # [batch, vocabulary]
        scores += self._forbidden.to(scores.device)
        for row, (word, piece) in enumerate(zip(words, ids[rows, indices], strict=True)):
            # The piece may be the word without accents.
            for form in {word.lower(), self._forms[piece]}:
                scores[row, self._pieces.get(form, [])] = -math.inf
        values, pieces = scores.topk(self._shortlist)
        best = []
        for row, shortlist in enumerate(zip(values.tolist(), pieces.tolist(), strict=True)):
            forms, lead = self._first(*shortlist)
            if lead < TIE and len(ids) > 1:
                forms = self._best(ids[row : row + 1], indices[row : row + 1], words[row : row + 1])[0]
            best.append(forms)
        return best

    def _first(self, scores: list[float], pieces: list[int]) -> tuple[list[str], float]:
        """Return the k best words, in the vocabulary's order, and the margin of the k-th. scores: descending."""
        forms: dict[str, float] = {}
        lead = math.inf
        for score, piece in zip(scores, pieces, strict=True):
            form = self._forms[piece]
            if score == -math.inf or form in forms:
                continue
            if len(forms) == self.k:
                lead = min(forms.values()) - score
                break
            forms[form] = score
        return sorted(forms, key=self._order.__getitem__), lead


def _whole(pieces: Pieces, words: Sequence[Span]) -> list[tuple[int, Span]]:
    """Return (index of its piece, span) for every word that is one piece."""
    # A byte-level piece may end inside a letter, which counts as covered; the next piece begins with the same letter.
    following = [*pieces.spans[1:], (0, 0)]
    indices = {}
    for index, (span, after) in enumerate(zip(pieces.spans, following, strict=True)):
        if after == (0, 0) or after[0] >= span[1]:
            indices[span] = index
    return [(indices[span], span) for span in words if span in indices]
