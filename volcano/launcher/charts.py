# SPDX-License-Identifier: Apache-2.0
"""The charts of a run's report: matplotlib figures of a result's figures, each in a wide and a narrow drawing.

No text of users is drawn: names stand in the page's legends and lists, charts carry numbers and marks only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator

from kfp_volcano.volcano.launcher.frame import MARK_ROW, SIZES, Size, axes_in, draw_marks, mark_rows, marks, over_time
from kfp_volcano.volcano.launcher.story import clock
from kfp_volcano.volcano.launcher.svg import Colour, inline_svg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from markupsafe import Markup
    from matplotlib.axes import Axes

__all__ = ["Chart", "LegendEntry", "charts"]

_TEAM_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY)
_MOST_POINTS = 1500
_LOG_FROM_RATIO = 20


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """One line of a chart's legend; `shape` is `area`, `line`, `dashes` or `hatch`."""

    label: str
    colour: str
    shape: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart for the page: two drawings, of which the page shows the one that fits."""

    name: str
    title: str
    wide: Markup
    narrow: Markup
    legend: tuple[LegendEntry, ...] = ()


def charts(result: dict[str, Any]) -> list[Chart]:
    """The charts the result has figures for, in the order in which they tell the story."""
    makers = (
        (_queue, result["gpus"]),
        (_workers, result["workers"]),
        (_learning, any(value is not None for _, value in result["loss"] or [])),
        (_throughput, result["throughput"]),
    )
    return [make(result) for make, figures in makers if figures]


def _queue(result: dict[str, Any]) -> Chart:
    gpus = result["gpus"]
    held = _team_series(gpus["teams"], result["team"])
    ends = result["ended_at"]
    edges = sorted({time for series in (*gpus["teams"].values(), gpus["waiting"]) for time, _ in series} | {ends})
    stack = [[sum(_at(series, time) for series in parts) for time in edges] for _, parts in held]
    waiting = [_at(gpus["waiting"], time) for time in edges]

    def draw(size: Size) -> Figure:
        figure, axes = over_time(result, size, height=270)
        x = [time - result["started_at"] for time in edges]
        floor = [0.0] * len(edges)
        for heights, colour in zip(stack, _TEAM_COLOURS, strict=False):
            top = [low + height for low, height in zip(floor, heights, strict=True)]
            axes.fill_between(x, floor, top, step="post", facecolor=colour, linewidth=0)
            floor = top
        top = [low + height for low, height in zip(floor, waiting, strict=True)]
        axes.fill_between(
            x, floor, top, [height > 0 for height in waiting], step="post", facecolor="none", hatch="////",
            edgecolor=Colour.VERMILION, linewidth=1.2,
        )  # fmt: skip
        limit = [*gpus["limit"], [ends, gpus["limit"][-1][1]]]
        axes.step(
            [time - result["started_at"] for time, _ in limit], [value for _, value in limit], where="post",
            color=Colour.INK, linewidth=1.4, linestyle=(0, (5, 3)),
        )  # fmt: skip
        _count_axis(axes, max([*top, *(value for _, value in gpus["limit"])]))
        return figure

    legend = (
        *(LegendEntry(label, colour.variable, "area") for (label, _), colour in zip(held, _TEAM_COLOURS, strict=False)),
        LegendEntry("asked for and waiting", Colour.VERMILION.variable, "hatch"),
        LegendEntry("limit of the queue", Colour.INK.variable, "dashes"),
    )
    peaks = ", ".join(f"{label} at most {max(row):g}" for (label, _), row in zip(held, stack, strict=True))
    return _chart("queue", f"GPUs of queue {result['queue']}, by team", f"GPUs held over time: {peaks}.", draw, legend)


def _team_series(teams: dict[str, Any], own: str) -> list[tuple[str, list[Any]]]:
    """The series of each team under its name, the Job's own first; those too many for the palette as one."""
    names = sorted(teams, key=lambda team: (team != own, team))
    if len(names) <= len(_TEAM_COLOURS):
        return [(name, [teams[name]]) for name in names]
    single, rest = names[: len(_TEAM_COLOURS) - 1], names[len(_TEAM_COLOURS) - 1 :]
    return [*((name, [teams[name]]) for name in single), (f"{len(rest)} other teams", [teams[name] for name in rest])]


def _workers(result: dict[str, Any]) -> Chart:
    series = result["workers"]

    def draw(size: Size) -> Figure:
        figure, axes = over_time(result, size, height=220)
        x, y = [time - result["started_at"] for time, _ in series], [count for _, count in series]
        axes.fill_between(x, 0, y, step="post", facecolor=Colour.BLUE, alpha=0.16, linewidth=0)
        axes.step(x, y, where="post", color=Colour.BLUE, linewidth=2.2)
        _count_axis(axes, max(y))
        return figure

    told = ", then ".join(f"{count:g} from {clock(time - result['started_at'])}" for time, count in series[:-1][:30])
    return _chart("workers", "Workers that trained", f"Number of workers over time: {told}.", draw)


def _learning(result: dict[str, Any]) -> Chart:
    loss = [point for point in result["loss"] if point[1] is not None]
    accuracy = [point for point in (result["metrics"] or {}).get("accuracy", []) if point[1] is not None]
    panels = [_loss_panel(loss), *([_accuracy_panel(accuracy)] if accuracy else [])]
    last = max(samples for samples, _ in result["loss"])

    def draw(size: Size) -> Figure:
        beside = size.variant == "wide"
        found = [(mark, _samples_at(result["progress"], mark.time)) for mark in marks(result)]
        width = size.width / len(panels) if beside else size.width
        rows = mark_rows(found, last, width)
        height = 270 + MARK_ROW * max(rows, default=0)
        figure = Figure(figsize=(size.width / 72, (height if beside else height * len(panels)) / 72))
        for number, (title, fill) in enumerate(panels):
            left, bottom = (number * width, 0) if beside else (0, (len(panels) - 1 - number) * height)
            axes = axes_in(figure, (left, bottom, width, height), rows, title=title)
            axes.set_xlim(0, last)
            axes.xaxis.set_major_locator(MaxNLocator(5 if beside else 4, integer=True))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.set_xlabel("samples", loc="right")
            draw_marks(axes, found, rows)
            fill(axes)
        return figure

    ends = f"Loss of each step over samples: {loss[0][1]:.3g} at first, {loss[-1][1]:.3g} at last."
    if accuracy:
        ends += f" Accuracy over samples: {accuracy[0][1]:.3f} at first, {accuracy[-1][1]:.3f} at last."
    legend = (
        LegendEntry("loss of a step", "color-mix(in srgb, var(--blue) 40%, transparent)", "line"),
        LegendEntry("mean loss of the steps around it", Colour.BLUE.variable, "line"),
        *([LegendEntry("accuracy", Colour.GREEN.variable, "line")] if accuracy else []),
    )
    return _chart("learning", "Loss and accuracy" if accuracy else "Loss", ends, draw, legend)


def _loss_panel(loss: Sequence[Sequence[float]]) -> tuple[str, Callable[[Axes], None]]:
    lowest, highest = min(value for _, value in loss), max(value for _, value in loss)
    log = lowest > 0 and highest / lowest >= _LOG_FROM_RATIO
    stride = -(-len(loss) // _MOST_POINTS)
    half = max(1, len(loss) // 60)
    mean = [
        (samples, fmean(value for _, value in loss[max(0, index - half) : index + half + 1]))
        for index, (samples, _) in enumerate(loss)
        if index % stride == 0
    ]

    def fill(axes: Axes) -> None:
        axes.plot(*zip(*loss[::stride], strict=True), color=Colour.BLUE, linewidth=1, alpha=0.4)
        axes.plot(*zip(*mean, strict=True), color=Colour.BLUE, linewidth=2.2)
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.yaxis.set_minor_locator(FixedLocator([]))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))

    return "loss (logarithmic)" if log else "loss", fill


def _accuracy_panel(accuracy: Sequence[Sequence[float]]) -> tuple[str, Callable[[Axes], None]]:
    def fill(axes: Axes) -> None:
        axes.plot(
            *zip(*accuracy, strict=True), color=Colour.GREEN, linewidth=2.2, marker="o", markersize=4, clip_on=False
        )
        axes.yaxis.set_major_locator(MaxNLocator(5))

    return "accuracy", fill


def _throughput(result: dict[str, Any]) -> Chart:
    times = [time - result["started_at"] for time, _ in result["progress"]]
    rates = [rate for _, rate in result["throughput"]]

    def draw(size: Size) -> Figure:
        figure, axes = over_time(result, size, height=220)
        axes.fill_between(times, 0, rates, step="pre", facecolor=Colour.GREEN, alpha=0.16, linewidth=0)
        axes.step(times, rates, where="pre", color=Colour.GREEN, linewidth=1.8)
        axes.set_ylim(0, max(rates) * 1.1 or 1)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        return figure

    told = f"Samples per second over time: between {min(rates):,.0f} and {max(rates):,.0f}."
    return _chart("throughput", "Throughput, samples per second", told, draw)


def _chart(
    name: str, title: str, description: str, draw: Callable[[Size], Figure], legend: tuple[LegendEntry, ...] = ()
) -> Chart:
    wide, narrow = (
        inline_svg(draw(size), name=name, variant=size.variant, title=title, description=description) for size in SIZES
    )
    return Chart(name, title, wide, narrow, legend)


def _count_axis(axes: Axes, most: float) -> None:
    axes.set_ylim(0, most * 1.06 or 1)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 4, 5, 10]))


def _at(series: Sequence[Sequence[float]], time: float) -> float:
    """A series' value at a moment; 0 before it begins."""
    index = bisect_right([moment for moment, _ in series], time)
    return float(series[index - 1][1]) if index else 0.0


def _samples_at(progress: Sequence[Sequence[float]], time: float) -> float:
    """Samples committed by a moment, in proportion between the known ones."""
    index = bisect_left([moment for moment, _ in progress], time)
    if index == 0:
        return 0.0
    if index == len(progress):
        return float(progress[-1][1])
    (begin, low), (end, high) = progress[index - 1], progress[index]
    return low + (high - low) * (time - begin) / (end - begin)
