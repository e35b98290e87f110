"""Sphinx's configuration."""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts/docs"))
import reference

project = "ooc-svm"
author = copyright = "the authors of ooc-svm"
release = version = metadata.version("ooc-svm")

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
nitpicky = True
# Types in prose ("ndarray of float64", "path") are words, not names with pages of their own.
nitpick_ignore_regex = [("py:.*", ".*")]

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 4

autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"ooc-svm {release}"


def skip(_app, _what, name, _object, skipped, _options):
    """Leave out what scikit-learn adds to estimators for routing metadata: its own pages describe it."""
    return skipped or name.endswith("_request")


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", skip)


reference.write()
