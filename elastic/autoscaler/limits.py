# SPDX-License-Identifier: Apache-2.0
"""A Job's limits in time that Volcano does not keep by itself. Pure: objects and time come in.

`faults.timeout` counts from the Job's creation, over all its restarts. Volcano keeps `faults.pending` by a policy of
the Job's tasks, but only for pods that exist: a gang that is not let into its queue has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.contracts import spec_of
from kfp_volcano.schemas.quantities import duration_text
from kfp_volcano.volcano.manifests.policies import ACTIONS
from kfp_volcano.volcano.manifests.status import JobState, job_state
from kfp_volcano.volcano.model.objects import parse_time, terminating

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.schemas.training_job import Faults
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["Limit", "limits", "limits_of", "overdue"]


@dataclass(frozen=True, slots=True)
class Limit:
    """What is done with a Job at a time."""

    at: float
    """Unix seconds."""
    verb: str
    """In Volcano's words."""
    why: str


def overdue(job: Manifest, pods: Sequence[Manifest], now: float) -> Limit | None:
    """The limit that a Job has reached; None where it has reached none, or has ended."""
    return next((limit for limit in limits(job, pods) if limit.at <= now), None)


def limits(job: Manifest, pods: Sequence[Manifest]) -> Iterator[Limit]:
    """The limits of a Job that has not ended, as it is now.

    Args:
        job: The Job as read from the cluster.
        pods: Its pods.
    """
    spec = spec_of(job)
    return iter(()) if spec is None else limits_of(spec.faults, job, admitted=bool(pods))


def limits_of(faults: Faults, job: Manifest, *, admitted: bool) -> Iterator[Limit]:
    """The same for a Job whose spec says so of faults; `admitted`: whether it has any pods."""
    state = job_state(job)
    if state.final or state is JobState.ENDING or terminating(job):
        return
    created = parse_time(job["metadata"]["creationTimestamp"])
    if faults.timeout_s is not None:
        why = f"it took longer than faults.timeout, {duration_text(faults.timeout_s)}"
        yield Limit(created + faults.timeout_s, "TerminateJob", why)
    if faults.pending is not None and state is JobState.PENDING and not admitted:
        why = f"it was not let into its queue for faults.pending.after, {duration_text(faults.pending.after_s)}"
        yield Limit(_pending_since(job, created) + faults.pending.after_s, ACTIONS[faults.pending.then], why)


def _pending_since(job: Manifest, created: float) -> float:
    entered = [
        parse_time(each["lastTransitionTime"])
        for each in (job.get("status") or {}).get("conditions") or ()
        if each.get("status") == "Pending" and each.get("lastTransitionTime")
    ]
    return max(entered, default=created)
