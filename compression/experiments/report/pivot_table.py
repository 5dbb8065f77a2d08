"""What a table of means and deviations is made of; pivot.py fills it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class PivotColumn:
    """One metric under one value of every column axis. quoted: the thesis's figures, not ours; source: whose."""

    labels: tuple[str, ...]
    metric: str
    quoted: bool
    source: str = ""

    @property
    def title(self) -> str:
        """'accuracy', or 'accuracy, thesis, SST-2 (quoted)'."""
        return f"{self.metric}, {self.source}" if self.source else self.metric

    @property
    def heading(self) -> str:
        """All of it on one line: 'alpha 0 · accuracy'."""
        return " · ".join((*self.labels, self.title))


@dataclasses.dataclass(frozen=True)
class PivotCell:
    """A mean over n seeds and its sample deviation, as in results.json: not yet times 100. best: to be shown bold.

    text: '78.50 ± 1.02', with '(3/4)' where seeds are missing and a dagger where the test split chose the weights and
    the row's heading does not say so already; an en dash when empty. planned: number of seeds there are to be.
    packed: mean bytes_packed over the seeds, where the layout asks for sizes; the text ends in it, '· 21.4 KB'.
    """

    mean: float | None
    sd: float | None
    n: int
    best: bool
    text: str
    planned: int = 0
    packed: float | None = None


@dataclasses.dataclass(frozen=True)
class PivotRow:
    """Cells in the order of the columns. labels: one a row axis; a baseline has its name, then empty ones.

    parameters: of the whole model; size: bytes, in results.json's `size_field`: bytes_model of a distilled student or
    a teacher, bytes_gzip of a pruned or quantized one, as the thesis reports them. Both None where unknown, or where
    they differ from cell to cell.
    """

    labels: tuple[str, ...]
    parameters: float | None
    size: float | None
    cells: tuple[PivotCell, ...]
    size_field: str | None = None
    selected_on_test: bool = False
    quoted: bool = False

    @property
    def headings(self) -> tuple[str, ...]:
        """The labels as shown: the last one with a dagger when the test split chose all of the row's weights."""
        last = next((i for i in reversed(range(len(self.labels))) if self.labels[i]), 0)
        mark = " †" if self.selected_on_test else ""
        return tuple(label + mark if i == last else label for i, label in enumerate(self.labels))


@dataclasses.dataclass(frozen=True)
class Pivot:
    """One table. baselines: teachers, then the thesis's (quoted); they fill the columns that they belong to."""

    title: str
    row_headings: tuple[str, ...]
    column_axes: tuple[str, ...]
    columns: tuple[PivotColumn, ...]
    rows: tuple[PivotRow, ...]
    baselines: tuple[PivotRow, ...]
    notes: tuple[str, ...]
    sizes: bool = False
    """Whether cells tell sizes; then rows do not."""
