# SPDX-License-Identifier: Apache-2.0
"""Who is owed what: fair share among queues, gangs before surplus, and the order in which Jobs give."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from books import bare_room, name, pods, states
from kfp_volcano.elastic.policies.gangs import serve
from kfp_volcano.elastic.policies.giving import giving_order, standing
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.snapshot import (
    ElasticJob,
    NodeState,
    PendingGang,
    QueueSnapshot,
    Resized,
    Shape,
)
from kfp_volcano.elastic.policies.threshold import Threshold
from wishes import Says


def job(key="ml/digits", *, nodes, low=2, sizes=tuple(range(1, 17)), **more):
    """A Job with a GPU on each of these nodes."""
    return ElasticJob(
        key=key,
        workers=len(nodes),
        running=len(nodes),
        min_workers=low,
        max_workers=max(sizes),
        sizes=tuple(size for size in sizes if size >= low),
        gpus_per_worker=more.pop("gpus", 1),
        nodes=tuple(map(name, nodes)),
        **more,
    )


def gang(*wanted, key="vision/big", since=0.0, **more):
    """A gang whose pods want so many GPUs each."""
    return PendingGang(key=key, pods=wanted, since=since, **more)


def queue(jobs, *, limit=16, free=(0, 0), allocated=None, **more):
    """A queue on nodes with so many free GPUs each."""
    held = sum(len(each.nodes) * each.gpus_per_worker for each in jobs)
    return QueueSnapshot(
        queue="research",
        at=1000.0,
        limit_gpus=limit,
        allocated_gpus=held if allocated is None else allocated,
        nodes=states(free),
        jobs=tuple(jobs),
        **more,
    )


def decided(snapshot, policy=None):
    return {each.job: each for each in Guarded(policy or Threshold()).decide(snapshot)}


# Fair share.

BORROWER = job(nodes=[0] * 8 + [1] * 8)
"""Holds 16 GPUs, where its queue deserves 8: as in Volcano's `reclaim_takes_the_surplus`."""


def claim(*wanted, **more):
    """A gang of another queue that is within its share."""
    return gang(*wanted, **{"key": "b/wants", "queue": "two", **more})


def test_what_was_borrowed_goes_back_when_its_owner_needs_it():
    """As much as the gang needs, at once, off the end: no gang is broken and no surplus starved beside it."""
    [decision] = decided(queue([BORROWER], deserved_gpus=8, claims=(claim(*[1] * 6),))).values()
    assert (decision.to_workers, decision.reason, decision.urgent) == (10, Reason.RECLAIMED, True)
    gives = "digits gives 6 of what its queue has borrowed from two and shrinks from 16 to 10 workers"
    assert decision.explanation == f"wants waits for 6 GPUs: {gives}"


@pytest.mark.parametrize(
    ("deserved", "wanted", "size"),
    [(8, 8, 8), (8, 9, 16), (10, 6, 10), (10, 7, 16), (16, 1, 16), (None, 1, 16)],
)
def test_no_more_is_given_to_another_queue_than_was_borrowed(deserved, wanted, size):
    """What the queue deserves stays, whatever the other's gang needs; half a gang's need is given to nobody."""
    snapshot = queue([BORROWER], deserved_gpus=deserved, claims=(claim(*[1] * wanted),))
    assert decided(snapshot)["ml/digits"].to_workers == size


def test_priority_does_not_keep_what_was_borrowed():
    """It counts within a queue: among queues shares do."""
    snapshot = queue([replace(BORROWER, priority=9)], deserved_gpus=8, claims=(claim(1, priority=-1),))
    assert decided(snapshot)["ml/digits"].to_workers == 15


def test_a_claim_that_fits_takes_nothing():
    """Volcano will place it; but nobody grows into its GPUs."""
    snapshot = queue([job(nodes=[0] * 8)], free=(0, 8), deserved_gpus=8, claims=(claim(*[1] * 6),))
    [decision] = decided(snapshot, Says({"ml/digits": 12})).values()
    assert (decision.to_workers, decision.reason) == (8, Reason.GANG_FIRST)


def test_nobody_borrows_while_a_gang_within_its_share_waits_in_vain():
    """Up to what the queue deserves it grows all the same, and beyond when nobody waits."""
    small = job(nodes=[0] * 6)
    waiting = queue([small], free=(0, 3), deserved_gpus=8, claims=(claim(*[1] * 8),))
    for wanted, expected in [(8, (8, Reason.QUEUE_IDLE)), (9, (6, Reason.FAIR_SHARE))]:
        [decision] = decided(waiting, Says({"ml/digits": wanted})).values()
        assert (decision.to_workers, decision.reason) == expected
    [decision] = decided(replace(waiting, claims=()), Says({"ml/digits": 9})).values()
    assert (decision.to_workers, decision.reason) == (9, Reason.QUEUE_IDLE)


@pytest.mark.parametrize(
    ("deserved", "wanted", "size"),
    [(10, 6, 4), (10, 4, 6), (8, 6, 8), (8, 4, 6), (6, 6, 8), (6, 4, 6)],
)
def test_a_gang_that_would_borrow_takes_no_surplus_within_the_share(deserved, wanted, size):
    """Of 8 GPUs 4 are a gang's and 4 surplus, and 2 are free: no gang takes what is within the share."""
    snapshot = queue([job(nodes=[0] * 8, low=4)], limit=12, free=(0, 2), deserved_gpus=deserved)
    service = serve(replace(snapshot, pending=(gang(*[1] * wanted),)))
    assert service.sizes.get("ml/digits", 8) == size


def test_gangs_within_their_share_are_served_before_those_that_would_borrow():
    """Whatever their priorities: what is borrowed goes back."""
    surplus = job(nodes=[0] * 8, low=4)
    large, small = gang(*[1] * 5, key="a/large", priority=9), gang(1, 1, 1, key="b/small")
    service = serve(queue([surplus], limit=8, deserved_gpus=8, pending=(large, small)))
    assert (service.served, service.unserved) == ((small,), (large,))


def test_other_queues_gangs_and_own_ones_are_served_in_one_order():
    """By priority and by how long they have waited, where each is within its share."""
    wants = [claim(*[1] * 4, priority=1), gang(*[1] * 4, key="a/own", since=1.0)]
    snapshot = queue([BORROWER], deserved_gpus=8, claims=(wants[0],), pending=(wants[1],))
    assert [each.key for each in serve(snapshot).served] == ["b/wants", "a/own"]


# Who gives first.


def ranked(**more):
    """A Job of four workers on a node of its own."""
    return job("ml/" + more.pop("key", "digits"), nodes=[0] * more.pop("workers", 4), **more)


PAUSED = (Resized(at=0.0, from_workers=2, to_workers=4, pause_s=30.0),)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"priority": 0, "workers": 3}, {"priority": 1, "workers": 9}, "lower priority than second, 0 against 1"),
        ({"workers": 5, "resizes": PAUSED}, {"workers": 4}, "more surplus than second, 3 GPUs against 2"),
        ({"done": 0.9}, {"resizes": PAUSED}, "cheaper to shrink than second, about 1 s against 30 s"),
        ({"done": 0.1}, {"done": 0.5, "utilisation": 0.1}, "less done than second, about 10 % against 50 %"),
        ({}, {"done": 0.5}, "less done than second, about 0 % against 50 %"),
        ({"utilisation": 0.3}, {}, "its GPUs less used than those of second, about 30 % against 100 %"),
        ({"done": 0.51}, {"done": 0.52}, "equal to second, and first by name"),
    ],
)
def test_the_order_goes_by_one_thing_after_another(first, second, words):
    """Each counts where all before it are equal; and it can say so."""
    one, two = ranked(key="first", **first), ranked(key="second", **second)
    assert [each.name for each in giving_order([two, one])] == ["first", "second"]
    assert standing(one).before(standing(two)) == words


@given(
    st.lists(
        st.builds(
            ranked,
            key=st.sampled_from("abcdef"),
            workers=st.integers(2, 4),
            priority=st.integers(0, 1),
            done=st.none() | st.floats(0, 1),
            utilisation=st.none() | st.floats(0, 1),
            resizes=st.sampled_from([(), PAUSED]),
        ),
        unique_by=lambda each: each.key,
        max_size=5,
    )
)
def test_the_order_is_total(jobs):
    """Whatever order Jobs come in, the same one gives first."""
    orders = {tuple(each.key for each in giving_order(some)) for some in permutations(jobs)}
    assert len(orders) == 1


def test_a_decision_says_why_this_job_gives_and_not_the_next():
    """With the name of the one that is spared."""
    jobs = [job("ml/low", nodes=[0] * 4), job("ml/high", nodes=[1] * 4, priority=1)]
    decision = decided(queue(jobs, limit=8, pending=(gang(1, priority=1),)))["ml/low"]
    assert decision.explanation.endswith("it gives first: lower priority than high, 0 against 1")


# As little as will do.


@st.composite
def hardships(draw):
    """A full queue with Jobs of few sizes on two or three nodes, and a gang."""
    jobs, count = [], draw(st.integers(1, 4))
    nodes = draw(st.integers(1, 3))
    for number in range(count):
        placed = draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=5))
        between = draw(st.sets(st.integers(1, len(placed))))
        jobs.append(
            job(
                f"ml/{number}",
                nodes=placed,
                low=1,
                sizes=tuple(sorted({1, len(placed)} | between)),
                priority=draw(st.integers(0, 1)),
            )
        )
    free = draw(st.lists(st.integers(0, 2), min_size=nodes, max_size=nodes))
    equal = draw(st.integers(1, 2))
    wanted = gang(*[equal] * draw(st.integers(1, 4)), priority=1)
    held = sum(len(each.nodes) for each in jobs)
    deserved = draw(st.none() | st.integers(0, held + sum(free)))
    snapshot = queue(jobs, limit=held + sum(free), free=free, deserved_gpus=deserved)
    if draw(st.booleans()):
        return replace(snapshot, claims=(replace(wanted, queue="two"),))
    return replace(snapshot, pending=(wanted,))


@given(hardships())
def test_what_is_given_is_the_least_of_all_that_would_do(snapshot):
    """Compared with every other way: the Job that is last in order keeps the most, then the one before it."""
    [wanted] = snapshot.claims or snapshot.pending
    service = serve(snapshot)
    order = list(reversed(giving_order(snapshot.jobs)))
    held = snapshot.allocated_gpus
    cores = sum(min(each.min_workers, each.workers) for each in snapshot.jobs)
    limited = bool(snapshot.claims) or cores + wanted.gpus > snapshot.share_gpus
    budget = max(0, held - snapshot.share_gpus) if limited else held
    # What a budget is spent on follows the order, not the least: only whether it is kept is looked at there.
    given_up = sum(each.workers - service.sizes.get(each.key, each.workers) for each in snapshot.jobs)
    assert given_up <= budget
    assume(not limited)
    best = None
    for sizes in product(*[[size for size in each.sizes if size <= each.workers] for each in order]):
        room = bare_room(snapshot)
        for each, size in zip(order, sizes, strict=True):
            room = room.give(each.nodes[size:], 1)
        if room.take(pods(wanted.pods), later=True) is not None:
            best = max(best or sizes, sizes)
    found = tuple(service.sizes.get(each.key, each.workers) for each in order)
    assert found == (best or tuple(each.workers for each in order))
    assert bool(service.served) == (best is not None)


def test_a_shape_that_is_short_of_something_else_counts_what_comes_free_of_it():
    """A node that has CPU for one more of a shape has it for two when one leaves."""
    shapes = {"large": Shape(name="large", requests={"cpu": 8000})}
    here = job(nodes=[0] * 4, low=1, shape="large")
    snapshot = queue([here], limit=8, pending=(gang(1, 1, shape="large"),), shapes=shapes)
    snapshot = replace(snapshot, nodes={"node-0": NodeState(4, 0, (("large", 1),))})
    assert serve(snapshot).sizes == {"ml/digits": 3}
