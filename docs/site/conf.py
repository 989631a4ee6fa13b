"""Sphinx: the documentation site. tools/docs-site runs it on the pages that write_pages.py has written."""

import importlib.util
import os

from sphinx import addnodes

project = "Penstock"
html_title = "Penstock"
copyright = ""  # the license says whose
html_show_copyright = False
html_show_sphinx = False

extensions = [
    "myst_nb",
    "breathe",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]

# The pages are written for GitHub: links to headings, commands as indented blocks.
myst_heading_anchors = 3
highlight_language = "none"

# Notebooks run in every build, so that their outputs fit the package.
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_show_tb = True
if not importlib.util.find_spec("penstock.torch"):  # installed without its engine
    nb_execution_excludepatterns = ["train_your_model.ipynb"]

breathe_projects = {"penstock": os.environ["PENSTOCK_XML"]}
breathe_default_project = "penstock"
breathe_show_include = False

default_role = "code"  # docstrings quote names as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def mark_code(_app, what, _name, documented, _options, lines: list[str]) -> None:
    """Marks indented paragraphs of a docstring as code, in place, as Markdown reads them."""
    if what == "module":  # Sphinx has removed the indentation that all lines but the first have
        lines[:] = (documented.__doc__ or "").splitlines()
    for at in range(len(lines) - 1, 1, -1):
        starts = lines[at].startswith("    ") and not lines[at - 1].strip()
        before = lines[at - 2]
        if starts and before and not before.startswith((" ", ":", ".. ")) and not before.endswith("::"):
            lines[at:at] = ["::", ""]


def shorten_contents(_app, doctree) -> None:
    """Leaves members of C++ classes out of the contents of their page: there are thousands."""
    for content in doctree.findall(addnodes.desc_content):
        for member in content.findall(addnodes.desc):
            member["no-contents-entry"] = member["domain"] == "cpp"


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", mark_code, priority=900)
    app.connect("doctree-read", shorten_contents, priority=100)
