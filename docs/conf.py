"""How Sphinx builds the pages of this folder: `make docs`, which needs no network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_extensions")]

project = "Featherweight"
author = "Featherweight contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "settings_reference"]
exclude_patterns = ["_build", "_extensions", "_static"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # links to headings as on the repository's own pages: file.md#heading
smartquotes = False  # two dashes begin a flag
default_role = "code"
python_use_unqualified_type_names = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

napoleon_google_docstring = False  # the words of ours are no headings

html_theme = "furo"
html_title = "Featherweight"
html_static_path = ["_static"]
html_css_files = ["words.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
highlight_language = "none"
pygments_style = "tango"


def setup(app: Sphinx) -> None:
    """Show the examples of docstrings as code."""
    app.connect("autodoc-process-docstring", _examples)


def _examples(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    lines[:] = [
        part
        for line in lines
        for part in (["::", "", f"   {line.removeprefix('Example: ')}"] if line.startswith("Example: ") else [line])
    ]
