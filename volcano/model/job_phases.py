# SPDX-License-Identifier: Apache-2.0
"""The phases of a Job: from what it asks for and how many pods are where, to the phase that follows.

Source: pkg/controllers/job/state, Volcano 1.15.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kfp_volcano.volcano.model.objects import Manifest

__all__ = [
    "ENDS",
    "FINISHED",
    "NextPhase",
    "Status",
    "after_pending",
    "after_restarting",
    "after_running",
    "to_phase",
    "unchanged",
    "when_quiet",
]

FINISHED = frozenset({"Completed", "Failed", "Terminated"})
"""Phases of a Job that it never leaves."""
ENDS = {"Aborting": "Aborted", "Terminating": "Terminated", "Completing": "Completed"}
"""Phases that wait for the pods to go, and what comes after them."""

Status: TypeAlias = dict[str, Any]
"""A Job's status."""
NextPhase: TypeAlias = Callable[[Manifest, Status], str]
"""From a Job and its new counts to the phase it takes."""


def to_phase(phase: str) -> NextPhase:
    """This phase, whatever the counts are."""
    return lambda _job, _status: phase


def unchanged(_job: Manifest, status: Status) -> str:
    """The phase it has."""
    return str(status["state"]["phase"])


def when_quiet(job: Manifest, status: Status) -> str:
    """The end of a phase that waits for the pods to go."""
    alive = status["terminating"] or status["pending"] or status["running"]
    return unchanged(job, status) if alive else ENDS[status["state"]["phase"]]


def after_pending(job: Manifest, status: Status) -> str:
    """A Job runs when its minimum has arrived; a pod that has failed has arrived, too."""
    arrived = status["running"] + status["succeeded"] + status["failed"]
    return "Running" if job["spec"]["minAvailable"] <= arrived else "Pending"


def after_restarting(job: Manifest, status: Status) -> str:
    """A Job starts again when enough of its pods have gone, if it has a retry left."""
    if status["retryCount"] >= job["spec"]["maxRetry"]:
        return "Failed"
    left = _total(job) - status["terminating"]
    return "Pending" if left >= status["minAvailable"] else "Restarting"


def after_running(job: Manifest, status: Status) -> str:
    """A Job ends when enough pods have succeeded or all have ended, and waits again when too few of them run."""
    spec, total = job["spec"], _total(job)
    least = spec.get("minSuccess")
    if total == 0:
        return "Running"
    if least is not None and status["succeeded"] >= least:
        return "Completed"
    if status["succeeded"] + status["failed"] == total:
        return _verdict(spec, status, spec["minAvailable"] if least is None else least)
    return "Pending" if status["pending"] > total - spec["minAvailable"] else "Running"


def _verdict(spec: Mapping[str, Any], status: Status, least: int) -> str:
    """How a Job ended whose pods have all ended."""
    if spec["minAvailable"] >= sum(task["minAvailable"] for task in spec["tasks"]):
        for task in spec["tasks"]:
            phases = status["taskStatusCount"].get(task["name"], {}).get("phase")
            if phases is not None and phases.get("Succeeded", 0) < task["minAvailable"]:
                return "Failed"
    return "Completed" if status["succeeded"] >= least else "Failed"


def _total(job: Manifest) -> int:
    return sum(task["replicas"] for task in job["spec"]["tasks"])
