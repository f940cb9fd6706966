"""Sphinx configuration of the site. ``make docs`` builds it, with warnings as errors and without a network."""

from __future__ import annotations

from importlib import metadata

project = "mutcache"
author = "the mutcache contributors"
release = metadata.version("mutcache")
version = ".".join(release.split(".")[:2])
root_doc = "index"
exclude_patterns = ["_build", "README.md", "print.rst"]
language = "en"

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "mutcache_tools.site"]
templates_path: list[str] = []
nitpicky = False
smartquotes = False

# ``make docs-pdf`` prints the specification alone.
if "print" in tags:  # type: ignore[name-defined]  # noqa: F821 - Sphinx defines it
    root_doc = "print"
    include_patterns = ["print.rst", "spec/**"]
    exclude_patterns = ["_build"]

# Docstrings are in the Google convention; types come from the annotations.
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "mutcache"
pygments_dark_style = "github-dark"
html_static_path = ["_static"]
html_css_files = ["mutcache.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c7a", "color-brand-content": "#0b5c7a"},
    "dark_css_variables": {"color-brand-primary": "#6cc4e4", "color-brand-content": "#6cc4e4"},
}
