# SPDX-License-Identifier: Apache-2.0
"""The report of simulations: one HTML page that needs nothing else, with timelines that one can zoom and pan.

It makes no request to any host and keeps nothing, so that it works in a sandboxed frame too. Without scripts the
figures and the distribution of completion times are still there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kfp_volcano.elastic.simulator.figures import METRICS, Metric, figures
from kfp_volcano.volcano.launcher.charts import Chart, LegendEntry
from kfp_volcano.volcano.launcher.frame import SIZES, Size, axes_in
from kfp_volcano.volcano.launcher.simulation_picture import MOST_TEAMS, picture
from kfp_volcano.volcano.launcher.story import duration
from kfp_volcano.volcano.launcher.svg import Colour, inline_svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.simulator.figures import Figures
    from kfp_volcano.elastic.simulator.outcome import Outcome
    from kfp_volcano.elastic.simulator.scenario import Scenario

__all__ = ["MOST_POLICIES", "Section", "simulation_report"]

MOST_POLICIES = 12
"""As many as a page can show side by side: the first, and those with the least average completion time."""
_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY, Colour.VERMILION)
_DASHES = ((0, ()), (0, (4, 2)))
_MOST_POINTS = 400
_HEIGHT = 300
_NICE_S = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the caller's, shown after the figures; what it says is shown as it is."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Cell:
    value: float | None
    shown: str
    best: bool


def simulation_report(
    scenario: Scenario,
    outcomes: Sequence[Outcome],
    *,
    words: Sequence[str] = (),
    notes: Sequence[str] = (),
    extra: Sequence[Section] = (),
    charts: Sequence[Chart] = (),
) -> str:
    """The page as HTML, the same bytes for the same outcomes; at most 5 MB, however many jobs there were.

    Args:
        scenario: What was replayed.
        outcomes: What came of it, one of each policy, with the jobs in the scenario's order.
        words: Sentences that say what came of it, the first two before all else.
        notes: What to know of the figures.
        extra: Tables of the caller's.
        charts: Pictures of the caller's, after its tables.
    """
    every = [(outcome, figures(outcome)) for outcome in outcomes]
    chosen = _chosen(every)
    shown = [outcome for outcome, _ in chosen]
    names = _names(shown)
    drawn = picture(names, shown)
    left_out = list(drawn.left_out)
    if len(shown) < len(outcomes):
        left_out.insert(
            0, f"{len(shown)} of {len(outcomes)} policies are shown: the first, and those with the least average JCT."
        )
    return (
        _environment()
        .get_template("simulation.html.j2")
        .render(
            scenario=scenario,
            names=names,
            rows=[(metric, _cells(metric, [each for _, each in chosen])) for metric in METRICS.values()],
            ended=[(each.jobs - each.not_ended, each.jobs) for _, each in chosen],
            notes=[*scenario.notes, *notes, *(f"{name}: {note}" for name, each in zip(names, shown, strict=True)
                                      for note in each.notes)],
            words=words,
            extra=extra,
            charts=charts,
            chart=_distribution(names, shown) if any(job.jct is not None for each in shown for job in each.jobs)
            else None,
            teams=[(team, "var(--muted)" if band >= MOST_TEAMS else _COLOURS[band].variable)
                   for band, team in enumerate(drawn.teams)],
            team_count=len({job.team for each in shown for job in each.jobs}),
            data=drawn.data,
            left_out=left_out,
            decided=any(policy["decided"] for policy in drawn.data["policies"]),
        )
    )  # fmt: skip


def _chosen(every: Sequence[tuple[Outcome, Figures]]) -> list[tuple[Outcome, Figures]]:
    """What is shown, in the given order."""

    def rank(index: int) -> tuple[bool, float]:
        jct = every[index][1].avg_jct
        return index > 0, float("inf") if jct is None else jct

    return [every[index] for index in sorted(sorted(range(len(every)), key=rank)[:MOST_POLICIES])]


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    """The policies' names; those that come again with a number."""
    seen: dict[str, int] = {}
    names = []
    for outcome in outcomes:
        seen[outcome.policy] = seen.get(outcome.policy, 0) + 1
        again = seen[outcome.policy]
        names.append(outcome.policy if again == 1 else f"{outcome.policy} ({again})")
    return names


def _cells(metric: Metric, found: Sequence[Figures]) -> list[_Cell]:
    """A row of the table; the best ones are marked where not all are the same."""
    values = [getattr(each, metric.key) for each in found]
    known = [value for value in values if value is not None]
    best = (min if metric.better == "less" else max)(known, default=None)
    differ = len({_shown(value, metric.unit) for value in values}) > 1
    return [
        _Cell(value, _shown(value, metric.unit), differ and value is not None and value == best) for value in values
    ]


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return duration(value)
    if unit == "part":
        return f"{value:.1%}"
    text = f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 - digits
    return f"{text} {unit}".rstrip()


def _distribution(names: Sequence[str], outcomes: Sequence[Outcome]) -> Chart:
    """Which part of the jobs had ended within a time; a curve that does not come to 1 left jobs behind."""
    curves = [_curve(outcome) for outcome in outcomes]
    times = [time for curve, _ in curves for time in curve]

    def draw(size: Size) -> Figure:
        figure = Figure(figsize=(size.width / 72, _HEIGHT / 72))
        axes = axes_in(figure, (0, 0, size.width, _HEIGHT), [])
        for index, (at, part) in enumerate(curves):
            axes.step(at, part, where="post", color=_COLOURS[index % len(_COLOURS)], linewidth=2,
                      linestyle=_DASHES[index // len(_COLOURS)])  # fmt: skip
        axes.set_xscale("log")
        low, high = min(times), max(times)
        axes.set_xlim(low / 1.1, high * 1.1)
        nice = [tick for tick in _NICE_S if low / 1.1 <= tick <= high * 1.1]
        ticks = nice if len(nice) > 1 else [low, high]
        axes.xaxis.set_major_locator(FixedLocator([float(tick) for tick in ticks]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _brief(value)))
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        axes.set_xlabel("job completion time", loc="right")
        return figure

    title = "How long jobs took"
    description = "For each policy, the part of all jobs that had ended within a time from their submission."
    wide, narrow = (
        inline_svg(draw(size), name="jct", variant=size.variant, title=title, description=description) for size in SIZES
    )
    legend = tuple(
        LegendEntry(name, _COLOURS[at % len(_COLOURS)].variable, "line" if at < len(_COLOURS) else "dashes")
        for at, name in enumerate(names)
    )
    return Chart("jct", title, wide, narrow, legend)


def _curve(outcome: Outcome) -> tuple[list[float], list[float]]:
    """Times and the part of the jobs within them; of more than `_MOST_POINTS`, as many evenly taken."""
    times = np.sort([max(job.jct, 1e-3) for job in outcome.jobs if job.jct is not None])
    if not times.size:
        return [], []
    last = len(times) - 1
    taken = np.unique(np.linspace(0, last, min(len(times), _MOST_POINTS)).round().astype(int))
    return times[taken].tolist(), ((taken + 1) / len(outcome.jobs)).tolist()


def _brief(seconds: float) -> str:
    """A duration in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kfp_volcano.volcano.launcher"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    return environment
