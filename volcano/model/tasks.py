# SPDX-License-Identifier: Apache-2.0
"""Pods, as the scheduler sees them during one cycle.

Sources: TaskInfo (pkg/scheduler/api/job_info.go), getTaskStatus and the groups of statuses
(pkg/scheduler/api/helpers.go), GetPodPreemptable (pkg/scheduler/api/pod_info.go), Volcano 1.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kfp_volcano.volcano.model.cards import CardRequest, Share, assigned, card_requests
from kfp_volcano.volcano.model.objects import Key, Manifest, key_of, labels_of, phase_of, terminating
from kfp_volcano.volcano.model.pods import GROUP, INDEX, PREEMPTABLE, task_of
from kfp_volcano.volcano.model.resources import POD, Resources, add, pod_request

__all__ = ["Status", "Task", "group_of", "says_preemptable", "task_for"]

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


class Status(Enum):
    """Where a pod stands in this cycle."""

    PENDING = auto()
    ALLOCATED = auto()
    """Given a node in this cycle, its gang being incomplete still."""
    PIPELINED = auto()
    """Promised a node on which others have yet to go."""
    BINDING = auto()
    """Given a node in this cycle, for good."""
    BOUND = auto()
    RUNNING = auto()
    RELEASING = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    UNKNOWN = auto()

    __hash__ = object.__hash__  # each is one object; Enum's own hash, in Python, is much of a cycle

    @property
    def allocated(self) -> bool:
        """Whether it counts against its queue (AllocatedStatus)."""
        return self in _ALLOCATED

    @property
    def scheduled(self) -> bool:
        """Whether it counts for the phase of its PodGroup (ScheduledStatus)."""
        return self in _SCHEDULED


_ALLOCATED = frozenset({Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING})
_SCHEDULED = frozenset({Status.BOUND, Status.RUNNING, Status.SUCCEEDED, Status.FAILED})


@dataclass(slots=True, eq=False)
class Task:
    """One pod."""

    pod: Manifest
    role: str
    """The task of the Job that it belongs to."""
    index: int
    """Its number within its task."""
    order: int
    """Rank by age among all pods."""
    request: Resources
    priority: int
    status: Status
    node: str
    """Empty while it has none."""
    preemptable: bool
    best_effort: bool
    """Whether it asks for nothing."""
    wants: tuple[CardRequest, ...] = ()
    """What each of its containers asks of shared GPUs."""
    shares: tuple[tuple[Share, ...], ...] = ()
    """What each of them was given."""
    message: str = ""
    """Why this cycle found no place for it."""
    evicting: bool = False
    """Whether its promised node is one from which this cycle took others."""

    @property
    def key(self) -> Key:
        """Where its pod is."""
        return key_of(self.pod)

    @property
    def may_preempt(self) -> bool:
        """Whether its priority class allows it to take from others."""
        return bool(self.pod["spec"].get("preemptionPolicy") != "Never")


def task_for(pod: Manifest, order: int) -> Task:
    """A pod as it is at the start of a cycle."""
    spec, annotations = pod["spec"], pod["metadata"].get("annotations") or {}
    request, wants = pod_request(spec), card_requests(spec)
    return Task(
        pod=pod,
        role=task_of(pod),
        index=int(annotations.get(INDEX, 0)),
        order=order,
        request=add(request, {POD: 1000}),
        best_effort=not any(request.values()),
        priority=spec.get("priority", 0),
        status=_status(pod),
        node=spec.get("nodeName", ""),
        preemptable=says_preemptable(pod),
        wants=wants,
        shares=assigned(pod) if wants else (),
    )


def says_preemptable(manifest: Manifest) -> bool:
    """Whether an object's annotation, or else its label, lets it be taken; it may be if it says nothing."""
    annotations = manifest["metadata"].get("annotations") or {}
    return str(annotations.get(PREEMPTABLE, labels_of(manifest).get(PREEMPTABLE, "true"))) in _TRUE


def group_of(pod: Manifest) -> Key | None:
    """The PodGroup that a pod says it is in."""
    name = (pod["metadata"].get("annotations") or {}).get(GROUP)
    return (pod["metadata"].get("namespace", ""), name) if name else None


def _status(pod: Manifest) -> Status:
    phase = phase_of(pod)
    if phase in {"Running", "Pending"} and terminating(pod):
        return Status.RELEASING
    if phase == "Pending":
        return Status.BOUND if pod["spec"].get("nodeName") else Status.PENDING
    known = {"Running": Status.RUNNING, "Succeeded": Status.SUCCEEDED, "Failed": Status.FAILED}
    return known.get(phase, Status.UNKNOWN)
