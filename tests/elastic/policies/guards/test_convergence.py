"""Jobs that do not train well are not given more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfp_volcano.elastic.policies.guards.guarded import next_change
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.snapshot import Resized
from wishes import JOB, NOW, decided, queue

SETTLE_S = GuardSettings().settle_s


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"diverging": True}, Reason.DIVERGING),
        (
            {"resizes": (Resized(at=NOW - SETTLE_S + 1, from_workers=4, to_workers=8, rolled_back=True),)},
            Reason.ROLLED_BACK,
        ),
    ],
)
def test_it_may_shrink_and_not_grow(change, reason):
    """Its sizes below stay allowed, to the policy as to gangs."""
    job = replace(JOB, **change)
    assert decided({JOB.key: 8}, queue(job)) == {JOB.key: (4, reason)}
    assert decided({JOB.key: 2}, queue(job)) == {JOB.key: (2, Reason.QUEUE_IDLE)}


def test_what_was_taken_back_is_tried_again_after_a_while():
    """And the guard says when."""
    job = replace(JOB, resizes=(Resized(at=NOW - SETTLE_S, from_workers=4, to_workers=8, rolled_back=True),))
    assert decided({JOB.key: 8}, queue(job)) == {JOB.key: (8, Reason.QUEUE_IDLE)}
    assert next_change(queue(job, at=NOW - 1)) == NOW
