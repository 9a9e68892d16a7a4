# SPDX-License-Identifier: Apache-2.0
"""One turn of the controller: what it asks, in which order, what it says of itself and what it remembers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pytest

from kfp_volcano.elastic.policies.hpa.controller import Outcome, reconcile, written
from kfp_volcano.elastic.policies.hpa.history import History, ScaleEvent
from kfp_volcano.elastic.policies.hpa.metrics import Proposal, proposal
from kfp_volcano.elastic.policies.hpa.pods import Container, MetricsError, Pod, PodSample
from kfp_volcano.elastic.policies.hpa.replicas import Calculator, Settings, Tolerance
from kfp_volcano.elastic.policies.memory import Recommendation
from kfp_volcano.schemas.hpa import HpaSpec
from kfp_volcano.schemas.hpa_validation import hpa_block

NOW = 1_000_000.0
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


def external(name: str, **target: Any) -> dict[str, Any]:
    """An external metric with a target."""
    kind = "AverageValue" if "averageValue" in target else "Value"
    return {"type": "External", "external": {"metric": {"name": name}, "target": {"type": kind, **target}}}


@dataclass
class Known:
    """Metrics that are known, in thousandths; others are not."""

    cpu: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)

    def resource(self, name: str, container: str) -> Any:
        return {pod: PodSample(value, NOW) for pod, value in self.cpu.items()}

    def pods(self, name: str, selector: Any) -> Any:
        return self.resource(name, "")

    def object(self, described: Any, name: str, selector: Any) -> int:
        return self.external(name, selector)[0]

    def external(self, name: str, selector: Any) -> list[int]:
        if name not in self.others:
            raise MetricsError("it is not known")
        return [self.others[name]]


def turn(spec: HpaSpec, current: int, known: Known, history: History | None = None) -> Outcome:
    """One turn for pods that ask for a CPU each and are ready."""
    asked = (Container(name="main", requests=MappingProxyType({"cpu": 1000})),)
    calculator = Calculator(
        current=current,
        status=current,
        pods=[Pod(name=str(index), started_at=0.0, containers=asked) for index in range(current)],
        at=NOW,
        tolerance=Tolerance.of(spec.behavior, Settings()),
    )
    return reconcile(spec, current, lambda: proposal(spec.metrics, calculator, known), history or History(), NOW)


def spec(*metrics: Any, **more: Any) -> HpaSpec:
    """Between 2 and 10 replicas, by these metrics."""
    return hpa_block({"minReplicas": 2, "maxReplicas": 10, "metrics": list(metrics), **more})


def busy(*percents: int) -> Known:
    """Pods that use so many percent of a CPU."""
    return Known(cpu={str(index): percent * 10 for index, percent in enumerate(percents)})


def never() -> Proposal:
    """For turns that are to ask no metric."""
    raise AssertionError


@pytest.mark.parametrize(
    ("current", "desired", "why"), [(12, 10, "above Spec.Max"), (1, 2, "below Spec.Min"), (0, 0, "")]
)
def test_hpa_a_size_out_of_range_is_put_right_at_once(current: int, desired: int, why: str) -> None:
    """No metric is asked and no window waited for; but what has no replicas is switched off."""
    outcome = reconcile(spec(CPU, behavior={}), current, never, History(), NOW)
    assert outcome.desired == desired
    assert why in outcome.why
    assert outcome.rescales == (current != 0)
    if not current:
        assert outcome.conditions["ScalingActive"].reason == "ScalingDisabled"


def test_hpa_the_metric_that_calls_for_most_decides() -> None:
    """And is named."""
    known = Known(cpu=dict.fromkeys("01234", 500), others={"queue": 8000})
    outcome = turn(spec(CPU, external("queue", averageValue="1")), 5, known)
    assert outcome.desired == 8
    assert outcome.why == "external metric queue above target"
    assert outcome.conditions["ScalingActive"] == (
        "True",
        "ValidMetricFound",
        "the HPA was able to successfully calculate a replica count from external metric queue",
    )


def test_hpa_on_partial_data_it_grows_but_never_shrinks() -> None:
    """A metric that cannot be had may be the one that calls for more."""
    both = spec(CPU, external("absent", value="1"))
    grows, shrinks = turn(both, 4, busy(90, 90, 90, 90)), turn(both, 4, busy(10, 10, 10, 10))
    assert (grows.desired, shrinks.desired) == (8, 4)
    assert grows.conditions["ScalingActive"].reason == "ValidMetricFound"
    assert shrinks.conditions["ScalingActive"].reason == "FailedGetExternalMetric"
    words = "invalid metrics (1 invalid out of 2), first error is: failed to get absent external metric value: "
    assert grows.error == shrinks.error == f"{words}it is not known"


def test_hpa_without_any_metric_nothing_changes() -> None:
    """And no recommendation is remembered beside the first, which is the present size."""
    outcome = turn(spec(CPU), 4, Known())
    assert not outcome.rescales
    assert outcome.conditions["ScalingActive"].reason == "FailedGetResourceMetric"
    assert outcome.history.recommendations == (Recommendation(NOW, 4),)


def test_hpa_a_controller_that_begins_does_not_shrink_for_a_window() -> None:
    """For it does not know what was recommended before; growing it does at once."""
    assert turn(spec(CPU), 8, busy(*[10] * 8)).desired == 8
    assert turn(spec(CPU), 4, busy(*[90] * 4)).desired == 8
    before = History(recommendations=(Recommendation(NOW - 301, 8),))
    assert turn(spec(CPU), 8, busy(*[10] * 8), before).desired == 2


def test_hpa_conditions_say_what_held_a_size_back() -> None:
    """The window, the rate, the range, each in Kubernetes' words."""
    held = turn(spec(CPU, behavior={}), 8, busy(*[10] * 8))
    assert held.conditions["AbleToScale"].reason == "ScaleDownStabilized"
    slow = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    limited = turn(spec(CPU, behavior=slow), 4, busy(*[90] * 4))
    assert limited.desired == 5
    assert limited.conditions["ScalingLimited"][:2] == ("True", "ScaleUpLimit")
    full = turn(spec(CPU, behavior={}), 9, busy(*[99] * 9))
    assert full.conditions["ScalingLimited"][:2] == ("True", "TooManyReplicas")
    fine = turn(spec(CPU, behavior={}), 4, busy(*[50] * 4))
    assert [fine.conditions[kind].reason for kind in ("AbleToScale", "ScalingLimited")] == [
        "ReadyForNewScale",
        "DesiredWithinRange",
    ]


def test_hpa_each_direction_has_its_tolerance() -> None:
    """Ten percent where a behavior does not say."""
    narrow = {"scaleUp": {"tolerance": "0.01"}}
    assert turn(spec(CPU), 4, busy(54, 54, 54, 54)).desired == 4
    assert turn(spec(CPU, behavior=narrow), 4, busy(54, 54, 54, 54)).desired == 5
    old = History(recommendations=(Recommendation(NOW - 301, 4),))
    assert turn(spec(CPU, behavior=narrow), 4, busy(46, 46, 46, 46), old).desired == 4


def test_hpa_an_event_is_kept_only_of_a_size_that_was_written() -> None:
    """A write that fails leaves the rate as it was, and says so."""
    by = spec(CPU, behavior={})
    outcome = turn(by, 4, busy(*[90] * 4))
    done, failed = written(outcome, by, NOW), written(outcome, by, NOW, error="conflict")
    assert done.history.ups == (ScaleEvent(4, NOW),)
    assert done.conditions["AbleToScale"].reason == "SucceededRescale"
    assert failed.history == outcome.history
    assert failed.conditions["AbleToScale"][:2] == ("False", "FailedUpdateScale")
    assert written(outcome, spec(CPU), NOW).history.ups == ()
    assert len(done.history.recommendations) == len(failed.history.recommendations) == 2


@pytest.mark.parametrize("kind", ["Resource", "ContainerResource", "Pods", "Object", "External"])
def test_hpa_a_metric_that_cannot_be_had_is_named_by_its_type(kind: str) -> None:
    """In the condition's reason; what it was is in its message."""
    described = {"kind": "Queue", "name": "research"}
    metric = {"name": "gpus-idle"}
    average = {"type": "AverageValue", "averageValue": 1}
    sources: dict[str, dict[str, Any]] = {
        "Resource": {"resource": {"name": "cpu", "target": average}},
        "ContainerResource": {"containerResource": {"name": "cpu", "container": "main", "target": average}},
        "Pods": {"pods": {"metric": metric, "target": average}},
        "Object": {"object": {"describedObject": described, "metric": metric, "target": {"type": "Value", "value": 1}}},
        "External": {"external": {"metric": metric, "target": average}},
    }
    outcome = turn(spec({"type": kind, **sources[kind]}), 4, Known())
    active = outcome.conditions["ScalingActive"]
    assert active[:2] == ("False", f"FailedGet{kind}Metric")
    assert active.message.startswith("the HPA was unable to compute the replica count: ")


def test_hpa_a_size_of_zero_ignores_tolerance_and_readiness() -> None:
    """There are no replicas to go by: the ratio itself is the number."""
    whole = replace(spec(external("queue", value="10")), min_replicas=0)
    assert turn(whole, 0, Known(others={"queue": 10_500})).desired == 2
    assert turn(whole, 0, Known(others={"queue": 0})).desired == 0
