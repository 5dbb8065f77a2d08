"""A tiny corpus of tagged words: parts of films, and verdicts of two words."""

from pathlib import Path

import tiny
import yaml

from common.data.tasks import load_task
from common.kinds.iob import as_iob

BIOMEDICAL = ("bc2gm", "bc5cdr-chem", "bc5cdr-disease", "ncbi-disease")
LABELS = ["O", "B-PART", "B-VERDICT", "I-VERDICT"]


def tagged(rows: int) -> list[tuple[list[str], list[str]]]:
    """Words and tags: nouns are parts; an adverb and the adjective after it, or an adjective alone, are verdicts."""
    texts = []
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
        texts.append((words, tags))
    return texts


def write_biomedical(folder: Path) -> Path:
    """Files of the shipped tasks of tokens, in their own folders: each marks the verdicts."""
    for name in BIOMEDICAL:
        task = load_task(name)
        kind = task.labels[1][2:]
        tags = {"B-VERDICT": f"B-{kind}", "I-VERDICT": f"I-{kind}"}
        rows = [as_iob(words, [tags.get(tag, "O") for tag in gold]) for words, gold in tagged(60)]
        (folder / task.source.folder).mkdir()
        for index, file in enumerate(task.source.files.values()):
            (folder / task.source.folder / file).write_text("".join(rows[20 * index : 20 * index + 20]))
    return folder


def write_task(folder: Path, rows: int = 160, **changed: object) -> Path:
    """Files of tagged words and their task's YAML file, whose path is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = tagged(rows)
    cut = {"train": whole[: rows // 2], "validation": whole[rows // 2 : -rows // 4], "test": whole[-rows // 4 :]}
    for name, texts in cut.items():
        (folder / f"{name}.tsv").write_text("".join(as_iob(*text) for text in texts))
    task = {"name": "parts", "kind": "tags", "labels": LABELS, "source": {"files": {n: f"{n}.tsv" for n in cut}}}
    (folder / "parts.yaml").write_text(yaml.safe_dump({**task, **changed}))
    return folder / "parts.yaml"
