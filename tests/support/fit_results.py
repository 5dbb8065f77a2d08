"""Results of `fit`, made up."""

from typing import Any

from compression.experiments.fit.result import FitResult, Packed


def packed(max_bytes: int, score: float = 0.8, **changed: Any) -> Packed:
    """The packed file of a size."""
    file = f"{max_bytes}.fwt"
    usual = {"student": "words", "model": f"words-{max_bytes}-packed", "epochs": 15, "packed": file, "output": file}
    scores = {"validation": score, "metrics": {"accuracy": score}}
    return Packed(**{**usual, **scores, "max_bytes": max_bytes, "bytes": max_bytes - 9, "sha256": "", **changed})


def result(*sizes: Packed, **changed: Any) -> FitResult:
    """The result of a fit with these packed files, of which the first is chosen."""
    words = {"name": "small", "file": "transport.csv", "task": "texts", "teacher": "linear", "report": "report.html"}
    numbers = {"seconds": 30.0, "minutes": 1.0, "chosen": 0, "majority": 0.4, "stages": {}}
    rows = {"train": 800, "validation": 100, "test": 400}
    several = {"notes": (), "tried": (), "baselines": (), "texts": ("text",), "example": ("hello",)}
    return FitResult(sizes=sizes, metric="accuracy", rows=rows, **{**words, **numbers, **several, **changed})
