# SPDX-License-Identifier: Apache-2.0
"""Actions that a policy's `timeout` puts off, until they are due or something takes them back.

Sources: CleanPodDelayActionsIfNeed, AddDelayActionForJob, cleanupDelayActions (pkg/controllers/job/job_controller.go)
and GetActionType (job_controller_util.go), Volcano 1.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.lifecycle import Request
    from kfp_volcano.volcano.model.objects import Key

__all__ = ["Delays"]

_POD_EVENTS = frozenset({"PodPending", "PodRunning", "PodFailed", "PodEvicted"})
_INTERNAL = frozenset({"SyncJob", "EnqueueJob", "SyncQueue", "OpenQueue", "CloseQueue"})


@dataclass(frozen=True, slots=True)
class _Delayed:
    due: float
    action: str
    request: Request


class Delays:
    """At most one action for each pod of a Job, and one for what is no pod's event."""

    def __init__(self) -> None:
        self._by_job: dict[Key, dict[str, _Delayed]] = {}

    def add(self, request: Request, action: str, due: float) -> None:
        """Put an action off until Unix second `due`; one that waits already for the same pod keeps its time."""
        waiting = self._by_job.setdefault(request.job, {})
        if request.pod not in waiting or waiting[request.pod].action != action:
            waiting[request.pod] = _Delayed(due, action, request)

    def overtaken(self, request: Request) -> None:
        """A pod's event takes back what an earlier one of it led to: it is pending no more, or runs again."""
        if request.event not in _POD_EVENTS - {"PodPending"}:
            return
        waiting = self._by_job.get(request.job, {})
        delayed = waiting.get(request.pod)
        if delayed is None:
            return
        event = delayed.request.event
        arrived = event == "PodPending" and delayed.request.pod_uid == request.pod_uid
        if arrived or (event in {"PodFailed", "PodEvicted"} and request.event == "PodRunning"):
            del waiting[request.pod]

    def done(self, request: Request, action: str) -> None:
        """An action was carried out: those of the same reach that still wait for the Job are taken back."""
        if action in _INTERNAL:
            return
        waiting = self._by_job.get(request.job, {})
        for pod, delayed in list(waiting.items()):
            if _reach(delayed.action, delayed.request) == _reach(action, request):
                del waiting[pod]

    def take_due(self, now: float) -> list[tuple[Request, str]]:
        """The actions whose time has come, the earliest first; they wait no more."""
        due = [
            (delayed.due, job, pod)
            for job, waiting in self._by_job.items()
            for pod, delayed in waiting.items()
            if delayed.due <= now
        ]
        taken = [self._by_job[job].pop(pod) for _, job, pod in sorted(due)]
        return [(delayed.request, delayed.action) for delayed in taken]

    def next_due(self) -> float | None:
        """When the next one is due, in Unix seconds."""
        return min((each.due for waiting in self._by_job.values() for each in waiting.values()), default=None)


def _reach(action: str, request: Request) -> tuple[str, str]:
    """What an action is about: the Job, one of its tasks or a part of one, or one pod."""
    reaches = {
        "RestartTask": ("task", request.task),
        "RestartPartition": ("partition", request.task),
        "RestartPod": ("pod", request.pod),
    }
    return reaches.get(action, ("job", ""))
