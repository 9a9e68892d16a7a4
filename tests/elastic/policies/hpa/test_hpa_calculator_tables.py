# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own cases of its replica calculator, each a test, replayed on the calculator here.

The cases are public data that the repository does not contain (`data/k8s-hpa-tables` of the shared folder; its README
says how they are to be read): without it there is one skipped test for each table.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from kfp_volcano.elastic.policies.hpa.pods import (
    Container,
    MetricsError,
    Pod,
    PodSample,
    grouped,
    requested,
)
from kfp_volcano.elastic.policies.hpa.replicas import Calculator, Settings, Tolerance, external_total
from kfp_volcano.schemas.hpa import milli

ROOT = Path(__file__).resolve().parents[4]
SHARED = Path(os.environ.get("KFP_VOLCANO_SHARED", ROOT.parent / "shared"))
TABLES = SHARED / "data/k8s-hpa-tables/replica_calculator_cases.json"
NOW = 1_000_000.0
SETTINGS = Settings(cpu_initialisation_s=120, readiness_s=10)
"""Of Kubernetes' own tests."""
RESOURCES = {"ResourceCPU": "cpu", "ResourceMemory": "memory"}
STARTED = {"hot(now)": NOW, "cool(now-3m)": NOW - 180}
COMPUTED = "TestReplicaCalcComputedToleranceAlgImplementation"


def cases() -> dict[str, Any]:
    """All tables by the name of their test; empty where they are absent."""
    if not TABLES.is_file():
        return {}
    found = json.loads(TABLES.read_text(encoding="utf-8"))["cases"]
    return {name.partition(":")[2]: case["data"] for name, case in found.items()}


def parameters(found: dict[str, Any]) -> list[Any]:
    """Cases as parameters with their names; one that is skipped where there are none."""
    if not found:
        reason = f"Kubernetes' cases are absent: {TABLES} (set KFP_VOLCANO_SHARED)"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="hpa-absent")]
    return [pytest.param(case, id=f"hpa-{name}") for name, case in found.items()]


def calculations() -> dict[str, Any]:
    """The cases with one calculation each; the one that is computed upstream has a test of its own."""
    found: dict[str, Any] = {}
    for name, case in cases().items():
        if isinstance(case, dict) and name != COMPUTED:
            found[name] = case
        if name == "TestReplicaCalcConfigurableTolerance":
            for each in case:
                own = {key: value for key, value in each.items() if key != "replicaCalcTestCase"}
                found[f"{name}-{each['name']}"] = {**own, **each["replicaCalcTestCase"]}
    return found


def rows(name: str) -> list[Any]:
    """The rows of a table as parameters."""
    return parameters({f"{name}-{row['name']}": row for row in cases().get(name, ())})


def pods(case: dict[str, Any]) -> list[Pod]:
    """The pods of a case, as prepareTestClientSet of the tests makes them: two containers that ask for the same."""
    resource = case.get("resource") or {}
    requests, phases = resource.get("requests") or [], case.get("podPhase") or []
    readiness, starts = case.get("podReadiness") or [], case.get("podStartTime") or []
    going = case.get("podDeletionTimestamp") or []

    def one(index: int) -> Pod:
        asked = {RESOURCES[resource["name"]]: milli(requests[index])} if index < len(requests) else {}
        return Pod(
            name=f"test-pod-{index}",
            phase=phases[index].removeprefix("Pod") if phases else "Running",
            terminating=bool(going and going[index]),
            ready=readiness[index].removeprefix("Condition") if index < len(readiness) else "True",
            started_at=STARTED[starts[index]] if starts else 0.0,
            containers=(Container(name="container1", requests=asked), Container(name="container2", requests=asked)),
        )

    return [one(index) for index in range(max(case["currentReplicas"], len(phases)))]


def samples(case: dict[str, Any]) -> dict[str, PodSample]:
    """What each pod uses, of all or of one container; a pod of which a part is unknown has none."""
    resource, container, found = case["resource"], case.get("container", ""), {}
    for index, levels in enumerate(resource["levels"] or ()):
        named = resource.get("podNames") or []
        name = named[index] if index < len(named) else f"test-pod-{index}"
        by_name = {f"container{number}": level for number, level in enumerate(levels, start=1)}
        if container in by_name:
            found[name] = PodSample(by_name[container])
        elif not container and len(levels) == 2:
            found[name] = PodSample(sum(levels))
    return found


def calculator(case: dict[str, Any]) -> Calculator:
    """What is to be scaled in a case."""
    down, up = case.get("tolerances", (0.1, 0.1))
    current = case["currentReplicas"]
    return Calculator(
        current=current, status=current, pods=pods(case), at=NOW, tolerance=Tolerance(down, up), settings=SETTINGS
    )


@pytest.mark.parametrize("case", parameters(calculations()))
def test_hpa_calculator(case: dict[str, Any]) -> None:
    """A metric gives the number of replicas, and the usage, that Kubernetes' own calculator gives."""
    target, error = calculator(case), case.get("expectedError")
    if "resource" in case:
        wanted, resource = case["resource"], RESOURCES[case["resource"]["name"]]
        if error:
            with pytest.raises(MetricsError, match=error):
                target.by_utilisation(wanted["targetUtilization"], samples(case), resource, case.get("container", ""))
            return
        found = target.by_utilisation(wanted["targetUtilization"], samples(case), resource, case.get("container", ""))
        expected = (case["expectedReplicas"], wanted.get("expectedUtilization", 0), wanted.get("expectedValue", 0))
        assert (found.replicas, found.utilisation, found.usage) == expected
        return
    metric = case["metric"]
    levels = metric["levels"]
    match metric.get("metricType", "$objectMetric"):
        case "$objectMetric":
            found = target.by_total(metric["targetUsage"], levels[0])
        case "$objectPerPodMetric":
            found = target.by_average(metric["perPodTargetUsage"], levels[0])
        case "$externalMetric":
            found = target.by_total(metric["targetUsage"], external_total(levels))
        case "$externalPerPodMetric":
            found = target.by_average(metric["perPodTargetUsage"], external_total(levels))
        case "$podMetric":
            each = {f"test-pod-{index}": PodSample(level) for index, level in enumerate(levels)}
            found = target.by_usage(metric["targetUsage"], each)
    assert (found.replicas, found.usage) == (case["expectedReplicas"], metric.get("expectedUsage", 0))


@pytest.mark.parametrize("case", parameters({COMPUTED: cases()[COMPUTED]} if cases() else {}))
@pytest.mark.parametrize(("beyond", "scales"), [(0.01, True), (0.004, False)])
def test_hpa_calculator_near_its_tolerance(case: dict[str, Any], beyond: float, scales: bool) -> None:
    """Just beyond the tolerance a size changes, just within it does not; the case's figures are computed, not data."""
    used, asked, pods_ = 150 * 10, 2 * 150 * 10, 10
    share = 1 / (2 * (1 - 0.1)) + beyond
    requests = [asked // pods_ + jitter for jitter in (100, -100, 10, -10, 2, -2, 1, -1, 0, 0)]
    resource = {
        "name": case["resource"]["name"],
        "levels": [[used // 10] * 2] * pods_,
        "requests": [f"{each}m" for each in requests],
    }
    target = calculator({"currentReplicas": pods_, "resource": resource})
    found = target.by_utilisation(int(share * 100), samples({"resource": resource}), "cpu")
    assert found.replicas == (math.ceil(used / (asked * share) * pods_) if scales else pods_)
    assert (found.utilisation, found.usage) == (used * 100 // asked, 2 * used // 10)


def pod_of(value: dict[str, Any]) -> Pod:
    """A pod as TestGroupPods writes it."""
    status, metadata = value.get("Status", {}), value["ObjectMeta"]
    ready = next(iter(status.get("Conditions") or ()), None)
    start = status.get("StartTime")
    return Pod(
        name=metadata["Name"],
        phase=status.get("Phase", "").removeprefix("Pod"),
        terminating="DeletionTimestamp" in metadata,
        ready=ready["Status"].removeprefix("Condition") if ready else None,
        ready_since=NOW + ready["LastTransitionTime"]["Time"]["now_plus_s"] if ready else 0.0,
        started_at=None if start is None else NOW + start["Time"]["now_plus_s"],
    )


@pytest.mark.parametrize("row", rows("TestGroupPods"))
def test_hpa_pods_are_grouped(row: dict[str, Any]) -> None:
    """What counts, what is not ready, of what nothing is known, and what is going, as Kubernetes tells them apart."""
    known = {
        name: PodSample(
            each["Value"],
            NOW + each["Timestamp"]["now_plus_s"] if "Timestamp" in each else 0.0,
            each.get("Window", 0.0),
        )
        for name, each in (row["metrics"] or {}).items()
    }
    found = grouped(
        map(pod_of, row["pods"]), known, RESOURCES[row["resource"]], NOW, cpu_initialisation_s=120, readiness_s=10
    )
    sets = [set(row[f"expect{kind}Pods"]["args"] or ()) for kind in ("Unready", "Missing", "Ignored")]
    assert [found.unready, found.missing, found.ignored] == sets
    assert found.ready == row["expectReadyPodCount"]


ASKED = {"container1": 100, "container2": 50, "restartable-container1": 50, "init-container1": 100}
"""What the containers of TestCalculateRequests ask for, which the data leaves out; 800 where a pod asks itself."""


@pytest.mark.parametrize("row", rows("TestCalculateRequests"))
def test_hpa_requests(row: dict[str, Any]) -> None:
    """What pods ask for is what they say themselves, or else the sum of what runs in them all the time."""
    found = []
    for pod in row["pods"]:
        spec = pod["Spec"]
        lasting = [each for each in spec.get("InitContainers", ()) if "RestartPolicy" in each]
        containers = tuple(
            Container(name=each["Name"], requests={"cpu": ASKED[each["Name"]]} if "Resources" in each else {})
            for each in [*spec["Containers"], *lasting]
        )
        found.append(Pod(name="testPod", containers=containers, requests={"cpu": 800} if "Resources" in spec else {}))
    if row["expectedError"]:
        with pytest.raises(MetricsError, match="missing request for cpu in container container1 of Pod testPod"):
            requested(found, row["container"], "cpu")
    else:
        assert requested(found, row["container"], "cpu") == dict(row["expectedRequests"] or {})
