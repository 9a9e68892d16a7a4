# SPDX-License-Identifier: Apache-2.0
"""How readily and how fast a size follows its recommendations: stabilisation windows, then limits of rate. Pure.

Source: horizontal.go, stabilizeRecommendationWithBehaviors, convertDesiredReplicasWithBehaviorRate and their
forerunners without behaviours, normalizeDesiredReplicas and convertDesiredReplicasWithRules.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.policies.hpa.history import change_within, reuse
from kfp_volcano.elastic.policies.hpa.numbers import INT32_MAX, int32
from kfp_volcano.elastic.policies.memory import Recommendation

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.hpa.history import History
    from kfp_volcano.schemas.hpa import Behavior, ScalingRules

__all__ = [
    "DOWN_STABILISED",
    "UP_STABILISED",
    "Bounds",
    "Limited",
    "Stabilised",
    "down_limit",
    "limited",
    "limited_plainly",
    "stabilised",
    "stabilised_plainly",
    "up_limit",
]


class Bounds(NamedTuple):
    """The least and the most replicas there may be."""

    least: int
    most: int


class Stabilised(NamedTuple):
    """A size after the windows, why it differs from what was recommended, and the log of recommendations."""

    replicas: int
    reason: str
    message: str
    log: tuple[Recommendation, ...]


class Limited(NamedTuple):
    """A size after limits of rate and range, and which of them was nearest."""

    replicas: int
    reason: str
    message: str


UP_STABILISED = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
DOWN_STABILISED = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_TOO_FAST = "the desired replica count is {} faster than the maximum scale rate"
_WITHIN = "the desired count is within the acceptable range"
_TOO_FEW = "the desired replica count is less than the minimum replica count"
_TOO_MANY = "the desired replica count is more than the maximum replica count"


def stabilised(
    current: int, wanted: int, behavior: Behavior, log: tuple[Recommendation, ...], at: float, *, down_window_s: float
) -> Stabilised:
    """The size within the windows: no more than all of the up window allow, no less than any of the down window wants.

    `down_window_s` is the window for shrinking where the behaviour has none of its own. What is logged is `wanted`.
    """
    up_cutoff = at - (behavior.scale_up.stabilization_window_seconds or 0)
    down_window = behavior.scale_down.stabilization_window_seconds
    down_cutoff = at - (down_window_s if down_window is None else down_window)
    low = min((wanted, *(each.workers for each in log if each.at > up_cutoff)))
    high = max((wanted, *(each.workers for each in log if each.at > down_cutoff)))
    replicas = min(max(current, low), high)
    kept = reuse(log, Recommendation(at, wanted), lambda each: each.at < up_cutoff and each.at < down_cutoff)
    return Stabilised(replicas, *(UP_STABILISED if wanted >= current else DOWN_STABILISED), kept)


def stabilised_plainly(
    wanted: int, log: tuple[Recommendation, ...], at: float, *, down_window_s: float
) -> tuple[int, tuple[Recommendation, ...]]:
    """The same without behaviours: nothing below what was recommended within the window (stabilizeRecommendation)."""
    cutoff = at - down_window_s
    replicas = max((wanted, *(each.workers for each in log if each.at >= cutoff)))
    return replicas, reuse(log, Recommendation(at, wanted), lambda each: each.at < cutoff)


def up_limit(current: int, history: History, rules: ScalingRules, at: float) -> int:
    """The most replicas there may be now, by the policies for growth; `current` where they forbid any.

    A percentage is rounded up, for otherwise a small size would never grow.
    """
    if rules.select_policy == "Disabled":
        return current
    proposals = [
        int32(start + policy.value) if policy.type == "Pods" else int32(math.ceil(start * (1 + policy.value / 100)))
        for policy in rules.policies
        for start in [_start(current, history, policy.period_seconds, at)]
    ]
    if rules.select_policy == "Min":
        return min(proposals, default=INT32_MAX)
    return max(proposals, default=-INT32_MAX - 1)


def down_limit(current: int, history: History, rules: ScalingRules, at: float) -> int:
    """The fewest replicas there may be now, by the policies for shrinking; `current` where they forbid any.

    `Max` is the most change, which is the smallest size. A percentage is rounded towards zero.
    """
    if rules.select_policy == "Disabled":
        return current
    proposals = [
        int32(start - policy.value) if policy.type == "Pods" else int32(int(start * (1 - policy.value / 100)))
        for policy in rules.policies
        for start in [_start(current, history, policy.period_seconds, at)]
    ]
    if rules.select_policy == "Min":
        return max(proposals, default=-INT32_MAX - 1)
    return min(proposals, default=INT32_MAX)


def _start(current: int, history: History, period_s: float, at: float) -> int:
    """The size at the beginning of a policy's period."""
    return current - change_within(history.ups, period_s, at) + change_within(history.downs, period_s, at)


def limited(current: int, wanted: int, bounds: Bounds, behavior: Behavior, history: History, at: float) -> Limited:
    """The size within range and rates, by behaviours."""
    if wanted > current:
        most = max(up_limit(current, history, behavior.scale_up, at), current)
        reason, message = "TooManyReplicas", _TOO_MANY
        if bounds.most > most:
            reason, message = "ScaleUpLimit", _TOO_FAST.format("increasing")
        if wanted > min(most, bounds.most):
            return Limited(min(most, bounds.most), reason, message)
    elif wanted < current:
        least = min(down_limit(current, history, behavior.scale_down, at), current)
        reason, message = "TooFewReplicas", _TOO_FEW
        if bounds.least < least:
            reason, message = "ScaleDownLimit", _TOO_FAST.format("decreasing")
        if wanted < max(least, bounds.least):
            return Limited(max(least, bounds.least), reason, message)
    return Limited(wanted, "DesiredWithinRange", _WITHIN)


def limited_plainly(
    current: int,
    wanted: int,
    bounds: Bounds,
    *,
    factor: float = 2.0,
    minimum: float = 4.0,
) -> Limited:
    """The same without behaviours: at most `factor` times as many at once, or `minimum`."""
    most = int(max(factor * current, minimum))
    reason, message = "TooManyReplicas", _TOO_MANY
    if bounds.most > most:
        reason, message = "ScaleUpLimit", _TOO_FAST.format("increasing")
    if wanted < bounds.least:
        return Limited(bounds.least, "TooFewReplicas", _TOO_FEW)
    if wanted > min(most, bounds.most):
        return Limited(min(most, bounds.most), reason, message)
    return Limited(wanted, "DesiredWithinRange", _WITHIN)
