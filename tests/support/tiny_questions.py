"""A tiny corpus of questions about films and years, in SQuAD's JSON."""

import json
from pathlib import Path

import numpy as np
import tiny
import yaml

from common.data.split import Split
from common.data.tasks import load_task
from common.kinds.registry import ANSWERS

SHIPPED = ("squad", "squad-2", "squad-shifts")
"""Tasks of questions that the project has."""


def unanswered(*pairs: tuple[str, str]) -> Split:
    """Rows of questions and contexts, without answers."""
    questions, contexts = zip(*pairs, strict=True)
    return Split(list(questions), list(contexts), np.full((len(pairs), 1, 2), -1), np.arange(len(pairs)), ANSWERS)


def paragraphs(count: int, unanswerable: bool = False) -> list[dict]:
    """Contexts of two sentences, each with two questions: how does this noun feel? And the noun that is not there."""
    rng = np.random.default_rng(tiny.SEED)
    found = []
    for number in range(count):
        nouns = rng.choice(tiny.NOUNS, 3, replace=False)
        words = [f"{rng.choice(tiny.GOOD)} {rng.choice(tiny.GOOD)}", rng.choice(tiny.BAD)]
        context = f"in {1900 + number} , the {nouns[0]} is {words[0]} . the {nouns[1]} feels {words[1]} !"
        qas = []
        for noun, verb, answer in ((nouns[0], "is", words[0]), (nouns[1], "feels", words[1])):
            at = context.index(f"{noun} {verb}") + len(f"{noun} {verb} ")
            question = f"in {1900 + number} , how {verb} the {noun} ?"
            qas.append(
                {"id": f"{number}{verb}", "question": question, "answers": [{"text": answer, "answer_start": at}]}
            )
        if unanswerable:
            question = f"in {1900 + number} , how is the {nouns[2]} ?"
            qas.append({"id": f"{number}no", "question": question, "answers": [], "is_impossible": True})
        found.append({"context": context, "qas": qas})
    return found


def write_questions(path: Path, found: list[dict]) -> Path:
    """A file of these paragraphs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "Films", "paragraphs": found}]}))
    return path


def write_shipped(folder: Path) -> Path:
    """Files of the shipped tasks of questions, in their own folders."""
    for name in SHIPPED:
        task = load_task(name)
        source = task.source
        whole = paragraphs(20 * len(source.files), task.unanswerable)
        for index, file in enumerate(source.files.values()):
            write_questions(folder / source.folder / file, whole[20 * index : 20 * index + 20])
    return folder


def write_task(folder: Path, count: int = 80, **changed: object) -> Path:
    """Files of questions and their task's YAML file, whose path is returned."""
    whole = paragraphs(count, bool(changed.get("unanswerable")))
    cut = {"train": whole[: count // 2], "validation": whole[count // 2 : -count // 4], "test": whole[-count // 4 :]}
    for name, part in cut.items():
        write_questions(folder / f"{name}.json", part)
    task = {"name": "films", "kind": "answers", "source": {"files": {name: f"{name}.json" for name in cut}}}
    (folder / "films.yaml").write_text(yaml.safe_dump({**task, **changed}))
    return folder / "films.yaml"
