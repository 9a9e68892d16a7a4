# SPDX-License-Identifier: Apache-2.0
"""Warnings about a Job and its pods: told once, and only those that are its own."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.errors import ForbiddenError, UnavailableError
from kfp_volcano.volcano.launcher.complaints import Complaints
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.model.objects import time_text

START = 1_790_000_000.0


class Events:
    """A cluster that has Events, and counts how often it was asked."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.asked = 0
        self.failure: Exception | None = None

    def list(self, kind: str, namespace: str, *, fields: dict[str, str]) -> tuple[list[dict[str, Any]], str]:
        assert (kind, namespace, fields) == ("Event", "ml", {"type": "Warning"})
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return self.events, "1"

    def add(self, name: str, reason: str, message: str = "", *, kind: str = "Pod", at: float = START) -> None:
        self.events.append(
            {
                "metadata": {"name": f"e-{len(self.events)}"},
                "involvedObject": {"kind": kind, "name": name},
                "reason": reason,
                "message": message,
                "lastTimestamp": time_text(at),
            }
        )


@pytest.fixture
def now() -> list[float]:
    return [START]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def complaints(events: Events, now: list[float], said: list[str]) -> Complaints:
    return Complaints(events, JobRef("ml", "job"), clock=lambda: now[0], say=said.append)  # type: ignore[arg-type]


def test_each_is_told_once(complaints: Complaints, events: Events, now: list[float], said: list[str]) -> None:
    """However often it is repeated, by however many pods in their own names."""
    events.add("job-core-0", "FailedMount", "job-core-0 has no claim data")
    events.add("job-core-1", "FailedMount", "job-core-1 has no claim data")
    events.add("job", "FailedCreate", "quota exceeded", kind="Job")
    complaints.look()
    now[0] += 60
    events.add("job-core-2", "FailedMount", "job-core-2 has no claim data", at=now[0])
    complaints.look()
    assert said == [
        "Pod job-core-0: FailedMount: job-core-0 has no claim data",
        "Job job: FailedCreate: quota exceeded",
    ]


def test_only_its_own_and_only_new_ones(complaints: Complaints, events: Events, said: list[str]) -> None:
    """Other Jobs have their own followers, and earlier steps have told what was before."""
    events.add("jobs-core-0", "BackOff")
    events.add("other", "BackOff")
    events.add("job", "BackOff", kind="ConfigMap")
    events.add("job-core-0", "BackOff", "long ago", at=START - 3600)
    events.add("job-core-0", "FailedScheduling", "0/2 nodes")
    complaints.look()
    assert said == []


def test_the_cluster_is_asked_now_and_then(complaints: Complaints, events: Events, now: list[float]) -> None:
    """A second more or less does not matter to a complaint; a request a second would, over days."""
    for second in range(3600):
        now[0] = START + second
        complaints.look()
    assert events.asked == 120


def test_a_flood_ends(complaints: Complaints, events: Events, now: list[float], said: list[str]) -> None:
    """After fifty different ones nobody reads on, and nothing more is asked."""
    for number in range(80):
        events.add("job-core-0", "Odd", f"number {number}")
    complaints.look()
    assert len(said) == 50
    now[0] += 3600
    complaints.look()
    assert events.asked == 1


def test_who_may_not_read_them_is_not_told(complaints: Complaints, events: Events, now: list[float]) -> None:
    """The right is one a run can do without; a cluster that does not answer is asked again."""
    events.failure = UnavailableError("later")
    complaints.look()
    now[0] += 60
    events.failure = ForbiddenError("no")
    complaints.look()
    now[0] += 3600
    complaints.look()
    assert events.asked == 2
