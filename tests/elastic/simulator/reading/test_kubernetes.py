# SPDX-License-Identifier: Apache-2.0
"""A cluster as kubectl prints it: what runs and where, what waits, and what is left of each."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.simulator.reading.assumed import Assumed
from kfp_volcano.elastic.simulator.reading.kubernetes import dumped, live
from kfp_volcano.elastic.simulator.reading.shape import parse_nodes
from kfp_volcano.elastic.simulator.reading.trace import read_trace
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.names import GPU, HOLD, PROGRESS
from kfp_volcano.schemas.records import Hold, Measured, Progress, dump
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.model.control import run_controllers, run_scheduler
from kfp_volcano.volcano.model.objects import parse_time
from kfp_volcano.volcano.model.queues import root_queue

NOW = parse_time("2026-09-21T15:00:00Z")
ELASTIC = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": "ml"},
    "spec": {
        "framework": "pytorch",
        "image": "train",
        "command": ["sleep", "600"],
        "queue": "research",
        "roles": {"worker": {"replicas": {"min": 2, "max": 6}, "resources": {"gpu": 1}}},
        "checkpoint": {"volume": "checkpoints"},
    },
}


def spec(gpus):
    return {"containers": [{"name": "main", "resources": {"limits": {GPU: str(gpus)}} if gpus else {}}]}


def job(name, *tasks, phase="Running", created="2026-09-21T14:00:00Z", queue="research", annotations=None):
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": created,
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "queue": queue,
            "priorityClassName": "high",
            "minAvailable": sum(least for _, _, least, _ in tasks),
            "tasks": [
                {"name": task, "replicas": replicas, "minAvailable": least, "template": {"spec": spec(gpus)}}
                for task, replicas, least, gpus in tasks
            ],
        },
        "status": {"state": {"phase": phase}},
    }


def pod(job_name, task, index, node, gpus=1):
    labels = {"volcano.sh/job-name": job_name, "volcano.sh/task-spec": task} if job_name else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{job_name or 'loose'}-{task}-{index}", "namespace": "ml", "labels": labels},
        "spec": {**spec(gpus), "nodeName": node},
        "status": {"phase": "Running"},
    }


def node(name, gpus=4, **options):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "a100"}},
        "spec": options,
        "status": {"allocatable": {GPU: str(gpus)}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


QUEUE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "research"},
    "spec": {"capability": {GPU: "8"}, "deserved": {GPU: "6"}, "weight": 3, "reclaimable": False},
}
CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 100,
}


def read(*items, assumed=None):
    return dumped({"kind": "List", "items": list(items)}, assumed or Assumed(), name="now", source="dump", now=NOW)


def test_what_runs_is_where_it_is_and_what_waits_comes_at_once():
    """Running jobs first, then the gangs in the order in which they came."""
    found = read(
        node("n0"),
        node("n1"),
        QUEUE,
        CLASS,
        job("late", ("main", 3, 3, 2), phase="Pending", created="2026-09-21T14:50:00Z"),
        job("early", ("main", 1, 1, 4), phase="Pending", created="2026-09-21T14:40:00Z"),
        job("held", ("main", 2, 2, 2)),
        pod("held", "main", 0, "n0", 2),
        pod("held", "main", 1, "n1", 2),
        job("over", ("main", 2, 2, 2), phase="Completed"),
    )
    jobs = found.scenario.jobs
    assert [each.name for each in jobs] == ["ml/held", "ml/early", "ml/late"]
    assert [each.placed for each in jobs] == [("n0", "n1"), (), ()]
    assert [(each.workers, each.gpus_per_worker, each.priority) for each in jobs] == [
        (2, 2, 100),
        (1, 4, 100),
        (3, 2, 100),
    ]
    assert found.waiting_s == {"ml/early": 1200.0, "ml/late": 600.0}
    assert jobs[0].submitted_at < jobs[1].submitted_at < jobs[2].submitted_at < 1.0
    (queue,) = found.scenario.queues
    assert (queue.name, queue.capability, queue.deserved, queue.weight, queue.reclaimable) == (
        "research",
        8,
        6,
        3,
        False,
    )
    assert {each.gpu_class for each in found.scenario.nodes} == {"a100"}


def progress(**changes):
    fields = {"step": 250, "total_steps": 1000, "samples": 8000, "epoch": 0, "throughput": 40.0, "workers": 4}
    return Progress(**{**fields, "batch": 32, "lr": 0.1, "at": NOW - 5.0, **changes})


def elastic(**changes):
    """A Job as it is rendered, with four workers on two nodes."""
    made = job_manifest(training_job(ELASTIC), name="digits", run_id="r", step="train", workers=4)
    made["metadata"]["creationTimestamp"] = "2026-09-21T14:00:00Z"
    made["metadata"]["annotations"][PROGRESS] = dump(progress(**changes))
    pods = [pod("digits", "core", index, "n0") for index in range(2)]
    pods += [pod("digits", "elastic", index, "n1") for index in range(2)]
    return [{**made, "status": {"state": {"phase": "Running"}}}, *pods]


def test_what_is_left_of_a_training_follows_from_its_progress():
    """At its present speed at its present size, and as was measured at others."""
    measured = (Measured(workers=2, throughput=25.0, batch=32), Measured(workers=4, throughput=38.0, batch=32))
    (found,) = read(node("n0"), node("n1"), *elastic(measured=measured)).scenario.jobs
    assert (found.min_workers, found.max_workers, found.workers) == (2, 6, 4)
    assert found.placed == ("n0", "n0", "n1", "n1")
    training = found.work.begin()
    assert training.done == pytest.approx(0.25)
    assert found.work.alone_s(4) * 0.75 == pytest.approx(750 * 32 / 40.0)
    assert found.work.alone_s(2) * 0.75 == pytest.approx(750 * 32 / 25.0)


def test_a_job_that_a_person_holds_keeps_its_size():
    """As the autoscaler leaves it alone; a hold that is over is none."""
    for until, sizes in ((NOW + 60.0, (4, 4)), (NOW - 60.0, (2, 6))):
        made, *pods = elastic()
        made["metadata"]["annotations"][HOLD] = dump(Hold(until=until, by="ada"))
        found = read(node("n0"), node("n1"), made, *pods).scenario
        assert (found.jobs[0].min_workers, found.jobs[0].max_workers) == sizes
        assert ("1 jobs are held by a person" in " ".join(found.notes)) == (sizes == (4, 4))


def test_of_jobs_without_progress_what_is_assumed_is_said():
    """One that runs: as long again as it has; one that waits: as long as those that ended."""
    ended = job("over", ("main", 1, 1, 1), phase="Completed", created="2026-09-21T14:00:00Z")
    ended["status"]["state"]["lastTransitionTime"] = "2026-09-21T14:20:00Z"
    found = read(
        node("n0"),
        ended,
        job("runs", ("main", 1, 1, 1), created="2026-09-21T14:30:00Z"),
        pod("runs", "main", 0, "n0"),
        job("waits", ("main", 1, 1, 4), phase="Pending"),
    )
    assert [each.work.duration_s for each in found.scenario.jobs] == [1800.0, 1200.0]
    assert "2 jobs do not report progress" in found.scenario.notes[0]


def test_without_pods_what_runs_is_packed():
    """Wherever there is room, for nobody says where."""
    (found,) = read(node("n0"), node("n1"), job("held", ("main", 3, 3, 2))).scenario.jobs
    assert found.placed == ("n0", "n0", "n1")


def test_gpus_of_pods_in_no_gang_are_left_out_with_them():
    """They are not the scheduler's to give."""
    found = read(node("n0"), node("n1"), pod("", "web", 0, "n0", 3), job("a", ("main", 1, 1, 1), phase="Pending"))
    assert [each.gpus for each in found.scenario.nodes] == [1, 4]
    assert "3 GPUs are held by pods of no gang" in " ".join(found.scenario.notes)


def test_closed_nodes_count_as_far_as_they_are_held():
    """What runs there goes on, and nothing comes after it."""
    found = read(node("n0"), node("n1", unschedulable=True), job("a", ("m", 1, 1, 2)), pod("a", "m", 0, "n1", 2))
    assert [(each.name, each.gpus) for each in found.scenario.nodes] == [("n0", 4), ("n1", 2)]


def test_gangs_of_others_are_seen_too():
    """PodGroups that no Volcano Job owns: Ray's, for example."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "ray", "namespace": "ml", "creationTimestamp": "2026-09-21T14:59:00Z"},
        "spec": {"minMember": 2, "minResources": {GPU: "4"}, "queue": "research"},
        "status": {"phase": "Pending"},
    }
    (found,) = read(node("n0"), group).scenario.jobs
    assert (found.name, found.workers, found.gpus_per_worker, found.queue) == ("ml/ray", 2, 2, "research")


def test_every_object_that_cannot_be_read_is_named():
    """By its place in the list, its kind and its name."""
    broken = job("broken", ("main", 1, 1, 1))
    del broken["spec"]["tasks"]
    with pytest.raises(SpecError) as caught:
        read(node("n0"), broken, node("n1", gpus="many"), job("fine", ("main", 1, 1, 1)))
    assert [problem.path for problem in caught.value.problems] == ["items[2], Node n1", "items[1], Job ml/broken"]


@pytest.mark.parametrize(
    ("items", "what"),
    [
        ([], "holds no nodes"),
        ([job("a", ("main", 1, 1, 1))], "holds no nodes"),
        ([node("n0")], "no Job and no gang"),
        ([node("n0", gpus=0), job("a", ("main", 1, 1, 1))], "no node with GPUs"),
        ([7, {"kind": "Pod"}], "is no Kubernetes object"),
    ],
)
def test_what_is_no_cluster_is_refused(items, what):
    """With what to ask kubectl for."""
    with pytest.raises(SpecError, match=what):
        read(*items)


def test_a_dump_s_moment_is_the_latest_that_it_mentions(tmp_path):
    """kubectl does not say when it asked."""
    path = tmp_path / "dump.json"
    items = [node("n0"), job("a", ("main", 1, 1, 1), created="2026-09-21T14:00:00Z"), pod("a", "main", 0, "n0")]
    items += [job("b", ("main", 1, 1, 1), created="2026-09-21T14:10:00Z", phase="Pending")]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert read_trace(path).jobs[0].work.duration_s == 600.0


def test_nodes_may_be_stated():
    """For a dump without any."""
    found = read(job("a", ("main", 1, 1, 4), phase="Pending"), assumed=Assumed(nodes=parse_nodes("2x8:h100")))
    assert found.scenario.gpus == 16


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "name", "spec", "status", "tasks", "kind", "state"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(spec=JSON, status=JSON, metadata=JSON, kind=st.sampled_from(["Job", "Node", "Pod", "Queue", "PodGroup"]))
def test_no_object_makes_it_crash(spec, status, metadata, kind):
    """It is read, or refused in words."""
    version = {"Job": "batch.volcano.sh/v1alpha1", "Node": "v1", "Pod": "v1"}.get(kind, "scheduling.volcano.sh/v1beta1")
    item = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}
    with contextlib.suppress(SpecError):
        read(node("n0"), item, job("a", ("main", 1, 1, 1), phase="Pending"))


@pytest.fixture(name="store")
def _store():
    """The objects of an embedded cluster: a Job that Volcano's model has placed, and one that waits for its gang."""
    store = Store(clock=lambda: NOW - 300.0)
    with store.transaction() as (world, now):
        for name in ("n0", "n1"):
            room = {"cpu": "1000", "memory": "1000Gi", "pods": "1000", GPU: "4"}
            made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}
            world.create({**made, "status": {"capacity": room, "allocatable": room}}, now)
        world.create(root_queue(), now)
        world.create({**root_queue(), "metadata": {"name": "research"}, "spec": {"capability": {GPU: "8"}}}, now)
        run_controllers(world, now)
        for name, workers in (("first", 6), ("second", 4)):
            document = {**ELASTIC, "metadata": {"name": name, "namespace": "ml"}}
            document["spec"] = {**ELASTIC["spec"], "roles": {"worker": roles(workers)}}
            made = job_manifest(training_job(document), name=name, run_id="r", step="train", workers=workers)
            world.create(made, now)
            run_controllers(world, now)
            run_scheduler(world, now)
            run_controllers(world, now)
            for pod in list(world.objects["Pod"].values()):
                if pod["spec"].get("nodeName"):
                    world.update({**pod, "status": {"phase": "Running"}})
            run_controllers(world, now)
    return store


def roles(workers):
    return {"replicas": {"min": workers, "max": 8}, "resources": {"gpu": 1}}


def test_a_living_cluster_is_read_as_its_objects_are(store):
    """As Volcano's controllers and scheduler leave them: what has its gang is placed, what has not waits."""
    found = dumped(live(store.list), Assumed(), name="now", source="the cluster", now=NOW)
    first, second = found.scenario.jobs
    assert (first.name, first.min_workers, first.max_workers) == ("ml/first", 6, 8)
    assert sorted(set(first.placed)) == ["n0", "n1"]
    assert len(first.placed) == 6
    assert (second.name, second.placed, found.waiting_s["ml/second"]) == ("ml/second", (), 300.0)
    assert [queue.name for queue in found.scenario.queues if queue.capability] == ["research"]


def test_what_kubectl_prints_says_the_same_as_the_cluster(store):
    """Through JSON, and back."""
    there = dumped(live(store.list), Assumed(), name="now", source="it", now=NOW)
    printed = json.loads(json.dumps(live(store.list)))
    assert dumped(printed, Assumed(), name="now", source="it", now=NOW) == there
