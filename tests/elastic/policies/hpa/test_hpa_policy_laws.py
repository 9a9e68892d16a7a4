# SPDX-License-Identifier: Apache-2.0
"""Laws of the policy `hpa`, on random queues: sizes, room, order, and that it comes to rest."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from books import name, pods, states
from kfp_volcano.elastic.policies.gangs import serve
from kfp_volcano.elastic.policies.hpa.policy import Hpa
from kfp_volcano.elastic.policies.memory import JobMemory, Memory, noted
from kfp_volcano.elastic.policies.room import room_of
from kfp_volcano.elastic.policies.snapshot import (
    ElasticJob,
    NodeState,
    PendingGang,
    QueueSnapshot,
    Resized,
    Sample,
    WorkerPod,
)
from kfp_volcano.schemas.hpa_validation import hpa_block

NOW = 10_000.0
NAMES = ["gpu-share-in-use", "gpus-in-use", "gpus-idle", "pending-gangs", "pending-gpus"]


def queue_metric(metric, value):
    described = {"kind": "Queue", "name": "research"}
    target = {"type": "Value", "value": value}
    return {"type": "Object", "object": {"describedObject": described, "metric": {"name": metric}, "target": target}}


def pods_metric(average):
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "Pods", "pods": {"metric": {"name": "load"}, "target": target}}


rules = st.fixed_dictionaries(
    {},
    optional={
        "stabilizationWindowSeconds": st.sampled_from([0, 30, 300]),
        "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"]),
        "tolerance": st.sampled_from([0, "0.1", "0.5"]),
        "policies": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(["Pods", "Percent"]),
                    "value": st.integers(1, 100),
                    "periodSeconds": st.sampled_from([15, 60]),
                }
            ),
            min_size=1,
            max_size=2,
        ),
    },
)
behaviors = st.none() | st.fixed_dictionaries({}, optional={"scaleUp": rules, "scaleDown": rules})
share = st.sampled_from(["0.3", "0.5", "0.9", "1"]).map(lambda value: queue_metric("gpu-share-in-use", value))
bounds = share | st.builds(queue_metric, st.sampled_from(NAMES), st.integers(1, 12))
metrics = st.lists(bounds | st.sampled_from(["0.2", "0.5"]).map(pods_metric), min_size=1, max_size=3)
policies = st.builds(
    lambda metrics, behavior: Hpa(spec=hpa_block({"metrics": metrics, "behavior": behavior})), metrics, behaviors
)


@st.composite
def snapshots(draw):
    """A queue whose books balance: what Jobs hold lies on its nodes, and the rest of them is free or others'."""
    free = [draw(st.integers(2, 10)) for _ in range(draw(st.integers(1, 3)))]
    total, jobs = sum(free), []
    for number in range(draw(st.integers(1, 3))):
        gpus = draw(st.sampled_from([1, 1, 2]))
        places = []
        for _ in range(draw(st.integers(1, 4))):
            fitting = [index for index, left in enumerate(free) if left >= gpus]
            if fitting:
                places.append(draw(st.sampled_from(fitting)))
                free[places[-1]] -= gpus
        if places:
            jobs.append(draw(job(number, gpus, places)))
    held = sum(len(each.nodes) * each.gpus_per_worker for each in jobs)
    waiting = [
        PendingGang(
            key=f"vision/gang-{number}",
            pods=tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))),
            since=float(number),
            priority=draw(st.integers(0, 1)),
        )
        for number in range(draw(st.integers(0, 2)))
    ]
    return QueueSnapshot(
        queue="research",
        at=NOW,
        limit_gpus=draw(st.integers(held, total)),
        allocated_gpus=held,
        nodes=states(free),
        jobs=tuple(jobs),
        pending=tuple(waiting),
    )


@st.composite
def job(draw, number, gpus, places):
    """A Job on these nodes, with measured workers."""
    count = len(places)
    least, most = draw(st.integers(1, count)), draw(st.integers(count, 10))
    load = draw(st.sampled_from([0.1, 0.45, 0.5, 0.9]))
    workers = [
        WorkerPod(name=f"w{index}", phase="Running", ready=True, started_at=0.0, samples={"load": Sample(NOW, load)})
        for index in range(draw(st.integers(0, count)))
    ]
    return ElasticJob(
        key=f"ml/job-{number}",
        workers=count,
        running=count,
        min_workers=least,
        max_workers=most,
        sizes=tuple(sorted(draw(st.sets(st.integers(least, most))) | {least, most})),
        gpus_per_worker=gpus,
        nodes=tuple(map(name, places)),
        priority=draw(st.integers(0, 1)),
        pods=tuple(workers),
    )


@given(policies, snapshots())
def test_hpa_every_job_has_one_decision_for_a_size_it_may_have(policy, snapshot):
    """With a sentence, and in the order of their keys."""
    decisions, jobs = policy.decide(snapshot), {each.key: each for each in snapshot.jobs}
    assert [each.job for each in decisions] == sorted(jobs)
    for each in decisions:
        assert each.from_workers == jobs[each.job].workers
        assert not each.resizes or each.to_workers in jobs[each.job].sizes
        assert "worker" in each.explanation
        assert each.recommended is not None


@given(policies, snapshots())
def test_hpa_growth_is_never_more_than_is_there(policy, snapshot):
    """On the nodes, within the queue's limit, and beside gangs that are served."""
    jobs = {each.key: each for each in snapshot.jobs}
    new = [
        jobs[each.job].gpus_per_worker
        for each in policy.decide(snapshot)
        for _ in range(each.to_workers - each.from_workers)
    ]
    assert sum(new) <= snapshot.free_gpus
    assert not new or serve(snapshot).room.take(pods(new)) is not None


@given(policies, snapshots(), st.randoms(use_true_random=False))
def test_hpa_the_order_of_jobs_and_gangs_means_nothing(policy, snapshot, random):
    """Equal queues, equal decisions."""
    jobs, gangs = list(snapshot.jobs), list(snapshot.pending)
    random.shuffle(jobs)
    random.shuffle(gangs)
    other = replace(snapshot, jobs=tuple(jobs), pending=tuple(gangs))
    assert policy.decide(other) == policy.decide(snapshot)


@given(policies, snapshots())
def test_hpa_gangs_come_first(policy, snapshot):
    """Each Job that a waiting gang is owed gives at once, whatever windows and metrics say."""
    owed = serve(snapshot).sizes
    given_ = {each.job: each.to_workers for each in policy.decide(snapshot) if each.urgent}
    assert given_ == owed


@given(policies, snapshots())
def test_hpa_on_a_constant_load_sizes_settle(policy, snapshot):
    """Gangs that are served start; then Jobs change for a while, and after that nothing does."""
    at, changes = snapshot, []
    for turn in range(60):
        after = settled(at, policy.decide(at))
        changes.append({each.key: each.workers for each in after.jobs} != {each.key: each.workers for each in at.jobs})
        at = replace(after, at=at.at + 20.0)
        if turn > 25 and not any(changes[-20:]):
            return
    raise AssertionError(changes)


def settled(snapshot, decisions):
    """The queue once all is carried out: whoever gives is gone, whoever grows has nodes, whoever waits is placed.

    Loads of workers are spread over as many as there are, as batches are.
    """
    room, jobs, memory = room_of(snapshot), [], {}
    sizes = {each.job: each.to_workers for each in decisions}
    for each in snapshot.jobs:
        room = room.give(each.nodes[sizes[each.key] :], each.gpus_per_worker, each.shape)
    pending = []
    for gang in snapshot.pending:
        after = room.take(pods(gang.pods), later=True)
        room = after or room
        pending += [] if after else [gang]
    for decision in decisions:
        each = next(one for one in snapshot.jobs if one.key == decision.job)
        kept = each.nodes[: decision.to_workers]
        places = list(kept)
        for _ in range(decision.to_workers - len(kept)):
            node = next(node for node, spot in sorted(room.named.items()) if spot.later >= each.gpus_per_worker)
            spots = {**room.named, node: room.named[node]._replace(later=room.named[node].later - each.gpus_per_worker)}
            room = replace(room, named=spots, limit_later=room.limit_later - each.gpus_per_worker)
            places.append(node)
        jobs.append(resized(each, decision, tuple(places), snapshot.at))
        before = snapshot.memory.jobs.get(each.key, JobMemory()).recommendations
        log = noted(before, each.workers, decision.recommended, snapshot.at)
        memory[each.key] = JobMemory(recommendations=log)
    return replace(
        snapshot,
        jobs=tuple(jobs),
        pending=tuple(pending),
        nodes={node: NodeState(spot.later) for node, spot in room.named.items()},
        allocated_gpus=snapshot.limit_gpus - room.limit_later,
        memory=Memory(jobs=memory),
    )


def resized(each, decision, places, at):
    """A Job with another size, its load spread over it and the change on its record."""
    if not decision.resizes:
        return each
    spread = each.workers / decision.to_workers
    workers = [
        replace(
            each.pods[0], name=f"w{index}", samples={"load": Sample(at, each.pods[0].samples["load"].value * spread)}
        )
        for index in range(decision.to_workers if each.pods else 0)
    ]
    done = Resized(at=at, from_workers=decision.from_workers, to_workers=decision.to_workers)
    return replace(
        each,
        workers=decision.to_workers,
        running=decision.to_workers,
        nodes=places,
        pods=tuple(workers),
        resizes=(*each.resizes, done),
    )
