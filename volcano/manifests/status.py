# SPDX-License-Identifier: Apache-2.0
"""Volcano's phases of a Job in the few words that a follower needs."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["JobState", "job_state"]


class JobState(str, Enum):
    """What a Job is doing."""

    PENDING = "Pending"
    """Waits for its gang, or has not been looked at by Volcano."""
    RUNNING = "Running"
    RESTARTING = "Restarting"
    """Its pods are being replaced by new ones."""
    ENDING = "Ending"
    """Its pods are being stopped; how it ends shows in the next state."""
    SUSPENDED = "Suspended"
    """Stopped, but may be resumed (`vcctl job resume`)."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    """In a phase that this version has never heard of."""

    @property
    def final(self) -> bool:
        """Whether it will never run again."""
        return self in {JobState.SUCCEEDED, JobState.FAILED}


_STATES = {
    "": JobState.PENDING,
    "Pending": JobState.PENDING,
    "Running": JobState.RUNNING,
    "Restarting": JobState.RESTARTING,
    "Completing": JobState.ENDING,
    "Terminating": JobState.ENDING,
    "Aborting": JobState.ENDING,
    "Aborted": JobState.SUSPENDED,
    "Completed": JobState.SUCCEEDED,
    "Terminated": JobState.FAILED,
    "Failed": JobState.FAILED,
}
"""Every JobPhase of staging/src/volcano.sh/apis/pkg/apis/batch/v1alpha1/job.go (1.15), and none yet."""


def job_state(job: Mapping[str, Any]) -> JobState:
    """The state of a Job object as read from the cluster; total, also for a Job that has no status yet."""
    phase = ((job.get("status") or {}).get("state") or {}).get("phase") or ""
    return _STATES.get(phase, JobState.UNKNOWN)
