# SPDX-License-Identifier: Apache-2.0
"""The report of a comparison: the page of its simulations, with what replications and settings came to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.figures import METRICS
from kfp_volcano.volcano.launcher.laboratory.curves import settings
from kfp_volcano.volcano.launcher.laboratory.told import SOURCES, shown, story
from kfp_volcano.volcano.launcher.simulation_report import Section, simulation_report

if TYPE_CHECKING:
    from kfp_volcano.volcano.launcher.laboratory.study import Replicated, Study
    from kfp_volcano.volcano.launcher.laboratory.sweep import Swept

__all__ = ["page"]

_MOST_ROWS = 50


def page(study: Study) -> str:
    """One HTML page that needs nothing else; the same bytes for the same comparison."""
    extra, charts = [], []
    if study.replicated:
        extra.append(_means(study.replicated))
    if study.swept:
        extra.append(_tried(study.swept))
        charts += [chart for chart in (settings(study.swept),) if chart]
    return simulation_report(
        study.scenario, list(study.outcomes.values()), words=story(study), notes=[SOURCES], extra=extra, charts=charts
    )


def _means(replicated: Replicated) -> Section:
    """The mean of each metric under each policy, with its interval."""
    means = {name: replicated.means(name) for name in replicated.figures}
    rows = [
        (metric.title, *(_interval(key, found[key]) for found in means.values())) for key, metric in METRICS.items()
    ]
    note = f"Means of {replicated.count} replications with their 95 % t-intervals; {replicated.how}."
    return Section("Replications", ("", *means), tuple(rows), note)


def _interval(key: str, found: dict[str, float] | None) -> str:
    if found is None:
        return shown(key, None)
    return f"{shown(key, found['mean'])} ({shown(key, found['low'])} to {shown(key, found['high'])})"


def _tried(swept: Swept) -> Section:
    """The combinations, best first."""
    known = [(swept.value(figures), variant) for variant, figures in swept.tried]
    sign = 1 if METRICS[swept.metric].better == "less" else -1
    known.sort(key=lambda pair: float("inf") if pair[0] is None else sign * pair[0])
    rows = [
        (f"{'★ ' if variant is swept.best else ''}{variant.contestant.name}", shown(swept.metric, value))
        for value, variant in known[:_MOST_ROWS]
    ]
    return Section("Settings tried, best first", ("Setting", METRICS[swept.metric].title), tuple(rows))
