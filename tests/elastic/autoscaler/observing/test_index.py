# SPDX-License-Identifier: Apache-2.0
"""The index is what would be made of the objects as they are, however their changes were told."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_volcano.elastic.autoscaler.observing.index import WATCHED, ClusterIndex
from kfp_volcano.elastic.autoscaler.observing.observation import indexed
from kfp_volcano.elastic.policies.snapshot import UNUSABLE, NodeState, PendingGang, QueueSnapshot
from kfp_volcano.schemas.names import GPU, PROGRESS, REQUEST, UNFIT_LABEL
from kfp_volcano.schemas.records import Progress, ResizeRequest, dump
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.base import Event
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.model.objects import key_of

NOW = 1_790_000_000.0
CREATED = "2026-09-21T14:10:00Z"
QUEUES, NODES, JOBS = ("one", "two", "three"), ("n0", "n1", "n2"), ("a", "b", "c", "d")


def elastic(name: str) -> Any:
    spec = {
        "apiVersion": "kfp-volcano/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {
            "framework": "pytorch",
            "image": "train",
            "command": ["sleep"],
            "queue": "one",
            "roles": {"worker": {"replicas": {"min": 1, "max": 4}, "resources": {"gpu": 1, "cpu": 2}}},
            "checkpoint": {"volume": "checkpoints"},
        },
    }
    return job_manifest(training_job(spec), name=name, run_id="r", step="s", workers=2)


ELASTIC = {name: elastic(name) for name in JOBS}


def sized(job: Any, surplus: int) -> Any:
    """The tasks of an elastic Job with so many workers above its minimum."""
    return [{**each, "replicas": surplus} if each["name"] == "elastic" else each for each in job["spec"]["tasks"]]


def meta(name: str, namespace: str = "ml", **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "creationTimestamp": CREATED, **more}


def room(gpus: int, cpus: int) -> dict[str, str]:
    return {GPU: str(gpus), "cpu": str(cpus), "memory": "99Gi"}


def queue(name: str, variant: int) -> Any:
    spec: dict[str, Any] = {"parent": ("root", "root", "two")[variant % 3] if name == "three" else "root"}
    spec |= {} if variant == 0 else {"deserved": {GPU: str(variant)}, "capability": {GPU: str(4 + variant)}}
    spec |= {"guarantee": {"resource": {GPU: "1"}}} if variant == 3 else {}
    return {"kind": "Queue", "metadata": meta(name, ""), "spec": spec}


def node(name: str, variant: int) -> Any:
    ready = {"type": "Ready", "status": "False" if variant == 1 else "True"}
    taints = [{"key": "k", "effect": "NoSchedule"}] if variant == 2 else None
    return {
        "kind": "Node",
        "metadata": meta(name, "", labels={UNFIT_LABEL: "true"} if variant == 3 else {"gpu.class": f"c{variant % 2}"}),
        "spec": {"taints": taints, "unschedulable": variant == 4},
        "status": {
            "allocatable": {GPU: str(3 + variant), "memory": "99Gi", "cpu": str(4 * variant + 2)},
            "conditions": [ready],
        },
    }


def job(name: str, variant: int) -> Any:
    at = QUEUES[variant % 3]
    if name in "ab":
        made = ELASTIC[name]
        tasks = [
            {**each, "replicas": each["replicas"] + (each["name"] == "elastic") * (variant % 2)}
            for each in made["spec"]["tasks"]
        ]
        annotations = dict(made["metadata"]["annotations"])
        if variant % 2:
            request = ResizeRequest(
                id=f"r{variant}",
                from_workers=2,
                to_workers=variant,
                reason="x",
                explanation="x",
                policy="x",
                by="x",
                at=NOW,
                expires=NOW + 5 - variant * 2,
            )
            annotations[REQUEST] = dump(request)
        if variant > 2:
            progress = Progress(
                step=variant, total_steps=9, samples=1, epoch=0, throughput=1.0, workers=2, batch=4, lr=0.1, at=NOW
            )
            annotations[PROGRESS] = dump(progress)
        metadata = {**made["metadata"], **meta(name), "annotations": annotations}
        spec = {**made["spec"], "tasks": tasks, "queue": at, "priorityClassName": "high" if variant > 2 else ""}
    else:
        template = {"spec": {"containers": [{"name": "m", "resources": {"limits": {GPU: "1"}}}]}}
        count = 1 + variant
        tasks = [{"name": "main", "replicas": count, "minAvailable": count, "template": template}]
        metadata, spec = meta(name), {"queue": at, "minAvailable": count, "tasks": tasks}
    phase = ("Running", "Pending", "Running", "Completed", "Running")[variant]
    return {"kind": "Job", "metadata": metadata, "spec": spec, "status": {"state": {"phase": phase}}}


def group(name: str, variant: int) -> Any:
    owners = {} if name == "loose" else {"ownerReferences": [{"kind": "Job", "name": name, "uid": "u"}]}
    return {
        "kind": "PodGroup",
        "metadata": meta(f"{name}-group", **owners),
        "spec": {"queue": QUEUES[variant % 3], "minMember": 2, "minResources": {GPU: str(variant)}},
        "status": {"phase": "Running" if variant == 4 else "Pending"},
    }


def pod(name: str, variant: int) -> Any:
    owner, task, _ = name.rsplit("-", 2)
    labels = {} if owner == "loose" else {"volcano.sh/job-name": owner, "volcano.sh/task-spec": task}
    leaving = {"deletionTimestamp": CREATED} if variant == 3 else {}
    container = {"name": "m", "resources": {"limits": {GPU: "1", "cpu": "1"}}}
    return {
        "kind": "Pod",
        "metadata": meta(
            name,
            labels={**labels, "volcano.sh/queue-name": QUEUES[len(owner) % 3]},
            annotations={"scheduling.k8s.io/group-name": f"{owner}-group"},
            **leaving,
        ),
        "spec": {"containers": [container], **({"nodeName": NODES[variant % 3]} if variant else {})},
        "status": {"phase": ("Pending", "Running", "Running", "Running", "Succeeded")[variant]},
    }


def priority_class(name: str, variant: int) -> Any:
    return {"kind": "PriorityClass", "metadata": meta(name, ""), "value": variant}


NAMES = {
    "Queue": (queue, QUEUES),
    "Node": (node, NODES),
    "Job": (job, JOBS),
    "PodGroup": (group, (*JOBS, "loose")),
    "Pod": (
        pod,
        (
            *(f"{owner}-{task}-{index}" for owner in ("a", "b") for task in ("core", "elastic") for index in (0, 1)),
            *("c-main-0", "c-main-1", "loose-main-0"),
        ),
    ),
    "PriorityClass": (priority_class, ("high",)),
}


class Told:
    """A cluster, and an index that is told of it."""

    def __init__(self) -> None:
        self.version = 0
        self.uids = itertools.count()
        self.objects: dict[str, dict[Any, Any]] = {kind: {} for kind in WATCHED}
        self.waiting: dict[str, list[Event]] = {kind: [] for kind in WATCHED}
        self.past: dict[str, list[Event]] = {kind: [] for kind in WATCHED}
        self.index = ClusterIndex()

    def put(self, kind: str, name: int, variant: int) -> None:
        make, names = NAMES[kind]
        made = make(names[name % len(names)], variant)
        self.version += 1
        known = self.objects[kind].get(key_of(made))
        uid = known["metadata"]["uid"] if known else f"uid-{next(self.uids)}"
        made["metadata"] = {**made["metadata"], "uid": uid, "resourceVersion": str(self.version)}
        self.objects[kind][key_of(made)] = made
        self.waiting[kind].append(Event("MODIFIED", made))

    def delete(self, kind: str, number: int) -> None:
        if self.objects[kind]:
            key = sorted(self.objects[kind])[number % len(self.objects[kind])]
            gone = self.objects[kind].pop(key)
            self.version += 1
            metadata = {**gone["metadata"], "resourceVersion": str(self.version)}
            self.waiting[kind].append(Event("DELETED", {**gone, "metadata": metadata}))

    def tell(self, kind: str, count: int, *, twice: bool) -> None:
        for event in self.waiting[kind][:count]:
            for _ in range(1 + twice):
                self.index.apply(kind, event)
            self.past[kind].append(event)
        del self.waiting[kind][:count]

    def relist(self, kind: str, late: int, count: int) -> None:
        """A list, and after it some changes that were in it already."""
        self.past[kind] += self.waiting[kind]
        self.waiting[kind].clear()
        self.index.replace(kind, list(self.objects[kind].values()), str(self.version))
        for event in self.past[kind][-late:][:count] if late else ():
            self.index.apply(kind, event)

    def write(self, number: int) -> None:
        """An own change of a Job, which counts at once."""
        if self.objects["Job"]:
            self.put("Job", number, number % 5)
            self.index.written(self.waiting["Job"][-1].object)


KINDS = st.sampled_from(WATCHED)
MOSTLY_PODS = st.sampled_from([*WATCHED, "Pod", "Pod", "Job"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.sampled_from([*WATCHED, "Pod", "Pod", "Job"]), st.integers(0, 12), st.integers(0, 4)
        ),
        st.tuples(st.just("delete"), KINDS, st.integers(0, 12)),
        st.tuples(st.just("tell"), KINDS, st.integers(1, 4), st.booleans()),
        st.tuples(st.just("relist"), KINDS, st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("write"), st.integers(0, 4)),
        st.tuples(st.just("look"), st.sampled_from(QUEUES)),
    ),
    min_size=15,
    max_size=100,
)


def carry_out(told: Told, operation: tuple[Any, ...]) -> None:
    match operation:
        case ("put", kind, name, variant):
            told.put(kind, name, variant)
        case ("delete", kind, number):
            told.delete(kind, number)
        case ("tell", kind, count, twice):
            told.tell(kind, count, twice=twice)
        case ("relist", kind, late, count):
            told.relist(kind, late, count)
        case ("write", number):
            told.write(number)
        case ("look", name):
            told.index.snapshot(name, NOW)


@given(OPERATIONS)
@settings(max_examples=150, deadline=None)
def test_it_is_what_would_be_made_of_the_objects_as_they_are(operations: list[Any]) -> None:
    """Kinds in any order, changes twice, or late after a list, own writes before they are told of."""
    told = Told()
    for operation in operations:
        carry_out(told, operation)
    for kind in WATCHED:
        told.tell(kind, len(told.waiting[kind]), twice=False)
    fresh = indexed({kind: list(objects.values()) for kind, objects in told.objects.items()})
    for name in QUEUES:
        assert told.index.snapshot(name, NOW, pods=True) == fresh.snapshot(name, NOW, pods=True)
        assert told.index.timeline_entry(name, NOW) == fresh.timeline_entry(name, NOW)


@pytest.mark.parametrize("kind", ["Pod", "Job", "PodGroup"])
def test_what_is_gone_stays_gone(kind: str) -> None:
    """A change that comes late, after a list without the object or after its end, does not bring it back."""
    told = Told()
    told.put("Node", 1, 0)
    told.put(kind, 0, 2)
    told.put(kind, 0, 3)
    told.delete(kind, 0)
    events = [*told.waiting["Node"], *told.waiting[kind]]
    for event in events:
        told.index.apply(event.object["kind"], event)
    told.index.apply(kind, events[1])
    told.relist(kind, 0, 0)
    told.index.apply(kind, events[1])
    if kind == "Job":
        told.index.written(events[1].object)
    fresh = indexed({"Node": [events[0].object]})
    assert [told.index.snapshot(name, NOW) for name in QUEUES] == [fresh.snapshot(name, NOW) for name in QUEUES]
    assert not told.index.jobs_of("three")


def own(seen: QueueSnapshot) -> Any:
    """What of a snapshot is the queue's own."""
    return seen.pending, seen.claims, seen.allocated_gpus, [job.nodes for job in seen.jobs]


@given(OPERATIONS)
@settings(max_examples=100, deadline=None)
def test_what_has_changed_is_told(operations: list[Any]) -> None:
    """A queue whose own Jobs, gangs or holdings look different was named, or room was said to have come free."""
    told = Told()
    for operation in operations:
        before = {name: told.index.snapshot(name, NOW) for name in QUEUES}
        carry_out(told, operation)
        changes = told.index.changes()
        for name in QUEUES:
            old, new = before[name], told.index.snapshot(name, NOW)
            own = [
                (each.pending, each.claims, each.allocated_gpus, [job.nodes for job in each.jobs])
                for each in (old, new)
            ]
            assert own[0] == own[1] or name in changes.queues, operation
            if sum(each.free for each in new.crowd) > sum(each.free for each in old.crowd):
                assert changes.freed or name in changes.queues


def made(*objects: Any) -> ClusterIndex:
    return indexed({kind: [each for each in objects if each["kind"] == kind] for kind in WATCHED})


def full(*more: Any, deserved: tuple[int, int] = (4, 4)) -> ClusterIndex:
    """Eight GPUs; `two` has borrowed two above its four, with a Job of four surplus workers, and `one` holds two."""
    queues = [
        {"kind": "Queue", "metadata": meta(name, ""), "spec": {"deserved": {GPU: str(gpus)}}}
        for name, gpus in zip(("one", "two"), deserved, strict=True)
    ]
    nodes = [node("n0", 0) | {"status": {"allocatable": room(8, 100)}, "metadata": meta("n0", "")}]
    big = ELASTIC["a"]
    tasks = [
        {**each, "replicas": 5 if each["name"] == "elastic" else each["replicas"]} for each in big["spec"]["tasks"]
    ]
    train = {
        "kind": "Job",
        "metadata": {**big["metadata"], **meta("a")},
        "spec": {**big["spec"], "tasks": tasks, "queue": "two"},
        "status": {"state": {"phase": "Running"}},
    }
    pods = [worker("a", "core", 0, "two")] + [worker("a", "elastic", index, "two") for index in range(5)]
    return made(*queues, *nodes, train, *pods, *[worker("x", "main", index, "one") for index in range(2)], *more)


def worker(owner: str, task: str, index: int, queue_name: str) -> Any:
    made_pod = pod(f"{owner}-{task}-{index}", 1)
    made_pod["metadata"]["labels"]["volcano.sh/queue-name"] = queue_name
    made_pod["spec"]["nodeName"] = "n0"
    return made_pod


def waits(name: str, queue_name: str, pods: int) -> Any:
    gang = job("c", 1)
    tasks = [{**gang["spec"]["tasks"][0], "replicas": pods, "minAvailable": pods}]
    return {
        **gang,
        "metadata": meta(name),
        "spec": {**gang["spec"], "queue": queue_name, "minAvailable": pods, "tasks": tasks},
    }


def test_what_a_gang_is_owed_is_asked_of_the_queue_that_has_borrowed() -> None:
    """Within what its own queue deserves, and where nothing free serves it; once."""
    index = full(waits("c", "one", 2))
    [claim] = index.snapshot("two", NOW).claims
    assert (claim.key, claim.pods, claim.queue) == ("ml/c", (1, 1), "one")
    assert index.snapshot("one", NOW).claims == ()
    assert index.changes().queues >= {"one", "two"}


def test_nobody_is_asked_for_more_than_a_queue_deserves() -> None:
    """A gang that would take its queue above its share has no claim."""
    assert full(waits("c", "one", 3)).snapshot("two", NOW).claims == ()
    assert full(waits("c", "one", 2), deserved=(4, 6)).snapshot("two", NOW).claims == ()


def test_gpus_that_serve_a_gang_are_kept_for_it() -> None:
    """Free ones that a gang within its queue's share is going to get are promised, as other queues see it."""
    spare = {**node("n1", 0), "status": {"allocatable": room(2, 100)}}
    index = full(spare, waits("c", "one", 2))
    assert index.snapshot("two", NOW).claims == ()
    assert [gpus for _, gpus in index.snapshot("two", NOW).reserved] == [1, 1]
    assert index.snapshot("one", NOW).reserved == ()


def test_workers_that_were_asked_for_are_promised() -> None:
    """Two by a request that is open, and one that has no node, as others see them; a request runs out."""
    running = {**job("a", 0), "status": {"state": {"phase": "Running"}}}
    request = ResizeRequest(
        id="r", from_workers=2, to_workers=4, reason="x", explanation="x", policy="x", by="x", at=NOW, expires=NOW + 9
    )
    running["metadata"] = {
        **running["metadata"],
        "annotations": {**running["metadata"]["annotations"], REQUEST: dump(request)},
    }
    index = made(node("n0", 0), running, pod("a-core-0", 1))
    assert [gpus for _, gpus in index.snapshot("two", NOW).reserved] == [1, 1, 1]
    assert [gpus for _, gpus in index.snapshot("two", NOW + 9).reserved] == [1]
    assert index.snapshot("one", NOW).reserved == ()
    assert len(index.snapshot("one", NOW, "elsewhere").reserved) == 3


@pytest.mark.parametrize(("phase", "promised"), [("Pending", [1]), ("Succeeded", []), ("Failed", [])])
def test_workers_that_have_ended_are_not_promised(phase: str, promised: list[int]) -> None:
    """Volcano puts nothing in their place, so that others may have what they held."""
    running = {**job("a", 0), "status": {"state": {"phase": "Running"}}}
    surplus = pod("a-elastic-0", 1)
    surplus["metadata"]["labels"]["volcano.sh/task-spec"] = "elastic"
    surplus = {**surplus, "spec": {**surplus["spec"], "nodeName": ""}, "status": {"phase": phase}}
    index = made(node("n0", 0), running, pod("a-core-0", 1), surplus)
    assert [gpus for _, gpus in index.snapshot("two", NOW).reserved] == promised


def test_shapes_say_what_a_node_has_too_little_of() -> None:
    """CPU that is short, a taint, a label: fewer pods than the GPUs would allow; the kind of GPU is told."""
    running = {**job("a", 0), "metadata": {**job("a", 0)["metadata"], "labels": {}}}
    index = made(node("n0", 0), node("n1", 2), node("n2", 3), running)
    seen = index.snapshot("one", NOW)
    [shape] = seen.shapes
    assert seen.crowd == {
        NodeState(3, 0, ((shape, 1),), "c0"): 1,  # 2 CPUs, and 2 for each worker
        NodeState(5, 0, ((shape, 0),), "c0"): 1,  # a taint
        NodeState(6, 0, ((shape, 0),), ""): 1,  # unfit
    }
    assert seen.shapes[shape].requests["cpu"] == 2000


def test_a_node_that_comes_back_is_seen_in_its_jobs() -> None:
    """Where workers are, is told anew when their node takes pods again."""
    index = made(node("n1", 4), job("a", 0), pod("a-core-0", 1))
    assert UNUSABLE in index.snapshot("one", NOW).jobs[0].nodes
    index.apply("Node", Event("MODIFIED", node("n1", 0)))
    assert "n1" in index.snapshot("one", NOW).jobs[0].nodes


@pytest.mark.parametrize("status", [{"phase": "Running", "startTime": CREATED}, {"phase": "Running", "podIP": "::1"}])
def test_what_matters_to_nobody_is_no_change(status: Any) -> None:
    """Pods' statuses change all the time."""
    index = made(node("n1", 0), job("a", 0), pod("a-core-0", 1))
    index.changes()
    index.apply("Pod", Event("MODIFIED", {**pod("a-core-0", 1), "status": status}))
    changes = index.changes()
    assert (changes.queues, changes.freed, changes.tree) == (set(), False, False)


def test_gangs_of_other_kinds_are_by_their_podgroup() -> None:
    """Ray's, Spark's: also what their pods hold."""
    index = made(node("n1", 0), group("loose", 3), pod("loose-main-0", 1))
    seen = index.snapshot("one", NOW)
    assert seen.pending == (PendingGang(key="ml/loose-group", pods=(2, 1), since=NOW - 200),)
    assert seen.allocated_gpus == 1
