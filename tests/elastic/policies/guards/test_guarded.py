# SPDX-License-Identifier: Apache-2.0
"""What holds whatever a policy says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from books import name
from kfp_volcano.elastic.policies.guards import PLACE_S, Guarded, next_change
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.snapshot import NOWHERE, PendingGang
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.schemas.records import Hold
from wishes import JOB, NOW, Says, decided, queue

OTHER = replace(JOB, key="ml/other", nodes=(name(1),) * 4)
GANG = PendingGang(key="vision/big", pods=(1, 1), since=0.0)


def decide(policy, snapshot):
    return {decision.job: (decision.to_workers, decision.reason) for decision in Guarded(policy).decide(snapshot)}


@pytest.mark.parametrize(
    ("change", "wanted", "urgent", "expected"),
    [
        ({}, 8, False, (8, Reason.QUEUE_IDLE)),
        ({}, 5, False, (4, Reason.OUT_OF_RANGE)),
        ({}, 1, True, (4, Reason.OUT_OF_RANGE)),
        ({}, 16, False, (4, Reason.OUT_OF_RANGE)),
        ({"resize_open": True, "target_workers": 8}, 2, True, (4, Reason.RESIZE_OPEN)),
        ({"last_resize_at": NOW - 59}, 8, False, (4, Reason.COOLDOWN)),
        ({"last_resize_at": NOW - 60}, 8, False, (8, Reason.QUEUE_IDLE)),
        ({"last_resize_at": NOW - 59}, 2, True, (2, Reason.QUEUE_IDLE)),
        ({"last_resize_at": NOW - 59}, 8, True, (4, Reason.COOLDOWN)),
        ({"last_resize_at": NOW - 59, "last_failed": True}, 2, True, (4, Reason.FAILED_BEFORE)),
        ({"hold": Hold(until=NOW + 1, by="ada")}, 2, True, (4, Reason.HOLD)),
        ({"hold": Hold(until=NOW, by="ada")}, 2, True, (2, Reason.QUEUE_IDLE)),
        ({"hold": Hold(until=NOW + 1, by="ada", override=8)}, 2, True, (8, Reason.OVERRIDE)),
        ({"hold": Hold(until=NOW + 1, by="ada", override=2)}, 8, False, (2, Reason.OVERRIDE)),
        ({"hold": Hold(until=NOW + 1, by="ada", override=4)}, 8, False, (4, Reason.HOLD)),
        ({"hold": Hold(until=NOW + 1, by="ada", override=5)}, 8, False, (4, Reason.OUT_OF_RANGE)),
        ({"hold": Hold(until=NOW + 1, by="ada", override=8), "last_resize_at": NOW - 9}, 2, True, (8, Reason.OVERRIDE)),
        ({"remaining_s": 59.0}, 8, False, (4, Reason.NEARLY_DONE)),
        ({"remaining_s": 59.0}, 2, True, (2, Reason.QUEUE_IDLE)),
        ({"remaining_s": 60.0}, 8, False, (8, Reason.QUEUE_IDLE)),
        ({"gpus_per_worker": 0}, 8, False, (4, Reason.NO_GPUS)),
    ],
)
def test_guards_one_by_one(change, wanted, urgent, expected):
    """Each guard lets through what it may, and says its own reason otherwise."""
    assert decided({JOB.key: wanted}, queue(replace(JOB, **change)), urgent=urgent) == {JOB.key: expected}


@pytest.mark.parametrize(
    ("change", "wanted", "expected"),
    [
        ({}, 2, (2, Reason.QUEUE_IDLE)),
        ({"hold": Hold(until=NOW + 1, by="ada", override=2)}, 8, (2, Reason.OVERRIDE)),
        ({"nodes": (*JOB.nodes[:2], NOWHERE, NOWHERE), "waiting_since": NOW - PLACE_S}, 8, (2, Reason.UNPLACED)),
        ({}, 8, (4, Reason.NO_ROOM)),
    ],
)
def test_a_queue_that_holds_more_than_it_may_is_no_reason_not_to_shrink(change, wanted, expected):
    """As where its capability was lowered, or it has borrowed and may not go on: only growth needs room."""
    snapshot = queue(replace(JOB, **change), OTHER, limit=3)
    assert decided({JOB.key: wanted}, snapshot)[JOB.key] == expected


def test_growth_is_never_handed_out_twice():
    """Two Jobs that are both told to take the same four GPUs: one gets them."""
    assert decide(Says({JOB.key: 8, OTHER.key: 8}), queue(JOB, OTHER, free=(4, 0))) == {
        JOB.key: (8, Reason.QUEUE_IDLE),
        OTHER.key: (4, Reason.NO_ROOM),
    }


def test_an_override_goes_before_what_policies_want():
    """What a person has set has the first claim on what is free."""
    held = replace(OTHER, hold=Hold(until=NOW + 60, by="ada", override=8))
    assert decide(Says({JOB.key: 8}), queue(JOB, held, free=(4, 0))) == {
        JOB.key: (4, Reason.NO_ROOM),
        OTHER.key: (8, Reason.OVERRIDE),
    }


def test_an_override_that_does_not_fit_waits():
    """A person cannot hand out GPUs that are not there either."""
    held = replace(JOB, hold=Hold(until=NOW + 60, by="ada", override=8))
    assert decide(Says({}), queue(held, free=(3, 0))) == {JOB.key: (4, Reason.NO_ROOM)}


@pytest.mark.parametrize("change", [{"hold": Hold(until=NOW + 60, by="ada", override=2)}, {}])
def test_a_job_may_shrink_in_a_queue_that_holds_more_than_it_may(change):
    """Its capability was cut: what a person or the policy wants to give back is not refused for want of room."""
    over = replace(queue(replace(JOB, **change), free=(0, 0)), limit_gpus=2, allocated_gpus=4)
    assert decide(Says({JOB.key: 2}), over)[JOB.key][0] == 2


def test_a_job_that_may_not_give_is_passed_over():
    """A gang is served by another Job, where the first choice is held."""
    held = replace(JOB, hold=Hold(until=NOW + 60, by="ada"), priority=-1)
    assert decide(Threshold(), queue(held, OTHER, free=(0, 0), pending=(GANG,))) == {
        JOB.key: (4, Reason.HOLD),
        OTHER.key: (2, Reason.GANG_PENDING),
    }


def test_surplus_that_finds_no_node_is_given_up():
    """After a while in vain the Job is settled at what it has; before, it is left alone."""
    waiting = replace(JOB, nodes=(name(0), name(0), NOWHERE, NOWHERE), waiting_since=NOW - PLACE_S)
    assert decide(Says({}), queue(waiting)) == {JOB.key: (2, Reason.UNPLACED)}
    assert decide(Says({}), queue(replace(waiting, waiting_since=NOW - PLACE_S + 1)))[JOB.key][0] == 4


def test_a_policy_that_says_nothing_changes_nothing():
    """Every Job has its decision, also where the policy forgot it."""

    class Silent:
        name = "silent"

        def decide(self, snapshot):
            return ()

    assert decide(Silent(), queue(JOB)) == {JOB.key: (4, Reason.STEADY)}


def test_a_policy_that_fails_leaves_jobs_as_they_are_and_gangs_with_what_they_are_owed():
    """Whoever wrote it; and the sentence says what happened."""

    class Broken:
        name = "broken"

        def decide(self, snapshot):
            raise ZeroDivisionError("division by zero")

    [decision] = Guarded(Broken()).decide(queue(JOB))
    assert (decision.to_workers, decision.reason) == (4, Reason.POLICY_FAILED)
    assert decision.explanation == "the policy broken failed: ZeroDivisionError: division by zero"
    [decision] = Guarded(Broken()).decide(queue(JOB, free=(0, 0), limit=4, pending=(GANG,)))
    assert (decision.to_workers, decision.reason) == (2, Reason.GANG_PENDING)


def test_the_next_change_is_the_first_guard_to_let_go():
    """Cooldowns, holds and waits that are over are no reason to look again."""
    jobs = (
        replace(JOB, last_resize_at=NOW - 10, hold=Hold(until=NOW - 5, by="ada")),
        replace(OTHER, waiting_since=NOW - 1),
    )
    assert next_change(queue(*jobs)) == NOW - 1 + PLACE_S
    assert next_change(queue(JOB)) is None


@pytest.mark.parametrize("wanted", [{}, {JOB.key: 8}, {JOB.key: 2}])
def test_a_gang_is_given_what_it_is_owed_whatever_the_policy_says(wanted):
    """Also by a policy that knows of no gangs: as much as it needs, at once."""
    [decision] = Guarded(Says(wanted)).decide(queue(JOB, free=(0, 0), limit=4, pending=(GANG,)))
    assert (decision.to_workers, decision.reason, decision.urgent) == (2, Reason.GANG_PENDING, True)
    assert decision.recommended == wanted.get(JOB.key)


def test_nobody_grows_into_what_a_gang_waits_for():
    """It is served from what is free, which is not free then."""
    [decision] = Guarded(Says({JOB.key: 8})).decide(queue(JOB, free=(4, 0), pending=(GANG,)))
    assert (decision.to_workers, decision.reason) == (4, Reason.GANG_FIRST)
    assert "big" in decision.explanation


def test_a_person_comes_before_a_gang():
    """What a person has set is as good as asked for: what is left is for the gang."""
    held = replace(JOB, hold=Hold(until=NOW + 60, by="ada", override=8))
    decisions = Guarded(Threshold()).decide(queue(held, OTHER, free=(4, 0), limit=12, pending=(GANG,)))
    assert [(each.to_workers, each.reason) for each in decisions] == [(8, Reason.OVERRIDE), (2, Reason.GANG_PENDING)]


def test_gpus_are_kept_for_workers_that_wait_for_a_node_and_not_for_ever():
    """Two that were asked for and hold nothing have a claim for two minutes, where a person holds their Job."""
    held = replace(JOB, nodes=(name(0), name(0), NOWHERE, NOWHERE), hold=Hold(until=NOW + 999, by="ada"))
    for waits_s, expected in [(119.0, (4, Reason.NO_ROOM)), (120.0, (8, Reason.QUEUE_IDLE))]:
        snapshot = queue(replace(held, waiting_since=NOW - waits_s), OTHER, free=(4, 0))
        assert decide(Says({OTHER.key: 8}), snapshot)[OTHER.key] == expected
        assert waits_s == 120.0 or next_change(snapshot) == NOW + 1
