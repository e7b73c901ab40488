"""How Sphinx builds the site; `python tools/docs_site.py OUT` lays out its pages first."""

from __future__ import annotations

import re

from docutils import nodes
from latex2mathml.converter import convert

import letgo

project, author, version = "letgo", "the letgo developers", letgo.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4
exclude_patterns = ["_build"]
default_role = "code"
highlight_language = "bash"  # of blocks that name none
smartquotes = False  # --flags stay what they are
suppress_warnings = [
    "myst.header",  # the README's picture stands above its first heading
    "misc.highlighting_failure",  # a block that names no language need not be a shell's
]

html_theme = "furo"
html_title = f"letgo {version}"
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False
html_theme_options = {"footer_icons": [], "top_of_page_buttons": []}
html_math_renderer = "mathml"
pygments_style = "friendly"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("State", "AnyState", "Time", "AnyTime", "Symbols", "CellMask")}
python_maximum_signature_line_length = 90


def in_rst(text: str) -> list[str]:
    """A docstring of ours, plain English with `code` and indented examples, as Sphinx reads it."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if paragraph.startswith(" "):
            lines += ["::", "", *("    " + line for line in paragraph.splitlines()), ""]
            continue
        parts = re.split(r"(`[^`]+`)", paragraph)
        safe = (f"`{part}`" if part.startswith("`") else re.sub(r"([*|_\\])", r"\\\1", part) for part in parts)
        lines += [*"".join(safe).splitlines(), ""]
    return lines


def rewrite(app, what, name, thing, options, lines: list[str]) -> None:
    lines[:] = in_rst("\n".join(lines))


def mathml(formula: str, display: str = "inline") -> str:
    """A formula as MathML, which browsers draw without a script or a font of ours."""
    return convert(formula, display=display).replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # "distributed as"


def inline_math(translator, node) -> None:
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def block_math(translator, node) -> None:
    drawn = mathml(node.astext(), "block")
    translator.body.append(f'<div class="math" style="margin: 1em 0; overflow-x: auto">{drawn}</div>')
    raise nodes.SkipNode


def setup(app) -> None:
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.connect("autodoc-process-docstring", rewrite)
