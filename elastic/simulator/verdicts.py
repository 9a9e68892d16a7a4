# SPDX-License-Identifier: Apache-2.0
"""Which policy is better, and how sure that is: replications compared in pairs. Pure.

Each replication runs all policies on the same jobs (common random numbers), so what is compared is the ratio of a
figure under one policy to that under the first, replication by replication: the mean of its logarithm with Student's
t-interval. That a policy differs is said where the test's p is below 5 % after S. Holm's correction (Scandinavian
Journal of Statistics 6, 1979) for as many policies as are compared with the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scipy import stats

from kfp_volcano.elastic.simulator.figures import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.simulator.figures import Figures

__all__ = ["COMPARED", "LEVEL", "Interval", "Verdict", "holm", "interval", "sentence", "verdicts"]

LEVEL = 0.95
COMPARED = ("avg_jct", "p99_jct", "makespan", "avg_rho", "goodput")
"""Metrics that verdicts are given in."""
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its interval, which is None where there are too few values."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A policy compared with another in a metric."""

    metric: str
    policy: str
    against: str
    pairs: int
    """Replications in which both have a figure."""
    change: Interval | None = None
    """Relative: -0.1 for a tenth less. None where nothing can be said."""
    p: float | None = None
    """After Holm's correction."""
    why_not: str = ""
    """Why nothing can be said."""

    @property
    def significant(self) -> bool:
        """Whether they differ, as far as can be told."""
        return self.p is not None and self.p < 1 - LEVEL

    @property
    def better(self) -> bool:
        """Whether the policy is better than the other, significantly."""
        return self.significant and self.change is not None and _improves(self.metric, self.change.mean)


def verdicts(figures: Mapping[str, Sequence[Figures]], metrics: Sequence[str] = COMPARED) -> tuple[Verdict, ...]:
    """Each policy but the first compared with the first, in each metric.

    Args:
        figures: By policy, of each replication, in the same order.
        metrics: Of `METRICS`.
    """
    first, *others = figures
    found = []
    for metric in metrics:
        raw = [_compared(metric, other, first, figures) for other in others]
        corrected = iter(holm([p for _, p in raw if p is not None]))
        found += [verdict if p is None else replace(verdict, p=next(corrected)) for verdict, p in raw]
    return tuple(found)


def interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """The mean with Student's t-interval; values must not be empty."""
    mean = math.fsum(values) / len(values)
    if len(values) < _FEWEST:
        return Interval(mean)
    half = _standard_error(values, mean) * float(stats.t.ppf((1 + level) / 2, len(values) - 1))
    return Interval(mean, mean - half, mean + half)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's corrected p-values, in the given order."""
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = highest
    return corrected


def sentence(verdict: Verdict) -> str:
    """The verdict in words, with its numbers."""
    title = METRICS[verdict.metric].title
    if verdict.change is None or verdict.p is None:
        return f"{verdict.policy} and {verdict.against} cannot be compared in {title}: {verdict.why_not}."
    change = verdict.change
    spread = f"{_percent(change.low or 0.0)} to {_percent(change.high or 0.0)}"
    sure = f"p = {verdict.p:.2g}" if verdict.p >= 0.001 else "p < 0.001"  # noqa: PLR2004 - digits nobody needs
    if not verdict.significant:
        return (
            f"{verdict.policy} shows no significant difference to {verdict.against} in {title}: "
            f"{_percent(change.mean)} [{spread}], {sure}, {verdict.pairs} pairs."
        )
    word = "better" if verdict.better else "worse"
    return (
        f"{verdict.policy} is {word} than {verdict.against} in {title}: {_percent(change.mean)} [{spread}], "
        f"{sure}, {verdict.pairs} pairs."
    )


def _compared(
    metric: str, policy: str, against: str, figures: Mapping[str, Sequence[Figures]]
) -> tuple[Verdict, float | None]:
    """The verdict without its p, and the p before correction."""
    pairs = [
        (getattr(one, metric), getattr(other, metric), one.not_ended == other.not_ended)
        for one, other in zip(figures[policy], figures[against], strict=True)
    ]
    known = [(one, other) for one, other, same in pairs if same and one and other]
    why_not = ""
    if not all(same for *_, same in pairs):
        why_not = "not the same number of jobs ended under both"
    elif len(known) < len(pairs):
        why_not = "it has no figure in some replications"
    elif len(known) < _FEWEST:
        why_not = "it takes two replications at least"
    if why_not:
        return Verdict(metric=metric, policy=policy, against=against, pairs=len(known), why_not=why_not), None
    logs = [math.log(one / other) for one, other in known]
    found = interval(logs)
    change = Interval(*(math.expm1(each or 0.0) for each in (found.mean, found.low, found.high)))
    error = _standard_error(logs, found.mean)
    p = 2 * float(stats.t.sf(abs(found.mean) / error, len(logs) - 1)) if error > 0 else float(found.mean == 0)
    return Verdict(metric=metric, policy=policy, against=against, pairs=len(known), change=change), p


def _standard_error(values: Sequence[float], mean: float) -> float:
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def _improves(metric: str, change: float) -> bool:
    return (change < 0) == (METRICS[metric].better == "less")


def _percent(part: float) -> str:
    return f"{round(part, 3) + 0.0:+.1%}".replace("%", " %")
