# SPDX-License-Identifier: Apache-2.0
"""What the threshold policy decides, case by case."""

from __future__ import annotations

import pytest

from books import name, states
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.settings import Down, ThresholdSettings, Up
from kfp_volcano.elastic.policies.snapshot import NOWHERE, ElasticJob, PendingGang, QueueSnapshot
from kfp_volcano.elastic.policies.threshold import Threshold

NOW = 1000.0


def job(key="ml/digits", *, nodes, low=2, sizes=(2, 3, 4, 5, 6, 7, 8), **more):
    return ElasticJob(
        key=key,
        workers=len(nodes),
        running=len(nodes),
        min_workers=low,
        max_workers=max(sizes),
        sizes=sizes,
        gpus_per_worker=more.pop("gpus", 1),
        nodes=tuple(map(name, nodes)),
        **more,
    )


def gang(*pods, key="vision/big", since=0.0, priority=0):
    return PendingGang(key=key, pods=pods, since=since, priority=priority)


def queue(jobs, *, free, gangs=(), limit=8, allocated=None, releasing=(), **more):
    held = sum(len(each.nodes) * each.gpus_per_worker for each in jobs)
    return QueueSnapshot(
        queue="research",
        at=NOW,
        limit_gpus=limit,
        allocated_gpus=held if allocated is None else allocated,
        nodes=states(free, releasing),
        jobs=tuple(jobs),
        pending=tuple(gangs),
        **more,
    )


def decide(snapshot, *, up=Up(), down=Down()):  # noqa: B008 - frozen
    policy = Threshold(settings=ThresholdSettings(up=up, down=down))
    return {decision.job: decision for decision in policy.decide(snapshot)}


def sizes(snapshot, **settings):
    return {key: decision.to_workers for key, decision in decide(snapshot, **settings).items()}


def test_an_idle_queue_is_grown_into():
    """With 6 of 8 GPUs idle and nobody waiting a Job takes them all, and says so."""
    [decision] = decide(queue([job(nodes=[0, 0])], free=(2, 4))).values()
    assert (decision.to_workers, decision.reason, decision.urgent) == (8, Reason.QUEUE_IDLE, False)
    assert decision.explanation == (
        "6 of the queue's 8 GPUs are idle and no gang waits: digits grows from 2 to 8 workers"
    )


@pytest.mark.parametrize(("idle", "grows"), [(3, False), (4, True)])
def test_growth_begins_at_the_share(idle, grows):
    """Exactly half idle is enough, a GPU less is not."""
    snapshot = queue([job(nodes=[0, 0])], free=(0, idle), allocated=8 - idle)
    assert (sizes(snapshot)["ml/digits"] > 2) is grows


def test_the_largest_size_that_fits_is_taken():
    """Sizes between are passed over, sizes above are not reached."""
    snapshot = queue([job(nodes=[0, 0], sizes=(2, 4, 6, 8))], free=(1, 4))
    assert sizes(snapshot) == {"ml/digits": 6}


def test_room_is_counted_node_by_node():
    """Two nodes with a GPU each have no room for a worker of two."""
    snapshot = queue([job(nodes=[0], low=1, sizes=(1, 2), gpus=2)], free=(1, 1, 1, 1), limit=6)
    [decision] = decide(snapshot).values()
    assert (decision.to_workers, decision.reason) == (1, Reason.NO_ROOM)


def test_a_gang_that_fits_takes_nothing_from_anybody():
    """Volcano will place it; and the GPUs it is going to have are not grown into."""
    snapshot = queue([job(nodes=[0, 0, 1, 1])], free=(2, 2), gangs=[gang(1, 1, 1, 1)])
    [decision] = decide(snapshot).values()
    assert (decision.to_workers, decision.reason) == (4, Reason.GANG_FIRST)


def test_growth_leaves_a_gang_what_it_needs():
    """With 12 idle and a gang of 4, a Job of 4 grows by 8 at most."""
    snapshot = queue([job(nodes=[0] * 4, sizes=(2, 4, 12, 16))], free=(4, 8), gangs=[gang(*[1] * 4)], limit=16)
    assert sizes(snapshot) == {"ml/digits": 12}


def test_a_waiting_gang_gets_the_surplus():
    """A full queue with a gang of 4 makes a Job of 8 shrink to 4, at once."""
    [decision] = decide(queue([job(nodes=[0] * 4 + [1] * 4)], free=(0, 0), gangs=[gang(1, 1, 1, 1)])).values()
    assert (decision.to_workers, decision.reason, decision.urgent) == (4, Reason.GANG_PENDING, True)
    assert decision.explanation == "big waits for 4 GPUs: digits gives 4 and shrinks from 8 to 4 workers"


@pytest.mark.parametrize(
    ("allowed", "size"),
    [((2, 3, 4, 5, 6, 7, 8), 5), ((2, 4, 8), 4), ((2, 8), 2)],
)
def test_no_more_is_given_than_a_size_allows(allowed, size):
    """The smallest reduction to a valid size that frees enough."""
    snapshot = queue([job(nodes=[0] * 4 + [1] * 4, sizes=allowed)], free=(0, 0), gangs=[gang(1, 1, 1)])
    assert sizes(snapshot) == {"ml/digits": size}


def test_what_is_free_counts_towards_the_gang():
    """Two free GPUs and two of surplus serve a gang of four."""
    snapshot = queue([job(nodes=[0] * 4 + [1] * 2)], free=(0, 2), gangs=[gang(1, 1, 1, 1)])
    assert sizes(snapshot) == {"ml/digits": 4}


def test_a_pod_needs_its_gpus_on_one_node():
    """Workers go from the end, so a gang of one pod with 4 GPUs costs all that lie before those of one node."""
    nodes = [0, 0, 0, 0, 1, 1, 0, 1]
    snapshot = queue([job(nodes=nodes, low=1, sizes=tuple(range(1, 9)))], free=(0, 1), gangs=[gang(4)], limit=9)
    assert sizes(snapshot) == {"ml/digits": 4}


def test_the_gang_itself_is_never_touched():
    """A gang that needs more than the surplus takes nothing: giving it were in vain."""
    [decision] = decide(queue([job(nodes=[0] * 4)], free=(0, 0), gangs=[gang(*[1] * 4)], limit=4)).values()
    assert (decision.to_workers, decision.reason) == (4, Reason.SURPLUS_TOO_SMALL)


def test_a_job_without_surplus_says_so():
    """A gang waits, but the Job has its minimum."""
    [decision] = decide(queue([job(nodes=[0, 0])], free=(0,), gangs=[gang(1, 1)], limit=2)).values()
    assert (decision.to_workers, decision.reason) == (2, Reason.AT_MINIMUM)


def test_a_gang_that_can_never_be_served_does_not_keep_others_small():
    """It would wait all the same; what a Job grows by now, it gives back when that helps."""
    snapshot = queue([job(nodes=[0, 0])], free=(2, 4), gangs=[gang(*[1] * 7)])
    assert sizes(snapshot) == {"ml/digits": 8}


def test_the_lowest_priority_gives_first():
    """Priority decides, however much surplus another has."""
    low = job("ml/low", nodes=[0, 0, 0, 0], priority=1)
    high = job("ml/high", nodes=[1] * 8, priority=5)
    gangs = [gang(1, 1, priority=5)]
    assert sizes(queue([high, low], free=(0, 0), gangs=gangs, limit=12)) == {"ml/high": 8, "ml/low": 2}


def test_nothing_is_owed_to_a_gang_of_lower_priority():
    """It waits while a more important Job keeps its surplus, and takes that of equals."""
    jobs = [job("ml/equal", nodes=[0] * 4, priority=1), job("ml/higher", nodes=[1] * 8, priority=2)]
    for pods, expected in [((1, 1), (2, 8)), ((1, 1, 1), (4, 8))]:
        decided = sizes(queue(jobs, free=(0, 0), gangs=[gang(*pods, priority=1)], limit=12))
        assert (decided["ml/equal"], decided["ml/higher"]) == expected


def test_among_equals_the_one_with_most_surplus_gives():
    """Large Jobs feel it least."""
    small, large = job("ml/small", nodes=[0] * 3), job("ml/large", nodes=[1] * 6)
    assert sizes(queue([small, large], free=(0, 0), gangs=[gang(1)], limit=9)) == {"ml/large": 5, "ml/small": 3}


def test_what_was_given_in_vain_is_given_back():
    """When the second Job's only smaller size frees enough by itself, the first keeps what it has."""
    first = job("ml/first", nodes=[0] * 3, priority=0)
    second = job("ml/second", nodes=[1] * 8, priority=1, sizes=(2, 8))
    snapshot = queue([first, second], free=(0, 0), gangs=[gang(*[1] * 4, priority=1)], limit=11)
    assert sizes(snapshot) == {"ml/first": 3, "ml/second": 2}


def test_the_most_important_gang_is_served_first():
    """With surplus for one of two gangs, priority decides, then who has waited longest."""
    gangs = [
        gang(1, 1, key="a/late", since=5.0),
        gang(1, 1, key="b/early", since=1.0),
        gang(1, 1, key="c/vip", priority=9),
    ]
    snapshot = queue([job(nodes=[0] * 6)], free=(0,), gangs=gangs, limit=6)
    [decision] = decide(snapshot).values()
    assert decision.to_workers == 2
    assert "early" in decision.explanation


def test_gpus_that_are_coming_free_are_waited_for():
    """While pods terminate that will do, nobody shrinks, and nobody grows into their GPUs."""
    snapshot = queue(
        [job(nodes=[0] * 4)],
        free=(0, 0),
        allocated=8,
        gangs=[gang(1, 1, 1, 1)],
        releasing=(0, 4),
        releasing_gpus=4,
    )
    assert sizes(snapshot) == {"ml/digits": 4}


def test_an_open_shrink_counts_as_coming_free():
    """Two decisions in a row give once."""
    shrinking = job("ml/shrinking", nodes=[0] * 8, resize_open=True, target_workers=4, sizes=(8,))
    other = job("ml/other", nodes=[1] * 8)
    snapshot = queue([shrinking, other], free=(0, 0), gangs=[gang(*[1] * 4)], limit=16)
    assert sizes(snapshot)["ml/other"] == 8


def test_workers_that_wait_for_a_node_have_a_claim():
    """GPUs that were handed out and not taken up yet are not handed out again."""
    waiting = job("ml/waiting", nodes=[0, 0, NOWHERE, NOWHERE, NOWHERE, NOWHERE], sizes=(6,))
    other = job("ml/other", nodes=[1, 1])
    snapshot = queue([waiting, other], free=(2, 2), allocated=4)
    assert sizes(snapshot)["ml/other"] == 2


def test_equals_grow_together():
    """Two Jobs of one priority share what is idle instead of one taking all."""
    snapshot = queue([job("ml/a", nodes=[0, 0]), job("ml/b", nodes=[0, 0])], free=(0, 4))
    assert sizes(snapshot) == {"ml/a": 4, "ml/b": 4}


def test_the_higher_priority_grows_first():
    """Growth goes to priority before it is shared."""
    jobs = [job("ml/a", nodes=[0, 0]), job("ml/b", nodes=[0, 0], priority=1)]
    assert sizes(queue(jobs, free=(0, 4))) == {"ml/a": 2, "ml/b": 6}


def test_a_full_job_says_that_it_is():
    """Idle GPUs and a Job at its maximum."""
    [decision] = decide(queue([job(nodes=[0] * 4, sizes=(2, 4))], free=(4, 4), limit=12)).values()
    assert decision.reason is Reason.AT_MAXIMUM


@pytest.mark.parametrize(("step", "size"), [(1, 3), (2, 4), (None, 8)])
def test_growth_goes_by_so_many_sizes_at_once(step, size):
    """From the smallest to the largest, or all at once."""
    snapshot = queue([job(nodes=[0, 0])], free=(2, 4))
    assert sizes(snapshot, up=Up(step=step)) == {"ml/digits": size}


@pytest.mark.parametrize(("most", "size"), [(None, 8), (7, 8), (6, 2)])
def test_growth_waits_while_too_many_pods_wait_in_vain(most, size):
    """Where that is wanted: what comes free adds up for them."""
    snapshot = queue([job(nodes=[0, 0])], free=(2, 4), gangs=[gang(*[1] * 7)])
    assert sizes(snapshot, up=Up(pending_tasks=most)) == {"ml/digits": size}


@pytest.mark.parametrize(("share", "size"), [(None, 8), (1.0, 8), (0.8, 7), (0.7, 6), (0.5, 4)])
def test_growth_stops_below_the_share_from_which_jobs_shrink(share, size):
    """Of 10 GPUs: at 7, or more, is too many for 70 %."""
    snapshot = queue([job(nodes=[0, 0])], free=(4, 4), limit=10)
    assert sizes(snapshot, up=Up(idle_share=0.1), down=Down(used_share=share)) == {"ml/digits": size}


def test_jobs_shrink_while_too_much_is_in_use():
    """Who gives first, by a step, and no more of them than it takes; not urgent, for nobody waits."""
    low, high = job("ml/low", nodes=[0] * 4), job("ml/high", nodes=[1] * 4, priority=1)
    decisions = decide(queue([low, high], free=(0, 0)), down=Down(used_share=0.9))
    assert (decisions["ml/low"].to_workers, decisions["ml/low"].reason) == (3, Reason.QUEUE_TIGHT)
    assert not decisions["ml/low"].urgent
    assert (decisions["ml/high"].to_workers, decisions["ml/high"].reason) == (4, Reason.STEADY)
    both = sizes(queue([low, high], free=(0, 0)), down=Down(used_share=0.75, step=2))
    assert both == {"ml/low": 2, "ml/high": 3}  # five of eight are fewer than six, and six are not


def test_what_is_leaving_is_not_in_use_any_more():
    """While pods terminate nobody shrinks for the same GPUs again."""
    snapshot = queue([job(nodes=[0] * 6)], free=(0, 0), releasing=(0, 2), releasing_gpus=2, allocated=8)
    assert sizes(snapshot, down=Down(used_share=0.8)) == {"ml/digits": 6}


def test_jobs_shrink_for_pods_that_wait_in_vain_where_that_is_wanted():
    """All of them by a step; by default nothing is given in vain."""
    jobs = [job("ml/a", nodes=[0] * 4), job("ml/b", nodes=[1] * 4)]
    snapshot = queue(jobs, free=(0, 0), gangs=[gang(*[1] * 7)])
    assert sizes(snapshot) == {"ml/a": 4, "ml/b": 4}
    assert sizes(snapshot, down=Down(pending_tasks=7)) == {"ml/a": 3, "ml/b": 3}
    assert sizes(snapshot, down=Down(pending_tasks=8)) == {"ml/a": 4, "ml/b": 4}
