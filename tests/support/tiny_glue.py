"""The rest of GLUE in small, each task in the layout of its official files; tiny.py has SST-2, QQP and MNLI."""

from pathlib import Path

import tiny

TRAIN, DEV = 120, 40
"""Rows of each task's files."""
PAIRS = tiny.pairs(TRAIN + DEV)
SINGLES = tiny.sentences(TRAIN + DEV)
ENTAILS = ("not_entailment", "entailment")
# Quotes are text: one that opens and never closes must not swallow the rows after it.
PAIRS[3] = (f'"{PAIRS[3][0]}', *PAIRS[3][1:])

Table = tuple[list[str] | None, list[list[str]]]
"""Header, where there is one, and rows."""


def write_rest(folder: Path) -> Path:
    """CoLA, MRPC, STS-B, QNLI, RTE, WNLI and the diagnostic set, and Banking77."""
    layouts = {"CoLA": cola(), "MRPC": mrpc(), "STS-B": sts_b(), "QNLI": qnli(), "RTE": rte(), "WNLI": wnli()}
    for name, (header, rows) in layouts.items():
        for file, part in (("train.tsv", rows[:TRAIN]), ("dev.tsv", rows[TRAIN:])):
            first, *others = [header, *part] if header else part
            tiny.write_tsv(folder / name / file, first, others)
    header, rows = diagnostic()
    tiny.write_tsv(folder / "diagnostic" / "diagnostic-full.tsv", header or [], rows)
    intents = [f'"{text}",{("age_limit", "card_arrival")[y]}\n' for text, y in SINGLES]
    (folder / "BANKING77").mkdir()
    for file, part in (("train.csv", intents[::2]), ("test.csv", intents[1::2])):
        (folder / "BANKING77" / file).write_text("".join(["text,category\n", *part]))
    return folder


def cola() -> Table:
    """No header line; what is not acceptable has a star."""
    return None, [["gj04", str(y), "" if y else "*", text] for text, y in SINGLES]


def mrpc() -> Table:
    """A byte-order mark first."""
    header = ["\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    return header, [[str(y), str(i), str(i + 1), a, b] for i, (a, b, y) in enumerate(PAIRS)]


def sts_b() -> Table:
    """Scores from 0 to 5."""
    header = [
        "index",
        "genre",
        "filename",
        "year",
        "old_index",
        "source1",
        "source2",
        "sentence1",
        "sentence2",
        "score",
    ]
    known = ["main-news", "MSRpar", "2012test", "0001", "none", "none"]
    return header, [[str(i), *known, a, b, f"{4.5 * y + i % 6 / 10:.3f}"] for i, (a, b, y) in enumerate(PAIRS)]


def qnli() -> Table:
    """Labels in words."""
    return ["index", "question", "sentence", "label"], [[str(i), a, b, ENTAILS[y]] for i, (a, b, y) in enumerate(PAIRS)]


def rte() -> Table:
    """Labels in words."""
    header = ["index", "sentence1", "sentence2", "label"]
    return header, [[str(i), a, b, ENTAILS[y]] for i, (a, b, y) in enumerate(PAIRS)]


def wnli() -> Table:
    """Labels by number."""
    header = ["index", "sentence1", "sentence2", "label"]
    return header, [[str(i), a, b, str(y)] for i, (a, b, y) in enumerate(PAIRS)]


def diagnostic() -> Table:
    """MNLI's labels, four columns of phenomena."""
    phenomena = ["Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge"]
    names = ("neutral", "entailment")
    rows = [["", "", "Negation", "", "Artificial", a, b, names[y]] for a, b, y in PAIRS[:30]]
    return [*phenomena, "Domain", "Premise", "Hypothesis", "Label"], rows
