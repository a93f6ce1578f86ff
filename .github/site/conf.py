"""Settings of Sphinx; build.py calls it."""

import sys
from pathlib import Path

from docutils import nodes
from sphinx.util import inspect
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

sys.path.insert(0, str(Path(__file__).parent))

import catalogue  # noqa: E402
import docstrings  # noqa: E402

import kerasvit  # noqa: E402

project = "kerasvit"
version = release = kerasvit.__version__
extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"),
]
exclude_patterns = [".doctrees"]
suppress_warnings = ["config.cache"]
myst_heading_anchors = 6
highlight_language = "default"  # Python, or plain text if it is not

autodoc_inherit_docstrings = False  # Keras's
autodoc_member_order = "bysource"
autodoc_default_options = {"special-members": "__call__"}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 72

smartquotes = False  # "local" is a string

html_theme = "furo"
html_title = f"kerasvit {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("table.js", {"defer": "defer"})]
html_copy_source = html_show_sourcelink = False
html_show_copyright = False
html_show_search_summary = False  # needs a server
html_use_index = html_domain_indices = False  # the search finds names
html_permalinks_icon = "#"


class Catalogue(SphinxDirective):
    """The table of all variants and weights."""

    def run(self):
        """Returns the table."""
        return [nodes.raw("", catalogue.table(), format="html")]


def read_docstring(app, what, name, obj, options, lines):
    """Rewrites the lines of a docstring."""
    lines[:] = docstrings.as_rst(lines)


def sign(app, what, name, obj, options, signature, returned):
    """Returns the signature of `__init__` where a `__new__` of Keras hides it."""
    if what == "class" and signature == "(*args, **kwargs)":
        found = inspect.signature(obj.__init__, bound_method=True)
        return inspect.stringify_signature(found, unqualified_typehints=True), None
    return None


def link_names(app, doctree, page):
    """Makes links of the public names that stand as code in a text."""
    names = app.env.domains["py"].objects
    for code in list(doctree.findall(nodes.literal)):
        entry = names.get(code.astext().removesuffix("()"))
        if entry and not has_parent(code, nodes.reference):
            place = app.builder, page, entry.docname, entry.node_id
            code.replace_self(make_refnode(*place, code.deepcopy()))


def has_parent(node, kind):
    """Whether a node is inside one of a kind."""
    return bool(node.parent) and (
        isinstance(node.parent, kind) or has_parent(node.parent, kind)
    )


def skip(app, what, name, obj, skipped, options):
    """Skips the fields of named tuples: the docstring of their class has them."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def setup(app):
    """Adds the directive and the hooks."""
    app.add_directive("catalogue", Catalogue)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-skip-member", skip)
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": True}
