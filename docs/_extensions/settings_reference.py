"""The reference of flags and files: `{settings SCRIPT}` in a page becomes a script's description and flags, and
`{keys MODULE CLASS}` a table of the keys of a YAML file, both read from the settings.

Nothing is written to a file, so the pages are always those of the code that is there. Of experiment.py every command
has its section.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from common.config import CONFIG_DIR, Settings, argparse_type, flag, help_groups, shown_default
from compression.students.settings import student_defaults

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_PLACEHOLDER = re.compile(r"^\{settings (\w+)\}$", re.MULTILINE)
_KEYS = re.compile(r"^\{keys ([\w.]+) (\w+)\}$", re.MULTILINE)
INTERNAL = ("file",)
"""Fields that are set when a file is read."""
_CODE = re.compile(r"(`[^`]+`|(?<![\w-])--[a-z][a-z0-9-]*)")
_MARKUP = re.compile(r"([\\*_\[\]<>#|~$!{}])")
_STUDENTS = tuple(sorted(path.stem for path in (CONFIG_DIR / "students").glob("*.yaml")))
_BY_STUDENT = "Defaults of each student"


def setup(app: Sphinx) -> dict[str, bool]:
    """Fill in the pages when they are read."""
    app.connect("source-read", fill_in)
    return {"parallel_read_safe": True}


def fill_in(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace each placeholder of a page by the script's sections."""
    text = _PLACEHOLDER.sub(lambda match: "\n".join(script_sections(match[1])), source[0])
    source[0] = _KEYS.sub(lambda match: "\n".join(key_table(match[1], match[2])), text)


def key_table(module: str, name: str) -> Iterator[str]:
    """Yield a table of the keys of a class of settings that YAML files are read into: key, default and description."""
    cls = getattr(importlib.import_module(module), name)
    yield "| key | default | |"
    yield "|---|---|---|"
    for key, field in cls.model_fields.items():
        if key in INTERNAL:
            continue
        default = "required" if field.is_required() else shown_default(field.get_default(call_default_factory=True))
        shown = "unset" if default in ("", "{}", "none") else default
        yield f"| `{key}` | {plain(shown)} | {plain(field.description or '')} |"


def script_sections(script: str) -> Iterator[str]:
    """Yield lines of Markdown: the script's description and a section for each group of flags, or for each command."""
    module = importlib.import_module(script)
    yield from description(module.__doc__ or "")
    commands: Mapping[str, Any] = getattr(module, "COMMANDS", {})
    if not commands:
        (cls,) = settings_classes(module)
        yield from flag_sections(f"{script}.py", cls, "##", student_keys() if script == "compress" else {})
        if script == "compress":
            yield from student_table()
    for word, (cls, operands, function) in commands.items():
        yield f"## {script}.py {word} {plain(' '.join(operands))}\n"
        yield from description(function.__doc__ or "")
        yield from flag_sections(f"{script}.py {word}", cls, "###", {})


def settings_classes(module: Any) -> list[type[Settings]]:
    """Return the settings classes that a script imports for its flags."""
    values = [value for value in vars(module).values() if inspect.isclass(value)]
    return [value for value in values if issubclass(value, Settings) and value is not Settings]


def flag_sections(program: str, cls: type[Settings], heading: str, linked: Mapping[str, str]) -> Iterator[str]:
    """Yield a section for each group of flags. linked: field -> Markdown in place of its default."""
    yield f"```{{program}} {program}\n```\n"
    for title, names in help_groups(cls).items():
        yield f"{heading} {plain(title)}\n"
        for name in names:
            yield from option(name, cls.model_fields[name], linked.get(name))


def option(name: str, field: Any, default: str | None) -> Iterator[str]:
    """Yield one flag: its spellings and values, its help and its default."""
    options = argparse_type(field.annotation)
    metavar = options.get("metavar", "")
    several = isinstance(metavar, tuple)
    metavar = metavar[0] if several else metavar
    values = [f"`{value}`" for value in metavar[1:-1].split(",")] if metavar.startswith("{") else []
    spelling = flag(name) + (" VALUE" if values else f" {metavar}".rstrip()) + (" ..." if several else "")
    if not metavar:
        spelling += f", --no-{flag(name)[2:]}"
    yield f"::::{{option}} {spelling}\n"
    yield f"{plain(field.description or '')}\n"
    facts = [f"Values: {', '.join(values)}."] if values else []
    if field.is_required():
        facts.append("Required.")
    else:
        facts.append(default or f"Default: {plain(shown_default(field.get_default(call_default_factory=True)))}.")
    yield f"{' '.join(facts)}\n"
    yield "::::\n"


def description(docstring: str) -> Iterator[str]:
    """Yield a docstring as Markdown: indented lines are commands, everything else is plain text."""
    for block in inspect.cleandoc(docstring).split("\n\n"):
        lines = block.splitlines()
        example = re.match(r"Example: (python .*)", block)
        if example:
            lines = [f"    {example[1]}"]
        if all(line.startswith("    ") for line in lines):
            yield "\n".join(["```bash", *(line[4:] for line in lines), "```\n"])
        else:
            yield plain(" ".join(lines)) + "\n"


def plain(text: str) -> str:
    """Return plain text as Markdown: flags and words in backticks are code, other markup is escaped."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(f"`{part.strip('`')}`" if i % 2 else _MARKUP.sub(r"\\\1", part) for i, part in enumerate(parts))


def student_keys() -> dict[str, str]:
    """Return the flags whose defaults are in configs/students, each with a link to the table of them."""
    link = f"Default: [of each student](#{_BY_STUDENT.lower().replace(' ', '-')})."
    fields = {name for arch in _STUDENTS for pair in (False, True) for name in student_defaults(arch, pair)}
    return dict.fromkeys(fields, link)


def student_table() -> Iterator[str]:
    """Yield the table of configs/students: a line for each flag, a column for each student."""
    single, pairs = ({arch: student_defaults(arch, pair) for arch in _STUDENTS} for pair in (False, True))
    yield f"## {_BY_STUDENT}\n"
    yield "From `configs/students`; after a slash, the value for tasks of pairs where it differs.\n"
    yield f"| flag | {' | '.join(_STUDENTS)} |"
    yield "|---|" + "---|" * len(_STUDENTS)
    for name in dict.fromkeys(name for values in single.values() for name in values):
        cells = []
        for arch in _STUDENTS:
            values = [shown_default(table[arch][name]) for table in (single, pairs) if name in table[arch]]
            cells.append(" / ".join(dict.fromkeys(values)))
        yield f"| `{flag(name)}` | {' | '.join(cells)} |"
    yield ""
