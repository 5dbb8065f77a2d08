"""Typed settings: class defaults < YAML file < flag. Unknown keys and flags are errors that name the nearest one.

A settings class is a pydantic model; its fields are the YAML keys and, with dashes, the flags. Flags reach pydantic
as the strings the user typed, so one validator serves both sources.
"""

import argparse
import difflib
import inspect
import re
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar

import pydantic
import yaml

from common.errors import UserError
from common.reading import regular_file

CONFIG_DIR = Path(__file__).parent.parent / "configs"
_MOST_BYTES = 1 << 20
"""Size limit of settings files; ours have a few kilobytes."""
_MOST_ERRORS = 5
"""Number of errors shown in one message."""
_UNITS = {"k": (1000, 1024), "m": (1000**2, 1024**2), "g": (1000**3, 1024**3)}
"""Letter -> bytes, and bytes with an i after it."""
_OFTEN_MEANT = {"--size": "--max-bytes", "--sizes": "--max-bytes"}
"""Flags that some try -> flags that are there."""
OLD_NAMES = {"emb-ffn": "ffn", "base": "roberta_base", "large": "roberta_large"}
"""Architecture names of the thesis's program -> our names."""


def _loader() -> Any:
    """Return PyYAML's safe loader, in C if available: a grid reads the same small files hundreds of times."""
    in_c = hasattr(yaml, "CSafeLoader")
    bases: tuple[Any, ...] = (yaml.composer.Composer, yaml.CSafeLoader) if in_c else (yaml.SafeLoader,)

    class Loader(*bases):
        """Builds the tree in Python: deep nesting overflows the stack in C, but raises RecursionError in Python."""

        def __init__(self, stream: str) -> None:
            bases[-1].__init__(self, stream)
            yaml.composer.Composer.__init__(self)

        def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
            """Return a mapping. Raises ComposerError for a key that appears twice, whose first value has no effect."""
            node = super().compose_mapping_node(anchor)
            keys: set[str] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in keys:
                    message = f"key {key.value!r} appears twice"
                    raise yaml.composer.ComposerError(None, None, message, key.start_mark)
                keys.add(key.value)
            return node

    return Loader


_LOADER = _loader()


T = TypeVar("T")
OneOrMore = Annotated[
    tuple[T, ...], pydantic.BeforeValidator(lambda one: (one,) if isinstance(one, int | str) else one)
]
"""Type of a field with several values: a single one may stand by itself."""
S = TypeVar("S", bound="Settings")
Uses = Iterator[tuple[object, Iterable[str], str]]
"""Groups of fields: whether they have an effect, their names, and the reason if not, such as 'without --augment'."""


class Settings(pydantic.BaseModel):
    """Base of every settings class: immutable, typed, no unknown keys, a docstring under each field is its help."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=(), allow_inf_nan=False
    )
    most_used: ClassVar[tuple[str, ...]] = ()
    """Fields that --help shows first; the others are shown in groups, see `help_groups`."""

    @classmethod
    def translate(cls, layer: dict[str, Any]) -> dict[str, Any]:
        """Return one layer of values, not yet merged, with old names and short forms replaced by field names."""
        return layer

    @classmethod
    def shown(cls, values: dict[str, Any], everything: bool) -> set[str]:
        """Return the fields that --help shows with these values, or --help-all, which shows everything."""
        return set(cls.model_fields)

    def unused(self) -> dict[str, str]:
        """Return field -> reason of the fields without effect given the other values.

        The flags of these fields are rejected, see `check_used`. The rules are yielded by the `_uses` of each class; of
        several reasons, the last one is given.
        """
        groups = [group for cls in reversed(type(self).__mro__) if "_uses" in vars(cls) for group in cls._uses(self)]
        return {name: reason for used, names, reason in groups if not used for name in names}

    def part(self, cls: type[S]) -> S:
        """Return the fields of a base class as settings of that class."""
        return cls(**{name: getattr(self, name) for name in cls.model_fields})


def build(cls: type[S], *layers: dict[str, Any], names_are: Callable[[str], str] = str) -> S:
    """Return settings from layers of values; later layers win.

    `names_are` maps a field to its name in error messages (a flag or a key).
    Raises UserError with one line when a key is unknown, a value has the wrong type, or values contradict.
    """
    for layer in layers:
        if not isinstance(layer, dict):
            raise UserError(f"expected names and values, not {layer!r}")
    values = {key: value for layer in layers for key, value in cls.translate(layer).items()}
    for key in values:
        if key not in cls.model_fields:
            raise UserError(f"unknown setting {key!r}{nearest(key, cls.model_fields)}")
    try:
        return cls(**values)
    except pydantic.ValidationError as error:
        shown = [_describe(entry, names_are) for entry in error.errors()[:_MOST_ERRORS]]
        if error.error_count() > len(shown):
            shown.append(f"and {error.error_count() - len(shown)} more")
        raise UserError("; ".join(shown)) from error


def _bytes(value: Any) -> Any:
    """Return a number of bytes given with a unit as an int: 32000 for 32k or "32 KB", 32768 for 32KiB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmg])(i?)b?", str(value).lower())
    if not match:
        return value
    decimal, binary = _UNITS[match[2]]
    return round(float(match[1]) * (binary if match[3] else decimal))


Bytes = Annotated[pydantic.PositiveInt, pydantic.BeforeValidator(_bytes)]
"""Type of a setting that is a number of bytes, which may have a unit."""


def check_used(typed: Iterable[str], settings: Sequence[Settings]) -> None:
    """Raise UserError if a typed flag has no effect in any of the settings that have it.

    Values from files and defaults are not checked: several commands may share them, and not all of these use them.
    """
    for name in typed:
        reasons = [part.unused().get(name) for part in settings if name in type(part).model_fields]
        if reasons and all(reasons):
            raise UserError(f"{flag(name)} has no effect {reasons[0]}")


def _describe(error: Any, names_are: Callable[[str], str]) -> str:
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ").replace("a valid tuple", "a list")
    if not error["loc"]:
        return message
    name = names_are(str(error["loc"][0]))
    place = ".".join([name, *map(str, error["loc"][1:])])
    if error["type"] == "missing":
        return f"{place} is required"
    if error["type"] == "extra_forbidden":
        return f"unknown setting {place!r}"
    return f"{name}: {message} (got {_SHORT.repr(error['input'])})"


_SHORT = reprlib.Repr()
"""Shortens values in messages: a few YAML aliases can expand to more values than fit in memory."""
_SHORT.maxstring = _SHORT.maxother = 200
_SHORT.maxlevel = 3


def nearest(name: str, known: Iterable[str]) -> str:
    """Return '; did you mean X?' for the known name most similar to `name`, or an empty string."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {match[0]}?" if match else ""


def load_yaml(path: Path) -> dict[str, Any]:
    """Return a YAML file's mapping, dashes in keys turned into underscores. Raises UserError, with file and line."""
    try:
        if regular_file(path).stat().st_size > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES:,} bytes")
        loaded = yaml.load(path.read_text(encoding="utf-8"), _LOADER)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or an impossible date
        raise UserError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded or {}, dict):
        raise UserError(f"{path}: expected settings as 'key: value' lines")
    return underscored(loaded or {})


def load_with_base(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return an experiment file's contents, merged with those of its `base`: files in the same folder, or one.

    A base may have bases of its own. Settings and axes override those of the bases, and of a base those before it;
    rules are appended, and other keys replace. above: the resolved paths of the files that name this one as their base.
    Raises UserError as `load_yaml` does, and if a file is its own base.
    """
    if path.resolve() in above:
        raise UserError(f"{path}: this file is its own base")
    loaded = load_yaml(path)
    merged: dict[str, Any] = {}
    for base in bases_of(path, loaded):
        merged = _merged(merged, load_with_base(base, (*above, path.resolve())))
    return _merged(merged, {key: value for key, value in loaded.items() if key != "base"})


def bases_of(path: Path, loaded: dict[str, Any]) -> list[Path]:
    """Return the files that an experiment file's contents name as its `base`, one or a list."""
    bases = loaded.get("base") or []
    return [path.parent / str(base) for base in (bases if isinstance(bases, list) else [bases])]


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of two experiment files: settings and axes are merged, rules appended, others replaced."""
    merged = {**below, **above}
    for key, empty in (("settings", {}), ("axes", {}), ("rules", [])):
        parts = [part.get(key) or empty for part in (below, above)]
        if key not in merged or not all(isinstance(part, type(empty)) for part in parts):
            continue  # a wrong type is reported by the check of the merged file
        merged[key] = {**parts[0], **parts[1]} if empty == {} else [*parts[0], *parts[1]]
    return merged


def underscored(values: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping with dashes in its keys turned into underscores."""
    return {str(key).replace("-", "_"): value for key, value in values.items()}


def pairs(flag_name: str, words: Sequence[str]) -> dict[str, str]:
    """Return the KEY=VALUE words of a flag as a mapping. Raises UserError for another form, and a key given twice."""
    values: dict[str, str] = {}
    for key, separator, value in (word.partition("=") for word in words):
        if not key or not separator:
            raise UserError(f"{flag_name} takes KEY=VALUE, not {key + separator + value!r}")
        if key in values:
            raise UserError(f"{flag_name} gives {key} twice: {values[key]} and {value}")
        values[key] = value
    return values


class _Parser(argparse.ArgumentParser):
    """argparse without prefix matching, whose errors are UserErrors."""

    def error(self, message: str) -> NoReturn:
        switch = re.match(r"argument (--\S+)/--no-\S+: ignored explicit argument", message)
        if switch:
            raise UserError(f"{switch[1]} takes no value: give {switch[1]} or --no-{switch[1][2:]}")
        raise UserError(f"{message} (see --help)")


def flag(field: str) -> str:
    """Return the flag that sets a field. A field named after one of pydantic's methods ends in an underscore: json_."""
    return "--" + field.strip("_").replace("_", "-")


def parse_flags(
    cls: type[S],
    argv: Sequence[str] | None,
    description: str | None,
    defaults: Callable[[dict[str, Any]], dict[str, Any]] = lambda values: {},
    usage: str = "%(prog)s [flags]",
) -> S:
    """Return settings parsed from a command line; flags override the YAML file of `--config FILE`.

    `defaults` maps the values of file and flags to further defaults, such as those of a student's settings file; --help
    shows them.
    Raises UserError for an unknown flag, a flag without effect, a stray word, a bad value or a bad file.
    """
    values, typed, help_word = _read(cls.model_fields, argv)
    layered = further_defaults(cls, defaults, values)
    if help_word:
        groups = help_groups(cls, cls.shown({**layered, **values}, help_word == "help-all"))
        text = inspect.cleandoc(description or "")
        _make_parser(cls.model_fields, groups, layered, description=text, usage=usage).print_help()
        raise SystemExit(0)
    settings = build(cls, layered, values, names_are=flag)
    check_used(typed, [settings])
    return settings


def further_defaults(
    cls: type[Settings], defaults: Callable[[dict[str, Any]], dict[str, Any]], values: dict[str, Any]
) -> dict[str, Any]:
    """Return defaults(values). Raises UserError if `defaults` cannot read a value's type."""
    try:
        return defaults(values)
    except (TypeError, AttributeError):
        build(cls, values, names_are=flag)
        raise


def split_flags(classes: Sequence[type[Settings]], argv: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the values that a command line gives each of several settings classes, and the fields set by its flags.

    Raises UserError for a flag that no class has.
    """
    together = {name: field for cls in classes for name, field in cls.model_fields.items()}
    values, typed, _ = _read(together, argv)
    strange = [name for name in values if name not in together]  # from --config's file
    if strange:
        raise UserError(f"unknown setting {strange[0]!r}{nearest(strange[0], together)}")
    return [{name: values[name] for name in values if name in cls.model_fields} for cls in classes], typed


def _read(fields: dict[str, Any], argv: Sequence[str] | None) -> tuple[dict[str, Any], list[str], str | None]:
    """Return the values from the --config file and the flags, the fields set by flags, and help or help-all if asked.

    Raises UserError for an unknown flag and a stray word.
    """
    namespace, unknown = _make_parser(fields, {"flags": list(fields)}, {}).parse_known_args(argv)
    if unknown:
        word = unknown[0].split("=")[0]
        if word.startswith("-"):
            meant = _OFTEN_MEANT.get(word, word)
            raise UserError(f"unknown flag {word}{nearest(meant, [flag(name) for name in fields])} (see --help)")
        raise UserError(f"unexpected argument {word!r} (see --help)")
    values = vars(namespace)
    config, help_word = values.pop("config", None), values.pop("help", None)
    of_file = load_yaml(Path(config)) if config else {}
    return of_file | values, list(values), help_word


def _make_parser(
    fields: dict[str, Any], groups: dict[str, list[str]], defaults: dict[str, Any], **shown: Any
) -> _Parser:
    """Return a parser of --config, --help and the fields' flags.

    groups: title -> fields, for --help; shown: its description and usage.
    """
    parser = _Parser(
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **shown,
    )
    for title, names in groups.items():
        group = parser.add_argument_group(title)
        for name in names:
            text = _help_text(name, fields[name], defaults)
            options = argparse_type(fields[name].annotation)
            extras = fields[name].json_schema_extra or {}
            if "bare" in extras:  # the value of a flag that is given without one
                options |= {"nargs": "?", "const": extras["bare"]}
            group.add_argument(flag(name), dest=name, help=text, **options)
    group = parser.add_argument_group("Help and settings files")
    group.add_argument("--config", metavar="FILE", help="YAML file of settings; flags override it")
    group.add_argument("-h", "--help", action="store_const", const="help", help="Show help, with defaults, and exit")
    group.add_argument("--help-all", dest="help", action="store_const", const="help-all", help="Show all flags")
    return parser


def _help_text(name: str, field: Any, defaults: dict[str, Any]) -> str:
    default = defaults.get(name, field.get_default(call_default_factory=True))
    text = (field.description or "").replace("\n", " ")
    text += " (required)" if field.is_required() and name not in defaults else f" (default: {shown_default(default)})"
    return text.replace("%", "%%")


def help_groups(cls: type[Settings], shown: Collection[str] | None = None) -> dict[str, list[str]]:
    """Return title -> fields of the groups that --help shows: `most_used` first, the base classes' last.

    A field belongs to the class that declares it. The title is the class's docstring up to a period, colon or bracket.
    shown: fields to show; unset: all.
    """
    left = [name for name in cls.model_fields if shown is None or name in shown]
    most_used = [name for name in cls.most_used if name in left]
    groups = {"Most used": most_used} if most_used else {}
    for base in cls.__mro__:
        inherited = {name for above in base.__mro__[1:] for name in getattr(above, "model_fields", ())}
        fields = set(getattr(base, "model_fields", ())) - inherited - set(cls.most_used)
        names = [name for name in left if name in fields]
        if names:
            title = re.split("[.:(\n]", base.__doc__ or "")[0].strip()
            groups.setdefault(title, []).extend(names)
    return groups


def shown_default(default: Any) -> str:
    """Return a default as --help writes it."""
    if isinstance(default, tuple | list):
        return " ".join(map(str, default)) or "none"
    if default is None or isinstance(default, bool):
        return {None: "unset", True: "on", False: "off"}[default]
    return str(default) or "unset"


def argparse_type(annotation: Any) -> dict[str, Any]:
    """Return argparse's options for a field's type; pydantic does the rest."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return argparse_type(next(a for a in arguments if a is not type(None)))
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction}
    if origin is tuple:
        # A repeated flag adds values: --set a=1 --set b=2.
        return {"nargs": "+", "action": "extend", "metavar": (_metavar(arguments[0]), "")}
    return {"metavar": _metavar(annotation)}


def _metavar(annotation: Any) -> str:
    if annotation == Bytes:
        return "BYTES"
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is typing.Literal:
        return "{" + ",".join(map(str, typing.get_args(annotation))) + "}"
    return {int: "INT", float: "FLOAT", Path: "PATH"}.get(annotation, "TEXT")
