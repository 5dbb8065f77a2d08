"""Writer of zoo/README.md, a table of the cards."""

from __future__ import annotations

from collections.abc import Sequence

from card import Card
from common.tables import human_bytes

_SHOWN_LABELS = 10
_OPENING = """# Models

Packed files that run with NumPy only. `python zoo/publish.py` adds a model and writes this page from the cards
(`<name>.json`), which have everything in the table and more.

    echo "a gorgeous , witty film" | python -m compression.runtime sst-2-12k

A name works wherever a packed file does: `predict.py --model NAME`, `evaluate.py --model-name NAME`,
`analyze.py --model-name NAME --bytes`, `featherweight.load("NAME")`. docs/guide/zoo.md describes them.

Scores are those of the file on the task's test rows (of GLUE its dev set), in percent; in brackets mean ± sample
standard deviation of its family, models that differ in their seed alone, and their number. 1 KB is 1,000 bytes.

Below are the licences of the data, and the use of the models that they allow. Whether a licence of data binds a model
that is trained on it is not settled; "use" assumes that it does.
"""


def readme(cards: Sequence[Card]) -> str:
    """Return the text of zoo/README.md."""
    lines = ["| name | answers | bytes | test | teacher |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(_cells(card))} |" for card in cards]
    tasks = {card.task: card for card in cards}
    notes = [line for card in tasks.values() for line in _notes(card)]
    return "\n".join([_OPENING, *lines, "", *notes])


def _cells(card: Card) -> list[str]:
    scores = []
    for metric in next(iter(card.test.values())).metrics:
        text = f"{metric.replace('_', ' ')} {card.shown(metric)}"
        if card.family:
            spread = card.family.metrics[metric]
            text += f" ({100 * spread.mean:.2f} ± {100 * spread.sd:.2f}, {len(card.family.seeds)})"
        scores.append(text)
    teacher = "none: labels only"
    if card.teacher:
        teacher = ", ".join(card.teacher.encoders)
        teacher += "".join(f": {100 * score:.2f}" for score in list(card.teacher.metrics.values())[:1])
        teacher += "" if card.teacher.bytes is None else f" in {human_bytes(card.teacher.bytes)}"
    labels = ", ".join(card.labels) if len(card.labels) <= _SHOWN_LABELS else f"one of {len(card.labels)} labels"
    answers = "a part of the context" if card.kind == "answers" else labels or "a score"
    return [f"`{card.name}`", f"{card.notes.question} {answers}", f"{card.bytes:,}", "<br>".join(scores), teacher]


def _notes(card: Card) -> list[str]:
    """Return the lines about a task's data, which are the same for all of its models."""
    notes = card.notes
    limits = [f"- {limit[0].upper()}{limit[1:]}." for limit in notes.limits]
    data = f"Data: {notes.data}, {notes.source}. Licence: {notes.licence}. Use: {notes.use}."
    return [f"## {card.task}", "", data, "", *limits, ""]
