# SPDX-License-Identifier: Apache-2.0
"""How a Job ended: the first that failed, how, where, and what it said last."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.errors import NotFoundError
from kfp_volcano.schemas.names import PROGRESS
from kfp_volcano.schemas.records import Progress, dump
from kfp_volcano.volcano.launcher.ending import Failures, explain_failure

JOB = {"metadata": {"name": "job"}, "spec": {"tasks": []}, "status": {"state": {"phase": "Failed"}}}


class Logs:
    """A cluster in which each pod has printed its own name, with its Warnings."""

    def __init__(self, *warnings: dict[str, Any]) -> None:
        self.warnings = list(warnings)

    def list(self, kind: str, namespace: str, *, fields: dict[str, str]) -> tuple[list[dict[str, Any]], str]:
        assert (kind, namespace, fields) == ("Event", "ml", {"type": "Warning"})
        return self.warnings, "1"

    def logs(self, pod: str, _namespace: str, *, tail: int) -> tuple[str, str]:
        assert tail > 0
        if pod.endswith("-9"):
            raise NotFoundError(pod)
        return f"here is {pod}\n", ""


def ended(code: int, at: str = "2026-01-01T00:00:05Z", **more: Any) -> dict[str, Any]:
    """A container that ended so."""
    return {"name": "main", "state": {"terminated": {"exitCode": code, "finishedAt": at, **more}}}


def pod(name: str, *statuses: dict[str, Any], **status: Any) -> dict[str, Any]:
    """A pod on node n1 whose containers stand so."""
    status = {"containerStatuses": list(statuses), **status}
    return {"metadata": {"name": name}, "spec": {"nodeName": "n1"}, "status": status}


def told(*pods: dict[str, Any]) -> str:
    """What is said of the end of a Job with these pods."""
    failures = Failures(Logs(), "ml")  # type: ignore[arg-type]
    failures.look(pods)
    return explain_failure(JOB, failures)


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (ended(1), "failed with exit code 1"),
        (ended(137, reason="OOMKilled"), "ran out of memory (OOMKilled, exit code 137)"),
        (ended(137), "failed with exit code 137 (SIGKILL)"),
        (ended(139), "failed with exit code 139 (SIGSEGV)"),
        (ended(255), "failed with exit code 255"),
        (ended(1, signal=9), "failed with exit code 1 (SIGKILL)"),
        ({"name": "main", "lastState": ended(3)["state"], "state": {"running": {}}}, "failed with exit code 3"),
    ],
)
def test_a_container_that_failed_is_told_with_code_signal_node_and_last_lines(status, how):
    """Whatever ended it."""
    assert f"job-core-0 {how} on node n1; its last lines:\n    here is job-core-0" in told(pod("job-core-0", status))


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."},
        {
            "phase": "Failed",
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "Evicted",
                    "message": "The node was low on memory.",
                    "lastTransitionTime": "2026-01-01T00:00:05Z",
                }
            ],
        },
    ],
)
def test_a_pod_that_was_taken_away_did_not_fail_by_itself(status):
    """The exit code of a container that the cluster killed would send the user looking in the wrong place."""
    text = told(pod("job-core-0", ended(137), **status))
    assert "job-core-0 was taken away by the cluster: Evicted: The node was low on memory. on node n1" in text
    assert "137" not in text


def test_the_first_failure_counts_whenever_it_is_seen():
    """What fails later is often only a consequence."""
    early, late = ended(1, "2026-01-01T00:00:01Z"), ended(2, "2026-01-01T00:00:09Z")
    assert "job-core-1 failed with exit code 1" in told(pod("job-core-0", late), pod("job-core-1", early))
    failures = Failures(Logs(), "ml")  # type: ignore[arg-type]
    for each in (pod("job-core-0", late), pod("job-core-1", early), pod("job-core-0", late)):
        failures.look([each])
    assert "job-core-1 failed with exit code 1" in explain_failure(JOB, failures)


def test_a_pod_that_never_ran_is_told_too():
    """A kubelet may refuse a pod that was bound to it."""
    refused = {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": "no GPU is healthy",
        "containerStatuses": [],
    }
    assert "job-core-9 was not run: UnexpectedAdmissionError: no GPU is healthy" in told(pod("job-core-9", **refused))


def test_of_a_job_whose_pods_are_gone_all_that_is_left_is_told():
    """Where it stood, what the cluster complained of last, each kind once, and what its first pod had printed."""
    warnings = [
        {"involvedObject": {"kind": "Pod", "name": name}, "reason": reason, "message": message, "metadata": {},
         "lastTimestamp": f"2026-01-01T00:00:0{second}Z"}
        for second, (name, reason, message) in enumerate(
            [
                ("job-core-0", "BackOff", "restarting the second time"),
                ("job-core-0", "BackOff", "restarting the third time"),
                ("job-core-1", "FailedScheduling", "told elsewhere"),
                ("another-core-0", "BackOff", "none of ours"),
                ("job-core-0", "Unhealthy", "no answer"),
            ]
        )
    ]  # fmt: skip
    progress = Progress(
        step=389, total_steps=2760, samples=1, epoch=16, throughput=1.0, workers=1, batch=64, lr=0.1, at=1.0
    )
    job = {
        "metadata": {"name": "job", "annotations": {PROGRESS: dump(progress)}},
        "spec": {"tasks": [{"name": "coordinator", "replicas": 1}, {"name": "core", "replicas": 2}]},
        "status": {"state": {"phase": "Terminated"}},
    }
    assert explain_failure(job, Failures(Logs(*warnings), "ml")).splitlines() == [  # type: ignore[arg-type]
        "the Job ended Terminated, before its containers could be looked at",
        "  it had come to step 389 of 2760 with 1 worker",
        "  Pod job-core-0: BackOff: restarting the third time",
        "  Pod job-core-0: Unhealthy: no answer",
        "  the last lines of job-core-0:",
        "    here is job-core-0",
    ]
