"""The IOB2 scheme (Ramshaw and Marcus, 1995; Tjong Kim Sang and Veenstra, 1999).

An entity of kind X begins with B-X and continues with I-X; O is outside of all entities.
"""

from collections.abc import Sequence

OUTSIDE = "O"
_BEGIN, _END = "BSUW", "ELSUW"
"""Prefixes of the first word of an entity, and of its last word."""
_PREFIXES = {*_BEGIN, *_END, "I", "M"}


def check_tags(tags: Sequence[str]) -> None:
    """Raise ValueError if labels are not an IOB scheme: O, B-X and I-X."""
    if OUTSIDE not in tags:
        raise ValueError("labels of words are IOB tags, O among them: [O, B-X, I-X]")
    for tag in tags:
        if tag == OUTSIDE:
            continue
        if tag[:2] not in ("B-", "I-") or not tag[2:]:
            raise ValueError(f"labels: {tag!r} is not an IOB tag (O, B-X or I-X)")
        if tag[0] == "I" and f"B-{tag[2:]}" not in tags:
            raise ValueError(f"labels: {tag} continues an entity that nothing begins: B-{tag[2:]} is missing")


def check_order(tag: str, before: str) -> None:
    """Raise ValueError if a tag continues an entity of another kind than the tag before it, or no entity."""
    if tag[0] == "I" and before[1:] != tag[1:]:
        after = f"after {before}" if before else "at the start of a text"
        raise ValueError(f"{tag} {after} breaks the IOB scheme: an entity begins with B{tag[1:]}")


def as_iob2(tags: Sequence[str]) -> list[str]:
    """Return a text's tags in the IOB2 scheme; they may be in IOB1, BIOES (or BMEWO) and BILOU, or kinds alone.

    S- and U- are entities of one word, E- and L- the last word of an entity. A kind without a prefix continues an
    entity of this kind.
    """
    converted: list[str] = []
    before, ended = OUTSIDE, True  # the kind of the entity before, and whether its last word is marked
    for tag in tags:
        prefix, dash, kind = tag.partition("-")
        if not dash or prefix not in _PREFIXES:
            prefix, kind = "I", tag
        begins = prefix in _BEGIN or kind != before or ended
        converted.append(OUTSIDE if tag == OUTSIDE else f"{'B' if begins else 'I'}-{kind}")
        before, ended = kind, prefix in _END
    return converted


def as_iob(words: Sequence[str], tags: Sequence[str]) -> str:
    """Return a text's lines, one word and its tag each, with the empty line after it."""
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n"


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return (kind, first word, word after the last) of each entity; an I- tag that continues no entity begins one."""
    spans: list[tuple[str, int, int]] = []
    before = OUTSIDE
    for i, tag in enumerate(tags):
        if tag[0] == "I" and before[1:] == tag[1:]:
            spans[-1] = (*spans[-1][:2], i + 1)
        elif tag != OUTSIDE:
            spans.append((tag[2:], i, i + 1))
        before = tag
    return spans
