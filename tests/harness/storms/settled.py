# SPDX-License-Identifier: Apache-2.0
"""What must be so some time after healing, under a load that does not change: told from the cluster's objects alone.

- Every Job that runs has no request or resize open.
- No surplus waits for a node.
- No gang waits that does not fit in what is free, within its queue's limits, and would fit if Jobs of its queue that
  are not held gave it their surplus: of no higher priority, if the gang is within what the queue deserves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.contracts import answered, hold_of, request_of, spec_of
from kfp_volcano.schemas.names import ELASTIC
from kfp_volcano.volcano.manifests.status import JobState, job_state
from kfp_volcano.volcano.model.objects import key_of, terminating
from storms.holdings import Holdings, holds, index_of, pod_gpus, queue_of, task_of

if TYPE_CHECKING:
    from storms.storm import Storm

__all__ = ["unsettled"]


def unsettled(storm: Storm) -> list[str]:
    """What is not settled, in words."""
    kinds = ("Job", "Pod", "PodGroup", "Node", "Queue", "PriorityClass")
    objects = {kind: {key_of(each): each for each in storm.store.list(kind)[0]} for kind in kinds}
    state = _State(objects, storm.now)
    return [*state.open(), *state.waiting(), *state.starving()]


class _State:
    def __init__(self, objects: dict[str, dict[Any, Any]], now: float) -> None:
        self._now = now
        self._objects = objects
        self._jobs = {"/".join(key): job for key, job in objects["Job"].items()}
        self._holdings = Holdings(objects, self._jobs, now)
        self._phases = {
            f"{group['metadata']['namespace']}/{owner['name']}": (group.get("status") or {}).get("phase")
            for group in objects["PodGroup"].values()
            for owner in group["metadata"].get("ownerReferences") or ()
        }
        self._pods: dict[str, list[Any]] = {}
        for pod in objects["Pod"].values():
            owner = f"{pod['metadata']['namespace']}/{(pod['metadata'].get('labels') or {}).get('volcano.sh/job-name')}"
            self._pods.setdefault(owner, []).append(pod)

    def open(self) -> Iterator[str]:
        """Requests and resizes."""
        for key, job in self._jobs.items():
            if spec_of(job) is not None and job_state(job) is JobState.RUNNING and not answered(job):
                yield f"{key}: {request_of(job)} is not answered"

    def waiting(self) -> Iterator[str]:
        """Surplus of Jobs that run, and of those that stand in their own way, for it has their gang's priority."""
        for key, job in self._jobs.items():
            in_the_way = job_state(job) is JobState.RUNNING or not job["spec"].get("priorityClassName")
            live = not job_state(job).final and job_state(job) is not JobState.ENDING and spec_of(job) is not None
            if live and in_the_way and self._waiting(key) and self._may_change(job):
                yield f"{key}: {len(self._waiting(key))} of its surplus wait for a node"

    def starving(self) -> Iterator[str]:
        """Gangs that Jobs could make room for. Where there is room already, and Volcano places none, nobody can."""
        lacking = {key: gang for key, job in self._jobs.items() if (gang := self._lacking(key, job))}
        for key, gang in lacking.items():
            queue, priority = queue_of(self._jobs[key]), self._priority(self._jobs[key])
            # Volcano counts what it has let into the queue as used, whether that finds a place or not.
            let_in = sum(
                sum(other)
                for name, other in lacking.items()
                if name != key and queue_of(self._jobs[name]) == queue and self._phases.get(name) == "Inqueue"
            )
            free, given = dict(self._holdings.free), 0
            without = self._fits(gang, queue, free, let_in)
            for name, other in self._jobs.items():
                if queue_of(other) == queue and self._priority(other) <= priority and self._may_give(other):
                    given += self._give(name, free)
            if not without and self._rightful(queue, sum(gang)) and self._fits(gang, queue, free, let_in - given):
                yield f"{key} waits for {gang} in {queue}, and {free} could be free: {given} GPUs of surplus"

    def _fits(self, gang: list[int], queue: str, free: dict[str, int], let_in: int) -> bool:
        used = let_in + sum(gang)
        limits = [
            sum(self._holdings.held[each] for each in below) + used <= limit
            for limit, _, below in self._holdings.limits(queue)
        ]
        return all(limits) and _packs(gang, free)

    def _lacking(self, key: str, job: Any) -> list[int]:
        if job_state(job) not in {JobState.PENDING, JobState.RUNNING, JobState.RESTARTING} or terminating(job):
            return []
        lacking, placed = [], 0
        for task in job["spec"]["tasks"]:
            there = [pod for pod in self._pods.get(key, ()) if task_of(pod) == task["name"] and _counts(pod)]
            placed += len(there)
            lacking += [pod_gpus(task["template"]["spec"])] * max(
                0, task.get("minAvailable", task["replicas"]) - len(there)
            )
        if placed >= job["spec"]["minAvailable"]:
            return []
        return [gpus for gpus in lacking if gpus]

    def _give(self, key: str, free: dict[str, int]) -> int:
        """Let a Job give all its surplus: what becomes free on nodes that take pods, and how much it held."""
        given = 0
        for pod in self._pods.get(key, ()):
            if task_of(pod) == ELASTIC and holds(pod):
                gpus = self._holdings.gpus[key]
                given += gpus
                node = pod["spec"]["nodeName"]
                if node in free:
                    free[node] += gpus
        return given

    def _rightful(self, queue: str, more: int) -> bool:
        """Whether a gang is within what its queue deserves, beside the gangs that it has."""
        deserved = self._holdings.deserved(queue)
        if deserved is None:
            return True
        surplus = sum(
            self._holdings.gpus[key]
            for key, job in self._jobs.items()
            if queue_of(job) == queue and key in self._holdings.gpus
            for pod in self._pods.get(key, ())
            if task_of(pod) == ELASTIC and holds(pod)
        )
        return self._holdings.held.get(queue, 0) - surplus + more <= deserved

    def _waiting(self, key: str) -> list[Any]:
        """Surplus that is asked for and has no node: Volcano may be slow to take away what is not any more."""
        asked = sum(task["replicas"] for task in self._jobs[key]["spec"]["tasks"] if task["name"] == ELASTIC)
        surplus = [pod for pod in self._pods.get(key, ()) if task_of(pod) == ELASTIC and index_of(pod) < asked]
        return [pod for pod in surplus if not pod["spec"].get("nodeName")]

    def _may_give(self, job: Any) -> bool:
        return spec_of(job) is not None and job_state(job) is JobState.RUNNING and self._may_change(job)

    def _may_change(self, job: Any) -> bool:
        hold = hold_of(job)
        return hold is None or hold.until <= self._now

    def _priority(self, job: Any) -> int:
        known = self._objects["PriorityClass"].get(("", job["spec"].get("priorityClassName") or ""))
        return int(known["value"]) if known else 0


def _packs(pods: list[int], free: dict[str, int]) -> bool:
    """Whether pods find a node each: the largest first, each where it fits best; exact for pods of one size."""
    left = dict(free)
    for gpus in sorted(pods, reverse=True):
        fitting = [(room, name) for name, room in left.items() if room >= gpus]
        if not fitting:
            return False
        left[min(fitting)[1]] -= gpus
    return True


def _counts(pod: Any) -> bool:
    """Whether a pod counts for its gang."""
    return (pod.get("status") or {}).get("phase") == "Succeeded" or (holds(pod) and not terminating(pod))
