# SPDX-License-Identifier: Apache-2.0
"""HorizontalPodAutoscalers: what manifests and blocks of Policies are read as, and all that is wrong with them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.hpa import DEFAULT_DOWN, DEFAULT_METRICS, DEFAULT_UP, HpaSpec, ScalingPolicy, Selector, milli
from kfp_volcano.schemas.hpa_validation import hpa_block, hpa_block_findings, hpa_manifest
from kfp_volcano.schemas.policy_validation import policy

MANIFEST = yaml.safe_load("""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: front, creationTimestamp: null, labels: {team: web}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: front}
  minReplicas: 2
  maxReplicas: 10
  metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
    - type: ContainerResource
      containerResource: {name: memory, container: app, target: {type: AverageValue, averageValue: 1500Mi}}
    - {type: Pods, pods: {metric: {name: packets-per-second}, target: {type: AverageValue, averageValue: 1k}}}
    - type: Object
      object:
        metric: {name: requests-per-second}
        describedObject: {apiVersion: networking.k8s.io/v1, kind: Ingress, name: main-route}
        target: {type: Value, value: 10k}
    - type: External
      external:
        metric: {name: ready, selector: {matchLabels: {queue: worker}}}
        target: {type: AverageValue, averageValue: "30"}
  behavior:
    scaleDown: {stabilizationWindowSeconds: 60, tolerance: 0.05}
    scaleUp: {selectPolicy: Min, policies: [{type: Percent, value: 100, periodSeconds: 15}]}
status: {currentReplicas: 1}
""")
QUEUE = {
    "type": "Object",
    "object": {
        "describedObject": {"kind": "Queue", "name": "research"},
        "metric": {"name": "gpu-share-in-use"},
        "target": {"type": "Value", "value": "900m"},
    },
}


def problems(value: Any, read: Any = hpa_manifest) -> list[str]:
    """Paths of all that is wrong."""
    with pytest.raises(SpecError) as raised:
        read(value)
    assert all(each.remedy or each.message for each in raised.value.problems)
    return sorted(each.path for each in raised.value.problems)


def changed(**spec: Any) -> dict[str, Any]:
    """The manifest with other values in its spec."""
    manifest = copy.deepcopy(MANIFEST)
    manifest["spec"].update(spec)
    return manifest


def test_hpa_every_kind_of_metric_is_read() -> None:
    """With quantities in thousandths, and what else the manifest says."""
    read = hpa_manifest(MANIFEST)
    resource, container, pods, thing, outside = read.metrics
    assert resource.resource.target.average_utilization == 50
    assert container.container_resource.target.average_value == 1500 * 2**20 * 1000
    assert pods.pods.target.average_value == 1_000_000
    assert thing.object.target.value == 10_000_000
    assert outside.external.metric.selector == Selector(match_labels={"queue": "worker"})
    assert (read.min_replicas, read.max_replicas, read.scale_target_ref.kind) == (2, 10, "Deployment")


def test_hpa_what_is_not_said_is_what_kubernetes_takes_it_for() -> None:
    """Each direction by itself, and nothing at all where there is no behavior."""
    read = hpa_manifest(MANIFEST).behavior
    assert (read.scale_down.policies, read.scale_down.select_policy) == (DEFAULT_DOWN.policies, "Max")
    assert (read.scale_down.tolerance, read.scale_down.stabilization_window_seconds) == (0.05, 60)
    assert read.scale_up.stabilization_window_seconds == 0
    assert read.scale_up.policies == (ScalingPolicy(type="Percent", value=100, period_seconds=15),)
    bare = hpa_manifest(changed(behavior={}))
    assert (bare.behavior.scale_up, bare.behavior.scale_down) == (DEFAULT_UP, DEFAULT_DOWN)
    least = {"scaleTargetRef": MANIFEST["spec"]["scaleTargetRef"], "maxReplicas": 3, "behavior": None}
    assert hpa_manifest({**MANIFEST, "spec": least}) == HpaSpec(
        max_replicas=3, scale_target_ref=hpa_manifest(MANIFEST).scale_target_ref, metrics=DEFAULT_METRICS
    )


def test_hpa_all_that_is_wrong_is_told_at_once() -> None:
    """Each with its place, as the API server's own rules have it."""
    rules = {"policies": [{"type": "pods", "value": 0, "periodSeconds": 1801}], "tolerance": -1, "selectPolicy": "max"}
    both = {"type": "Value", "value": 1, "averageValue": 1}
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Foo", "averageUtilization": 0}}},
        {"type": "Pods", "pods": {"metric": {"name": "a/b"}, "target": {"type": "Value", "value": 0}}},
        {"type": "Object", "external": {"metric": {"name": "x"}, "target": {"type": "Value", "value": 1}}},
        {"type": "External", "external": {"metric": {"name": "x"}, "target": both}},
    ]
    manifest = changed(
        scaleTargetRef={"apiVersion": "v1", "kind": "Job", "name": ".."},
        minReplicas=0,
        maxReplicas="10",
        metrics=metrics,
        behavior={"scaleUp": rules, "scaleDown": {"policies": [], "stabilizationWindowSeconds": 3601}},
        replicas=3,
    )
    assert problems(manifest) == sorted(
        [
            "spec.scaleTargetRef.name",
            "spec.scaleTargetRef.apiVersion",
            "spec.minReplicas",
            "spec.maxReplicas",
            "spec.replicas",
            "spec.metrics[0].resource.target.type",
            "spec.metrics[0].resource.target.averageUtilization",
            "spec.metrics[1].pods.metric.name",
            "spec.metrics[1].pods.target.averageValue",
            "spec.metrics[1].pods.target.value",
            "spec.metrics[2].object",
            "spec.metrics[2].external",
            "spec.metrics[3].external.target.averageValue",
            "spec.behavior.scaleUp.policies[0].type",
            "spec.behavior.scaleUp.policies[0].value",
            "spec.behavior.scaleUp.policies[0].periodSeconds",
            "spec.behavior.scaleUp.tolerance",
            "spec.behavior.scaleUp.selectPolicy",
            "spec.behavior.scaleDown.policies",
            "spec.behavior.scaleDown.stabilizationWindowSeconds",
        ]
    )


def test_hpa_a_range_the_wrong_way_round_is_refused() -> None:
    """Also where the least is Kubernetes' default."""
    assert problems(changed(minReplicas=5, maxReplicas=3)) == ["spec.maxReplicas"]
    assert hpa_manifest(changed(minReplicas=3, maxReplicas=3)).max_replicas == 3


def test_hpa_a_containers_resource_is_one_that_containers_have() -> None:
    """Or has a domain in its name."""

    def of(name: str) -> dict[str, Any]:
        source = {"name": name, "container": "app", "target": {"type": "AverageValue", "averageValue": 1}}
        return changed(metrics=[{"type": "ContainerResource", "containerResource": source}])

    assert problems(of("pods")) == ["spec.metrics[0].containerResource.name"]
    assert hpa_manifest(of("nvidia.com/gpu"))


def test_hpa_a_block_has_a_manifests_keys_and_needs_no_range() -> None:
    """Its metrics are of a queue that the autoscaler knows, and none is taken for granted."""
    read = hpa_block({"metrics": [QUEUE]})
    assert read.metrics[0].object.target.value == 900
    assert (read.min_replicas, read.max_replicas) == (1, 2**31 - 1)
    assert problems({}, hpa_block) == ["metrics"]
    assert problems({"metrics": []}, hpa_block) == ["metrics"]
    other = copy.deepcopy(QUEUE)
    other["object"]["metric"]["name"] = "gpus-in-us"
    other["object"]["target"] = {"type": "AverageValue", "averageValue": 1}
    assert problems({"metrics": [other]}, hpa_block) == [
        "metrics[0].object.metric.name",
        "metrics[0].object.target.type",
    ]
    other["object"]["describedObject"]["kind"] = "Ingress"
    assert [each.path[-1] for each in hpa_block_findings({"metrics": [other]})] == ["kind"]


def test_hpa_a_policy_says_where_its_block_is_wrong() -> None:
    """In the spec and in each arm, whose block is filled up from the spec's."""
    document = {"apiVersion": "kfp-volcano/v1", "kind": "Policy", "metadata": {"name": "p"}}
    arms = [{"name": "a", "hpa": {"maxReplicas": 0}}, {"name": "b", "policy": "hpa", "hpa": {"maxReplicas": 4}}]
    wrong = {**document, "spec": {"queues": ["q"], "hpa": {"metrics": [QUEUE], "behaviour": {}}, "arms": arms}}
    assert [path for path in problems(wrong, policy) if "arms" not in path] == ["spec.hpa.behaviour"]
    assert "spec.arms[0].hpa.maxReplicas" in problems(wrong, policy)
    right = policy({**document, "spec": {"queues": ["q"], "policy": "hpa", "hpa": {"metrics": [QUEUE]}}})
    assert right.policy == "hpa"


def test_hpa_a_manifest_is_a_policy_of_the_queue_it_scales() -> None:
    """Of another target it can be the block of a Policy that names queues, as it is."""
    queue = changed(scaleTargetRef={"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "research"})
    read = policy(queue)
    assert (read.name, read.queues, read.policy) == ("front", ("research",), "hpa")
    assert hpa_block(read.blocks["hpa"]) == hpa_manifest(queue)
    assert problems(MANIFEST, policy) == ["spec.scaleTargetRef.kind"]
    block = {"queues": ["research"], "policy": "hpa", "hpa": MANIFEST}
    document = {"apiVersion": "kfp-volcano/v1", "kind": "Policy", "metadata": {"name": "p"}, "spec": block}
    assert hpa_block(policy(document).blocks["hpa"]) == hpa_manifest(MANIFEST)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1000), (2, 2000), ("1500m", 1500), ("1.5", 1500), ("1u", 1), ("1Ki", 1024_000), ("9E", 2**63 - 1)],
)
def test_hpa_quantities_are_thousandths_rounded_up(text: Any, expected: int) -> None:
    """And no more than 64 bits hold."""
    assert milli(text) == expected
