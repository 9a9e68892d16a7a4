# SPDX-License-Identifier: Apache-2.0
"""Groups of trainings compared at an equal budget, seed by seed. Pure.

The same seed begins all groups with the same weights and the same order of samples, so groups are compared by their
differences seed by seed: the paired t-interval (Student, "The probable error of a mean", Biometrika 6, 1908), with
several groups against the first at a level that holds for all of them together (Bonferroni).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from kfp_volcano.errors import SpecError
from kfp_volcano.volcano.launcher.comparison import LEVEL, Difference, Measure, measured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["BUDGETS", "MODES", "Experiment", "Trial", "compared", "trial"]

BUDGETS = ("samples", "gpu-hours")
MODES = ("max", "min")
_MOST_POINTS = 50
"""Of a curve. The comparison's step is given those of all trainings in one argument, which may be 128 KiB long."""
_DIGITS = 7
_FEWEST = 2
"""Pairs, for one difference does not vary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training of an experiment."""

    group: str
    seed: int
    message: str = ""
    """Why it did not succeed; empty where it did."""
    points: tuple[tuple[float, float, float], ...] = ()
    """(samples, GPU-hours by then, the metric) of each evaluation."""
    gpu_hours: float = 0.0
    """From the first step to the last, what was held while a resize paused it included."""
    wall_s: float = 0.0
    """From the first step to the last."""
    workers: float = 0.0
    """On average over that time."""

    @property
    def ok(self) -> bool:
        """Whether there is something to compare."""
        return not self.message

    def dump(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Trial:
        """From JSON."""
        fields = json.loads(text)
        return cls(**{**fields, "points": tuple(tuple(point) for point in fields["points"])})

    def at(self, budget: str, limit: float) -> float:
        """The metric where so much of the budget is used; between two evaluations on the line between them."""
        axis = 0 if budget == "samples" else 1
        return float(np.interp(limit, [point[axis] for point in self.points], [point[2] for point in self.points]))

    def spent(self, budget: str) -> float:
        """How much of a budget it had used at its last evaluation."""
        return self.points[-1][0 if budget == "samples" else 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What a comparison came to."""

    metric: str
    mode: str
    budget: str
    limit: float
    """Up to which budget all are compared: what the one that used least of it had used."""
    trials: tuple[Trial, ...]
    groups: tuple[str, ...]
    """The first is what the others are compared with."""
    measures: dict[str, dict[str, Measure]]
    """By measure and group."""
    differences: dict[str, tuple[Difference, ...]]
    """By measure; of each seed that both groups have."""
    level: float
    """Of each single interval of a difference."""


def trial(group: str, seed: int, result: Mapping[str, Any], *, metric: str, gpus: int, message: str = "") -> Trial:
    """A training of an experiment, from its result (`schemas/json/result.v1.schema.json`).

    Args:
        group: Which group.
        seed: Which seed.
        result: What `gather` gives.
        metric: What the training code logs: `training.log(accuracy=...)`.
        gpus: Of each worker; where it has none a worker counts as one.
        message: Why it did not succeed.
    """
    steps, evaluations = result["workers"], (result["metrics"] or {}).get(metric)
    if message or not steps or not evaluations:
        return Trial(group=group, seed=seed, message=message or f"it logged no {metric}: training.log({metric}=...)")
    times = np.array([time for time, _ in steps])
    held = np.array([count for _, count in steps[:-1]]) * max(1, gpus) / 3600
    hours = np.concatenate([[0.0], np.cumsum(held * np.diff(times))])
    progress = [(times[0], 0), *(result["progress"] or ()), (times[-1], evaluations[-1][0])]
    known = [(samples, value) for samples, value in evaluations if value is not None]
    at = np.interp([samples for samples, _ in known], [each[1] for each in progress], [each[0] for each in progress])
    used = np.interp(at, times, hours)
    points = _thinned(
        [(float(samples), _rounded(by), _rounded(value)) for (samples, value), by in zip(known, used, strict=True)]
    )
    if len(known) < len(evaluations):
        return Trial(group=group, seed=seed, message=f"its {metric} is not a number", points=points)
    wall_s = float(times[-1] - times[0])
    workers = float(hours[-1]) * 3600 / max(1, gpus) / wall_s if wall_s else float(steps[0][1])
    return Trial(group=group, seed=seed, points=points, gpu_hours=float(hours[-1]), wall_s=wall_s, workers=workers)


def _thinned(points: Sequence[tuple[float, float, float]]) -> tuple[tuple[float, float, float], ...]:
    """As many as a curve needs, evenly spaced, the first and the last among them."""
    places = np.linspace(0, len(points) - 1, min(_MOST_POINTS, len(points))).round().astype(int)
    return tuple(points[place] for place in places)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def compared(trials: Iterable[Trial], groups: Sequence[str], *, metric: str, mode: str, budget: str) -> Experiment:
    """Compare groups with the first of them, at the largest budget that every training came to.

    Raises:
        SpecError: No training succeeded.
    """
    given = tuple(sorted(trials, key=lambda each: (groups.index(each.group), each.seed)))
    done = [each for each in given if each.ok]
    if not done:
        reasons = "; ".join(f"{each.group}, seed {each.seed}: {each.message}" for each in given)
        raise SpecError(f"no training succeeded: {reasons}", source="the experiment")
    limit = min(each.spent(budget) for each in done)
    values = {
        metric: {(each.group, each.seed): each.at(budget, limit) for each in done},
        "GPU-hours": {(each.group, each.seed): each.gpu_hours for each in done},
        "workers": {(each.group, each.seed): each.workers for each in done},
        "seconds": {(each.group, each.seed): each.wall_s for each in done},
    }
    level = 1 - (1 - LEVEL) / max(1, len(groups) - 1)
    return Experiment(
        metric=metric,
        mode=mode,
        budget=budget,
        limit=limit,
        trials=given,
        groups=tuple(groups),
        measures={
            name: {group: measured([value for key, value in found.items() if key[0] == group]) for group in groups}
            for name, found in values.items()
        },
        differences={
            name: tuple(_paired(found, groups[0], group, level) for group in groups[1:])
            for name, found in values.items()
        },
        level=level,
    )


def _paired(values: Mapping[tuple[str, int], float], first: str, group: str, level: float) -> Difference:
    found = [value - values[first, seed] for (name, seed), value in values.items() if name == group
             and (first, seed) in values]  # fmt: skip
    if len(found) < _FEWEST:
        return Difference(arm=group, by=None, low=None, high=None)
    by = sum(found) / len(found)
    half = float(stats.sem(found)) * float(stats.t.ppf((1 + level) / 2, len(found) - 1))
    return Difference(arm=group, by=by, low=by - half, high=by + half)
