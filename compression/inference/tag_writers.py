"""What is said of words: a tag each, in the form that files of tagged words have, or beside the text it came in."""

from __future__ import annotations

import dataclasses
from typing import Any

from common.data.iob import as_iob, entities
from compression.inference.readers import Row


@dataclasses.dataclass(frozen=True)
class TagAnswers:
    """A model's answers to words, as text_output.Answers are to texts. values: a probability a label, of every word."""

    labels: tuple[str, ...]
    columns = ("predicted_tags",)

    def tagged(self, row: Row, values: list[list[float]]) -> tuple[list[str], list[str]]:
        """A row's words and their likeliest tags, the first of equals. values: may be of more words than there are."""
        words = row.sentences[0].split()
        return words, [self.labels[each.index(max(each))] for each, _ in zip(values, words, strict=False)]

    def lines(self, row: Row, values: list[list[float]]) -> str:
        """A word and its tag a line, and an empty line."""
        return as_iob(*self.tagged(row, values))

    def cells(self, row: Row, values: list[list[float]]) -> list[str]:
        """One cell: the tags, with spaces between them as the words have."""
        return [" ".join(self.tagged(row, values)[1])]

    def fields(self, row: Row, values: list[list[float]]) -> dict[str, Any]:
        """Tags, and the entities they make: of what kind, which text, its first word and the word after its last."""
        words, tags = self.tagged(row, values)
        found = [
            {"kind": kind, "text": " ".join(words[first:end]), "first": first, "end": end}
            for kind, first, end in entities(tags)
        ]
        return {"predicted_tags": tags, "entities": found}
