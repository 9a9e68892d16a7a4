# SPDX-License-Identifier: Apache-2.0
"""What an experiment came to, in words, and as a page: one self-contained HTML file with the curves."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from kfp_volcano.volcano.launcher.charts import Chart, LegendEntry
from kfp_volcano.volcano.launcher.frame import SIZES, Size, axes_in
from kfp_volcano.volcano.launcher.svg import Colour, inline_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kfp_volcano.volcano.launcher.comparison import Difference, Measure
    from kfp_volcano.volcano.launcher.experiment import Experiment

__all__ = ["MOST_GROUPS", "markdown", "page", "told"]

_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY, Colour.VERMILION)
MOST_GROUPS = len(_COLOURS)
_HEIGHT = 300


def told(experiment: Experiment) -> list[str]:
    """The verdict, a sentence each: what was compared, each group against the first, what failed."""
    limit = (
        f"{experiment.limit:,.0f} samples" if experiment.budget == "samples" else f"{experiment.limit:.4g} GPU-hours"
    )
    first = experiment.groups[0]
    sentences = [f"All are compared with {first}, after {limit} each."]
    for index, group in enumerate(experiment.groups[1:]):
        quality = experiment.differences[experiment.metric][index]
        cost = experiment.differences["GPU-hours"][index]
        if quality.by is None:
            sentences.append(f"Of {group} nothing can be said: it takes two seeds that succeeded in both groups.")
            continue
        better = (quality.by > 0) == (experiment.mode == "max")
        verdict = f"is {'better' if better else 'worse'}" if quality.clear else "shows no difference"
        spent = f"uses {'more' if (cost.by or 0) > 0 else 'fewer'} GPU-hours" if cost.clear else "uses about as many"
        sentences.append(
            f"{group} {verdict} in {experiment.metric} ({_interval(quality)}) and {spent}"
            f"{'' if cost.clear else ' GPU-hours'} ({_interval(cost)})."
        )
    sentences += [
        f"{trial.group} with seed {trial.seed} does not count: {trial.message}."
        for trial in experiment.trials
        if not trial.ok
    ]
    return sentences


def markdown(experiment: Experiment) -> str:
    """The verdict and the table."""
    names = list(experiment.measures)
    lines = [*told(experiment), "", f"| group | seeds | {' | '.join(names)} |", f"|:--|--:|{'--:|' * len(names)}"]
    for group in experiment.groups:
        cells = [_mean(experiment.measures[name][group]) for name in names]
        lines.append(f"| {group} | {experiment.measures[names[0]][group].n} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(experiment: Experiment) -> str:
    """The page: verdict, curves, table; no script, no request to any host."""
    rows = [
        (
            group,
            experiment.measures[experiment.metric][group].n,
            [_mean(each[group]) for each in experiment.measures.values()],
        )
        for group in experiment.groups
    ]
    template = _environment().get_template("experiment.html.j2")
    return template.render(experiment=experiment, story=told(experiment), chart=_chart(experiment), rows=rows)


def _interval(difference: Difference) -> str:
    return f"{difference.by:+.3g}, {difference.low:+.3g} to {difference.high:+.3g}"


def _mean(measure: Measure) -> str:
    if measure.mean is None:
        return "none"
    return f"{measure.mean:.4g}" + (f" ({measure.low:.4g} to {measure.high:.4g})" if measure.low is not None else "")


def _chart(experiment: Experiment) -> Chart:
    def draw(size: Size) -> Figure:
        beside = size.variant == "wide"
        width = size.width / 2 if beside else size.width
        figure = Figure(figsize=(size.width / 72, (_HEIGHT if beside else 2 * _HEIGHT) / 72))
        _curves(experiment, axes_in(figure, (0, 0 if beside else _HEIGHT, width, _HEIGHT), [], title=experiment.metric))
        right = (width if beside else 0, 0, width, _HEIGHT)
        _costs(experiment, axes_in(figure, right, [], title=f"{experiment.metric} by GPU-hours"))
        return figure

    title = f"{experiment.metric} of each training"
    description = " ".join(told(experiment))
    wide, narrow = (
        inline_svg(draw(size), name="experiment", variant=size.variant, title=title, description=description)
        for size in SIZES
    )
    legend = tuple(
        LegendEntry(group, colour.variable, "line") for group, colour in zip(experiment.groups, _COLOURS, strict=False)
    )
    return Chart("experiment", title, wide, narrow, legend)


def _curves(experiment: Experiment, axes: Axes) -> None:
    """Each training's metric over the budget, up to where all are compared and beyond."""
    axis = 0 if experiment.budget == "samples" else 1
    for trial in experiment.trials:
        colour = _COLOURS[experiment.groups.index(trial.group)]
        axes.plot(
            [point[axis] for point in trial.points], [point[2] for point in trial.points], color=colour, linewidth=1.4
        )
    axes.axvline(experiment.limit, color=Colour.MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlabel("samples" if experiment.budget == "samples" else "GPU-hours", loc="right")


def _costs(experiment: Experiment, axes: Axes) -> None:
    """Each training as a point, what it came to over what it cost; a group's mean with its interval."""
    for index, group in enumerate(experiment.groups):
        ended = [trial for trial in experiment.trials if trial.group == group and trial.ok]
        values = [trial.at(experiment.budget, experiment.limit) for trial in ended]
        axes.plot([trial.gpu_hours for trial in ended], values, "o", color=_COLOURS[index], markersize=5, alpha=0.6)
        quality, cost = experiment.measures[experiment.metric][group], experiment.measures["GPU-hours"][group]
        if quality.mean is not None and cost.mean is not None:
            spread = None if quality.high is None else quality.high - quality.mean
            axes.errorbar([cost.mean], [quality.mean], yerr=spread, color=_COLOURS[index], fmt="D", capsize=4)
    axes.set_xlabel("GPU-hours", loc="right")


@cache
def _environment() -> Environment:
    loader = PackageLoader("kfp_volcano.volcano.launcher")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
