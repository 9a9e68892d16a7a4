# SPDX-License-Identifier: Apache-2.0
"""One turn of the controller for one target, in the order of Kubernetes' own, and what it says about it. Pure.

Source: horizontal.go, reconcileAutoscaler. What touches the API is left to the caller: reading the scale and its pods,
writing the size, and calling `written` once that has succeeded; a size that was not written is no event.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from kfp_volcano.elastic.policies.hpa.behavior import (
    DOWN_STABILISED,
    Bounds,
    limited,
    limited_plainly,
    stabilised,
    stabilised_plainly,
)
from kfp_volcano.elastic.policies.hpa.history import History, stored
from kfp_volcano.elastic.policies.hpa.replicas import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kfp_volcano.elastic.policies.hpa.metrics import Proposal
    from kfp_volcano.elastic.policies.hpa.replicas import Settings
    from kfp_volcano.schemas.hpa import HpaSpec

__all__ = ["Condition", "ConditionType", "Outcome", "reconcile", "written"]

ConditionType = Literal["ScalingActive", "AbleToScale", "ScalingLimited"]


class Condition(NamedTuple):
    """One of the three things an autoscaler says of itself."""

    status: Literal["True", "False"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a turn came to."""

    current: int
    desired: int
    conditions: Mapping[ConditionType, Condition]
    """Those that this turn set; others stay as they were."""
    history: History
    """What to remember; recommendations are remembered whether or not the size is written."""
    why: str = ""
    """Why the size is to change: which metric, or which bound."""
    proposal: Proposal | None = None
    """What the metrics called for; None where they were not asked."""
    error: str = ""
    """What is wrong with the metrics; the turn may have gone on without the one that is."""

    @property
    def rescales(self) -> bool:
        """Whether the size is to be written."""
        return self.desired != self.current


@dataclass
class _Turn:
    """A turn in the making."""

    spec: HpaSpec
    current: int
    at: float
    settings: Settings
    history: History
    conditions: dict[ConditionType, Condition] = field(default_factory=dict)

    def outcome(self, desired: int, why: str = "", proposed: Proposal | None = None) -> Outcome:
        return Outcome(
            current=self.current,
            desired=desired,
            conditions=self.conditions,
            history=self.history,
            why=why if desired != self.current else "",
            proposal=proposed,
            error=proposed.error if proposed else "",
        )

    def normalised(self, wanted: int) -> int:
        """The size within windows, rates and bounds; says of each whether it mattered."""
        bounds = Bounds(self.spec.min_replicas, self.spec.max_replicas)
        log, behavior = self.history.recommendations, self.spec.behavior
        if behavior is None:
            window = self.settings.down_window_s
            steady, log = stabilised_plainly(wanted, log, self.at, down_window_s=window)
            reason, message = DOWN_STABILISED
            result = limited_plainly(
                self.current, steady, bounds, factor=self.settings.up_factor, minimum=self.settings.up_minimum
            )
        else:
            steady, reason, message, log = stabilised(
                self.current, wanted, behavior, log, self.at, down_window_s=int(self.settings.down_window_s)
            )
            result = limited(self.current, steady, bounds, behavior, self.history, self.at)
        self.history = replace(self.history, recommendations=log)
        self.conditions["AbleToScale"] = (
            Condition("True", "ReadyForNewScale", "recommended size matches current size")
            if steady == wanted
            else Condition("True", reason, message)
        )
        self.conditions["ScalingLimited"] = Condition(
            "True" if result.replicas != steady else "False", result.reason, result.message
        )
        return result.replicas


def reconcile(
    spec: HpaSpec,
    current: int,
    proposed: Callable[[], Proposal],
    history: History,
    at: float,
    *,
    settings: Settings = DEFAULT,
) -> Outcome:
    """The size a target of `current` replicas should have at a moment, and why.

    A target of no replicas is left alone; one outside of its bounds goes to the nearest at once. Otherwise `proposed`
    is asked what the metrics call for, which windows, rates and bounds then limit.
    """
    turn = _Turn(spec, current, at, settings, history.begun(current, at))
    turn.conditions["AbleToScale"] = Condition(
        "True", "SucceededGetScale", "the HPA controller was able to get the target's current scale"
    )
    if current == 0 and spec.min_replicas != 0:
        message = "scaling is disabled since the replica count of the target is zero"
        turn.conditions["ScalingActive"] = Condition("False", "ScalingDisabled", message)
        return turn.outcome(0)
    if current > spec.max_replicas:
        return turn.outcome(spec.max_replicas, "Current number of replicas above Spec.MaxReplicas")
    if current < spec.min_replicas:
        return turn.outcome(spec.min_replicas, "Current number of replicas below Spec.MinReplicas")
    found = proposed()
    if found.replicas is None:
        failure = found.failures[0]
        message = f"the HPA was unable to compute the replica count: {failure.message}"
        turn.conditions["ScalingActive"] = Condition("False", failure.reason, message)
        return turn.outcome(current, proposed=found)
    message = f"the HPA was able to successfully calculate a replica count from {found.metric}"
    turn.conditions["ScalingActive"] = Condition("True", "ValidMetricFound", message)
    wanted = max(found.replicas, 0)  # a metric below zero calls for nothing
    why = f"{found.metric} above target" if wanted > current else "All metrics below target" if wanted < current else ""
    return turn.outcome(turn.normalised(wanted), why, found)


def written(outcome: Outcome, spec: HpaSpec, at: float, error: str = "") -> Outcome:
    """What a turn came to once its size was written, or could not be, for which there is an `error`."""
    if error:
        message = f"the HPA controller was unable to update the target scale: {error}"
        condition = Condition("False", "FailedUpdateScale", message)
        history = outcome.history
    else:
        message = f"the HPA controller was able to update the target scale to {outcome.desired}"
        condition = Condition("True", "SucceededRescale", message)
        history = stored(outcome.history, spec.behavior, outcome.current, outcome.desired, at)
    return replace(outcome, conditions={**outcome.conditions, "AbleToScale": condition}, history=history)
