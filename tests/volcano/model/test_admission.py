# SPDX-License-Identifier: Apache-2.0
"""The model refuses what Volcano's webhooks refuse, also where the API server's policies are silent."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model.admission import admit_create, admit_update

TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}]}}


def queue(name: str, state: str = "Open", **spec: Any) -> dict[str, Any]:
    return {"kind": "Queue", "metadata": {"name": name}, "spec": spec, "status": {"state": state}}


QUEUES = [
    queue("root"),
    queue("default"),
    queue("department"),
    queue("team", parent="department"),
    queue("shut", "Closed"),
]
TWO_TIERS = {"mode": "hard", "highestTierAllowed": 1, "highestTierName": "rack"}
OBJECTS = {"Queue": {("", each["metadata"]["name"]): each for each in QUEUES}}


def task(name: str = "w", **fields: Any) -> dict[str, Any]:
    return {"name": name, "replicas": 2, "template": TEMPLATE, **fields}


def job(*tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"name": "job", "namespace": "default"}
    spec = {"tasks": list(tasks) or [task()], **spec}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}


WEBHOOK_ONLY = {
    "queue is absent": (job(queue="nowhere"), "spec.queue", "unable to find job queue"),
    "queue is closed": (job(queue="shut"), "spec.queue", "status is `Closed`"),
    "queue is the root": (job(queue="root"), "spec.queue", "can not submit job to root queue"),
    "queue has children": (job(queue="department"), "spec.queue", "has 1 child queues"),
    "unknown plugin": (job(plugins={"nope": []}), "spec.plugins.nope", "unable to find job plugin: nope"),
    "dependencies in a ring": (
        job(task("a", dependsOn={"name": ["b"]}), task("b", dependsOn={"name": ["a"]})),
        "spec.tasks",
        "directed acyclic graph",
    ),
    "dependency on nothing": (job(task(dependsOn={"name": ["x"]})), "spec.tasks", "directed acyclic graph"),
    "partitions that do not add up": (
        job(task(partitionPolicy={"totalPartitions": 2, "partitionSize": 2})),
        "spec.tasks[0].replicas",
        "'Replicas' are not equal to TotalPartitions*PartitionSize in task: w, job: job",
    ),
    "partitions that the minimum does not fill": (
        job(task(minAvailable=1, partitionPolicy={"totalPartitions": 2, "partitionSize": 1, "minPartitions": 2})),
        "spec.tasks[0].minAvailable",
        "'MinAvailable' is not equal to MinPartitions*PartitionSize",
    ),
    "partitions with two tiers": (
        job(task(partitionPolicy={"totalPartitions": 2, "partitionSize": 1, "networkTopology": TWO_TIERS})),
        "spec.tasks[0].partitionPolicy.networkTopology",
        "'highestTierAllowed' and 'highestTierName'",
    ),
    "two tiers": (job(networkTopology=TWO_TIERS), "spec.networkTopology", "'highestTierAllowed' and 'highestTierName'"),
    "mpi without its master": (job(plugins={"mpi": []}), "spec.plugins.mpi", "mpi master task was not found"),
    "mpi with another master": (
        job(task("master"), plugins={"mpi": ["--master=launcher"]}),
        "spec.plugins.mpi",
        "mpi master task was not found",
    ),
    "claim with an unfit name": (
        job(volumes=[{"mountPath": "/a", "volumeClaimName": "My_Claim"}]),
        "spec.volumes[0]",
        "invalid VolumeClaimName My_Claim",
    ),
    "dependency named twice": (
        job(task("a"), task("b", dependsOn={"name": ["a", "a"]})),
        "spec.tasks",
        "directed acyclic graph",
    ),
    "NUMA without whole CPUs": (
        job(task(topologyPolicy="restricted")),
        "spec.tasks[0].topologyPolicy",
        "the cpu request isn't  an integer",
    ),
    "pod without containers": (
        job(task(template={"spec": {}})),
        "spec.tasks[0].template.spec.containers",
        "must be of type array",
    ),
    "pod's name too long": (job(task("x" * 60)), "spec.tasks[0].name", "create pod with name"),
    "claim both named and described": (
        job(volumes=[{"mountPath": "/a", "volumeClaimName": "c", "volumeClaim": {}}]),
        "spec.volumes[0]",
        "conflict",
    ),
    "number beyond int32": (job(ttlSecondsAfterFinished=2**31), "spec.ttlSecondsAfterFinished", "int32"),
    "exponent that is no integer": (
        job(task(template={"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1e1.5"}}}]}})),
        "spec.tasks[0].template.spec",
        "quantit",
    ),
    "policy that waits for no time": (
        job(policies=[{"event": "PodPending", "action": "AbortJob", "timeout": "soon"}]),
        "spec.policies[0].timeout",
        'time: invalid duration "soon"',
    ),
    "policy of a task: event twice": (
        job(task(policies=[{"event": "PodFailed", "action": "RestartJob"}] * 2)),
        "spec.tasks[0].policies",
        "duplicate event PodFailed",
    ),
    "policy of a task: * beside others": (
        job(task(policies=[{"event": each, "action": "RestartJob"} for each in ("*", "PodFailed")])),
        "spec.tasks[0].policies",
        "if there's * here",
    ),
    "policy: event of no policy among several": (
        job(policies=[{"events": ["PodRunning"], "action": "RestartJob"}]),
        "spec.policies",
        "invalid policy event",
    ),
    "policy: events and an exit code": (
        job(policies=[{"events": ["PodFailed"], "exitCode": 1, "action": "RestartJob"}]),
        "spec.policies",
        "must not specify event and exitCode simultaneously",
    ),
    "policy without an action": (job(policies=[{"event": "PodFailed"}]), "spec.policies", "invalid policy action"),
}
"""Manifests that the policies take and the webhooks do not: the field at fault, and a part of the message."""


@pytest.mark.parametrize("case", WEBHOOK_ONLY)
def test_rules_of_the_webhook_alone(case: str) -> None:
    """What only Volcano's webhook refuses the model refuses, and names the field."""
    manifest, field, sentence = WEBHOOK_ONLY[case]
    with pytest.raises(InvalidError) as refused:
        admit_create(manifest, OBJECTS)
    assert field in refused.value.fields
    assert sentence in str(refused.value)


def test_parent_queue_must_be_there() -> None:
    """A Queue below one that does not exist, or below itself, is refused."""
    for parent in ("nowhere", "new"):
        with pytest.raises(InvalidError, match="parent") as refused:
            admit_create(queue("new", parent=parent), OBJECTS)
        assert refused.value.fields == ("spec.parent",)


def test_a_queue_does_not_change_while_it_closes() -> None:
    """Volcano knows the states Open and Closed alone in a Queue that is changed."""
    for state, taken in (("Open", True), ("Closed", True), ("Closing", False), ("Unknown", False)):
        old = queue("q", state, weight=1)
        changed = {**old, "spec": {"weight": 2}}
        if taken:
            admit_update(old, changed, {})
        else:
            with pytest.raises(InvalidError, match=r"queue state must be in \[Open Closed\]"):
                admit_update(old, changed, {})


def test_no_queue_lies_on_the_way_to_another() -> None:
    """A path of hierarchical DRF that another queue's goes on from is refused."""
    there, way = queue("there"), queue("way")
    there["metadata"]["annotations"] = {"volcano.sh/hierarchy": "root/a/b", "volcano.sh/hierarchy-weights": "1/1/1"}
    way["metadata"]["annotations"] = {"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1/1"}
    with pytest.raises(InvalidError, match="is not allowed to be in the sub path of root/a/b of queue there"):
        admit_create(way, {"Queue": {("", "there"): there}})


def group(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "group", "namespace": "default"}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("manifest", "field", "sentence"),
    [
        (group(minMember=1, queue="nowhere"), "spec.queue", 'unable to find queue: .*"nowhere" not found'),
        (group(minMember=1, queue="shut"), "spec.queue", "queue `shut` status is `Closed`"),
        (group(networkTopology=TWO_TIERS), "spec.networkTopology", "'highestTierAllowed' and 'highestTierName'"),
        (
            group(subGroupPolicy=[{"name": "s", "networkTopology": TWO_TIERS}]),
            "spec.subGroupPolicy[0].networkTopology",
            "in subGroupPolicy 's': must not specify",
        ),
    ],
)
def test_rules_for_pod_groups(manifest: dict[str, Any], field: str, sentence: str) -> None:
    """A PodGroup needs a queue that is there and open, and says each tier in one way."""
    with pytest.raises(InvalidError, match=sentence) as refused:
        admit_create(manifest, OBJECTS)
    assert field in refused.value.fields


def test_the_same_amount_is_no_change_of_a_live_job() -> None:
    """Typed programs compare: 1000m is 1, what is empty is absent, and the controller names the claims it makes."""
    volume = {"mountPath": "/v", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}
    old = admit_create(job(volumes=[volume]), OBJECTS)
    new = copy.deepcopy(old)
    new["spec"]["tasks"][0]["template"]["spec"]["containers"][0] |= {
        "resources": {"requests": {"cpu": "1.5"}},
        "args": [],
    }
    new["spec"]["volumes"][0]["volumeClaimName"] = "made-1"
    admit_update(old, new, OBJECTS)
    new["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] = "other"
    with pytest.raises(InvalidError, match="may not change fields other than"):
        admit_update(old, new, OBJECTS)


# What the API server taught: each was a disagreement between the model and it.


def test_updates_without_tasks_are_refused() -> None:
    """An update that takes the tasks out of a Job is refused in Volcano's words."""
    old = admit_create(job(), OBJECTS)
    with pytest.raises(InvalidError, match="may not add or remove tasks"):
        admit_update(old, {**old, "spec": {}}, OBJECTS)


def test_true_is_no_number() -> None:
    """A number of a live Job cannot be replaced by a boolean that Python takes for its equal."""
    old = admit_create(job(minAvailable=1), OBJECTS)
    with pytest.raises(InvalidError) as refused:
        admit_update(old, {**old, "spec": {**old["spec"], "minAvailable": True}}, OBJECTS)
    assert refused.value.fields == ("spec.minAvailable",)


def test_what_is_filled_in_is_no_fault() -> None:
    """Beside a real fault, an empty field that the webhook fills in is not told of."""
    for manifest in (
        {"kind": "Queue", "metadata": {}, "spec": {"weight": 0}},
        {"kind": "Queue", "metadata": {"name": 1}, "spec": {"weight": 0}},
        {**job(queue=""), "metadata": {"name": ["a"]}},
    ):
        with pytest.raises(InvalidError) as refused:
            admit_create(manifest, OBJECTS)
        assert refused.value.fields == ("metadata.name",)


def test_only_what_is_empty_is_filled_in() -> None:
    """An empty text is no weight of nothing, and nothing is no empty name of a queue."""
    for manifest, field in ((queue("q", weight=""), "spec.weight"), (job(queue=0), "spec.queue")):
        with pytest.raises(InvalidError) as refused:
            admit_create(manifest, OBJECTS)
        assert refused.value.fields == (field,)


def test_null_counts_as_absent() -> None:
    """A field that is null is as if it were not there, at the root as well."""
    absent = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "n"}}
    assert admit_create({**absent, "spec": None}, {}) == admit_create(absent, {})


@pytest.mark.parametrize("manifest", [job(), queue("q")])
def test_an_object_without_a_spec_is_refused(manifest: dict[str, Any]) -> None:
    """The webhook that fills in defaults finds no place for them: the API server calls that its own error."""
    for without in ({**manifest, "spec": None}, {key: value for key, value in manifest.items() if key != "spec"}):
        with pytest.raises(InvalidError, match="doc is missing path"):
            admit_create(without, OBJECTS)


def test_absent_tasks_and_no_tasks_differ() -> None:
    """An empty list of tasks breaks the schema; an absent one only the webhook's rule."""
    with pytest.raises(InvalidError, match="should have at least 1 items"):
        admit_create({**job(), "spec": {"tasks": []}}, OBJECTS)
    with pytest.raises(InvalidError, match="No task specified in job spec"):
        admit_create({**job(), "spec": {}}, OBJECTS)


def test_a_guarantee_has_to_be_deserved() -> None:
    """A resource that is guaranteed and not deserved is refused, also at zero."""
    with pytest.raises(InvalidError) as refused:
        admit_create(queue("q", guarantee={"resource": {"cpu": "0"}}), {})
    assert refused.value.fields == ("spec.deserved",)


def test_devices_are_counted() -> None:
    """There is no half of a device, and no half of a pod."""
    for name in ("nvidia.com/gpu", "pods"):
        with pytest.raises(InvalidError, match=f'{name}: Invalid value: "500m": must be an integer') as refused:
            admit_create(queue("q", capability={name: ".5"}), {})
        assert refused.value.fields == ("spec.capability",)
    admit_create(queue("q", capability={"cpu": ".5", "nvidia.com/gpu": "2000m"}), {})


@pytest.mark.parametrize(("path", "weights"), [("root/a", "1"), ("root/a", "1/0"), ("root/a", "1/x"), ("root", "")])
def test_hierarchies_have_a_weight_for_each_level(path: str, weights: str) -> None:
    """The annotations of hierarchical DRF have to match, and each weight to be more than nothing."""
    manifest = queue("q")
    manifest["metadata"]["annotations"] = {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
    with pytest.raises(InvalidError):
        admit_create(manifest, {})


def test_a_hierarchy_of_null_is_none() -> None:
    """An annotation without a value is an empty text."""
    manifest = queue("q")
    manifest["metadata"]["annotations"] = {"volcano.sh/hierarchy": None, "volcano.sh/hierarchy-weights": None}
    assert admit_create(manifest, {})["spec"]["weight"] == 1


def test_hierarchies_begin_at_the_root() -> None:
    """A path that does not begin with `root` gets it, and a weight for it."""
    manifest = queue("q")
    manifest["metadata"]["annotations"] = {"volcano.sh/hierarchy": "a", "volcano.sh/hierarchy-weights": "2"}
    admitted = admit_create(manifest, {})["metadata"]["annotations"]
    assert admitted == {"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1/2"}


@pytest.mark.parametrize("name", ["Upper", "a_b", "-a", "a\n", "", "a..b", "x" * 254])
def test_names_are_those_of_dns(name: str) -> None:
    """An object's name is a DNS subdomain."""
    manifest = job()
    manifest["metadata"]["name"] = name
    with pytest.raises(InvalidError) as refused:
        admit_create(manifest, OBJECTS)
    assert refused.value.fields == ("metadata.name",)


def test_unknown_fields_are_dropped_and_defaults_filled_in() -> None:
    """A Job is stored as its CRD has it: without what that does not know, with what that adds."""
    given = job(task(partitionPolicy={"totalPartitions": 1, "partitionSize": 2}, unknown=1), unknown={"a": 1})
    before = copy.deepcopy(given)
    spec = admit_create(given, OBJECTS)["spec"]
    assert given == before
    assert "unknown" not in spec
    assert spec["tasks"][0]["partitionPolicy"]["minPartitions"] == 0
    assert "unknown" not in spec["tasks"][0]
