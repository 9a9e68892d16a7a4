# SPDX-License-Identifier: Apache-2.0
"""Laws of the policy `goodput`, on random queues."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.goodput.policy import Goodput
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.room import room_of, unclaimed
from kfp_volcano.elastic.policies.snapshot import (
    NOWHERE,
    ElasticJob,
    Measured,
    NodeState,
    PendingGang,
    QueueSnapshot,
    Shape,
)

NOW = 100_000.0


@st.composite
def measurements(draw, workers):
    """Of a Job that scales somehow, at sizes it had."""
    alone = draw(st.floats(10, 1000))
    exponent = draw(st.sampled_from([0.0, 0.3, 0.7, 0.95, 1.0]))
    seen = draw(st.sets(st.integers(1, 8), max_size=3)) | {workers}
    return tuple(
        Measured(
            workers=size,
            throughput=alone * size**exponent,
            batch=256,
            nodes=draw(st.integers(1, min(size, 2))),
            gpu_class=draw(st.sampled_from(["", "a", "b"])),
        )
        for size in sorted(seen)
    )


@st.composite
def snapshots(draw, *, sizes=(1, 1, 2, 3, 4)):
    """A queue whose books balance, on nodes of two classes, some of them short of something for one shape."""
    free = [draw(st.integers(1, 8)) for _ in range(draw(st.integers(1, 3)))]
    total, jobs = sum(free), []
    classes = [draw(st.sampled_from(["a", "b"])) for _ in free]
    for number in range(draw(st.integers(0, 5))):
        gpus, nodes = draw(st.sampled_from(sizes)), []
        for _ in range(draw(st.integers(1, 5))):
            fitting = [index for index, left in enumerate(free) if left >= gpus]
            if fitting:
                nodes.append(draw(st.sampled_from(fitting)))
                free[nodes[-1]] -= gpus
        if not nodes:
            continue
        least, most = draw(st.integers(1, len(nodes))), draw(st.integers(len(nodes), 8))
        workers = len(nodes) + draw(st.integers(0, min(1, most - len(nodes))))
        jobs.append(
            ElasticJob(
                key=f"ml/job-{number}",
                workers=workers,
                running=len(nodes),
                min_workers=least,
                max_workers=most,
                sizes=tuple(sorted(draw(st.sets(st.integers(least, most))) | {least, most})),
                gpus_per_worker=gpus,
                nodes=(*(f"node-{node}" for node in nodes), *[NOWHERE] * (workers - len(nodes))),
                shape=draw(st.sampled_from(["", "thin", "picky"])),
                priority=draw(st.integers(0, 2)),
                created_at=NOW - draw(st.sampled_from([10.0, 3600.0])),
                remaining_s=draw(st.none() | st.floats(1, 1e5)),
                last_resize_at=draw(st.sampled_from([None, None, NOW - 10])),
                measured=draw(st.just(()) | measurements(len(nodes))),
                batch=256,
            )
        )
    for _ in range(draw(st.integers(0, sum(free)))):
        free[free.index(max(free))] -= 1
    held = sum((len(job.nodes) - job.nodes.count(NOWHERE)) * job.gpus_per_worker for job in jobs)
    return QueueSnapshot(
        queue="research",
        at=NOW,
        limit_gpus=draw(st.integers(held, total)),
        allocated_gpus=held,
        nodes={
            f"node-{number}": NodeState(
                left, fits=draw(st.sampled_from([(), (), (("thin", 0),), (("thin", 1),)])), gpu_class=gpu_class
            )
            for number, (left, gpu_class) in enumerate(zip(free, classes, strict=True))
        },
        shapes={"picky": Shape(name="picky", gpu_classes=("a",))},
        jobs=tuple(jobs),
        pending=tuple(draw(st.lists(gangs(), max_size=2, unique_by=lambda gang: gang.key))),
    )


@st.composite
def gangs(draw):
    """A gang that waits for some GPUs."""
    return PendingGang(
        key=f"vision/gang-{draw(st.integers(0, 5))}",
        pods=tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=4))),
        since=float(draw(st.integers(0, 3))),
        priority=draw(st.integers(0, 2)),
    )


def decide(snapshot):
    return Goodput().decide(snapshot)


@given(snapshots())
@settings(max_examples=50)
def test_every_job_has_one_decision_in_words(snapshot):
    """Sorted by key; the size is the present one or one that it may have; numbers are finite."""
    decisions = decide(snapshot)
    jobs = {job.key: job for job in snapshot.jobs}
    assert [decision.job for decision in decisions] == sorted(jobs)
    for decision in decisions:
        assert decision.from_workers == jobs[decision.job].workers
        assert decision.to_workers in {decision.from_workers, *jobs[decision.job].sizes}
        assert jobs[decision.job].name in decision.explanation
        assert all(abs(value) < float("inf") for value in decision.numbers.values())


@given(snapshots())
@settings(max_examples=50)
def test_growth_takes_no_more_than_is_free_now(snapshot):
    """All growth together is on nodes that take it, within the limit, beside what was promised before."""
    grown = [
        (job.shape, job.gpus_per_worker)
        for job, decision in zip(sorted(snapshot.jobs, key=lambda job: job.key), decide(snapshot), strict=True)
        for _ in range(decision.to_workers - decision.from_workers)
    ]
    assert unclaimed(room_of(snapshot), snapshot).take(grown) is not None


@given(snapshots(), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_of_jobs_and_gangs_means_nothing(snapshot, random):
    """Equal snapshots give equal decisions."""
    jobs, gangs = list(snapshot.jobs), list(snapshot.pending)
    random.shuffle(jobs)
    random.shuffle(gangs)
    assert decide(replace(snapshot, jobs=tuple(jobs), pending=tuple(gangs))) == decide(snapshot)


@given(snapshots())
@settings(max_examples=50)
def test_what_it_wants_passes_the_guards(snapshot):
    """It keeps to the sizes that the guards leave, and wants no growth for which they find no room."""
    wanted = {decision.job: decision for decision in decide(snapshot)}
    for decision in Guarded(Goodput()).decide(snapshot):
        assert decision.reason is not Reason.OUT_OF_RANGE
        if decision.reason in {Reason.NO_ROOM, Reason.GANG_FIRST, Reason.FAIR_SHARE}:
            assert decision.explanation == wanted[decision.job].explanation or not wanted[decision.job].resizes


@given(snapshots())
@settings(max_examples=50)
def test_only_gangs_are_urgent(snapshot):
    """And a Job that yields does so for another that is to grow, at no lower priority than any that would gain less."""
    decisions = decide(snapshot)
    for decision in decisions:
        assert decision.urgent == (decision.reason is Reason.GANG_PENDING)
    if any(decision.reason is Reason.YIELDS for decision in decisions):
        planned = [each for each in decisions if each.numbers.get("planned_workers", 0) > each.from_workers]
        assert planned


@given(snapshots())
@settings(max_examples=50)
def test_a_job_that_rests_is_left_alone(snapshot):
    """Within its cooldown, with a resize open or workers without a node it gives to gangs only."""
    jobs = {job.key: job for job in snapshot.jobs}
    for decision in decide(snapshot):
        if decision.reason is not Reason.GANG_PENDING and jobs[decision.job].last_resize_at is not None:
            assert not decision.resizes


@given(snapshots())
@settings(max_examples=60)
def test_constant_load_settles(snapshot):
    """Carried out again and again on a queue where nothing else happens, decisions come to rest."""
    snapshot = replace(snapshot, jobs=tuple(replace(job, last_resize_at=None) for job in snapshot.jobs))
    for _ in range(30):
        decisions = decide(snapshot)
        if not any(decision.resizes for decision in decisions):
            return
        snapshot = carried_out(snapshot, decisions)
    raise AssertionError(f"still resizing after 30 rounds: {decisions}")


class Books:
    """What is free while decisions are carried out."""

    def __init__(self, snapshot):
        self.nodes, self.shapes = dict(snapshot.nodes), snapshot.shapes
        self.limit = snapshot.limit_gpus - snapshot.allocated_gpus

    def put(self, node, shape, gpus, sign=1):
        """Onto a node, or off it (-1)."""
        if node == NOWHERE:
            return
        state = self.nodes[node]
        fits = tuple((name, most - sign * (name == shape)) for name, most in state.fits)
        self.limit -= sign * gpus
        self.nodes[node] = replace(state, free=state.free - sign * gpus, fits=fits)

    def place(self, shape, gpus):
        """Onto the fullest node that takes it."""
        allowed = self.shapes[shape].gpu_classes if shape in self.shapes else ()
        for node, state in sorted(self.nodes.items(), key=lambda each: (each[1].free, each[0])):
            fitting = (not allowed or state.gpu_class in allowed) and dict(state.fits).get(shape, 1) > 0
            if fitting and gpus <= min(state.free, self.limit):
                self.put(node, shape, gpus)
                return node
        return NOWHERE


def carried_out(snapshot, decisions):
    """The queue when the decisions are done and gangs that fit have started; they run for ever."""
    books, jobs, waiting = Books(snapshot), [], []
    sizes = {decision.job: decision.to_workers for decision in decisions}
    for job in snapshot.jobs:
        for node in job.nodes[sizes[job.key] :]:
            books.put(node, job.shape, job.gpus_per_worker, -1)
        jobs.append(replace(job, workers=sizes[job.key], nodes=job.nodes[: sizes[job.key]]))
    for gang in sorted(snapshot.pending, key=lambda gang: (-gang.priority, gang.since, gang.key)):
        placed = [(books.place(gang.shape, gpus), gpus) for gpus in gang.pods]
        if any(node == NOWHERE for node, _ in placed):
            waiting.append(gang)
            for node, gpus in placed:
                books.put(node, gang.shape, gpus, -1)
    for index, job in enumerate(jobs):
        kept = [node for node in job.nodes if node != NOWHERE]
        new = [books.place(job.shape, job.gpus_per_worker) for _ in range(job.workers - len(kept))]
        placed = (*kept, *sorted(new, key=lambda node: node == NOWHERE))
        jobs[index] = replace(job, nodes=placed, running=job.workers - placed.count(NOWHERE))
    held = snapshot.limit_gpus - books.limit
    return replace(snapshot, allocated_gpus=held, nodes=books.nodes, jobs=tuple(jobs), pending=tuple(waiting))
