# SPDX-License-Identifier: Apache-2.0
"""What stops all automatic resizes of a queue, and what lets them go on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from books import name
from kfp_volcano.elastic.policies.guards.guarded import Guarded, next_change
from kfp_volcano.elastic.policies.memory import Breaker, Memory, next_breaker
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.snapshot import PendingGang, Resized
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.schemas.records import Hold
from wishes import JOB, NOW, decided, queue

SETTINGS = GuardSettings(breaker_failures=3, breaker_window_s=600.0, breaker_open_s=300.0, resizes_per_hour=None)
OTHER = replace(JOB, key="ml/other", nodes=(name(1),) * 4)
GANG = PendingGang(key="vision/big", pods=(1, 1), since=0.0)


def ended(*at, failed=True):
    """Resizes that ended at these times."""
    return tuple(Resized(at=each, from_workers=4, to_workers=8, failed=failed) for each in sorted(at))


def failing(*at, succeeded=(), **more):
    """A queue with failures at these times on one Job, and another Job."""
    resizes = tuple(sorted(ended(*at) + ended(*succeeded, failed=False), key=lambda each: each.at))
    return queue(replace(JOB, resizes=resizes), OTHER, **more)


def test_repeated_failures_stop_every_job_of_the_queue():
    """Also those that did not fail; and no gang is given anything."""
    snapshot = failing(NOW - 500, NOW - 300, NOW - 1)
    wanted = decided({JOB.key: 8, OTHER.key: 8}, snapshot, settings=SETTINGS)
    assert wanted == {JOB.key: (4, Reason.BREAKER_OPEN), OTHER.key: (4, Reason.BREAKER_OPEN)}
    waiting = replace(snapshot, pending=(GANG,), limit_gpus=8, nodes={})
    assert {each.reason for each in Guarded(Threshold(), SETTINGS).decide(waiting)} == {Reason.BREAKER_OPEN}


@pytest.mark.parametrize(
    ("failed", "succeeded"),
    [
        ((NOW - 500, NOW - 1), ()),
        ((NOW - 600, NOW - 300, NOW - 1), ()),
        ((NOW - 500, NOW - 300, NOW - 1), (NOW - 400, NOW - 200, NOW - 100)),
    ],
)
def test_few_failures_or_old_ones_or_fewer_than_successes_stop_nobody(failed, succeeded):
    """One bad Job among many good ones is that Job's own trouble."""
    snapshot = failing(*failed, succeeded=succeeded)
    assert decided({OTHER.key: 8}, snapshot, settings=SETTINGS)[OTHER.key] == (8, Reason.QUEUE_IDLE)


def test_a_person_goes_on():
    """A size that a person has set is not automatic."""
    held = replace(OTHER, hold=Hold(until=NOW + 60, by="ada", override=8))
    snapshot = failing(NOW - 3, NOW - 2, NOW - 1)
    snapshot = replace(snapshot, jobs=(snapshot.jobs[0], held), stale_s=1000.0)
    assert decided({}, snapshot, settings=SETTINGS) == {JOB.key: (4, Reason.STALE), OTHER.key: (8, Reason.OVERRIDE)}


def test_a_cluster_that_is_not_seen_stops_them_too():
    """And they go on as soon as it is seen again."""
    for stale_s, expected in [(60.0, (8, Reason.QUEUE_IDLE)), (60.1, (4, Reason.STALE))]:
        assert decided({JOB.key: 8}, queue(JOB, stale_s=stale_s)) == {JOB.key: expected}


def test_it_closes_after_a_while_and_what_was_is_forgiven():
    """A failure after that counts as the first again."""
    policy = Guarded(Threshold(), SETTINGS)
    snapshot = failing(NOW - 3, NOW - 2, NOW - 1)
    memory = policy.remember(snapshot, policy.decide(snapshot))
    assert memory.breaker.open_until == NOW + 300
    assert next_change(replace(snapshot, memory=memory), SETTINGS) == NOW + 300
    later = replace(snapshot, at=NOW + 300, memory=memory)
    assert next_breaker(later, SETTINGS).open_until is None
    again = failing(NOW - 3, NOW - 2, NOW - 1, NOW + 301, at=NOW + 301, memory=policy.remember(later, ()))
    assert next_breaker(again, SETTINGS) == Breaker(failures=(NOW + 301,), since=NOW + 300)


def test_a_success_closes_it():
    """A person's, or of what was under way when it opened."""
    snapshot = failing(NOW - 3, NOW - 2, NOW - 1)
    memory = Guarded(Threshold(), SETTINGS).remember(snapshot, ())
    succeeded = failing(NOW - 3, NOW - 2, NOW - 1, succeeded=(NOW + 5,), at=NOW + 10, memory=memory)
    assert next_breaker(succeeded, SETTINGS) == Breaker(since=NOW + 5)


def test_failures_of_jobs_that_have_gone_still_count():
    """They are remembered, each once."""
    memory = Guarded(Threshold(), SETTINGS).remember(failing(NOW - 3, NOW - 2), ())
    gone = queue(replace(OTHER, resizes=ended(NOW + 1)), at=NOW + 1, memory=memory)
    assert next_breaker(gone, SETTINGS).open_until == NOW + 301


times = st.lists(st.integers(0, 2000).map(float), max_size=8, unique=True)


@given(times, times, st.lists(st.integers(1, 2000).map(float), min_size=1, max_size=6))
def test_looking_more_often_counts_nothing_twice(failed, succeeded, looks):
    """Every failure of the window once, whenever and however often it was seen."""
    memory = Memory()
    for at in sorted(looks):
        seen = failing(
            *(each for each in failed if each <= at),
            succeeded=[each for each in succeeded if each <= at],
            at=at,
            memory=memory,
        )
        memory = Guarded(Threshold(), SETTINGS).remember(seen, ())
        counted = memory.breaker.failures
        assert set(counted) <= set(failed)
        assert len(counted) == len(set(counted))


@given(times, times, st.integers(1, 2000).map(float), st.integers(1, 600))
def test_what_is_lost_at_a_restart_makes_it_careful(failed, succeeded, at, later):
    """Where resizes are stopped they are stopped without memory too, or all that failed is out of the window."""
    seen = failing(*failed, succeeded=succeeded, at=2000.0 + at)
    memory = Guarded(Threshold(), SETTINGS).remember(seen, ())
    now = replace(seen, at=seen.at + later, memory=memory)
    forgotten = replace(now, memory=Memory())
    if next_breaker(now, SETTINGS).open_until is not None:
        recent = [each for each in failed if each > now.at - SETTINGS.breaker_window_s]
        enough = len(recent) >= SETTINGS.breaker_failures
        assert next_breaker(forgotten, SETTINGS).open_until is not None or not enough or len(recent) <= len(succeeded)
