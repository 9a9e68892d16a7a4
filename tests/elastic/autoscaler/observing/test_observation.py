# SPDX-License-Identifier: Apache-2.0
"""What is read from watched objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfp_volcano.elastic.autoscaler.observing.observation import WATCHED, indexed, observe
from kfp_volcano.elastic.autoscaler.resizing import MOST_OUTCOMES
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.snapshot import NOWHERE, UNUSABLE, NodeState
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.schemas.names import GPU, HOLD, PROGRESS, REQUEST, RESIZE
from kfp_volcano.schemas.records import Hold, LossTrend, Measured, Phase, Progress, ResizeOutcome, ResizeRequest

NOW = 1_790_000_000.0


def job(name="digits", *, namespace="ml", queue="research", phase="Running", tasks=(("main", 2, 2, 1),), **metadata):
    return {
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-09-21T14:10:00Z",
            **metadata,
        },
        "spec": {
            "queue": queue,
            "minAvailable": sum(least for _, _, least, _ in tasks),
            "tasks": [
                {"name": task, "replicas": replicas, "minAvailable": least, "template": {"spec": pod_spec(gpus)}}
                for task, replicas, least, gpus in tasks
            ],
        },
        "status": {"state": {"phase": phase}} if phase else {},
    }


def pod(job_name, task, index, *, node=None, gpus=1, phase="Running", namespace="ml", queue="research", leaving=False):
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"{job_name}-{task}-{index}",
            "namespace": namespace,
            "labels": {"volcano.sh/job-name": job_name, "volcano.sh/task-spec": task, "volcano.sh/queue-name": queue},
            "creationTimestamp": "2026-09-21T14:12:00Z",
            **({"deletionTimestamp": "2026-09-21T14:14:00Z"} if leaving else {}),
        },
        "spec": {**pod_spec(gpus), **({"nodeName": node} if node else {})},
        "status": {"phase": phase},
    }


def pod_spec(gpus):
    return {"containers": [{"name": "main", "resources": {"limits": {GPU: str(gpus)}} if gpus else {}}]}


def node(name, gpus, *, ready="True", **spec):
    status = {"allocatable": {GPU: str(gpus)}, "conditions": [{"type": "Ready", "status": ready}]}
    return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


def queue(name, capability=None, *, parent="root", guarantee=None):
    spec = {"parent": parent}
    if capability is not None:
        spec["capability"] = {GPU: str(capability)}
    if guarantee is not None:
        spec["guarantee"] = {"resource": {GPU: str(guarantee)}}
    return {"kind": "Queue", "metadata": {"name": name}, "spec": spec}


def objects(*manifests):
    sorted_by_kind = {kind: [] for kind in WATCHED}
    for manifest in manifests:
        sorted_by_kind[manifest["kind"]].append(manifest)
    return sorted_by_kind


NODES = (node("node-0", 4), node("node-1", 4))


QUEUES = (queue("research", 8),)


def snapshot(*manifests, queues=QUEUES, nodes=NODES):
    return observe(objects(*queues, *nodes, *manifests), queue="research", now=NOW)


def test_a_pod_holds_its_gpus_until_it_is_gone():
    """Terminating counts as held, and as coming free; finished and waiting pods hold nothing."""
    seen = snapshot(
        job(),
        pod("digits", "main", 0, node="node-0", leaving=True),
        pod("digits", "main", 1, node="node-1", phase="Succeeded"),
        pod("digits", "main", 2, phase="Pending"),
    )
    assert seen.allocated_gpus == 1
    assert seen.crowd == {NodeState(3, 1): 1, NodeState(4): 1}
    assert seen.releasing_gpus == 1


def test_pods_of_other_queues_take_room_on_nodes_only():
    """They are no part of what the queue has allocated."""
    seen = snapshot(job("other", queue="default"), pod("other", "main", 0, node="node-0", gpus=3, queue="default"))
    assert (seen.allocated_gpus, seen.crowd) == (0, {NodeState(1): 1, NodeState(4): 1})


@pytest.mark.parametrize("closed", [{"unschedulable": True}, {"ready": "False"}, {"ready": "Unknown"}])
def test_nodes_that_take_no_pods_have_no_room(closed):
    """Cordoned, or not ready; what is held there still counts."""
    seen = snapshot(job(), pod("digits", "main", 0, node="node-1"), nodes=(NODES[0], node("node-1", 4, **closed)))
    assert seen.crowd == {NodeState(4): 1}
    assert (seen.limit_gpus, seen.allocated_gpus) == (5, 1)


@pytest.mark.parametrize(
    ("queues", "limit"),
    [
        ([queue("research")], 8),
        ([queue("research", 6)], 6),
        ([queue("research", 100)], 8),
        ([queue("research"), queue("vip", guarantee=3)], 5),
        ([queue("research", guarantee=3)], 8),
        ([queue("research", parent="science"), queue("science", 4)], 4),
        ([queue("research", 6, parent="science"), queue("science", 4), queue("other", parent="science")], 2),
        ([queue("research", parent="research")], 8),
        ([], 8),
    ],
)
def test_a_queue_may_use_the_least_of_its_ancestors(queues, limit):
    """Its capability, the nodes, others' guarantees, and what is left of each ancestor's capability."""
    load = (job("load", queue="other"), pod("load", "main", 0, node="node-0", gpus=2, queue="other"))
    assert snapshot(*load, queues=queues).limit_gpus == limit


def test_a_gang_without_pods_waits_all_the_same():
    """Volcano makes no pods for a Job that is not admitted: its spec says what it needs."""
    [gang] = snapshot(job("big", phase="Pending", tasks=(("main", 3, 2, 2), ("cpu", 1, 1, 0)))).pending
    assert (gang.key, gang.pods, gang.since) == ("ml/big", (2, 2), NOW - 200)


def test_a_gang_waits_for_what_it_lacks():
    """Members that have a node, or have succeeded, are there; one that is leaving is not."""
    seen = snapshot(
        job("big", tasks=(("main", 4, 4, 1),)),
        pod("big", "main", 0, node="node-0"),
        pod("big", "main", 1, node="node-0", phase="Succeeded"),
        pod("big", "main", 2, node="node-0", leaving=True),
        pod("big", "main", 3, phase="Pending"),
    )
    assert [gang.pods for gang in seen.pending] == [(1, 1)]


def test_surplus_is_no_gang():
    """Replicas above the minimum wait without a claim to anybody's GPUs."""
    big = job("big", tasks=(("main", 4, 1, 1),))
    assert snapshot(big, pod("big", "main", 0, node="node-0")).pending == ()


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Aborted", "Terminating", "Completing"])
def test_what_has_ended_or_is_ending_waits_for_nothing(phase):
    """Only a Job that runs or wants to is a gang."""
    assert snapshot(job("big", phase=phase)).pending == ()


def test_gangs_that_are_no_volcano_jobs_count_too():
    """Ray, Spark and others make PodGroups of their own."""
    group = {
        "kind": "PodGroup",
        "metadata": {"name": "spark", "namespace": "ml", "creationTimestamp": "2026-09-21T14:10:00Z"},
        "spec": {"queue": "research", "minMember": 2, "minResources": {GPU: "3"}},
        "status": {"phase": "Inqueue"},
    }
    assert [gang.pods for gang in snapshot(group).pending] == [(2, 1)]


def test_an_elastic_job_is_seen_whole(cluster):
    """Range, size, places, and what its annotations say."""
    cluster.submit(initial=4)
    request = ResizeRequest(
        id="r1", from_workers=4, to_workers=8, reason="x", explanation="x", policy="x", by="x", at=NOW, expires=NOW + 9
    )
    cluster.annotate(REQUEST, request)
    cluster.annotate(HOLD, Hold(until=NOW + 5, by="ada"))
    cluster.store.patch("Node", "node-1", "", [{"op": "add", "path": "/spec/unschedulable", "value": True}])
    objects = {kind: cluster.objects(kind) for kind in WATCHED}
    [seen] = observe(objects, queue="research", now=NOW).jobs
    assert (seen.key, seen.workers, seen.running) == ("ml/digits", 4, 4)
    assert (seen.min_workers, seen.max_workers, seen.sizes) == (2, 8, tuple(range(2, 9)))
    assert (seen.gpus_per_worker, seen.cooldown_s) == (1, 60.0)
    assert len(seen.nodes) == 4
    assert set(seen.nodes) <= {"node-0", UNUSABLE}
    assert (seen.resize_open, seen.target_workers) == (True, 8)
    assert seen.hold == Hold(until=NOW + 5, by="ada")
    assert seen.remaining_s == 90.0


def test_an_expired_request_is_no_open_resize(cluster):
    """It is answered, or never will be."""
    cluster.submit()
    request = ResizeRequest(
        id="r1", from_workers=2, to_workers=8, reason="x", explanation="x", policy="x", by="x", at=NOW - 9, expires=NOW
    )
    cluster.annotate(REQUEST, request)
    [seen] = observe({kind: cluster.objects(kind) for kind in WATCHED}, queue="research", now=NOW).jobs
    assert not seen.resize_open


def test_the_last_outcome_is_remembered(cluster):
    """When it ended, and whether it came to nothing: what cooldowns are made of."""
    cluster.submit()
    outcome = ResizeOutcome(
        id="r1",
        phase=Phase.ROLLED_BACK,
        from_workers=2,
        to_workers=2,
        reason="x",
        explanation="x",
        requested_at=NOW - 9,
        executed_by="x",
        done_at=NOW - 3,
    )
    cluster.annotate(RESIZE, [outcome])
    [seen] = observe({kind: cluster.objects(kind) for kind in WATCHED}, queue="research", now=NOW).jobs
    assert (seen.last_resize_at, seen.last_failed, seen.resize_open) == (NOW - 3, True, False)


def test_as_many_resizes_are_remembered_as_a_budget_may_count(cluster):
    """All that the Job keeps: a Job that had its dozen within the hour has no more to come."""
    cluster.submit()
    ended = [
        ResizeOutcome(
            id=f"r{number}",
            phase=Phase.DONE,
            from_workers=2,
            to_workers=2,
            reason="x",
            explanation="x",
            requested_at=NOW - 3000 + number,
            executed_by="x",
            done_at=NOW - 3000 + number,
        )
        for number in range(MOST_OUTCOMES)
    ]
    cluster.annotate(RESIZE, ended)
    snapshot = observe({kind: cluster.objects(kind) for kind in WATCHED}, queue="research", now=NOW)
    assert len(snapshot.jobs[0].resizes) == MOST_OUTCOMES
    for settings in (GuardSettings(), GuardSettings(resizes_per_hour=MOST_OUTCOMES)):
        assert [each.reason for each in Guarded(Threshold(), settings).decide(snapshot)] == [Reason.BUDGET]


def test_surplus_without_a_node_is_seen_waiting(cluster):
    """Since when, and that it holds nothing."""
    cluster.submit_gang(pods=5)
    cluster.submit(initial=6)
    [seen] = observe({kind: cluster.objects(kind) for kind in WATCHED}, queue="research", now=NOW).jobs
    assert seen.nodes[:2].count(NOWHERE) == 0
    assert seen.nodes.count(NOWHERE) == 3
    assert seen.waiting_since == NOW


def test_what_training_measured_is_seen(cluster):
    """Throughput by size, with the GPU class of the nodes it is on now; the noise scale; a loss that runs away."""
    cluster.submit(initial=4)
    sizes = tuple(Measured(workers=workers, throughput=90.0 * workers, batch=64) for workers in (2, 4))
    progress = Progress(
        step=10,
        total_steps=100,
        samples=640,
        epoch=0,
        throughput=360.0,
        workers=4,
        batch=64,
        lr=0.1,
        at=NOW,
        measured=sizes,
        noise_scale=900.0,
        trend=LossTrend(now=9.0, best=0.5, spread=0.1),
    )
    cluster.annotate(PROGRESS, progress)
    objects = {kind: cluster.objects(kind) for kind in WATCHED}
    for each in objects["Node"]:
        each["metadata"]["labels"] = {"gpu.class": "a100"}
    [seen] = observe(objects, queue="research", now=NOW).jobs
    assert seen.measured == (sizes[0], replace(sizes[1], gpu_class="a100"))
    assert (seen.noise_scale, seen.diverging) == (900.0, True)


@pytest.mark.parametrize(
    "garbage", ["", "null", "[]", "{", '"x"', "7", '[{"id":1}]', "[null]", '{"until":"soon","by":"x"}']
)
def test_annotations_that_cannot_be_read_count_as_absent(cluster, garbage):
    """Anybody may write them; nobody may stop the autoscaler with them."""
    cluster.submit()
    for key in (REQUEST, RESIZE, HOLD, PROGRESS):
        cluster.annotate(key, garbage)
    [seen] = observe({kind: cluster.objects(kind) for kind in WATCHED}, queue="research", now=NOW).jobs
    assert (seen.resize_open, seen.last_resize_at, seen.remaining_s) == (False, None, None)


def test_jobs_of_other_namespaces_are_load_only(cluster):
    """A leader of one namespace resizes what is in it."""
    cluster.submit()
    objects = {kind: cluster.objects(kind) for kind in WATCHED}
    seen = observe(objects, queue="research", now=NOW, namespace="elsewhere")
    assert (seen.jobs, seen.allocated_gpus) == ((), 2)


def test_the_timeline_tells_who_holds_and_who_waits(cluster):
    """Held and asked-for GPUs, by Job and team; the number of workers for elastic ones."""
    cluster.submit(initial=6)
    cluster.submit_gang(pods=4)
    assert indexed({kind: cluster.objects(kind) for kind in WATCHED}).timeline_entry("research", NOW) == {
        "kind": "queue",
        "time": NOW,
        "queue": "research",
        "limit": 8,
        "allocated": 6,
        "jobs": [
            {"job": "ml/digits", "team": "ml", "gpus": 6, "pending_gpus": 0, "phase": "Running", "workers": 6},
            {"job": "vision/big", "team": "speech", "gpus": 0, "pending_gpus": 4, "phase": "Pending", "workers": None},
        ],
    }


def test_a_job_that_has_ended_leaves_the_timeline(cluster):
    """As soon as it holds nothing."""
    done = job("done", phase="Completed")
    assert indexed(objects(queue("research"), *NODES, done)).timeline_entry("research", NOW)["jobs"] == []
    held = pod("done", "main", 0, node="node-0")
    entry = indexed(objects(queue("research"), *NODES, done, held)).timeline_entry("research", NOW)
    assert entry["jobs"][0]["gpus"] == 1
