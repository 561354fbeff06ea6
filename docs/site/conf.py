"""Sphinx's settings: ``make docs`` builds the pages of the repository and the reference into out/site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))
import pages

import pyclmm

project = "pyclmm"
author = "the pyclmm developers"
project_copyright = "the pyclmm developers, Apache-2.0"
release = version = pyclmm.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.intersphinx", "sphinx.ext.viewcode"]
root_doc = "docs/index"
include_patterns = list(pages.SOURCES)
exclude_patterns = [".*", "out", "build", "dist", "**/__pycache__"]  # folders that need not be searched
nitpicky = True

myst_heading_anchors = 4  # those of GitHub, which tests/test_readme.py follows
myst_enable_extensions = ["dollarmath"]
suppress_warnings = ["myst.header"]  # pages that scripts write begin with a list

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say what is taken
autodoc_class_signature = "mixed"
intersphinx_mapping: dict[str, Any] = {}  # a build asks no network
nitpick_ignore_regex = pages.ELSEWHERE

html_theme = "furo"
html_title = f"pyclmm {release}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_extra_path = ["extra"]  # index.html of the root, which leads to docs/index.html
html_copy_source = False
html_show_sphinx = False


def setup(app: Any) -> None:
    """Connect what Sphinx does not do itself."""
    app.connect("source-read", pages.fill)
    app.connect("autodoc-process-docstring", pages.sections)
    app.connect("html-page-context", pages.cut)
