# SPDX-License-Identifier: Apache-2.0
"""What the algorithm remembers of a target: its recent recommendations, and the changes of size it made. Pure.

Kept by whoever runs it: a value goes in, a new one comes out. Slots that are too old are used again, one at a time, so
that a log is never longer than a window holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.policies.memory import Recommendation

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.schemas.hpa import Behavior, ScalingRules

__all__ = [
    "History",
    "ScaleEvent",
    "change_within",
    "longest_period",
    "reuse",
    "stored",
    "stored_event",
]


class ScaleEvent(NamedTuple):
    """A change of size that was carried out."""

    change: int
    """How many replicas came or went; never negative."""
    at: float
    outdated: bool = False
    """Whether it was found to be older than every policy's period: its slot is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that is remembered of one target."""

    recommendations: tuple[Recommendation, ...] = ()
    ups: tuple[ScaleEvent, ...] = ()
    downs: tuple[ScaleEvent, ...] = ()

    def begun(self, replicas: int, at: float) -> History:
        """With the present size as first recommendation where there is none.

        A controller that was started again thus leaves a size alone until its window has passed
        (recordInitialRecommendation).
        """
        return self if self.recommendations else replace(self, recommendations=(Recommendation(at, replicas),))


def reuse(
    log: tuple[Recommendation, ...], new: Recommendation, old: Callable[[Recommendation], bool]
) -> tuple[Recommendation, ...]:
    """The log with a recommendation in the last slot that is `old`, or at the end."""
    slot = max((index for index, each in enumerate(log) if old(each)), default=len(log))
    return (*log[:slot], new, *log[slot + 1 :])


def longest_period(rules: ScalingRules) -> int:
    """Seconds after which a change of size counts for no policy any more; 0 without policies."""
    return max((policy.period_seconds for policy in rules.policies), default=0)


def change_within(events: tuple[ScaleEvent, ...], period_s: float, at: float) -> int:
    """Replicas by which the size changed in the last so many seconds (getReplicasChangePerPeriod)."""
    return sum(event.change for event in events if event.at > at - period_s)


def stored_event(events: tuple[ScaleEvent, ...], change: int, rules: ScalingRules, at: float) -> tuple[ScaleEvent, ...]:
    """The log of one direction with a change that was carried out just now (storeScaleEvent)."""
    cutoff = at - longest_period(rules)
    marked = [event._replace(outdated=event.outdated or event.at < cutoff) for event in events]
    slot = max((index for index, event in enumerate(marked) if event.outdated), default=len(marked))
    return (*marked[:slot], ScaleEvent(change, at), *marked[slot + 1 :])


def stored(history: History, behavior: Behavior | None, before: int, after: int, at: float) -> History:
    """The history once a change of size has been written; without behaviours none is kept, for none is used."""
    if behavior is None:
        return history
    if after > before:
        return replace(history, ups=stored_event(history.ups, after - before, behavior.scale_up, at))
    return replace(history, downs=stored_event(history.downs, before - after, behavior.scale_down, at))
