"""Sphinx: how these pages are built (`make docs`)."""

import sys
from importlib.metadata import version as read_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "pipeline-core"
author = "The pipeline-core developers"
release = version = read_version("pipeline-core")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "options",
    "reproduction",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nitpicky = False  # napoleon makes references of every word that stands before a colon

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"show-inheritance": True}  # "members" would undo the lists of the page
autodoc_mock_imports: list[str] = []
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"pipeline-core {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_copyright = False
pygments_dark_style = "github-dark"
html_show_sourcelink = False
html_copy_source = False
