# SPDX-License-Identifier: Apache-2.0
"""Figures as SVG for the inside of an HTML page: ids that cannot clash, the page's own fonts and colours.

Charts are drawn in the hexadecimal `Colour`s; in the page each is the CSS variable of its name, so that one drawing
serves light, dark and print.
"""

from __future__ import annotations

import io
import re
from enum import Enum
from typing import TYPE_CHECKING

import matplotlib as mpl
from markupsafe import Markup, escape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Colour", "inline_svg"]


class Colour(str, Enum):
    """What charts are drawn in; Okabe and Ito's palette, safe for the colour-blind, and the page's greys."""

    BLUE = "#0072b2"
    ORANGE = "#e69f00"
    GREEN = "#009e73"
    PURPLE = "#cc79a7"
    SKY = "#56b4e9"
    VERMILION = "#d55e00"
    INK = "#010101"
    MUTED = "#020202"
    GRID = "#030303"
    SURFACE = "#040404"

    @property
    def variable(self) -> str:
        """The CSS variable that holds it."""
        return f"var(--{self.name.lower()})"


_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
_COLOURS = {colour.value: colour.variable for colour in Colour}


def inline_svg(figure: Figure, *, name: str, variant: str, title: str, description: str) -> Markup:
    """The figure as an `<svg>` element of class `variant`; `name` and `variant` make its ids unique in the page."""
    text = io.StringIO()
    # The SVG backend takes these from rcParams only, at the moment of writing.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kfp-volcano", "hatch.linewidth": 1.5}):
        figure.savefig(text, format="svg", transparent=True, metadata=_NO_METADATA)
    width, height = figure.get_size_inches() * 72
    body = text.getvalue().partition("</defs>")[2].rpartition("</svg>")[0]
    body = _own_ids(body, f"{name}-{variant}-").replace("xlink:href", "href")
    body = re.sub(r" font-family: [^;\"]*;", "", body)
    body = re.sub(r"#[0-9a-f]{6}\b", lambda match: _COLOURS.get(match[0], match[0]), body)
    label = f"{name}-{variant}-title {name}-{variant}-desc"
    return Markup(  # noqa: S704 - the body is matplotlib's, which escapes text; ours is escaped here
        f'<svg class="{variant}" viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{label}">'
        f'<title id="{name}-{variant}-title">{escape(title)}</title>'
        f'<desc id="{name}-{variant}-desc">{escape(description)}</desc>{body}</svg>'
    )


def _own_ids(body: str, prefix: str) -> str:
    """Keep only ids that something refers to, and make them the chart's own."""
    used = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", body))
    body = re.sub(r' id="([^"]*)"', lambda match: f' id="{prefix}{match[1]}"' if match[1] in used else "", body)
    return re.sub(r"(url\(#|href=\"#)", lambda match: match[1] + prefix, body)
