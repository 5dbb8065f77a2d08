"""Records: the best student known of each task and size, and what was tried to beat it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from common.config import Settings
from common.errors import UserError
from common.tables import human_bytes
from compression.experiments.report.columns import metric_heading
from compression.experiments.report.results import SeedGroup, SplitResults
from compression.experiments.report.table import Entry, Head, Line, Table, markdown_table
from compression.experiments.significance import paired_t

_SHARE_OF_BYTES, _POINTS_BEHIND = 0.8, 0.3
"""A student of at most this share of the record's bytes replaces it if it is at most so many points behind."""
_CONFIDENCE = 0.95


class Claim(Settings):
    """Students of an archived experiment that were to beat a record."""

    task: str
    size: str
    """Size class, for the table: claims of the same task and size compete, in the order in which they are listed."""
    experiment: str
    model: str
    """Name of the students in tables by size."""
    changed: str
    """What is different from the students before, and why."""


def records_table(claims: Sequence[Claim], results_of: Callable[[str, str], SplitResults]) -> str:
    """Return the claims in Markdown, each compared with the record before it, by the task's main metric.

    results_of: experiment and task -> results. The difference is paired by seed, with Student's t interval. Raises
    UserError for a student that the experiment does not have or that has no packed file, and for two students without
    two common seeds.
    """
    records: dict[tuple[str, str], SeedGroup] = {}
    lines, above = [], None
    for claim in claims:
        results, place = results_of(claim.experiment, claim.task), (claim.task, claim.size)
        metric = results.metrics[0]
        student = next((group for group in results.groups if group.name == claim.model), None)
        if student is None:
            raise UserError(f"records: {claim.experiment} has no {claim.model!r}")
        score, size, record = student.metric(metric), student.mean("bytes_packed"), records.get(place)
        if score is None or size is None:
            raise UserError(f"records: {claim.model} of {claim.experiment} has no {metric} or no packed file")
        is_record, difference = True, ""
        if record is not None:
            interval = paired_t(_points_ahead(student, record, metric), _CONFIDENCE)
            smaller = size <= _SHARE_OF_BYTES * (record.mean("bytes_packed") or 0)
            is_record = interval.mean > (-_POINTS_BEHIND if smaller else 0)
            difference = f"{interval.mean:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"
        if is_record:
            records[place] = student
        heading = f"{claim.task}, {claim.size}, {metric_heading(metric)}" if place != above else ""
        cells = [heading, claim.changed, claim.experiment, human_bytes(size), score.text, difference]
        lines.append(Line([*map(Entry, cells), Entry("yes" if is_record else "no")]))
        above = place
    words, numbers = ("Task and size", "Students", "Experiment"), ("Packed file", "Test", "Ahead of the record, points")
    heads = [Head((name,), numeric=False) for name in words] + [Head((name,)) for name in numbers]
    return markdown_table(Table("", [*heads, Head(("Record",), numeric=False)], lines))


def _points_ahead(student: SeedGroup, record: SeedGroup, metric: str) -> list[float]:
    """Return how many points a student is ahead of a record, one number for each seed that both have."""
    before = {row["seed"]: row["metrics"][metric] for row in record.rows}
    points = [100 * (row["metrics"][metric] - before[row["seed"]]) for row in student.rows if row["seed"] in before]
    if len(points) < 2:
        raise UserError(f"records: {student.name} and {record.name} have fewer than two common seeds")
    return points
