# SPDX-License-Identifier: Apache-2.0
"""Arms of an experiment compared, by the Jobs that have ended. Pure.

Means are compared by Welch's t-interval (B. L. Welch, Biometrika 34, 1947), which takes arms to vary as much as each
does; with several arms against the first, each at a level that holds for all of them together (Bonferroni).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "LEAST",
    "LEVEL",
    "Comparison",
    "Difference",
    "Ended",
    "Measure",
    "arms_of",
    "comparisons",
    "ended_of",
    "measured",
]

LEVEL = 0.95
"""Of all intervals of an experiment's measure together."""
LEAST = 5
"""Jobs in an arm with fewer than which nothing is said of a difference."""
_SUCCEEDED = "Succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A Job of an experiment that has ended."""

    experiment: str
    arm: str
    job: str
    succeeded: bool
    jct_s: float
    """From its creation to its end."""
    gpu_hours: float | None
    """None where nobody looked on while it ran."""
    resizes: float | None
    loss: float | None
    late: bool
    """Whether its beginning was not seen: GPU hours and resizes before that are not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measure of an arm's Jobs."""

    n: int
    mean: float | None
    low: float | None
    """Of the interval in which the mean lies; None where two Jobs are not there."""
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An arm against the first one, in a measure."""

    arm: str
    by: float | None
    """Of the means; negative: less than the first arm's. None where there is too little to say."""
    low: float | None
    high: float | None

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out that there is no difference."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An experiment."""

    experiment: str
    arms: dict[str, tuple[int, int]]
    """By name: Jobs that succeeded, and Jobs that ended otherwise. The first is what others are compared with."""
    measures: dict[str, dict[str, Measure]]
    """By measure and arm."""
    differences: dict[str, tuple[Difference, ...]]
    """By measure."""
    late: int
    """Jobs whose beginning nobody has seen."""
    level: float
    """Of each single interval of a difference."""


_MEASURES: dict[str, Callable[[Ended], float | None]] = {
    "completion time, h": lambda end: end.jct_s / 3600,
    "GPU hours": lambda end: end.gpu_hours,
    "resizes": lambda end: end.resizes,
    "final loss": lambda end: end.loss,
}
"""Of Jobs that succeeded: what was broken off took no time to complete."""


def ended_of(line: dict[str, Any]) -> Ended | None:
    """What a line `ended` of a decision log tells; None of a Job in no experiment."""
    if not line.get("arm"):
        return None
    gpu_s, resizes = line.get("gpu_s"), line.get("resizes")
    return Ended(
        experiment=str(line.get("experiment", "")),
        arm=str(line["arm"]),
        job=str(line["job"]),
        succeeded=line["state"] == _SUCCEEDED,
        jct_s=float(line["ended_at"]) - float(line["created_at"]),
        gpu_hours=None if gpu_s is None else float(gpu_s) / 3600,
        resizes=None if resizes is None else float(resizes),
        loss=None if line.get("loss") is None else float(line["loss"]),
        late=gpu_s is None or bool(line.get("late")),
    )


def arms_of(documents: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The arms of each experiment among Policies as they were written, in their order."""
    specs = [((each.get("metadata") or {}).get("name", ""), each.get("spec") or {}) for each in documents]
    return {name: [arm["name"] for arm in spec["arms"]] for name, spec in specs if spec.get("arms")}


def comparisons(ends: Iterable[Ended], order: Mapping[str, Sequence[str]] | None = None) -> list[Comparison]:
    """Each experiment that Jobs were in, by name; each Job once, as it ended last.

    Args:
        ends: The Jobs.
        order: The arms of experiments as their Policies name them; the first is what others are compared with.
    """
    last = {(end.experiment, end.job, end.arm): end for end in ends}

    def place(end: Ended) -> tuple[str, int, str, str]:
        arms = (order or {}).get(end.experiment, ())
        return end.experiment, [*arms, end.arm].index(end.arm), end.arm, end.job

    ordered = sorted(last.values(), key=place)
    return [_comparison(name, list(those)) for name, those in groupby(ordered, key=lambda end: end.experiment)]


def _comparison(name: str, ends: Sequence[Ended]) -> Comparison:
    arms = {arm: list(those) for arm, those in groupby(ends, key=lambda end: end.arm)}
    done = {arm: [end for end in those if end.succeeded] for arm, those in arms.items()}
    values = {
        measure: {arm: [value for end in those if (value := read(end)) is not None] for arm, those in done.items()}
        for measure, read in _MEASURES.items()
    }
    level = 1 - (1 - LEVEL) / max(1, len(arms) - 1)
    first = next(iter(arms))
    return Comparison(
        experiment=name,
        arms={arm: (len(done[arm]), len(those) - len(done[arm])) for arm, those in arms.items()},
        measures={
            measure: {arm: measured(found) for arm, found in by_arm.items()} for measure, by_arm in values.items()
        },
        differences={
            measure: tuple(_difference(arm, by_arm[first], by_arm[arm], level) for arm in by_arm if arm != first)
            for measure, by_arm in values.items()
        },
        late=sum(end.late for end in ends),
        level=level,
    )


def measured(values: Sequence[float]) -> Measure:
    """The mean of values, and the interval that it lies in by `LEVEL`."""
    n = len(values)
    mean = sum(values) / n if n else None
    if mean is None or n < 2:  # noqa: PLR2004 - one value does not vary
        return Measure(n=n, mean=mean, low=None, high=None)
    half = float(stats.sem(values)) * float(stats.t.ppf((1 + LEVEL) / 2, n - 1))
    return Measure(n=n, mean=mean, low=mean - half, high=mean + half)


def _difference(arm: str, first: Sequence[float], values: Sequence[float], level: float) -> Difference:
    if min(len(first), len(values)) < LEAST:
        return Difference(arm=arm, by=None, low=None, high=None)
    by = sum(values) / len(values) - sum(first) / len(first)
    if len({*first}) == len({*values}) == 1:  # nothing varies: there is no interval, and no doubt
        return Difference(arm=arm, by=by, low=by, high=by)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one side may not vary
        found = stats.ttest_ind(values, first, equal_var=False).confidence_interval(level)
    return Difference(arm=arm, by=by, low=float(found.low), high=float(found.high))
