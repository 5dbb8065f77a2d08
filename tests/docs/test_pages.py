"""The pages: links, commands and files that they name exist, and the figures of the README are the archived ones."""

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
import yaml

from common.config import flag
from common.data.tasks import Carve, Source, Task
from common.tables import human_bytes
from compression.experiments.jobs import JOBS, ChainFile, ChainFlags
from compression.experiments.report.record import Quote, TableLayout
from compression.experiments.sweep.grid import GridFile, Rule

DOCS = tiny.ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
FILES = [*sorted(tiny.ROOT.glob("*.md")), *PAGES]
SCRIPTS = ("preprocess", "finetune", "compress", "evaluate", "analyze", "predict", "experiment")
COMMAND = re.compile(r"(?:^|\| )python (\w+)\.py(.*)")


def load(path):
    """A module of docs/, which is not a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load(DOCS / "_extensions" / "settings_reference.py")


def named(path):
    return str(path.relative_to(tiny.ROOT))


def text_of(path):
    """A page as it is shown: with the flags of its scripts, and the file that it includes."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(
        r"```\{include\} (\S+)\n.*?```", lambda match: (path.parent / match[1]).read_text(), text, flags=re.DOTALL
    )
    sources = [text]
    reference.fill_in(None, "", sources)
    return sources[0]


def prose(text):
    """Text without blocks of code."""
    return re.sub(r"^( *)(```+|:::+)\w*\n.*?^\1\2$|^    .*?$", "", text, flags=re.DOTALL | re.MULTILINE)


def commands(text):
    """Every command line in blocks of code, continued lines joined, comments left out."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [match for line in lines if (match := COMMAND.search(line.split(" #")[0].strip()))]


def anchors(text):
    """What links to headings may name, as GitHub and MyST build it."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_relative_link_and_anchor_exists(path):
    is_page = DOCS in path.parents
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        assert not is_page or file.is_relative_to(DOCS), f"{target} is not on the site"
        assert not anchor or anchor in anchors(text_of(file)), target


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_command_has_flags_of_its_script(path):
    for command in commands(path.read_text(encoding="utf-8")):
        script, words = command[1], command[2].split()
        assert (tiny.ROOT / f"{script}.py").exists(), command[0]
        module = importlib.import_module(script)
        operands = words[: next((i for i, word in enumerate(words) if word.startswith("-")), len(words))]
        if script != "experiment":
            classes = reference.settings_classes(module)
        elif operands and operands[0] in module.COMMANDS:
            classes = [module.COMMANDS[operands[0]][0]]
        else:
            assert not operands or {"run", *JOBS} & set(operands), command[0]
            classes = [ChainFlags, *JOBS.values()]
        known = {flag(name) for cls in classes for name in cls.model_fields} | {"--help", "--config"}
        known |= {"--no-" + name[2:] for name in known}
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= known, command[0]


def test_every_script_has_its_page_with_all_its_flags():
    scripts = {path.stem for path in tiny.ROOT.glob("*.py")}
    assert scripts == set(SCRIPTS)
    for script in scripts:
        text = text_of(DOCS / "reference" / f"{script}.md")
        module = importlib.import_module(script)
        classes = [command[0] for command in getattr(module, "COMMANDS", {}).values()]
        for cls in classes or reference.settings_classes(module):
            for name, field in cls.model_fields.items():
                assert f"{{option}} {flag(name)}" in text
                assert reference.plain(field.description) in text


@pytest.mark.parametrize("cls", [Task, Source, Carve, ChainFile, GridFile, Rule, TableLayout, Quote])
def test_every_key_of_a_yaml_file_is_described(cls):
    text = text_of(DOCS / "reference" / "files.md")
    for name, field in cls.model_fields.items():
        if name not in reference.INTERNAL:
            assert f"| `{name}` | " in text
            assert f"| {reference.plain(field.description)} |" in text


def test_files_that_contributors_are_sent_to_exist():
    names = re.findall(r"`([\w./-]+/[\w./-]+)`", (tiny.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(names) > 20
    missing = [
        name for name in names if "NAME" not in name and not (tiny.ROOT / name).exists() and "_build" not in name
    ]
    assert missing == []


def test_the_readme_has_the_archived_figures_and_its_picture_too():
    from PIL import Image

    skyline = load(DOCS / "images" / "skyline.py")
    drawn = skyline.points()
    with Image.open(DOCS / "images" / f"{skyline.NAME}.png") as image:
        assert image.text["Description"] == skyline.described(drawn)
    lines = [
        line for line in (tiny.ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")
    ]
    assert len(drawn["ours"]) == len(drawn["fasttext"]) == len(skyline.LIMITS)
    for (_, size, score), (*_, peer) in zip(drawn["ours"], drawn["fasttext"], strict=True):
        (line,) = [line for line in lines if f"**{human_bytes(size)}**" in line]
        assert f"**{score:.2f}**" in line
        assert line.endswith(f"| {peer:.2f} |")
    for name, size, score in drawn["quoted"]:
        (line,) = [line for line in lines if f"{name} (quoted)" in line]
        assert human_bytes(size) in line
        assert f"| {score:.1f} |" in line


def test_the_citation_names_the_program_and_the_thesis():
    cited = yaml.safe_load((tiny.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["title"] == "Featherweight"
    (thesis,) = cited["references"]
    assert [author["family-names"] for author in thesis["authors"]] == ["Sørensen", "Jacobsen"]
    assert thesis["year"] == 2021


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path):
    for module in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(module, reason="the pages need requirements-docs.txt")
    flags = ["--fail-on-warning", "--keep-going", "--quiet", "-d", tmp_path / "trees"]
    command = [sys.executable, "-m", "sphinx", *flags, DOCS, tmp_path / "html"]
    done = subprocess.run(command, cwd=tiny.ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        assert (tmp_path / "html" / page.relative_to(DOCS).with_suffix(".html")).is_file()
