# SPDX-License-Identifier: Apache-2.0
"""What policies and Commands make of a Job, also later."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.volcano.model.durations import parse_duration


def phase(lab: Any, name: str = "a") -> str:
    return str(lab.state()["jobs"][name]["phase"])


def test_a_pod_that_waits_too_long_ends_its_job(lab: Any, make: Any) -> None:
    """PodPending acts after its `timeout`, if the pod still waits then."""
    late = [{"event": "PodPending", "action": "TerminateJob", "timeout": "1m"}]
    lab.submit(make.job("a", make.task("w", 9, 1, policies=late)))
    lab.settle()
    assert phase(lab) == "Running"
    lab.now += 60
    lab.settle()
    assert phase(lab) == "Terminated"


def test_a_pod_that_starts_in_time_is_forgiven(lab: Any, make: Any) -> None:
    """A pod that runs is pending no more: what its waiting had led to is taken back."""
    late = [{"event": "PodPending", "action": "TerminateJob", "timeout": "1m"}]
    lab.submit(make.job("a", make.task("w", 4, 1, policies=late)))
    lab.settle()
    lab.now += 120
    lab.settle()
    assert (phase(lab), lab.running("a")["w"]) == ("Running", 4)


def test_a_failure_acts_when_its_time_is_over(lab: Any, make: Any) -> None:
    """Any event's action waits for the `timeout`; until then the Job goes on."""
    later = [{"event": "PodFailed", "action": "RestartJob", "timeout": "30s"}]
    lab.submit(make.job("a", make.task("w", 2, 1), policies=later))
    lab.settle()
    lab.end("a-w-1", 1)
    lab.settle()
    before = lab.state()["jobs"]["a"]
    lab.now += 30
    lab.settle()
    after = lab.state()["jobs"]["a"]
    assert (before["retryCount"], before["tasks"]["w"]) == (0, {"Running": [0], "Failed": [1]})
    assert (after["retryCount"], after["tasks"]["w"]) == (1, {"Running": [0, 1]})


def test_a_job_is_suspended_and_resumed(lab: Any, make: Any) -> None:
    """AbortJob gives everything back, ResumeJob starts again and counts as a retry."""
    lab.submit(make.job("a", make.task("w", 2, 2)))
    lab.settle()
    lab.command("AbortJob", "Job", "a")
    lab.settle()
    assert (phase(lab), lab.running("a"), lab.state()["queues"]["default"]["allocatedGPU"]) == ("Aborted", {}, 0)
    lab.command("ResumeJob", "Job", "a")
    lab.settle()
    assert (phase(lab), lab.running("a")["w"], lab.state()["jobs"]["a"]["retryCount"]) == ("Running", 2, 1)


def test_enough_successes_complete_a_job(lab: Any, make: Any) -> None:
    """With `minSuccess` the Job is done at so many successes, and what still runs is ended."""
    lab.submit(make.job("a", make.task("w", 3, 1), minSuccess=1))
    lab.settle()
    lab.end("a-w-2", 0)
    lab.settle()
    assert (phase(lab), lab.state()["jobs"]["a"]["tasks"]["w"]) == ("Completed", {"Succeeded": [2]})


def test_a_finished_job_goes_when_its_time_is_over(lab: Any, make: Any) -> None:
    """`ttlSecondsAfterFinished` counts from the end."""
    lab.submit(make.job("a", make.task("w", 1, 1), ttlSecondsAfterFinished=60))
    lab.settle()
    lab.end("a-w-0", 0)
    lab.settle()
    assert phase(lab) == "Completed"
    lab.now += 60
    lab.settle()
    assert lab.state()["jobs"] == {}


def test_a_task_waits_for_those_it_depends_on(lab: Any, make: Any) -> None:
    """Pods of a task are made when the minimum of the tasks it depends on runs."""
    worker = make.task("worker", 2, 0, dependsOn={"name": ["master"]})
    lab.submit(make.job("a", make.task("master", 1, 1, gpus=8), worker))
    lab.submit(make.job("b", make.task("master", 2, 2, gpus=8), worker))
    lab.settle()
    tasks = {name: seen["tasks"] for name, seen in lab.state()["jobs"].items()}
    assert tasks["a"] == {"master": {"Running": [0]}, "worker": {"Running": [0, 1]}}
    assert tasks["b"] == {"master": {"Pending": [0, 1]}}


def test_a_missing_priority_class_keeps_pods_from_being_made(lab: Any, make: Any) -> None:
    """The Job waits in its queue without pods until the class is there."""
    lab.submit(make.job("a", make.task("w", 2, 2), priorityClassName="absent"))
    lab.settle()
    seen = lab.state()["jobs"]["a"]
    assert (seen["phase"], seen["tasks"], seen["podgroup"]["phase"]) == ("Pending", {}, "Inqueue")
    lab.priority("absent", 5)
    lab.settle()
    assert lab.running("a")["w"] == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("1h2m3.5s", 3723.5), ("500ms", 0.5), ("0", 0), ("-1m", -60), (".5s", 0.5)]
)
def test_durations_are_read_as_go_does(text: str, seconds: float) -> None:
    """Sums of numbers with units, and a plain zero."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "1d", "s", "1 h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A number without a unit, an unknown unit, or nothing."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_a_partition_is_restarted_alone(lab: Any, make: Any) -> None:
    """RestartPartition replaces the pods that share a partition with the one it is about."""
    again = [{"event": "PodFailed", "action": "RestartPartition"}]
    partitions = {"totalPartitions": 2, "partitionSize": 2}
    lab.submit(make.job("a", make.task("w", 4, 4, policies=again, partitionPolicy=partitions)))
    lab.settle()
    before = lab.uids()
    lab.end("a-w-1", 1)
    lab.settle()
    after = lab.uids()
    assert {name for name in before if before[name] != after[name]} == {"a-w-0", "a-w-1"}


def test_a_partition_that_is_none_is_left_alone(lab: Any, make: Any) -> None:
    """RestartPartition of a task without partitions does nothing at all, not even what a sync would."""
    again = [{"event": "PodEvicted", "action": "RestartPartition"}]
    lab.submit(make.job("a", make.task("w", 3, 1, policies=again)))
    lab.settle()
    lab.evict("a-w-1")
    lab.settle()
    seen = lab.state()["jobs"]["a"]
    assert (seen["retryCount"], seen["tasks"]) == (0, {"w": {"Running": [0, 2]}})


def test_each_pod_that_goes_is_an_event_of_its_own(lab: Any, make: Any) -> None:
    """A scale-down by two pods under PodEvicted -> RestartPod is two restarts: the trap DESIGN avoids."""
    again = [{"event": "PodEvicted", "action": "RestartPod"}]
    lab.submit(make.job("a", make.task("core", 2, 2), make.task("elastic", 4, 0, policies=again)))
    lab.settle()
    lab.patch("a", [{"op": "replace", "path": "/spec/tasks/1/replicas", "value": 2}])
    lab.settle()
    assert lab.state()["jobs"]["a"]["retryCount"] == 2


def test_a_broken_gang_is_no_event_after_a_restart(lab: Any, make: Any) -> None:
    """PodGroups' events carry no version of the Job: once it was restarted, its policy on Unknown is dead."""
    policies = [{"event": "Unknown", "action": "AbortJob"}, {"event": "PodFailed", "action": "RestartJob"}]
    raised = [
        {"op": "replace", "path": f"/spec/{path}", "value": 8}
        for path in ("tasks/0/replicas", "tasks/0/minAvailable", "minAvailable")
    ]
    for name, failing in (("a", False), ("b", True)):
        lab.submit(make.job(name, make.task("w", 4, 4), policies=policies))
        lab.settle()
        if failing:
            lab.end(f"{name}-w-0", 1)
            lab.settle()
        lab.submit(make.job("filler", make.task("w", 3, 3)))
        lab.settle()
        lab.patch(name, raised)
        lab.settle()
        assert phase(lab, name) == ("Pending" if failing else "Aborted")
        lab.delete(name)
        lab.delete("filler")
        lab.settle()
