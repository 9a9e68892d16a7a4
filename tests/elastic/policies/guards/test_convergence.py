# SPDX-License-Identifier: Apache-2.0
"""Jobs that do not train well are not given more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfp_volcano.elastic.policies.guards.guarded import next_change
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.snapshot import Resized
from kfp_volcano.schemas.records import Watched
from wishes import JOB, NOW, decided, queue

SETTLE_S = GuardSettings().settle_s


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"diverging": True}, Reason.DIVERGING),
        ({"watched": Watched(growth_stopped="the loss of step 8 is nan")}, Reason.WATCHED),
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


def test_a_training_that_went_back_gets_the_size_it_had_then_for_a_while():
    """Whatever the policy says, until it has settled; and the guard says when."""
    job = replace(JOB, watched=Watched(rollbacks=1, size=2, size_asked_at=NOW - SETTLE_S + 1))
    assert decided({JOB.key: 8}, queue(job)) == {JOB.key: (2, Reason.WATCHED)}
    back = replace(job, workers=2, nodes=job.nodes[:2], running=2)
    assert decided({JOB.key: 8}, queue(back)) == {JOB.key: (2, Reason.WATCHED)}
    assert next_change(queue(job)) == NOW + 1
    assert decided({JOB.key: 8}, queue(job, at=NOW + 1)) == {JOB.key: (8, Reason.QUEUE_IDLE)}
