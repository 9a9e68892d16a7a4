# SPDX-License-Identifier: Apache-2.0
"""Events on Jobs: once for each thing, counted where it comes back, and never in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kfp_volcano.elastic.autoscaler.telling.events import AGAIN_S, Events
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.errors import ForbiddenError
from kfp_volcano.schemas.records import Phase
from told import AT, class_change, decision, outcome, snapshot


class Told:
    """A cluster with a Job, and what has been told of it."""

    def __init__(self, cluster: Any) -> None:
        self.now = AT
        self.store = cluster.store
        self.job = cluster.submit("digits")

    def by(self, tell: Callable[[Events], None], cluster: Any = None) -> list[tuple[str, str, int]]:
        """One process tells, and ends; what is there then: reason, message, count."""
        events = Events(cluster or self.store, identity="me", clock=lambda: self.now)
        tell(events)
        events.close()
        return sorted((each["reason"], each["message"], each["count"]) for each in self.events())

    def events(self) -> list[Any]:
        return [each for each in self.store.list("Event", "ml")[0] if "source" in each]

    def holds(self, *reasons: Reason) -> Callable[[Events], None]:
        """A turn for each, in which the Job is left alone for that reason."""

        def tell(events: Events) -> None:
            for reason in reasons:
                self.now += AGAIN_S
                events.decided(snapshot(at=self.now), [decision("ml/digits", reason=reason)], {}, lag_s=0.0)

        return tell


@pytest.fixture(name="told")
def _told(cluster: Any) -> Told:
    return Told(cluster)


def test_a_resize_is_told_when_it_is_asked_and_when_it_ends(told: Told) -> None:
    """Two Events about the Job itself, each once, whoever tells them again."""
    grow = decision("ml/digits", 8, Reason.QUEUE_IDLE)

    def tell(events: Events) -> None:
        events.decided(snapshot(), [grow], {"ml/digits": "r1"}, lag_s=0.0)
        events.resized("research", "ml/digits", outcome())

    expected = [
        ("ResizeRequested", "3 to 8 workers asked for: because of QueueIdle (QueueIdle)", 1),
        ("Resized", "3 to 8 workers in 12 s, training paused 0.3 s", 1),
    ]
    assert told.by(tell) == expected
    assert told.by(tell) == expected
    [about] = {(each["involvedObject"]["name"], each["involvedObject"]["uid"]) for each in told.events()}
    assert about == ("digits", told.job["metadata"]["uid"])


def test_a_resize_that_came_to_nothing_is_a_warning(told: Told) -> None:
    """With what kept it from being done."""
    [event] = told.by(lambda events: events.resized("q", "ml/digits", outcome(Phase.ROLLED_BACK, message="no node")))
    assert event == ("ResizeRolledBack", "3 to 8 workers: no node", 1)
    assert told.events()[0]["type"] == "Warning"


def test_a_reason_to_hold_is_told_once_and_counted_when_it_comes_back(told: Told) -> None:
    """However many turns go by there is one Event for a reason; one that comes back counts, also in a new process."""
    maximum, room = Reason.AT_MAXIMUM, Reason.NO_ROOM
    assert told.by(told.holds(maximum, maximum, maximum)) == [("AtMaximum", "because of AtMaximum", 1)]
    seen = told.by(told.holds(room, maximum, Reason.STEADY, maximum))
    assert seen == [("AtMaximum", "because of AtMaximum", 3), ("NoRoom", "because of NoRoom", 1)]


def test_reasons_that_alternate_are_not_a_flood(told: Told) -> None:
    """The same reason is told again ten minutes later at the earliest."""

    def tell(events: Events) -> None:
        for turn in range(200):
            told.now += 1
            reason = (Reason.AT_MAXIMUM, Reason.NO_ROOM)[turn % 2]
            events.decided(snapshot(at=told.now), [decision("ml/digits", reason=reason)], {}, lag_s=0.0)

    assert [count for _, _, count in told.by(tell)] == [1, 1]


def test_another_class_is_told_once(told: Told) -> None:
    """With both classes, and why."""
    for _ in range(2):
        told.by(lambda events: events.reranked("research", "ml/digits", class_change()))
    text = "batch-low to batch: digits has waited for 45 min (WaitedLong)"
    assert told.by(lambda _: None) == [("PriorityChanged", text, 1)]


def test_a_job_that_is_gone_is_no_trouble(told: Told) -> None:
    """Nothing is told of it, and what comes after is."""

    def tell(events: Events) -> None:
        events.resized("research", "ml/gone", outcome())
        events.resized("research", "ml/digits", outcome())

    assert [reason for reason, _, _ in told.by(tell)] == ["Resized"]


def test_who_may_not_write_events_stops_trying_for_a_while(told: Told) -> None:
    """A missing permission costs one request, not one for each Event."""

    class Barred:
        asked = 0

        def get(self, *_: object) -> Any:
            self.asked += 1
            raise ForbiddenError("events is forbidden")

    def tell(events: Events) -> None:
        for number in range(5):
            events.resized("research", "ml/digits", outcome(id=f"r{number}"))

    barred = Barred()
    assert told.by(tell, barred) == []
    assert barred.asked == 1
