"""A page of results in Markdown, made from archived experiments and a template of prose and calls.

    {{ table("packed", task="sst-2") }}                       means and deviations as the experiment lays them out
    {{ families("packed", task="sst-2") }}                    a line for every family of models
    {{ by_size("small", "fasttext", task="sst-2", targets={"12 KB": {"accuracy": 0.81}}, quotes=["FFN-Hash25+q"]) }}
    {{ skyline("small", "fasttext", task="sst-2", picture="small-sst-2") }}

The names are of folders beside the template. Values are plain: texts, numbers, lists and mappings of them. A template
has no other names, no statements and no operations.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pydantic

from common.errors import UserError
from common.store.files import write_text
from common.tables import human_bytes
from compression.analysis.pictures import save_figure
from compression.experiments.report.archived import Archived, read_finished
from compression.experiments.report.families import Group, group_rows
from compression.experiments.report.merged import merged
from compression.experiments.report.pivot import pivots
from compression.experiments.report.pivot_text import markdown_pivot
from compression.experiments.report.points import PACKED, panels
from compression.experiments.report.record import Quote
from compression.experiments.report.size_table import LIMITS, Targets, size_table
from compression.experiments.report.skyline import draw_skylines
from compression.experiments.report.tables import SELECTED_ON_TEST, markdown_table, metric_heading

TEMPLATE = "page.md.jinja"


def has_page(folder: Path) -> bool:
    """Whether this is a folder with a template. Raises UserError for a folder of another kind, by its path."""
    if (folder / TEMPLATE).is_file():
        return True
    if len(folder.parts) > 1 and folder.is_dir():
        raise UserError(f"{folder}: no {TEMPLATE} in it")
    return False


def write_page(folder: Path) -> list[Path]:
    """Write <folder>.md beside a folder of archived experiments, and the pictures it shows into the folder.

    The same bytes every time. Returns the paths, the page's first. Raises UserError, before anything is written, for a
    template that cannot be, and for an experiment that is missing, unfinished or was changed by hand.
    """
    folder = folder.resolve()
    page = Page(folder)
    text = page.render((folder / TEMPLATE).read_text(encoding="utf-8"))
    paths = [path for name, group in page.pictures.items() for path in _save_picture(folder, name, *group)]
    target = folder.parent / f"{folder.name}.md"
    write_text(target, text)
    return [target, *paths]


class Page:
    """What a template may call: each gives Markdown. pictures: name -> what to draw, and whose figures beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pictures: dict[str, tuple[Group, Quote | None]] = {}
        self._read = functools.cache(lambda name: read_finished(folder / name))

    def render(self, template: str) -> str:
        """The page. Raises UserError with the template's line for what is wrong in it."""
        from jinja2 import StrictUndefined, TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
        environment.globals = {name: _checked(getattr(self, name)) for name in _CALLS}
        try:
            _check_plain(environment.parse(template))
            return environment.from_string(template).render()
        except (TemplateError, UserError) as error:
            raise UserError(f"{self.folder / TEMPLATE}: {_line(error)}{error}") from error

    def table(self, name: str, task: str | None = None) -> str:
        """An experiment's table of means and deviations: the one of a task, where it has several."""
        one = self._one(name)
        tables = [pivot for pivot in pivots(one.rows, one.record) if task in (None, pivot.title)]
        if len(tables) != 1:
            raise UserError(f"table: {name} has {len(tables)} tables {f'titled {task}' if task else ''}".rstrip())
        (table,) = tables
        return _warned(markdown_pivot(table), SELECTED_ON_TEST in table.notes)

    def families(self, *names: str, task: str, split: str = "test") -> str:
        """Every family of experiments on a split of a task, the best student bold."""
        rows = [row for one in self._all(names) for row in one.rows]
        groups = [group for group in group_rows(rows) if (group.task, group.split) == (task, split)]
        if not groups:
            raise UserError(f"families: nothing was scored on {split} of {task}")
        return _warned(markdown_table(groups[0]), any(family.selected_on_test for family in groups[0].families))

    def by_size(
        self,
        *names: str,
        task: str,
        targets: Targets | None = None,
        quotes: Sequence[str] = (),
        limits: Sequence[int] = LIMITS,
    ) -> str:
        """The table of a task by size, of all the experiments' models."""
        return size_table(merged(self._all(names), task), targets, quotes, limits)

    def skyline(self, *names: str, task: str, picture: str, quoted: bool = False) -> str:
        """A picture of scores against packed sizes, saved under a name, and what shows it."""
        if picture in self.pictures or Path(picture).name != picture:
            raise UserError(f"skyline: {picture!r} is no name of a picture, or that of another")
        quote = Quote(table="7.5") if quoted else None
        self.pictures[picture] = (merged(self._all(names), task), quote)
        return f"![Scores on {task} against sizes]({self.folder.name}/{picture}.png)"

    def _one(self, name: str) -> Archived:
        if Path(name).name != name:
            raise UserError(f"{name!r} is no name of a folder here")
        return self._read(name)

    def _all(self, names: Sequence[str]) -> list[Archived]:
        if not names:
            raise UserError("name at least one experiment")
        return list(map(self._one, names))


_CALLS = ("table", "families", "by_size", "skyline")


def _warned(table: str, selected_on_test: bool) -> str:
    return f"{table}\n\n{SELECTED_ON_TEST}" if selected_on_test else table


def _check_plain(tree: Any) -> None:
    """Raises UserError for whatever is neither prose nor a call with plain values."""
    from jinja2 import nodes

    literals = (nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword)
    for node in tree.body:
        for part in node.nodes if isinstance(node, nodes.Output) else [node]:
            call = isinstance(part, nodes.Call) and isinstance(part.node, nodes.Name)
            values = [value for value in part.find_all(nodes.Node) if value is not part.node] if call else [part]
            if not isinstance(part, nodes.TemplateData) and not all(isinstance(value, literals) for value in values):
                raise UserError(f"line {part.lineno}: a template has prose and calls with plain values only")


def _checked(function: Callable[..., str]) -> Callable[..., str]:
    """The function, where arguments that it does not take are the template's mistakes."""
    validated = pydantic.validate_call(function)

    def call(*values: Any, **named: Any) -> str:
        try:
            return validated(*values, **named)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            raise UserError(f"{function.__name__}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    return call


def _line(error: Exception) -> str:
    """'line 12: ', where an error tells of one: jinja puts the template's own lines among a traceback's."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
    return f"line {line}: " if line else ""


def _save_picture(folder: Path, name: str, group: Group, quote: Quote | None) -> list[Path]:
    """Draw and save a skyline. Its `Description` says what it shows, so that a stale one can be told."""
    figure = draw_skylines([group], quote, PACKED)
    return save_figure(figure, folder, name, description=described(group, quote))


def described(group: Group, quote: Quote | None) -> str:
    """What a skyline of packed sizes shows, a point a line."""
    return "\n".join(
        f"{metric_heading(panel.metric)}: {point.label} {100 * point.score:.2f} in {human_bytes(point.size)}"
        for panel in panels([group], quote, PACKED)
        for point in panel.every
    )
