"""Settings: defaults < YAML < flag, types, --help, and errors that name the nearest thing."""

import subprocess
import sys
from typing import Literal

import pydantic
import pytest
import tiny

from common.cli import run_script
from common.config import Bytes, Settings, build, help_groups, load_yaml, parse_flags
from common.errors import UserError


class Knobs(Settings):
    """Settings for these tests."""

    rate: float = 0
    """A float whose default looks like an int."""
    rows: int = pydantic.Field(3, gt=0)
    """An int."""
    loud: bool = False
    """A switch."""
    kind: Literal["plain", "fancy"] = "plain"
    """A choice."""
    steps: tuple[Literal["one", "two"], ...] = ("one",)
    """Several."""
    limit: float | None = None
    """Unset or a number."""
    max_bytes: Bytes | None = None
    """Unset or a number of bytes."""


def knobs(*words, **options):
    return parse_flags(Knobs, words, "test", **options)


@pytest.fixture
def write(tmp_path):
    """A function from text to --config and the path of a file with it."""

    def run(text):
        (tmp_path / "knobs.yaml").write_text(text)
        return "--config", str(tmp_path / "knobs.yaml")

    return run


@pytest.mark.parametrize(
    ("yaml", "words", "expected"),
    [
        ("# nothing", [], {}),
        ("{<<: {rows: 7}, rate: 0.5}", [], {"rate": 0.5, "rows": 7}),
        ("rate: 0.5\nrows: 7", [], {"rate": 0.5, "rows": 7}),
        ("rate: 0.5\nrows: 7", ["--rows", "9"], {"rate": 0.5, "rows": 9}),
        ("rate: 1e-4", [], {"rate": 1e-4}),  # a string in YAML 1.1
        ("", ["--loud"], {"loud": True}),
        ("loud: true", ["--no-loud"], {"loud": False}),
        ("steps: [one]", ["--steps", "two", "one"], {"steps": ("two", "one")}),
        ("", ["--steps", "two", "--steps", "one"], {"steps": ("two", "one")}),
        ("", ["--limit", "0"], {"limit": 0.0}),
        ("max_bytes: 32k", [], {"max_bytes": 32_000}),
        ("", ["--max-bytes", "1.5MB"], {"max_bytes": 1_500_000}),
        ("", ["--max-bytes", "4 KiB"], {"max_bytes": 4096}),
        ("", ["--max-bytes", "900"], {"max_bytes": 900}),
    ],
)
def test_defaults_then_yaml_then_flags(write, yaml, words, expected):
    assert knobs(*write(yaml), *words) == Knobs(**expected)


def test_further_defaults_lie_below_yaml_and_flags(write):
    layered = knobs(*write("rows: 7"), "--kind", "fancy", defaults=lambda given: {"rows": 5, "rate": 2.0})
    assert layered == Knobs(rows=7, rate=2.0, kind="fancy")


def test_dashes_and_underscores_are_the_same_in_yaml(tmp_path):
    (tmp_path / "students.yaml").write_text("embedding-dim: 9")
    assert load_yaml(tmp_path / "students.yaml") == {"embedding_dim": 9}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rowss", "3"], "unknown flag --rowss; did you mean --rows?"),
        (["--row", "3"], "unknown flag --row; did you mean --rows?"),  # no prefixes
        (["--rate=1", "--qqq=3"], "unknown flag --qqq"),
        (["astray"], "unexpected argument"),
        (["--rows", "3.5"], "--rows: "),
        (["--rows", "0"], "--rows: "),
        (["--rows", "many"], "(got 'many')"),
        (["--rate", "nan"], "--rate: "),
        (["--rate", "inf"], "--rate: "),
        (["--kind", "plian"], "--kind: "),
        (["--steps", "one", "three"], "three"),
        (["--rows"], "--rows"),
        (["--size", "9"], "unknown flag --size; did you mean --max-bytes?"),
        (["--loud=False"], "--loud takes no value: give --loud or --no-loud"),
        (["--max-bytes", "0k"], "--max-bytes: "),
        (["--max-bytes", "32kg"], "(got '32kg')"),
    ],
)
def test_a_bad_command_line_is_one_line_that_names_the_flag(words, message):
    with pytest.raises(UserError) as error:
        knobs(*words)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


ALIASES = "steps:\n- &a0 [x]\n" + "".join(f"- &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
"""Stands for 2^59 values."""


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("raet: 1", "unknown setting 'raet'; did you mean rate"),
        ("- a\n- b", r"knobs\.yaml: expected settings"),
        ("rate: [1", r"knobs\.yaml: not readable as YAML"),
        ("just words", r"knobs\.yaml: expected settings"),
        ("[" * 100_000, r"knobs\.yaml: not readable as YAML: maximum recursion depth"),
        ("- " * 100_000, r"knobs\.yaml: not readable as YAML: maximum recursion depth"),
        (
            "rate: 1\nrows: 2\nrate: 3",
            r"knobs\.yaml: not readable as YAML: key 'rate' appears twice .* line 3, column 1",
        ),
        ("steps: {a: [{b: 1, b: 2}]}", r"key 'b' appears twice"),
        (ALIASES, r"^--steps: .*; and 55 more$"),
    ],
)
def test_a_bad_file_is_refused(write, yaml, message):
    with pytest.raises(UserError, match=message):
        knobs(*write(yaml))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.yaml: no such file"):
        knobs("--config", str(tmp_path / "none.yaml"))


def test_settings_cannot_be_changed():
    with pytest.raises(pydantic.ValidationError):
        Knobs().rows = 4


class Tuned(Knobs):
    """Tuning (with a title of its own)."""

    most_used = ("rows", "turns")
    task: str
    """A required one, 100 % of the time."""
    turns: int = 1
    """Turns."""
    json_: bool = False
    """JSON."""


def test_help_groups_are_the_classes_that_declare_the_fields():
    assert help_groups(Tuned) == {
        "Most used": ["rows", "turns"],
        "Tuning": ["task", "json_"],
        "Settings for these tests": ["rate", "loud", "kind", "steps", "limit", "max_bytes"],
    }


def test_help_shows_groups_docstrings_and_the_defaults_in_force(capsys):
    with pytest.raises(SystemExit) as stop:
        parse_flags(Tuned, ["--help"], "What it does.", lambda given: {"rows": 5}, usage="tune.py FILE [flags]")
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: tune.py FILE [flags]\n\nWhat it does.\n\nMost used:\n")
    titles = [line for line in shown.splitlines() if line.endswith(":")]
    assert titles == ["Most used:", "Tuning:", "Settings for these tests:", "Help and settings files:"]
    lines = " ".join(shown.split())
    assert "--rows INT An int. (default: 5)" in lines
    assert "--task TEXT A required one, 100 % of the time. (required)" in lines
    assert "--steps {one,two} [ ...] Several. (default: one)" in lines
    assert "--json, --no-json JSON. (default: off)" in lines


def test_a_required_setting_and_an_unknown_key_are_named():
    with pytest.raises(UserError, match="--task is required"):
        parse_flags(Tuned, [], "test")
    with pytest.raises(UserError, match="unknown setting 'tusk'; did you mean task"):
        build(Tuned, {"tusk": "x"})


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("two\nlines, a \0 and \ufeff"), r"error: two\nlines, a \x00 and \ufeff"),
        (MemoryError(), "error: not enough memory"),
        (OSError(28, "No space left", "/full"), "error: /full: No space left"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(capsys, error, line):
    def fail():
        raise error

    with pytest.raises(SystemExit) as stop:
        run_script(fail)
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"{line}\n"


def test_yaml_is_read_without_libyaml(tmp_path):
    imports = "import yaml; del yaml.CSafeLoader; from pathlib import Path; from common.config import load_yaml"
    code = f"{imports}; print(load_yaml(Path('f.yaml')))"
    (tmp_path / "f.yaml").write_text("a: [1, 2]\n")
    environment = tiny.environment(PYTHONPATH=str(tiny.ROOT))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "{'a': [1, 2]}\n"
