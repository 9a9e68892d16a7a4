# SPDX-License-Identifier: Apache-2.0
"""Who holds which GPUs, and who was promised some: counted from objects, in a few sums and without the index.

It is what decisions and the state after healing are compared with, so it shares no code with what is compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kfp_volcano.elastic.autoscaler.contracts import open_outcome, open_request, spec_of
from kfp_volcano.elastic.policies.settings import RESERVE_S
from kfp_volcano.schemas.names import CORE, ELASTIC, GPU
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.manifests.status import JobState, job_state
from kfp_volcano.volcano.model.objects import has_ended, parse_time, terminating

__all__ = ["Holdings", "holds", "index_of", "pod_gpus", "queue_of", "task_of"]


class Holdings:
    """Who holds what, and who was promised what, by queue and by node."""

    def __init__(self, objects: Mapping[str, Mapping[Any, Any]], jobs: Mapping[str, Any], now: float) -> None:
        self.gpus: dict[str, int] = {}
        """Of each worker, by Job."""
        self.held = Counter[str]()
        """By queue, what is leaving included."""
        self.leaving_of, self.giving_of = Counter[str](), Counter[str]()
        """By queue: what terminating pods hold, and what Jobs are going to give."""
        self.promised: dict[str, list[int]] = defaultdict(list)
        """By queue, the GPUs of each worker that was promised and holds nothing yet."""
        self._later = Counter[str]()
        self._queues = {key[1]: each.get("spec") or {} for key, each in objects.get("Queue", {}).items()}
        self.free = {key[1]: _node_gpus(node) for key, node in objects.get("Node", {}).items() if _takes_pods(node)}
        present: dict[str, list[Any]] = defaultdict(list)
        ended = Counter[str]()
        for pod in objects.get("Pod", {}).values():
            labels = pod["metadata"].get("labels") or {}
            owner = f"{pod['metadata']['namespace']}/{labels.get('volcano.sh/job-name')}"
            if not has_ended(pod):
                present[owner].append(pod)
            elif task_of(pod) == ELASTIC:
                ended[owner] += 1
            if holds(pod):
                self._hold(pod, queue_of(jobs[owner]) if owner in jobs else labels.get("volcano.sh/queue-name", ""))
        for key, job in jobs.items():
            self._promise(key, job, present[key], ended[key], now)

    def later(self) -> dict[str, int]:
        """GPUs that are free on each node once all that is leaving is gone."""
        return {name: free + self._later[name] for name, free in self.free.items()}

    def claimed(self, nodes: Mapping[str, int], queue: str | None = None, most: int | None = None) -> int:
        """GPUs that promised workers will take at least, of all queues or one: as few as an order of them makes it."""
        pods = [gpus for each, those in self.promised.items() if queue in {None, each} for gpus in those]
        return min(_placed(sorted(pods, reverse=reverse), nodes, most) for reverse in (False, True))

    def limits(self, queue: str) -> Iterator[tuple[int, str, set[str]]]:
        """(GPUs, name, queues in it) of a queue and its ancestors that are limited."""
        name = queue
        while name in self._queues:
            capability = (self._queues[name].get("capability") or {}).get(GPU)
            if capability is not None:
                yield int(capability), name, {each for each in self._queues if self._within(each, name)}
            name = self._queues[name].get("parent") or ("root" if name != "root" else "")

    def deserved(self, queue: str) -> int | None:
        """GPUs that a queue has a right to, None where nothing is said."""
        stated = (self._queues.get(queue, {}).get("deserved") or {}).get(GPU)
        return None if stated is None else int(stated)

    def _within(self, queue: str, other: str) -> bool:
        while queue in self._queues and queue != other:
            queue = self._queues[queue].get("parent") or ("root" if queue != "root" else "")
        return queue == other

    def _hold(self, pod: Any, queue: str) -> None:
        node, gpus = pod["spec"]["nodeName"], pod_gpus(pod["spec"])
        self.held[queue] += gpus
        if node in self.free:
            self.free[node] -= gpus
        if terminating(pod):
            self.leaving_of[queue] += gpus
            self._later[node] += gpus

    def _promise(self, key: str, job: Any, pods: Sequence[Any], ended: int, now: float) -> None:
        """Surplus that a Job was promised and that holds nothing yet, or that it is going to give."""
        spec = spec_of(job)
        core = next((task for task in job["spec"]["tasks"] if task["name"] == CORE), None)
        if spec is None or not spec.elastic or core is None:
            return
        gpus = self.gpus[key] = pod_gpus(core["template"]["spec"])
        if job_state(job) is not JobState.RUNNING or terminating(job):
            return
        outcome, request = open_outcome(job), open_request(job, now)
        size = workers(job)
        target = outcome.to_workers if outcome else request.to_workers if request else size
        queue, least = queue_of(job), spec.workers.replicas.min
        surplus = [pod for pod in pods if task_of(pod) == ELASTIC]
        there = [pod for pod in surplus if holds(pod) and not terminating(pod)]
        wanted = max(0, target - least)
        unplaced = max(0, wanted - sum(index_of(pod) < wanted for pod in there) - ended)
        waits = [parse_time(pod["metadata"]["creationTimestamp"]) for pod in surplus if not pod["spec"].get("nodeName")]
        if waits and min(waits) <= now - RESERVE_S:  # what has found no node by now is not going to
            unplaced = max(0, target - size)
        self.promised[queue] += [gpus] * unplaced
        for pod in there:
            if index_of(pod) >= wanted:
                self.giving_of[queue] += gpus
                self._later[pod["spec"]["nodeName"]] += gpus


def holds(pod: Any) -> bool:
    """Whether a pod holds GPUs: also while it is leaving."""
    return bool(pod["spec"].get("nodeName")) and not has_ended(pod)


def task_of(pod: Any) -> str:
    """The Job's task that a pod belongs to."""
    return str((pod["metadata"].get("labels") or {}).get("volcano.sh/task-spec", ""))


def queue_of(job: Any) -> str:
    """The queue of a Job."""
    return str(job["spec"].get("queue") or "default")


def index_of(pod: Any) -> int:
    """A pod's number within its task."""
    return int(pod["metadata"]["name"].rpartition("-")[2])


def pod_gpus(spec: Any) -> int:
    """GPUs that a pod asks for."""
    return sum(
        int(
            ((each.get("resources") or {}).get("requests") or (each.get("resources") or {}).get("limits") or {}).get(
                GPU, 0
            )
        )
        for each in spec["containers"]
    )


def _node_gpus(node: Any) -> int:
    return int(((node.get("status") or {}).get("allocatable") or {}).get(GPU, 0))


def _takes_pods(node: Any) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = all(each["status"] == "True" for each in conditions if each["type"] == "Ready")
    return ready and not (node.get("spec") or {}).get("unschedulable")


def _placed(pods: Sequence[int], nodes: Mapping[str, int], most: int | None) -> int:
    """GPUs of pods that find a node, one after another, each where it fits best."""
    left, total = dict(nodes), 0
    for gpus in pods:
        fitting = [(room, name) for name, room in left.items() if room >= gpus]
        if fitting and (most is None or total + gpus <= most):
            left[min(fitting)[1]] -= gpus
            total += gpus
    return total
