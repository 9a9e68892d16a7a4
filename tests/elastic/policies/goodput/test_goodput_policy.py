# SPDX-License-Identifier: Apache-2.0
"""What the policy `goodput` decides, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfp_volcano.elastic.policies.goodput.policy import Goodput
from kfp_volcano.elastic.policies.goodput.wording import duration
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.snapshot import (
    ElasticJob,
    Measured,
    NodeState,
    PendingGang,
    QueueSnapshot,
    Resized,
)

NOW = 100_000.0


def scaling(exponent, *sizes, alone=100.0, gpu_class=""):
    """Throughput that grows with a power of the workers."""
    return tuple(
        Measured(workers=size, throughput=alone * size**exponent, batch=256, gpu_class=gpu_class) for size in sizes
    )


def job(name="digits", *, workers=2, low=1, high=8, nodes=None, **more):
    """A Job that has run for an hour and has ten before it, with resizes that paused it for half a second."""
    settings = {
        "created_at": NOW - 3600,
        "remaining_s": 36_000.0,
        "batch": 256,
        "resizes": (Resized(at=NOW - 3000, from_workers=1, to_workers=2, pause_s=0.5),),
        **more,
    }
    return ElasticJob(
        key=f"ml/{name}",
        workers=workers,
        running=workers,
        min_workers=low,
        max_workers=high,
        sizes=tuple(range(low, high + 1)),
        gpus_per_worker=1,
        nodes=tuple(nodes or ["node-0"] * workers),
        **settings,
    )


def queue(*jobs, free=(0,), pending=(), limit=None, classes=("",) * 9):
    """A queue of these Jobs, on nodes with so many free GPUs."""
    held = sum(each.workers * each.gpus_per_worker for each in jobs)
    return QueueSnapshot(
        queue="research",
        at=NOW,
        limit_gpus=held + sum(free) if limit is None else limit,
        allocated_gpus=held,
        nodes={f"node-{at}": NodeState(left, gpu_class=classes[at]) for at, left in enumerate(free)},
        jobs=jobs,
        pending=tuple(pending),
    )


def decide(snapshot):
    return {decision.job.removeprefix("ml/"): decision for decision in Goodput().decide(snapshot)}


def test_growth_is_told_with_its_gain_and_its_cost():
    """Twice the GPUs for a Job that scales nearly perfectly: how much faster, how much sooner, at what cost."""
    decision = decide(queue(job(measured=scaling(0.95, 1, 2)), free=(2,)))["digits"]
    assert (decision.to_workers, decision.reason, decision.urgent) == (4, Reason.MORE_GOODPUT, False)
    ratio = decision.numbers["goodput_ratio"]
    assert 1.7 < ratio < 2
    hours = (36_000 * (1 - 1 / ratio) - 0.5) / 3600
    assert decision.explanation == (
        f"digits grows from 2 to 4 workers: {ratio:.2f} times the goodput, {hours:.1f} h sooner; costs 0.5 s"
    )
    assert decision.numbers["cost_s"] == 0.5
    assert decision.numbers["plan_exact"] == 1.0


def test_gpus_go_to_whom_they_make_most_of():
    """Of two Jobs alike but for their scaling, the one that scales gets what is idle."""
    decisions = decide(
        queue(
            job("scales", measured=scaling(1.0, 1, 2)),
            job("saturates", measured=scaling(0.1, 1, 2)),
            free=(2,),
        )
    )
    assert decisions["scales"].to_workers == 4
    assert decisions["saturates"].to_workers == 2


def test_surplus_moves_to_whom_it_is_worth_more():
    """A Job that makes little of its GPUs gives them, and the other waits until they are free, and then grows."""
    poor = job("poor", workers=6, measured=scaling(0.1, 1, 2, 4, 6))
    rich = job("rich", workers=2, measured=scaling(1.0, 1, 2))
    decisions = decide(queue(poor, rich))
    assert decisions["poor"].reason is Reason.YIELDS
    assert "rich" in decisions["poor"].explanation
    assert decisions["rich"].reason is Reason.AWAITS_ROOM
    assert decisions["rich"].to_workers == 2
    gave = decisions["poor"].to_workers
    planned = decisions["rich"].numbers["planned_workers"]
    shrunk = replace(poor, workers=gave, running=gave, nodes=poor.nodes[:gave], last_resize_at=NOW - 1)
    assert decide(queue(shrunk, rich, free=(6 - gave,)))["rich"].to_workers == planned == 4


def test_a_higher_priority_is_never_sacrificed():
    """A little for the more important Job goes before much for the other."""
    important = job("important", workers=2, priority=10, measured=scaling(0.5, 1, 2))
    other = job("other", workers=2, priority=1, measured=scaling(1.0, 1, 2))
    decisions = decide(queue(important, other, free=(2,)))
    assert decisions["important"].to_workers == 4
    assert decisions["other"].reason in {Reason.NO_ROOM, Reason.STEADY}


def test_a_waiting_gang_comes_first():
    """What is idle is its, and what it lacks is given, urgently."""
    gang = PendingGang(key="vision/gang", pods=(1, 1, 1), since=NOW - 5)
    decision = decide(queue(job(workers=4, measured=scaling(1.0, 2, 4)), free=(1,), pending=[gang]))["digits"]
    assert (decision.to_workers, decision.reason, decision.urgent) == (2, Reason.GANG_PENDING, True)
    waits = decide(queue(job(workers=4, measured=scaling(1.0, 2, 4)), free=(3,), pending=[gang]))["digits"]
    assert (waits.to_workers, waits.reason) == (4, Reason.GANG_FIRST)


def test_a_gain_that_costs_more_is_not_made():
    """Less than a twentieth, or a resize as long as what is left."""
    saturated = decide(queue(job(measured=scaling(0.03, 1, 2, 4)), free=(2,)))["digits"]
    assert saturated.reason is Reason.NOT_WORTH_IT
    slow = (Resized(at=NOW - 3000, from_workers=1, to_workers=2, pause_s=250.0),)
    nearly = decide(queue(job(measured=scaling(1.0, 1, 2), remaining_s=300.0, resizes=slow), free=(2,)))["digits"]
    assert nearly.reason is Reason.NOT_WORTH_IT
    assert "4 min" in nearly.explanation


def test_what_was_moved_often_is_moved_seldom():
    """The share of its life that resizes have cost weighs on the next one."""
    measured = scaling(0.4, 1, 2)
    often = tuple(Resized(at=NOW - 60 * n, from_workers=1, to_workers=2, pause_s=90.0) for n in range(1, 15))
    assert decide(queue(job(measured=measured, resizes=often[:1]), free=(2,)))["digits"].resizes
    assert not decide(queue(job(measured=measured, resizes=often), free=(2,)))["digits"].resizes


def test_a_job_that_has_told_nothing_is_thought_well_of_but_not_further_than_twice():
    """Nothing measured: perfect scaling, said so; no more than twice what it was ever seen at."""
    decision = decide(queue(job(measured=(), high=16), free=(14,)))["digits"]
    assert decision.to_workers == 4
    assert "measured nothing yet" in decision.explanation


def test_the_next_size_is_tried_though_it_is_more_than_twice():
    """A Job of few sizes would stay at its first one for ever."""
    few = replace(job(measured=scaling(1.0, 2)), sizes=(2, 8))
    assert decide(queue(few, free=(6,)))["digits"].to_workers == 8


def test_free_gpus_apart_do_not_make_a_worker():
    """Three nodes with a GPU each have no room for a worker of two."""
    pair = replace(job(workers=1, measured=scaling(1.0, 1)), gpus_per_worker=2)
    decision = decide(queue(pair, free=(1, 1, 1)))["digits"]
    assert (decision.to_workers, decision.reason) == (1, Reason.NO_ROOM)


def test_workers_that_would_slow_all_others_down_are_not_added():
    """The free GPUs are of a class on which the Job was seen to be so slow that all would wait for it."""
    measured = (*scaling(1.0, 1, 2, gpu_class="fast"), *scaling(1.0, 2, alone=20.0, gpu_class="slow"))
    slow = decide(queue(job(measured=measured), free=(0, 4), classes=("fast", "slow")))["digits"]
    fast = decide(queue(job(measured=measured), free=(0, 4), classes=("fast", "fast")))["digits"]
    assert slow.to_workers == 2
    assert fast.to_workers == 4


def test_mixed_workers_that_cannot_be_packed_give_nothing_in_vain():
    """Three GPUs in two pieces: nobody shrinks for a worker of three that would not fit after all."""
    small = job("small", workers=3, nodes=["node-0", "node-0", "node-1"], measured=scaling(0.0, 1, 2, 3))
    big = replace(job("big", workers=1, nodes=["node-2"], measured=scaling(1.0, 1)), gpus_per_worker=3)
    snapshot = queue(small, replace(big, sizes=(1, 2)), free=(0, 1, 0))
    decisions = decide(snapshot)
    assert not decisions["small"].resizes or decisions["small"].reason is not Reason.YIELDS
    assert not decisions["big"].resizes


def test_it_plans_again_while_training_measures_on():
    """Within a minute; not where there is nobody to plan for."""
    policy = Guarded(Goodput())
    assert NOW < policy.next_change(queue(job())) <= NOW + 60
    assert policy.next_change(queue()) is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.6, "0.6 s"), (45, "45 s"), (720, "12 min"), (11_160, "3.1 h"), (216_000, "2.5 days")],
)
def test_durations_read_as_people_say_them(seconds, said):
    """In the unit that leaves a small number."""
    assert duration(seconds) == said
