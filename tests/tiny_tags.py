"""A tiny corpus of tagged words: parts of films, and verdicts of two words."""

from pathlib import Path

import tiny
import yaml

from common.iob import as_iob

LABELS = ["O", "B-PART", "B-VERDICT", "I-VERDICT"]


def tagged(rows: int) -> list[tuple[list[str], list[str]]]:
    """Words and tags: nouns are parts; an adverb and the adjective after it, or an adjective alone, are verdicts."""
    made = []
    for text, _ in tiny.sentences(rows):
        words = text.split()
        tags = []
        for before, word in zip(["", *words], words, strict=False):
            verdict = word in tiny.GOOD + tiny.BAD
            goes_on = verdict and before in tiny.ADVERBS
            tags.append(
                "B-PART"
                if word in tiny.NOUNS
                else "I-VERDICT"
                if goes_on
                else "B-VERDICT"
                if verdict or word in tiny.ADVERBS
                else "O"
            )
        made.append((words, tags))
    return made


def write_task(folder: Path, rows: int = 160, **changed: object) -> Path:
    """Files of tagged words and their task's YAML file, whose path is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = tagged(rows)
    cut = {"train": whole[: rows // 2], "validation": whole[rows // 2 : -rows // 4], "test": whole[-rows // 4 :]}
    for name, texts in cut.items():
        (folder / f"{name}.tsv").write_text("".join(as_iob(*text) for text in texts))
    task = {"name": "parts", "kind": "tokens", "labels": LABELS, "source": {"files": {n: f"{n}.tsv" for n in cut}}}
    (folder / "parts.yaml").write_text(yaml.safe_dump({**task, **changed}))
    return folder / "parts.yaml"
