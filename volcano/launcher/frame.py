# SPDX-License-Identifier: Apache-2.0
"""What the charts of a report have in common: two sizes, axes that line up, time from the start, marks for resizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from kfp_volcano.volcano.launcher.story import SEEN, clock, watched
from kfp_volcano.volcano.launcher.svg import Colour

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

__all__ = ["MARK_ROW", "SIZES", "Mark", "Size", "axes_in", "draw_marks", "letter", "mark_rows", "marks", "over_time"]

MARK_ROW = 22
"""Height of a row of marks above the axes, in points."""
_LEFT, _RIGHT, _BOTTOM, _TOP = 46, 14, 42, 12
_TITLE = 20
_MARK_GAP = 21
_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment to point out: a resize by its number, an interruption by a letter, what the watch saw by `!`."""

    label: str
    time: float
    planned: bool


@dataclass(frozen=True, slots=True)
class Size:
    """One of the two drawings of a chart: its name, its width in points, and the most ticks its time axis takes."""

    variant: str
    width: int
    ticks: int


SIZES = (Size("wide", 1000, 10), Size("narrow", 380, 5))


def marks(result: dict[str, Any]) -> list[Mark]:
    """The moments that every chart over time points out, in the order of the page's tables."""
    resizes = [
        Mark(str(number), resize["patched_at"] or resize["requested_at"], planned=True)
        for number, resize in enumerate(result["resizes"], start=1)
    ]
    interruptions = [
        Mark(letter(index), change["time"], planned=False) for index, change in enumerate(result["interruptions"] or [])
    ]
    seen = [Mark("!", entry["time"], planned=False) for entry in watched(result) if entry["kind"] in SEEN]
    return resizes + interruptions + seen


def letter(index: int) -> str:
    """The letter of an interruption: a, b, … z, aa, ab and so on."""
    return (letter(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)  # noqa: PLR2004 - the alphabet


def over_time(result: dict[str, Any], size: Size, *, height: int) -> tuple[Figure, Axes]:
    """A figure over the run's time with its marks; `height` is without the rows of marks, so that panels stay equal."""
    span = max(result["wall_s"], 1.0)
    found = [(mark, min(max(0.0, mark.time - result["started_at"]), span)) for mark in marks(result)]
    rows = mark_rows(found, span, size.width)
    tall = height + MARK_ROW * max(rows, default=0)
    figure = Figure(figsize=(size.width / 72, tall / 72))
    axes = axes_in(figure, (0, 0, size.width, tall), rows)
    axes.set_xlim(0, span)
    step = next((step for step in _TICKS_S if span / step <= size.ticks), _TICKS_S[-1])
    axes.xaxis.set_major_locator(FixedLocator([float(tick) for tick in range(0, int(span) + 1, step)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: clock(value)))
    axes.set_xlabel("minutes since the start", loc="right")
    draw_marks(axes, found, rows)
    return figure, axes


def axes_in(
    figure: Figure, box: tuple[float, float, float, float], rows: Sequence[int], *, title: str | None = None
) -> Axes:
    """Axes that fill a box of the figure but for the margins and the rows of marks.

    Args:
        figure: Where to put them.
        box: Left, bottom, width and height in points, from the figure's lower left corner.
        rows: The rows of the marks, as `mark_rows` gives them.
        title: What the axes show, where the figure holds more than one.
    """
    left, bottom, width, height = box
    marked = MARK_ROW * (1 + max(rows, default=0))
    top = _TOP + marked + (_TITLE if title else 0)
    whole_width, whole_height = figure.get_size_inches() * 72
    axes = figure.add_axes((
        (left + _LEFT) / whole_width,
        (bottom + _BOTTOM) / whole_height,
        (width - _LEFT - _RIGHT) / whole_width,
        (height - _BOTTOM - top) / whole_height,
    ))  # fmt: skip
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=Colour.GRID, linewidth=1)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(Colour.MUTED)
    axes.tick_params(colors=Colour.MUTED, labelsize=12.5, length=0, pad=6)
    axes.tick_params(axis="x", length=4)
    axes.xaxis.label.set(color=Colour.MUTED, size=12)
    if title:
        axes.set_title(title, loc="left", x=-0.01, color=Colour.INK, size=13.5, weight="bold", pad=marked + 12)
    return axes


def draw_marks(axes: Axes, found: Sequence[tuple[Mark, float]], rows: Sequence[int]) -> None:
    """Draw marks, each with its position on the x axis and its row, above the axes."""
    for (mark, position), row in zip(found, rows, strict=True):
        colour, shape = (Colour.INK, "circle") if mark.planned else (Colour.VERMILION, "square")
        axes.axvline(position, color=colour, linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(
            mark.label, (position, 1), (0, 12 + MARK_ROW * row), ("data", "axes fraction"), "offset points",
            ha="center", va="center", size=11.5, weight="bold", color=Colour.SURFACE, annotation_clip=False,
            bbox={"boxstyle": f"{shape},pad=0.3", "facecolor": colour, "linewidth": 0},
        )  # fmt: skip


def mark_rows(found: Sequence[tuple[Mark, float]], span: float, width: float) -> list[int]:
    """The row above the axes for each mark, so that no two overlap on axes of `span` in a box of `width` points."""
    places = [position / span * (width - _LEFT - _RIGHT) for _, position in found]
    taken: list[float] = []
    rows = {}
    for index, x in sorted(enumerate(places), key=lambda place: place[1]):
        row = next((row for row, last in enumerate(taken) if x - last >= _MARK_GAP), len(taken))
        taken[row:] = [x, *taken[row + 1 :]]
        rows[index] = row
    return [rows[index] for index in range(len(places))]
