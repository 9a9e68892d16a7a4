# SPDX-License-Identifier: Apache-2.0
"""Laws of guarded policies, on random queues."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from books import bare_room, name, pods, states
from every_policy import POLICIES
from kfp_volcano.elastic.policies.gangs import serve
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.policy import Decision, Reason
from kfp_volcano.elastic.policies.snapshot import NOWHERE, ElasticJob, NodeState, PendingGang, QueueSnapshot
from kfp_volcano.schemas.records import Hold

NOW = 10_000.0


@st.composite
def snapshots(draw, *, guards=True, gpus=(1, 1, 1, 2)):
    """A queue whose books balance: what Jobs hold lies on its nodes, and the rest of them is free or others'."""
    free = [draw(st.integers(1, 8)) for _ in range(draw(st.integers(1, 3)))]
    total, jobs = sum(free), []
    for number in range(draw(st.integers(0, 4))):
        each = draw(st.sampled_from(gpus))
        nodes = []
        for _ in range(draw(st.integers(1, 6))):
            fitting = [index for index, left in enumerate(free) if left >= each]
            if fitting:
                nodes.append(draw(st.sampled_from(fitting)))
                free[nodes[-1]] -= each
        if not nodes:
            continue
        least = draw(st.integers(1, len(nodes)))
        most = draw(st.integers(len(nodes), 10))
        between = draw(st.sets(st.integers(least, most)))
        unplaced = draw(st.integers(0, min(2, most - len(nodes))))
        job = ElasticJob(
            key=f"ml/job-{number}",
            workers=len(nodes) + unplaced,
            running=len(nodes),
            min_workers=least,
            max_workers=most,
            sizes=tuple(sorted(between | {least, most})),
            gpus_per_worker=each,
            nodes=(*map(name, nodes), *[NOWHERE] * unplaced),
            priority=draw(st.integers(0, 2)),
        )
        jobs.append(draw(guarded(job)) if guards else job)
    others = draw(st.integers(0, sum(free)))
    for _ in range(others):
        free[free.index(max(free))] -= 1
    held = sum((len(job.nodes) - job.nodes.count(NOWHERE)) * job.gpus_per_worker for job in jobs)
    waiting = tuple(draw(gangs(number=number)) for number in range(draw(st.integers(0, 3))))
    return QueueSnapshot(
        queue="research",
        at=NOW,
        limit_gpus=draw(st.integers(held, total)),
        allocated_gpus=held,
        nodes=states(free),
        jobs=tuple(jobs),
        pending=waiting,
    )


@st.composite
def gangs(draw, *, number=0):
    """A gang that waits for some GPUs."""
    return PendingGang(
        key=f"vision/gang-{number}",
        pods=tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=4))),
        since=float(draw(st.integers(0, 3))),
        priority=draw(st.integers(0, 2)),
    )


@st.composite
def guarded(draw, job):
    """A Job with any of the things that guards look at."""
    holds = st.builds(
        Hold,
        until=st.sampled_from([NOW - 1, NOW + 100]),
        by=st.just("ada"),
        override=st.none() | st.integers(0, 10),
    )
    return replace(
        job,
        last_resize_at=draw(st.none() | st.sampled_from([NOW - 10, NOW - 100])),
        last_failed=draw(st.booleans()),
        resize_open=draw(st.booleans()),
        waiting_since=draw(st.none() | st.sampled_from([NOW - 1, NOW - 100])),
        hold=draw(st.none() | holds),
    )


def decide(snapshot, policy):
    return Guarded(POLICIES[policy]).decide(snapshot)


every_policy = pytest.mark.parametrize("policy", POLICIES)
examples = settings(max_examples=settings().max_examples // 3)
"""Of each policy: the laws are the same for all."""


@every_policy
@examples
@given(snapshots())
def test_every_job_has_exactly_one_decision(policy, snapshot):
    """Also where nothing changes, and with a sentence."""
    decisions = decide(snapshot, policy)
    assert [decision.job for decision in decisions] == sorted(job.key for job in snapshot.jobs)
    assert all(decision.explanation for decision in decisions)


@every_policy
@examples
@given(snapshots())
def test_every_new_size_is_one_the_job_may_have(policy, snapshot):
    """Never below the minimum, above the maximum, or between the sizes."""
    jobs = {job.key: job for job in snapshot.jobs}
    for decision in decide(snapshot, policy):
        assert decision.from_workers == jobs[decision.job].workers
        assert not decision.resizes or decision.to_workers in jobs[decision.job].sizes


@every_policy
@examples
@given(snapshots())
def test_growth_takes_no_more_than_is_free(policy, snapshot):
    """All growth together fits on the nodes and within the queue's limit."""
    jobs = {job.key: job for job in snapshot.jobs}
    grown = [
        gpus
        for decision in decide(snapshot, policy)
        for gpus in [jobs[decision.job].gpus_per_worker] * (decision.to_workers - decision.from_workers)
    ]
    assert sum(grown) <= snapshot.free_gpus
    assert not grown or bare_room(snapshot).take(pods(grown))


@every_policy
@examples
@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_jobs_and_gangs_means_nothing(policy, snapshot, random):
    """Equal snapshots give equal decisions."""
    jobs, gangs = list(snapshot.jobs), list(snapshot.pending)
    random.shuffle(jobs)
    random.shuffle(gangs)
    assert decide(replace(snapshot, jobs=tuple(jobs), pending=tuple(gangs)), policy) == decide(snapshot, policy)


@every_policy
@examples
@given(snapshots())
def test_what_a_person_holds_stays(policy, snapshot):
    """No policy moves a Job that is held, or that is being resized."""
    for job, decision in zip(sorted(snapshot.jobs, key=lambda job: job.key), decide(snapshot, policy), strict=True):
        held = job.hold is not None and job.hold.until > NOW and job.hold.override is None
        assert not (decision.resizes and (held or job.resize_open))


@every_policy
@examples
@given(snapshots(guards=False))
def test_only_gangs_are_urgent(policy, snapshot):
    """Growth waits for the step of a pipeline, and so does what a policy takes; shrinking for a gang does not."""
    for decision in decide(snapshot, policy):
        assert decision.urgent == (decision.reason in {Reason.GANG_PENDING, Reason.UNPLACED})
        assert not decision.urgent or decision.to_workers < decision.from_workers


@every_policy
@examples
@given(snapshots(guards=False), gangs())
def test_a_gang_that_a_shrink_serves_is_served(policy, snapshot, gang):
    """If one gang waits that fits without the surplus of Jobs of no higher priority, it fits after what was decided."""
    snapshot = replace(snapshot, pending=(gang,))
    before = bare_room(snapshot)
    smallest, after = before, before
    for job, decision in zip(sorted(snapshot.jobs, key=lambda job: job.key), decide(snapshot, policy), strict=True):
        if job.priority <= gang.priority:
            smallest = smallest.give(job.nodes[min(job.sizes) :], job.gpus_per_worker)
        after = after.give(job.nodes[decision.to_workers :], job.gpus_per_worker)
        more = pods([job.gpus_per_worker] * (decision.to_workers - job.workers))
        after = after.take(more)
    if smallest.take(pods(gang.pods), later=True) is not None:
        assert after.take(pods(gang.pods), later=True) is not None
    else:
        assert not any(decision.reason is Reason.GANG_PENDING for decision in decide(snapshot, policy))


@every_policy
@examples
@given(snapshots(), gangs(), st.integers(0, 20))
def test_nobody_borrows_more_while_a_gang_within_its_share_waits_in_vain(policy, snapshot, gang, deserved):
    """Growth stays within what the queue deserves then, whatever the policy."""
    gang = replace(gang, queue="two")
    snapshot = replace(snapshot, claims=(gang,), deserved_gpus=deserved)
    jobs = {job.key: job for job in snapshot.jobs}
    grown = given_back = 0
    for decision in decide(snapshot, policy):
        more = (decision.to_workers - decision.from_workers) * jobs[decision.job].gpus_per_worker
        if decision.policy != "person":
            grown += max(0, more)
        given_back += max(0, -more) if decision.reason is Reason.RECLAIMED else 0
    room = bare_room(snapshot)
    fits = room.named and replace(room, limit=99, limit_later=99).take(pods(gang.pods), later=True)
    if not fits and not given_back:
        assert grown <= max(0, snapshot.share_gpus - snapshot.allocated_gpus)


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "goodput"])
@examples
@given(snapshots(guards=False, gpus=(1,)), st.data())
def test_a_higher_priority_never_lowers_a_size(policy, snapshot, data):
    """Where workers are of one size, all else equal: a Job raised above others gets no less, and gives no more."""
    if not snapshot.jobs:
        return
    job = data.draw(st.sampled_from(snapshot.jobs))
    raised = replace(job, priority=job.priority + data.draw(st.integers(1, 3)))
    jobs = tuple(raised if each.key == job.key else each for each in snapshot.jobs)
    before = {each.job: each.to_workers for each in decide(snapshot, policy)}[job.key]
    after = {each.job: each.to_workers for each in decide(replace(snapshot, jobs=jobs), policy)}[job.key]
    assert after >= before


@pytest.mark.parametrize("policy", ["threshold", "threshold-each-way", "adaptive"])
@examples
@given(snapshots(), st.floats(0, 1))
def test_nothing_changes_before_something_lets_go(policy, snapshot, part):
    """What is decided stays decided until the next change, so that nobody has to look before."""
    guarded = Guarded(POLICIES[policy])
    until = guarded.next_change(snapshot)
    at = NOW + part * ((until if until is not None else NOW + 10_000) - NOW)
    if until is None or at < until:
        sizes = {each.job: (each.to_workers, each.reason) for each in guarded.decide(snapshot)}
        later = guarded.decide(replace(snapshot, at=at, memory=guarded.remember(snapshot, ())))
        assert {each.job: (each.to_workers, each.reason) for each in later} == sizes


@given(snapshots(guards=False), gangs())
def test_no_job_gives_more_than_it_has_to(snapshot, gang):
    """Any one Job kept at its next larger size, or as it is, leaves the gang waiting."""
    snapshot = replace(snapshot, pending=(gang,))
    given_up = serve(snapshot).sizes
    jobs = {job.key: job for job in snapshot.jobs}
    for key in given_up:
        larger = min({jobs[key].workers, *(size for size in jobs[key].sizes if size > given_up[key])})
        room = bare_room(snapshot)
        for other, size in {**given_up, key: larger}.items():
            room = room.give(jobs[other].nodes[size:], jobs[other].gpus_per_worker)
        assert room.take(pods(gang.pods), later=True) is None


@every_policy
@examples
@given(snapshots(guards=False))
def test_constant_load_settles(policy, snapshot):
    """Carried out again and again on a queue where nothing else happens, decisions come to rest."""
    for _ in range(20):
        decisions = decide(snapshot, policy)
        if not any(decision.resizes for decision in decisions):
            return
        snapshot = carried_out(snapshot, decisions)
    raise AssertionError(f"still resizing after 20 rounds: {decisions}")


def carried_out(snapshot: QueueSnapshot, decisions: tuple[Decision, ...]) -> QueueSnapshot:
    """The queue when the decisions are done and gangs that fit have started; they run for ever."""
    room = bare_room(snapshot)
    sizes = {decision.job: decision.to_workers for decision in decisions}
    jobs, waiting = [], []
    for job in snapshot.jobs:
        room = room.give(job.nodes[sizes[job.key] :], job.gpus_per_worker)
        jobs.append(replace(job, workers=sizes[job.key], nodes=job.nodes[: sizes[job.key]]))
    for gang in sorted(snapshot.pending, key=lambda gang: (-gang.priority, gang.since, gang.key)):
        after = room.take(pods(gang.pods), later=True)
        waiting += [] if after else [gang]
        room = after or room
    for index, job in enumerate(jobs):
        nodes = [node for node in job.nodes if node != NOWHERE]
        while len(nodes) < job.workers and (after := room.take(pods([job.gpus_per_worker]), later=True)):
            changed = [node for node, spot in after.named.items() if spot.later != room.named[node].later]
            nodes, room = [*nodes, *changed], after
        nodes += [NOWHERE] * (job.workers - len(nodes))
        jobs[index] = replace(job, nodes=tuple(nodes), running=job.workers)
    return replace(
        snapshot,
        allocated_gpus=snapshot.limit_gpus - room.limit_later,
        nodes={node: NodeState(spot.later) for node, spot in room.named.items()},
        jobs=tuple(jobs),
        pending=tuple(waiting),
    )
