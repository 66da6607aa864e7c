"""Formulas as MathML, which browsers show by themselves: pages need no network.

docutils turns LaTeX into MathML; Sphinx brings no renderer that uses it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger

logger = getLogger(__name__)

UNKNOWN: Final = {r"\\[bB]igg?[lr]?(?![a-z])": "", r"\\dots(?![a-z])": r"\\ldots "}
"""Commands that docutils does not know, and what does as well: brackets of MathML grow."""


def convert(node: nodes.Element, *, as_block: bool = False) -> str:
    """Return a formula as MathML; what docutils does not know is a warning with its place."""
    text = node.astext()
    for command, instead in UNKNOWN.items():
        text = re.sub(command, instead, text)
    try:
        return str(tex2mathml(text, as_block=as_block))
    except MathError as error:
        logger.warning("%s: %s", text, error, location=node)
        return ""


def show_inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(convert(node))
    raise nodes.SkipNode


def show_block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    writer.body.append(f'<div class="math">{convert(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (show_inline, None), (show_block, None))
    app.config["html_math_renderer"] = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
