# SPDX-License-Identifier: Apache-2.0
"""Refusals of the model are those of Volcano's webhooks to the letter: what is read here is what a cluster says."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model.admission import admit_create, admit_update


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "Queue", "metadata": {"name": name}, "spec": spec, "status": {"state": "Open"}}


OBJECTS = {"Queue": {("", "default"): queue("default")}}


def task(name: str = "w", **fields: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"name": name, "replicas": 2, "template": template, **fields}


def job(*tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"name": "job", "namespace": "default"}
    spec = {"tasks": list(tasks) or [task()], **spec}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}


def container(**fields: Any) -> dict[str, Any]:
    return job(task(template={"spec": {"containers": [{"name": "c", "image": "i", **fields}]}}))


def pod(**fields: Any) -> dict[str, Any]:
    return job(task(template={"spec": {"containers": [{"name": "c", "image": "i"}], **fields}}))


GPU = "nvidia.com/gpu"
IN_CONTAINER = "spec.task[0].template.spec.containers[0]"
SENTENCES = {
    "MPI without a master": (job(plugins={"mpi": []}), "The specified mpi master task was not found"),
    "tier named twice": (
        job(networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"}),
        "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously",
    ),
    "two faults in order": (
        job(task(minAvailable=3), queue="nowhere"),
        (
            "'minAvailable' is greater than 'replicas' in task: w, job: job; job 'minAvailable' should not be greater"
            ' than total replicas in tasks; unable to find job queue: queue.scheduling.volcano.sh "nowhere" not found;'
        ),
    ),
    "partitions": (
        job(task(partitionPolicy={"totalPartitions": 2, "partitionSize": 2})),
        "'Replicas' are not equal to TotalPartitions*PartitionSize in task: w, job: job",
    ),
    "least partitions": (
        job(task(minAvailable=2, partitionPolicy={"totalPartitions": 2, "partitionSize": 1, "minPartitions": 1})),
        "'MinAvailable' is not equal to MinPartitions*PartitionSize in task: w, job: job",
    ),
    "name of a claim": (
        job(volumes=[{"mountPath": "/a", "volumeClaimName": "A"}]),
        (
            "invalid VolumeClaimName A : [a lowercase RFC 1123 subdomain must consist of lower case alphanumeric"
            " characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex"
            r" used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')]"
        ),
    ),
    "no image": (container(image=""), f"{IN_CONTAINER}.image: Required value."),
    "pull policy": (
        container(imagePullPolicy="Daily"),
        (
            f'{IN_CONTAINER}.imagePullPolicy: Unsupported value: "Daily": supported values: "Always", "IfNotPresent",'
            ' "Never".'
        ),
    ),
    "device asked for without a limit": (
        container(resources={"requests": {GPU: "1"}}),
        f"{IN_CONTAINER}.resources.limits: Required value: Limit must be set for non overcommitable resources.",
    ),
    "part of a device": (
        container(resources={"limits": {GPU: "500m"}}),
        f'{IN_CONTAINER}.resources.limits[{GPU}]: Invalid value: "500m": must be an integer.',
    ),
    "more than the limit": (
        container(resources={"requests": {"cpu": "1500m"}, "limits": {"cpu": "1.0"}}),
        f'{IN_CONTAINER}.resources.requests: Invalid value: "1500m": must be less than or equal to cpu limit of 1.',
    ),
    "half a page": (
        container(resources={"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
        (
            f'{IN_CONTAINER}.resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer'
            " multiple of hugepages-2Mi."
        ),
    ),
    "variable with two values": (
        container(env=[{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        f'{IN_CONTAINER}.env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty.',
    ),
    "ports of one name": (
        container(ports=[{"name": "p", "containerPort": 1}, {"name": "p", "containerPort": 2}]),
        f'{IN_CONTAINER}.ports[1].name: Duplicate value: "p".',
    ),
    "mount of no volume": (
        container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        f'{IN_CONTAINER}.volumeMounts[0].name: Not found: "v".',
    ),
    "volume of two kinds": (
        pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
        "spec.task[0].template.spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type.",
    ),
    "restart policy": (
        pod(restartPolicy="Sometimes"),
        (
            'spec.task[0].template.spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always",'
            ' "OnFailure", "Never".'
        ),
    ),
    "toleration of nothing": (
        pod(tolerations=[{"operator": "Equal", "value": "x"}]),
        (
            'spec.task[0].template.spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when'
            ' `key` is empty, which means "match all values and all keys".'
        ),
    ),
    "affinity to nothing": (
        pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
        (
            "spec.task[0].template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms: Required value: must have at least one node selector term."
        ),
    ),
}
"""Manifests, and what the validating webhook says of them, to the letter."""


@pytest.mark.parametrize("case", SENTENCES)
def test_refusals_are_in_the_words_of_the_webhook(case: str) -> None:
    """The whole message of a refusal is the one that a real cluster answers."""
    manifest, sentence = SENTENCES[case]
    with pytest.raises(InvalidError) as refused:
        admit_create(manifest, OBJECTS)
    assert str(refused.value) == f'admission webhook "validatejob.volcano.sh" denied the request: {sentence}'


UNREADABLE = {
    "text for a number": (
        job(minSuccess="x"),
        "cannot unmarshal string into Go struct field JobSpec.spec.minSuccess of type int32",
    ),
    "text in a task": (
        job(task(replicas="2")),
        "cannot unmarshal string into Go struct field TaskSpec.spec.tasks.replicas of type int32",
    ),
    "part of a replica": (
        job(task(replicas=1.5)),
        "cannot unmarshal number 1.5 into Go struct field TaskSpec.spec.tasks.replicas of type int32",
    ),
    "one task": (
        job(tasks={"name": "w"}),
        "cannot unmarshal object into Go struct field JobSpec.spec.tasks of type []v1alpha1.TaskSpec",
    ),
    "text for a flag": (
        queue("q", reclaimable="yes"),
        "cannot unmarshal string into Go struct field QueueSpec.spec.reclaimable of type bool",
    ),
}
"""Manifests that Go cannot read, and what it says."""


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_told_as_go_tells_it(case: str) -> None:
    """The webhook that fills in defaults comes first, and fails on the first value that is not of its field's type."""
    manifest, sentence = UNREADABLE[case]
    with pytest.raises(InvalidError) as refused:
        admit_create(manifest, OBJECTS)
    webhook = f"mutate{manifest['kind'].lower()}.volcano.sh"
    assert str(refused.value) == f'admission webhook "{webhook}" denied the request: json: {sentence}'


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (job(policies=[{"event": "PodFailed", "action": "RestartJob", "timeout": "x"}]), 'time: invalid duration "x"'),
        (queue("q", capability={"cpu": "many"}), "quantities must match the regular expression"),
    ],
)
def test_durations_and_quantities_are_read_first(manifest: dict[str, Any], sentence: str) -> None:
    """What is neither is refused by the webhook that fills in defaults, too."""
    with pytest.raises(InvalidError, match=sentence) as refused:
        admit_create(manifest, OBJECTS)
    assert "mutate" in str(refused.value)


def test_the_action_on_an_exit_code_is_not_looked_at() -> None:
    """Volcano takes any word for the action of a policy on an exit code, and a sync is what it does then."""
    assert admit_create(job(policies=[{"exitCode": 3, "action": "Nonsense"}]), OBJECTS)


def test_a_pod_on_the_hosts_network_asks_the_cluster_for_names() -> None:
    """The webhook sets the DNS policy that a pod on the host's network needs, unless it has one."""
    spec = admit_create(pod(hostNetwork=True), OBJECTS)["spec"]
    assert spec["tasks"][0]["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_volumes_of_no_kind_are_empty_directories() -> None:
    """Kubernetes makes such a volume an emptyDir, so that it can be mounted."""
    manifest = pod(volumes=[{"name": "v"}])
    manifest["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "v", "mountPath": "/v"}
    ]
    assert admit_create(manifest, OBJECTS)


def test_a_part_of_a_device_is_no_share() -> None:
    """A queue has whole GPUs."""
    with pytest.raises(InvalidError, match=r'capability\.nvidia\.com/gpu: Invalid value: "500m": must be an integer'):
        admit_create(queue("q", capability={GPU: "500m"}), OBJECTS)


def test_no_queue_lies_within_another() -> None:
    """By the annotations of hierarchical DRF, a queue is a leaf."""
    taken = queue("taken")
    taken["metadata"]["annotations"] = {"volcano.sh/hierarchy": "root/a/b", "volcano.sh/hierarchy-weights": "1/1/1"}
    above = queue("above")
    above["metadata"]["annotations"] = {"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1/1"}
    with pytest.raises(InvalidError, match="root/a is not allowed to be in the sub path of root/a/b of queue taken"):
        admit_create(above, {"Queue": {("", "taken"): taken}})


def test_claims_that_the_controller_names_are_no_change() -> None:
    """The name of a claim that it made is filled in later, and may change in a Job that describes the claim."""
    old = admit_create(job(volumes=[{"mountPath": "/a", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}]), OBJECTS)
    volume = {**old["spec"]["volumes"][0], "volumeClaimName": "made"}
    admit_update(old, {**old, "spec": {**old["spec"], "volumes": [volume]}}, OBJECTS)
    volume["mountPath"] = "/b"
    with pytest.raises(InvalidError, match="may not change fields"):
        admit_update(old, {**old, "spec": {**old["spec"], "volumes": [volume]}}, OBJECTS)
