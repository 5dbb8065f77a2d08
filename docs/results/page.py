"""Write docs/results.md and its pictures from page.md.jinja and the archived experiments in this folder.

    python docs/results/page.py

The template calls:

    {{ overview({"sst-2": ["small", "fasttext"]}, picture="overview") }}   all tasks at once, and a picture of them
    {{ table("packed", task="sst-2") }}                       means and deviations as the experiment lays them out
    {{ families("packed", task="sst-2") }}                    a line for every family of models
    {{ by_size("small", "fasttext", task="sst-2", targets={"12 KB": {"accuracy": 0.81}}, quotes=["FFN-Hash25+q"]) }}
    {{ skyline("small", "fasttext", task="sst-2", picture="small-sst-2") }}
    {{ board("board") }}                                      the table of benchmarks/board.py, from board.json
    {{ records() }}                                           the claims in records.yaml, against the records before

The names are folders next to the template. Templates run in Jinja's sandbox.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pydantic

sys.path.insert(1, str(Path(__file__).parents[2]))
sys.path.insert(2, str(Path(__file__).parents[2] / "benchmarks"))

import board

from archive import Archived, read_finished
from common.cli import run_script
from common.config import build, load_yaml
from common.errors import UserError
from common.store.files import read_json, write_text
from compression.analysis.pictures import save_figure
from compression.experiments.report.columns import SELECTED_ON_TEST, metric_heading, models_table
from compression.experiments.report.pictures import cost_text, draw_skylines, panels
from compression.experiments.report.pivot import pivots
from compression.experiments.report.record import Quote
from compression.experiments.report.results import SplitResults, group_rows
from compression.experiments.report.table import markdown_table
from merge import merged
from overview import Overview, described, draw_overview, overview_table, overviews
from records import Claim, records_table
from size_table import LIMITS, Targets, size_table, warning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATE = "page.md.jinja"


def write_page(folder: Path) -> list[Path]:
    """Write <folder>.md next to a folder of archived experiments, and the page's pictures into the folder.

    The output is deterministic. Returns the paths, the page's first. Raises UserError, before anything is written, for
    an invalid template, and for an experiment that is missing, unfinished or was changed by hand.
    """
    folder = folder.resolve()
    page = Page(folder)
    text = page.render((folder / TEMPLATE).read_text(encoding="utf-8"))
    paths = []
    for name, (draw, description) in page.pictures.items():
        paths += save_figure(draw(), folder, name, description=description)
    write_text(folder.with_suffix(".md"), text)
    return [folder.with_suffix(".md"), *paths]


class Page:
    """Functions that a template calls; each returns Markdown. pictures: name -> drawing function and description."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pictures: dict[str, tuple[Callable[[], Figure], str]] = {}
        self._read = functools.cache(read_finished)

    def render(self, template: str) -> str:
        """Return the page. Raises UserError, with the template's line, for an error in the template."""
        from jinja2 import StrictUndefined, TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
        functions = (self.overview, self.table, self.families, self.by_size, self.skyline, self.board, self.records)
        environment.globals = {function.__name__: pydantic.validate_call(function) for function in functions}
        try:
            return environment.from_string(template).render()
        except (TemplateError, TypeError, UserError, pydantic.ValidationError) as error:
            # Jinja adds the template's own lines to the traceback.
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == "<template>"]
            line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
            where = f"{self.folder / TEMPLATE}: " + (f"line {line}: " if line else "")
            if isinstance(error, pydantic.ValidationError):
                first = error.errors()[0]
                raise UserError(f"{where}{error.title}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
            raise UserError(f"{where}{error}") from error

    def overview(
        self, tasks: Mapping[str, Sequence[str]], picture: str, metrics: Mapping[str, Sequence[str]] = {}
    ) -> str:
        """Return the table of all tasks' best students by size, and a picture of them.

        tasks: task -> names of experiments; metrics: task -> metrics; default: only the main metric.
        """
        drawn: list[Overview] = []
        for task, names in tasks.items():
            drawn += overviews(self._merged(names, task), metrics.get(task, ()))
        shown = self._picture(picture, lambda: draw_overview(drawn), described(drawn), "Scores of all tasks by size")
        return f"{overview_table(drawn)}\n\n{shown}"

    def table(self, name: str, task: str | None = None) -> str:
        """Return an experiment's table of means and deviations. task: which table, if there are several."""
        (one,) = self._all([name])
        tables = [pivot for pivot in pivots(one.rows, one.record) if task in (None, pivot.title)]
        if len(tables) != 1:
            raise UserError(f"table: {name} has {len(tables)} tables {f'titled {task}' if task else ''}".rstrip())
        return markdown_table(tables[0]) + warning(SELECTED_ON_TEST in tables[0].notes)

    def families(self, *names: str, task: str, split: str = "test") -> str:
        """Return a table of the experiments' families on a split of a task, with the best student in bold."""
        rows = [row for one in self._all(names) for row in one.rows]
        results = next((of for of in group_rows(rows) if (of.task, of.split) == (task, split)), None)
        if results is None:
            raise UserError(f"families: nothing was scored on {split} of {task}")
        return markdown_table(models_table(results)) + warning(any(g.selected_on_test for g in results.groups))

    def by_size(
        self,
        *names: str,
        task: str,
        targets: Targets | None = None,
        quotes: Sequence[str] = (),
        limits: Sequence[int] = LIMITS,
    ) -> str:
        """Return the table by size of all models of the experiments on a task."""
        return size_table(self._merged(names, task), targets, quotes, limits)

    def skyline(self, *names: str, task: str, picture: str, quoted: bool = False) -> str:
        """Add a picture of scores against packed sizes. Returns the Markdown that shows it. picture: its name."""
        results, quote = self._merged(names, task), Quote(table="7.5") if quoted else None
        points, caption = described_skyline(results, quote), f"Scores on {task} against sizes"
        return self._picture(picture, lambda: draw_skylines([results], quote), points, caption)

    def board(self, name: str) -> str:
        """Return the table of the measurements in NAME.json, which benchmarks/board.py has written."""
        return board.table(read_json(self.folder / f"{name}.json")).rstrip("\n")

    def records(self) -> str:
        """Return the table of the claims in records.yaml."""
        claims = load_yaml(self.folder / "records.yaml")["records"]
        return records_table([build(Claim, claim) for claim in claims], lambda name, task: self._merged([name], task))

    def _picture(self, name: str, draw: Callable[[], Figure], description: str, caption: str) -> str:
        if name in self.pictures or Path(name).name != name:
            raise UserError(f"{name!r} is not the name of a picture, or that of another one")
        self.pictures[name] = (draw, description)
        return f"![{caption}]({self.folder.name}/{name}.png)"

    def _merged(self, names: Sequence[str], task: str) -> SplitResults:
        return merged({one.record.name: one.rows for one in self._all(names)}, task)

    def _all(self, names: Sequence[str]) -> list[Archived]:
        if not names:
            raise UserError("name at least one experiment")
        for name in names:
            if Path(name).name != name:
                raise UserError(f"{name!r} is not the name of a folder here")
        return [self._read(self.folder / name) for name in names]


def described_skyline(results: SplitResults, quote: Quote | None) -> str:
    """Return the contents of a skyline of packed sizes, one point per line, for the picture's `Description`."""
    return "\n".join(
        f"{metric_heading(panel.metric)}: {point.label} {100 * point.score:.2f} in {cost_text(panel.cost, point.cost)}"
        for panel in panels([results], quote)
        for point in panel.points
    )


def main() -> None:
    """Write the page of this folder."""
    if len(sys.argv) > 1:
        raise UserError("usage: page.py, without arguments")
    print(f"page: {write_page(Path(__file__).parent)[0]}")


if __name__ == "__main__":
    run_script(main)
