# SPDX-License-Identifier: Apache-2.0
"""When `adaptive` is aggressive, when careful, and what becomes of that in decisions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.adaptive import AGGRESSIVE, CAREFUL, Adaptive
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.memory import Memory, Mode
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.settings import AdaptiveSettings
from kfp_volcano.elastic.policies.snapshot import ElasticJob, NodeState, PendingGang, QueueSnapshot

JOB = ElasticJob(
    key="ml/digits",
    workers=2,
    running=2,
    min_workers=1,
    max_workers=16,
    sizes=(1, 2, 4, 8, 16),
    gpus_per_worker=1,
    nodes=("busy", "busy"),
)


def queue(idle, *, at=0.0, mode=None, limit=20, jobs=(JOB,), **more):
    """A queue of 20 GPUs of which so many are idle."""
    return QueueSnapshot(
        queue="research",
        at=at,
        limit_gpus=limit,
        allocated_gpus=limit - idle,
        nodes={"busy": NodeState(0)},
        crowd={NodeState(idle): 1},
        jobs=jobs,
        memory=Memory(mode=mode),
        **more,
    )


def lived(policy, idle_at):
    """The mode after each of these moments (time, idle GPUs), remembered from one to the next."""
    memory, modes = Memory(), []
    for at, idle in idle_at:
        snapshot = replace(queue(idle, at=at), memory=memory)
        memory = policy.remember(snapshot, policy.decide(snapshot))
        modes.append(memory.mode.name)
    return modes


@pytest.mark.parametrize(
    ("idle_at", "last"),
    [
        ([(0, 20)], CAREFUL),
        ([(0, 10), (59, 10)], CAREFUL),
        ([(0, 10), (60, 10)], AGGRESSIVE),
        ([(0, 10), (30, 9), (60, 10)], CAREFUL),
        ([(0, 20), (60, 20), (61, 6), (1000, 6)], AGGRESSIVE),
        ([(0, 20), (60, 20), (61, 5), (70, 5)], AGGRESSIVE),
        ([(0, 20), (60, 20), (61, 5), (71, 5)], CAREFUL),
        ([(0, 20), (60, 20), (61, 0), (65, 12), (70, 0), (79, 0)], AGGRESSIVE),
    ],
)
def test_it_switches_when_what_is_seen_has_lasted(idle_at, last):
    """Half idle for a minute makes it aggressive, a quarter for ten seconds careful; what lies between leaves it."""
    assert lived(Guarded(Adaptive()), idle_at)[-1] == last


def test_aggressive_it_fills_the_queue_and_careful_it_goes_by_a_size():
    """A tenth idle is enough for the one; the other waits for half, and takes the next size."""
    aggressive, careful = Mode(name=AGGRESSIVE, since=0.0), Mode(name=CAREFUL, since=0.0)
    grown = {
        (mode.name, idle): Adaptive().decide(queue(idle, mode=mode))[0].to_workers
        for mode in (aggressive, careful)
        for idle in (1, 6, 14)
    }
    assert grown == {
        (AGGRESSIVE, 1): 2,
        (AGGRESSIVE, 6): 8,
        (AGGRESSIVE, 14): 16,
        (CAREFUL, 1): 2,
        (CAREFUL, 6): 2,
        (CAREFUL, 14): 4,
    }


def test_it_says_what_it_is():
    """In the sentence of every decision, with the share that it goes by."""
    [decision] = Guarded(Adaptive()).decide(queue(14, mode=Mode(name=AGGRESSIVE, since=-100.0)))
    assert decision.explanation.startswith("aggressive, 70% of the queue idle: ")
    assert (decision.policy, decision.reason) == ("adaptive", Reason.QUEUE_IDLE)
    assert decision.numbers["idle_share"] == 0.7


def test_what_gangs_wait_for_is_not_idle():
    """A queue whose free GPUs are spoken for is tight."""
    gang = PendingGang(key="vision/big", pods=(1,) * 8, since=0.0)
    mode = Mode(name=CAREFUL, since=0.0, contrary_since=0.0)
    assert Adaptive().mode(queue(10, at=60.0, mode=mode, pending=(gang,))) == replace(mode, contrary_since=None)
    assert Adaptive().mode(queue(10, at=60.0, mode=mode)) == Mode(name=AGGRESSIVE, since=60.0)


def test_it_knows_when_it_will_switch():
    """So that nobody has to look in between."""
    policy = Guarded(Adaptive())
    assert policy.next_change(queue(10, at=5.0)) == 65.0
    assert policy.next_change(queue(9, at=5.0)) is None


@given(st.lists(st.tuples(st.floats(0.1, 100), st.integers(0, 20)), min_size=1, max_size=20), st.integers(0, 20))
def test_what_is_lost_at_a_restart_makes_it_careful(steps, cut):
    """Never aggressive where it would not have been; and in the end it is what it would be."""
    times = [sum(step[0] for step in steps[: index + 1]) for index in range(len(steps))]
    idle_at = [(at, idle) for at, (_, idle) in zip(times, steps, strict=True)]
    whole, later = lived(Guarded(Adaptive()), idle_at), lived(Guarded(Adaptive()), idle_at[cut:])
    for before, after in zip(whole[cut:], later, strict=True):
        assert after in {before, CAREFUL}


@given(st.integers(0, 20), st.floats(0, 1), st.floats(0, 1))
def test_a_constant_queue_makes_it_switch_once_at_most(idle, low, high):
    """Hysteresis: no share is both idle and tight."""
    settings = AdaptiveSettings(idle_share=max(low, high) + 0.01, tight_share=min(low, high))
    modes = lived(Guarded(Adaptive(settings=settings)), [(at * 30.0, idle) for at in range(10)])
    assert sum(one != two for one, two in pairwise(modes)) <= 1
