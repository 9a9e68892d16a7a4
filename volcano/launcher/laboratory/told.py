# SPDX-License-Identifier: Apache-2.0
"""A comparison of policies in words and numbers for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.figures import METRICS
from kfp_volcano.elastic.simulator.verdicts import sentence
from kfp_volcano.volcano.launcher.story import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.simulator.figures import Figures
    from kfp_volcano.volcano.launcher.laboratory.study import Study

__all__ = ["SOURCES", "markdown", "rows", "shown", "story"]

SOURCES = (
    "Percentiles are interpolated (numpy's rule). rho is the completion time over that on the fair share: the time "
    "alone on the GPUs asked for, times the mean contention (GPUs asked for by all over GPUs, at least 1) over the "
    "job's life (Themis, NSDI 2020; Shockwave, NSDI 2023). Jain's index is of the teams' mean 1/rho. Utilisation and "
    "goodput are of the cluster's GPU time from the first submission to the end."
)
"""How the figures are defined, in short."""


def rows(figures: dict[str, Figures] | Study) -> list[tuple[str, ...]]:
    """The table of policies: a row for each metric, a column for each policy."""
    given = figures if isinstance(figures, dict) else dict(figures.figures)
    table = [
        (metric.title, *(shown(key, getattr(each, key)) for each in given.values())) for key, metric in METRICS.items()
    ]
    if any(each.restarts for each in given.values()):
        table.append(("restarts", *(f"{each.restarts:,}" for each in given.values())))
    table.append(("not ended", *(f"{each.not_ended:,} of {each.jobs:,}" for each in given.values())))
    return table


def shown(key: str, value: float | None) -> str:
    """A figure with its unit."""
    if value is None:
        return "none"
    unit = METRICS[key].unit
    if unit == "s":
        return duration(value)
    if unit == "part":
        return f"{100 * value:.1f} %"
    if unit == "GPU-h":
        return f"{value:,.1f} GPU-h"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def story(study: Study) -> list[str]:
    """A few sentences: what was replayed, who did best, what the replications say, what to know."""
    scenario = study.scenario
    where = f"{scenario.gpus:,} GPUs of {len(scenario.nodes):,} nodes"
    told = [f"{len(scenario.jobs):,} jobs on {where} under {_listed(list(study.outcomes))}."]
    known = {name: each.avg_jct for name, each in study.figures.items() if each.avg_jct is not None}
    unfinished = [name for name, each in study.figures.items() if each.not_ended]
    if len(known) > 1 and not unfinished:
        best = min(known, key=lambda name: known[name])
        others = "; ".join(
            f"{100 * (known[best] / value - 1):+.1f} % to {name}" for name, value in known.items() if name != best
        )
        told.append(f"The lowest average completion time is that of {best}, {duration(known[best])} ({others}).")
    told += [
        f"Under {name} {study.figures[name].not_ended:,} jobs did not end: its completion times are of the others."
        for name in unfinished
    ]
    if study.replicated:
        told.append(f"{study.replicated.count} replications: {study.replicated.how}.")
        told += [sentence(each) for each in study.replicated.verdicts]
    if study.swept:
        told += study.swept.story()
    return told


def markdown(study: Study) -> str:
    """The story and the table."""
    names = list(study.outcomes)
    lines = [*(f"{each}  " for each in story(study)), "", f"| | {' | '.join(names)} |", f"|:--|{'--:|' * len(names)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows(study)]
    return "\n".join([*lines, "", SOURCES]) + "\n"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
