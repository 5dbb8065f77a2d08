"""Likely replacements of words by masked-language modelling, many masked sentences at a time."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from common.progress import Advance, in_proportion, nothing
from common.teachers.base import MaskedLM, Pieces

BATCH_PIECES, BATCH_ROWS = 8192, 512
"""Most pieces and rows of a batch: enough to keep a processor busy, while the logits stay at about 100 MB."""
TIE = 2e-4
"""Scores this close are told apart by running the sentence alone: twenty times the rounding seen between batches."""

Span = tuple[int, int]
"""A word's first character, and the one after its last."""
Asked = tuple[int, int, Span]
"""What to mask: the sentence's number, the place of the word's piece, and the word."""


class MaskedCandidates:
    """The k likeliest words in the place of a word, the rest of its sentence being as it is.

    The result does not depend on how sentences are batched, though a model's scores do in their last digits, since a
    matrix product of another shape rounds otherwise. For that reason
    - sentences of one length are batched, so that there is no padding;
    - a word's candidates are a set in the vocabulary's order, not ranked by score;
    - where the k-th and the next best score are closer than TIE, the masked sentence is run again alone, and that
      decides.
    All arithmetic is float32.
    """

    def __init__(self, model: MaskedLM, k: int, batch_pieces: int = BATCH_PIECES) -> None:
        self.model, self.k, self.batch_pieces = model, k, batch_pieces
        self._forms = [word.lower() if len(word) > 1 and word.isalpha() else "" for word in model.words()]
        spellings: dict[str, str] = {}
        self._pieces: dict[str, list[int]] = {}
        for piece, (word, form) in enumerate(zip(model.words(), self._forms, strict=True)):
            if form:
                # great, Great and GREAT are one word; it is written in small letters where the vocabulary has it so.
                spellings[form] = form if word == form else spellings.get(form, word)
                self._pieces.setdefault(form, []).append(piece)
        self._spellings = spellings
        self._order = {form: i for i, form in enumerate(spellings)}
        self._forbidden = torch.tensor([0.0 if form else -math.inf for form in self._forms])
        # So many best pieces hold k + 1 different words.
        most = max(map(len, self._pieces.values()), default=1)
        self._shortlist = min((k + 1) * most, len(self._forms))

    def find(
        self, sentences: Sequence[str], words: Sequence[Sequence[Span]], advance: Advance = nothing
    ) -> list[dict[Span, list[str]]]:
        """For each sentence its words that are one piece of the model's, and up to k candidates of each.

        words: the spans to look at; words of several pieces (or cut off) are left out of the answer.
        advance: hears of sentences, in proportion to the words done.
        """
        found: list[dict[Span, list[str]]] = [{} for _ in sentences]
        encoded = self.model.encode(sentences)
        asked = [
            (sentence, place, span)
            for sentence, (pieces, spans) in enumerate(zip(encoded, words, strict=True))
            for place, span in _whole(pieces, spans)
        ]
        tell = in_proportion(advance, len(sentences), len(asked))
        for batch in self._batches(asked, [len(pieces.ids) for pieces in encoded]):
            ids = np.array([encoded[sentence].ids for sentence, _, _ in batch], np.int64)
            places = np.array([place for _, place, _ in batch])
            own = [sentences[sentence][slice(*span)] for sentence, _, span in batch]
            for (sentence, _, span), forms in zip(batch, self._best(ids, places, own), strict=True):
                found[sentence][span] = [self._spellings[form] for form in forms]
            tell(len(batch))
        return found

    def _batches(self, asked: list[Asked], lengths: list[int]) -> Iterator[list[Asked]]:
        """What is asked, sentences of one length together, in order of length. lengths: pieces of each sentence."""
        ordered = sorted(asked, key=lambda one: lengths[one[0]])
        for length, same in itertools.groupby(ordered, key=lambda one: lengths[one[0]]):
            size = min(BATCH_ROWS, max(1, self.batch_pieces // length))
            while batch := list(itertools.islice(same, size)):
                yield batch

    @torch.inference_mode()
    def _best(self, ids: np.ndarray, places: np.ndarray, own: list[str]) -> list[list[str]]:
        """Candidates of the pieces at `places` of each row of `ids` [batch, length], the words in `own` left out."""
        rows = np.arange(len(ids))
        masked = ids.copy()
        masked[rows, places] = self.model.mask_id
        scores = self.model.predict(masked, np.full(len(ids), ids.shape[1]), places)
        scores += self._forbidden.to(scores.device)
        for row, (word, piece) in enumerate(zip(own, ids[rows, places], strict=True)):
            # The piece may be the word without its accents.
            for form in {word.lower(), self._forms[piece]}:
                scores[row, self._pieces.get(form, [])] = -math.inf
        values, pieces = scores.topk(self._shortlist)
        best = []
        for row, found in enumerate(zip(values.tolist(), pieces.tolist(), strict=True)):
            forms, lead = self._first(*found)
            if lead < TIE and len(ids) > 1:
                forms = self._best(ids[row : row + 1], places[row : row + 1], own[row : row + 1])[0]
            best.append(forms)
        return best

    def _first(self, scores: list[float], pieces: list[int]) -> tuple[list[str], float]:
        """The k best words in the vocabulary's order, and the last one's lead over the next. Scores are descending."""
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
    """(place of its piece, span) of every word that is one piece."""
    # A byte-level piece may end inside a letter, which then counts as covered: the next piece begins with that letter.
    after = [*pieces.spans[1:], (0, 0)]
    places = {
        span: place
        for place, (span, following) in enumerate(zip(pieces.spans, after, strict=True))
        if following == (0, 0) or following[0] >= span[1]
    }
    return [(places[span], span) for span in words if span in places]
