# SPDX-License-Identifier: Apache-2.0
"""The chart of settings that were tried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from kfp_volcano.elastic.simulator.figures import METRICS
from kfp_volcano.volcano.launcher.charts import Chart, LegendEntry
from kfp_volcano.volcano.launcher.frame import SIZES, Size, axes_in
from kfp_volcano.volcano.launcher.svg import Colour, inline_svg

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from kfp_volcano.volcano.launcher.laboratory.sweep import Swept

__all__ = ["settings"]

_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY, Colour.VERMILION)
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
"""Beside colour, so that lines are told apart without it; after six policies, colours begin again."""
_HEIGHT = 320
_MOST_SHOWN = 25


def settings(swept: Swept) -> Chart | None:
    """The metric over the setting's values, where these are numbers; else combinations by rank, best first.

    None where jobs did not end under any of them.
    """
    known = [(variant, value) for variant, figures in swept.tried if (value := swept.value(figures)) is not None]
    if not known:
        return None
    metric, numbers = METRICS[swept.metric], len(swept.axes) == 1 and _numbers(swept.axes[0].values)
    policies = list(dict.fromkeys(variant.of for variant, _ in known))

    def draw(size: Size) -> Figure:
        figure, axes = _drawn(size)
        for index, name in enumerate(policies):
            own = [(variant, value) for variant, value in known if variant.of == name]
            if numbers:
                own.sort(key=lambda pair: pair[0].values)
                places = [float(variant.values[0]) for variant, _ in own]
            else:
                own = sorted(own, key=lambda pair: pair[1], reverse=metric.better == "more")[:_MOST_SHOWN]
                places = [float(rank) for rank in range(1, len(own) + 1)]
            colour, dashes = _COLOURS[index % len(_COLOURS)], _DASHES[index % len(_DASHES)]
            axes.plot(places, [value for _, value in own], "o", linestyle=dashes, color=colour, linewidth=2)
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: _short(value) if metric.unit == "s" else f"{value:g}")
        )
        axes.set_xlabel(swept.axes[0].key if numbers else "rank of the combination", loc="right")
        return figure

    legend = tuple(
        LegendEntry(name, _COLOURS[index % len(_COLOURS)].variable, "line") for index, name in enumerate(policies)
    )
    return _chart("settings", f"{metric.title} of the settings tried", " ".join(swept.story()), draw, legend)


def _drawn(size: Size) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(size.width / 72, _HEIGHT / 72))
    return figure, axes_in(figure, (0, 0, size.width, _HEIGHT), [])


def _chart(
    name: str, title: str, description: str, draw: Callable[[Size], Figure], legend: tuple[LegendEntry, ...]
) -> Chart:
    wide, narrow = (
        inline_svg(draw(size), name=name, variant=size.variant, title=title, description=description) for size in SIZES
    )
    return Chart(name, title, wide, narrow, legend)


def _numbers(values: tuple[object, ...]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _short(seconds: float) -> str:
    """A time on an axis: `10 s`, `5 min`, `2.5 h`, `10 d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
