# SPDX-License-Identifier: Apache-2.0
"""Classes follow waiting, completion and progress, within a range."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.priorities import PrioritySettings, RankReason, reranked
from kfp_volcano.elastic.policies.snapshot import QueueSnapshot, Ranked

NOW = 100_000.0
CLASSES = ("low", "middle", "high", "highest")
VALUES = {"low": 1000, "middle": 10_000, "high": 100_000, "highest": 1_000_000}
SETTINGS = PrioritySettings(classes=CLASSES)
JOB = Ranked(key="ml/digits", priority_class="middle", base_class="middle")


def queue(*jobs, at=NOW, values=VALUES):
    return QueueSnapshot(queue="research", at=at, limit_gpus=8, allocated_gpus=0, ranked=jobs, priorities=values)


def change(job, settings=SETTINGS, **more):
    [only] = reranked(queue(job, **more), settings) or [None]
    return only and (only.to_class, only.reason)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, None),
        ({"waiting_since": NOW - 1799}, None),
        ({"waiting_since": NOW - 1800}, ("high", RankReason.WAITED_LONG)),
        ({"waiting_since": NOW - 36_000}, ("high", RankReason.WAITED_LONG)),
        ({"done": 0.89}, None),
        ({"done": 0.9}, ("high", RankReason.ALMOST_DONE)),
        ({"progressed_at": NOW - 900}, ("low", RankReason.STANDS_STILL)),
        ({"progressed_at": NOW - 899}, None),
        ({"progressed_at": NOW - 900, "surplus_priority": 9500}, None),
        ({"progressed_at": NOW, "throughput": 40, "best_throughput": 100}, None),
        (
            {"progressed_at": NOW, "throughput": 40, "best_throughput": 100, "sized_at": NOW - 900},
            ("high", RankReason.FELL_BEHIND),
        ),
        ({"progressed_at": NOW, "throughput": 50, "best_throughput": 100, "sized_at": NOW - 900}, None),
        ({"base_class": "other"}, None),
        ({"priority_class": ""}, None),
        ({"priority_class": "high"}, ("middle", RankReason.RESTORED)),
        ({"priority_class": "high", "ranked_at": NOW - 599}, None),
        ({"priority_class": "high", "ranked_at": NOW - 600}, ("middle", RankReason.RESTORED)),
        ({"priority_class": "high", "waiting_since": NOW - 1}, None),
        ({"priority_class": "high", "done": 0.95}, None),
    ],
)
def test_causes_one_by_one(state, expected):
    """Each cause moves a Job by its own reason, and its end brings the Job back after a time."""
    assert change(replace(JOB, **state)) == expected


def test_a_class_that_is_not_there_is_left_out():
    """Nobody is given a class that the cluster does not have."""
    waiting = replace(JOB, waiting_since=NOW - 7200)
    assert change(waiting, values={"low": 1000, "middle": 10_000}) is None


def test_the_sentence_says_from_what():
    """With the Job's name, the numbers and both classes."""
    [said] = reranked(queue(replace(JOB, waiting_since=NOW - 2700)), SETTINGS)
    assert said.explanation == "digits has waited for 45 min: digits rises from middle to high"
    assert said.numbers == {"waited_s": 2700.0}


jobs = st.builds(
    Ranked,
    key=st.sampled_from(["ml/a", "ml/b"]),
    priority_class=st.sampled_from(CLASSES),
    base_class=st.sampled_from(CLASSES),
    surplus_priority=st.none() | st.sampled_from([500, 9500]),
    waiting_since=st.none() | st.floats(NOW - 20_000, NOW),
    ranked_at=st.none() | st.floats(NOW - 2000, NOW),
    sized_at=st.none() | st.floats(NOW - 2000, NOW),
    done=st.none() | st.floats(0, 1),
    progressed_at=st.none() | st.floats(NOW - 2000, NOW),
    throughput=st.none() | st.floats(0, 100),
    best_throughput=st.none() | st.floats(0, 100),
)
settings = st.builds(PrioritySettings, classes=st.just(CLASSES), up=st.integers(0, 3), down=st.integers(0, 3))


@given(jobs, settings)
def test_a_job_moves_within_its_range_only(job, some):
    """Never above or below what is stated, and never under its own surplus."""
    for change in reranked(queue(job), some):
        base, to = CLASSES.index(job.base_class), CLASSES.index(change.to_class)
        assert base - some.down <= to <= base + some.up
        assert job.surplus_priority is None or VALUES[change.to_class] > job.surplus_priority
        assert change.to_class != change.from_class


@given(jobs, settings)
def test_changes_come_to_rest(job, some):
    """Once made, a change calls for no other while nothing else happens."""
    for change in reranked(queue(job), some):
        after = replace(job, priority_class=change.to_class, ranked_at=NOW)
        assert reranked(queue(after), some) == ()


@given(jobs, settings, st.floats(0, 20_000))
def test_who_has_waited_longer_is_never_ranked_lower(job, some, more):
    """Waiting only raises."""
    waiting = replace(job, waiting_since=job.waiting_since or NOW, priority_class=job.base_class)
    longer = replace(waiting, waiting_since=waiting.waiting_since - more)

    def rank(one):
        return CLASSES.index(next((change.to_class for change in reranked(queue(one), some)), one.priority_class))

    assert rank(longer) >= rank(waiting)


@given(settings, st.sampled_from(CLASSES))
def test_nothing_starves(some, base):
    """After `up` times the time to wait a Job is at the top of its range."""
    waited = some.up * some.waiting_s
    job = Ranked(key="ml/a", priority_class=base, base_class=base, waiting_since=NOW - waited)
    top = CLASSES[min(len(CLASSES) - 1, CLASSES.index(base) + some.up)]
    assert next((change.to_class for change in reranked(queue(job), some)), base) == top
