"""From watched objects to what a policy may know, and to the timeline of a queue. Pure: objects and time come in.

PodGroups and Jobs tell what waits, not pods: a gang that is not admitted yet has none. Pods tell what is held, not the
queue's status: Volcano takes terminating pods off it at once, while they hold their GPUs until they are gone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.contracts import (
    failed,
    hold_of,
    job_key,
    latest_outcome,
    open_outcome,
    open_request,
    progress_of,
    spec_of,
)
from kfp_volcano.elastic.autoscaler.holdings import (
    Nodes,
    gpus_of,
    holds_gpus,
    is_terminating,
    queue_limit,
    task_index,
    task_name,
    waiting,
)
from kfp_volcano.elastic.policies.snapshot import ElasticJob, PendingGang, QueueSnapshot
from kfp_volcano.schemas.names import CORE, ELASTIC, GPU, TEAM_LABEL
from kfp_volcano.volcano.manifests.status import JobState, job_state
from kfp_volcano.volcano.model.objects import parse_time
from kfp_volcano.volcano.model.resources import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.schemas.records import Progress
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["WATCHED", "QueueView", "observe"]

WATCHED = ("Queue", "PodGroup", "Job", "Pod", "Node", "PriorityClass")
"""The kinds an observation is made of."""

_ACTIVE = {JobState.PENDING, JobState.RUNNING, JobState.RESTARTING}
"""Whose gang runs or wants to."""


def observe(objects: Mapping[str, Sequence[Manifest]], *, queue: str, now: float, namespace: str = "") -> QueueSnapshot:
    """The snapshot of a queue at `now` (Unix seconds).

    Args:
        objects: What the cluster holds, by kind (`WATCHED`); a kind that is absent counts as empty.
        queue: The queue's name.
        now: Unix seconds.
        namespace: Where Jobs may be resized; those of other namespaces only count as load. Empty: everywhere.
    """
    return QueueView(objects, queue).snapshot(now, namespace)


class QueueView:
    """One queue in a set of objects."""

    def __init__(self, objects: Mapping[str, Sequence[Manifest]], queue: str) -> None:
        self.queue = queue
        self._queues = objects.get("Queue", ())
        self._jobs = [job for job in objects.get("Job", ()) if job["spec"].get("queue", "default") == queue]
        self._priorities = {
            str(each["metadata"]["name"]): int(each.get("value", 0)) for each in objects.get("PriorityClass", ())
        }
        self._queue_of_group = {
            job_key(group): str(group["spec"].get("queue") or "default") for group in objects.get("PodGroup", ())
        }
        self._pods: dict[str, list[Manifest]] = defaultdict(list)
        self._allocated: dict[str, int] = defaultdict(int)
        self._releasing = 0
        for pod in objects.get("Pod", ()):
            self._account(pod)
        self._loose_groups = [group for group in objects.get("PodGroup", ()) if self._loose(group)]
        self._nodes = Nodes.of(objects.get("Node", ()), objects.get("Pod", ()))
        self._limit = queue_limit(queue, self._queues, self._allocated, self._nodes.total)

    def snapshot(self, now: float, namespace: str = "") -> QueueSnapshot:
        """What a policy may know; see `observe`."""
        found = (self._elastic_job(job, now) for job in self._jobs if namespace in {"", job["metadata"]["namespace"]})
        jobs = tuple(sorted((job for job in found if job), key=lambda job: job.key))
        hosts = {node for job in jobs for node in job.nodes}
        states = self._nodes.states
        gangs = chain(map(self._gang, self._jobs), map(self._loose_gang, self._loose_groups))
        return QueueSnapshot(
            queue=self.queue,
            at=now,
            limit_gpus=self._limit,
            allocated_gpus=self._allocated[self.queue],
            nodes={name: state for name, state in states.items() if name in hosts},
            crowd=Counter(state for name, state in states.items() if name not in hosts),
            releasing_gpus=self._releasing,
            jobs=jobs,
            pending=tuple(sorted((gang for gang in gangs if gang), key=lambda gang: (gang.since, gang.key))),
        )

    def pods_of(self, job: Manifest) -> list[Manifest]:
        """A Job's pods."""
        return self._pods[job_key(job)]

    def timeline_entry(self, now: float) -> dict[str, Any]:
        """The queue's line for `queue.jsonl`; `gpus` are held, `pending_gpus` asked for by pods that wait."""
        return {
            "kind": "queue",
            "time": now,
            "queue": self.queue,
            "limit": self._limit,
            "allocated": self._allocated[self.queue],
            "jobs": [entry for job in sorted(self._jobs, key=job_key) if (entry := self._job_entry(job))],
        }

    def _account(self, pod: Manifest) -> None:
        metadata = pod["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        namespace = metadata.get("namespace", "")
        if "volcano.sh/job-name" in labels:
            self._pods[f"{namespace}/{labels['volcano.sh/job-name']}"].append(pod)
        group = annotations.get("scheduling.k8s.io/group-name", "")
        queue = self._queue_of_group.get(f"{namespace}/{group}") or labels.get("volcano.sh/queue-name")
        if queue and holds_gpus(pod):
            gpus = gpus_of(pod["spec"])
            self._allocated[queue] += gpus
            self._releasing += gpus if queue == self.queue and is_terminating(pod) else 0

    def _elastic_job(self, job: Manifest, now: float) -> ElasticJob | None:
        spec = spec_of(job)
        if spec is None or not spec.elastic or job_state(job) is not JobState.RUNNING or is_terminating(job):
            return None
        present = {
            (task_name(pod), task_index(pod)): pod for pod in self._pods[job_key(job)] if not is_terminating(pod)
        }
        workers = [present.get(slot) for slot in _slots(job)]
        replicas = spec.workers.replicas
        last, running = latest_outcome(job), open_outcome(job)
        request = open_request(job, now)
        surplus = [pod for pod in workers[replicas.min :] if pod is not None and waiting(pod)]
        target = running.to_workers if running else request.to_workers if request else None
        return ElasticJob(
            key=job_key(job),
            workers=len(workers),
            running=sum(_runs(pod) for pod in workers if pod is not None),
            min_workers=replicas.min,
            max_workers=replicas.max,
            sizes=replicas.sizes,
            gpus_per_worker=_worker_gpus(job),
            nodes=tuple(map(self._nodes.place, workers)),
            priority=self._priority(job),
            cooldown_s=spec.elasticity.cooldown_s,
            last_resize_at=last.done_at if last else None,
            last_failed=last is not None and failed(last),
            resize_open=target is not None,
            target_workers=target,
            waiting_since=min((_created(pod) for pod in surplus), default=None),
            hold=hold_of(job),
            remaining_s=_remaining_s(progress_of(job)),
        )

    def _gang(self, job: Manifest) -> PendingGang | None:
        """The gang of a Job, if its minimum is not on nodes: what it lacks."""
        if job_state(job) not in _ACTIVE or is_terminating(job):
            return None
        lacking: list[int] = []
        placed = 0
        for task in job["spec"]["tasks"]:
            there = sum(_counts(pod) for pod in self._pods[job_key(job)] if task_name(pod) == task["name"])
            least = task.get("minAvailable", task["replicas"])
            lacking += [gpus_of(task["template"]["spec"])] * max(0, least - there)
            placed += there
        # A gang that is smaller than its tasks' minimums together runs with the first that come.
        lacking = sorted(lacking, reverse=True)[: max(0, job["spec"].get("minAvailable", len(lacking)) - placed)]
        pods = tuple(gpus for gpus in lacking if gpus)
        if not pods:
            return None
        return PendingGang(key=job_key(job), pods=pods, since=_created(job), priority=self._priority(job))

    def _loose(self, group: Manifest) -> bool:
        """Whether a PodGroup of this queue belongs to no Volcano Job: Ray, Spark and others make their own."""
        owners = group["metadata"].get("ownerReferences") or ()
        waits = (group.get("status") or {}).get("phase", "Pending") in {"Pending", "Inqueue"}
        ours = self._queue_of_group[job_key(group)] == self.queue
        return ours and waits and not any(owner.get("kind") == "Job" for owner in owners)

    def _loose_gang(self, group: Manifest) -> PendingGang | None:
        members = max(1, int(group["spec"].get("minMember", 1)))
        gpus = parse_quantity((group["spec"].get("minResources") or {}).get(GPU, 0)) // 1000
        pods = tuple(gpus // members + (index < gpus % members) for index in range(members))
        if not gpus:
            return None
        return PendingGang(
            key=job_key(group),
            pods=tuple(each for each in pods if each),
            since=_created(group),
            priority=self._priority(group),
        )

    def _job_entry(self, job: Manifest) -> dict[str, Any] | None:
        key, state, spec = job_key(job), job_state(job), spec_of(job)
        pods = self._pods[key]
        held = sum(gpus_of(pod["spec"]) for pod in pods if holds_gpus(pod))
        pending = sum(gpus_of(pod["spec"]) for pod in pods if waiting(pod))
        gang = self._gang(job)
        if state not in _ACTIVE and not held:
            return None
        workers = sum(_runs(pod) for pod in pods if task_name(pod) in {CORE, ELASTIC} and not is_terminating(pod))
        return {
            "job": key,
            "team": (job["metadata"].get("labels") or {}).get(TEAM_LABEL) or job["metadata"]["namespace"],
            "gpus": held,
            "pending_gpus": max(pending, gang.gpus if gang else 0),
            "phase": state.value,
            "workers": workers if spec is not None and spec.elastic else None,
        }

    def _priority(self, manifest: Manifest) -> int:
        return self._priorities.get(str(manifest["spec"].get("priorityClassName") or ""), 0)


def _slots(job: Manifest) -> list[tuple[str, int]]:
    """Task and index of each worker that is asked for, in the order in which they stay."""
    replicas = {task["name"]: int(task["replicas"]) for task in job["spec"]["tasks"]}
    return [(task, index) for task in (CORE, ELASTIC) for index in range(replicas.get(task, 0))]


def _worker_gpus(job: Manifest) -> int:
    core = next((task for task in job["spec"]["tasks"] if task["name"] == CORE), None)
    return gpus_of(core["template"]["spec"]) if core else 0


def _runs(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _counts(pod: Manifest) -> bool:
    """Whether a pod counts for its gang: it has a node, or has succeeded already."""
    finished = (pod.get("status") or {}).get("phase") == "Succeeded"
    return finished or (holds_gpus(pod) and not is_terminating(pod))


def _created(manifest: Manifest) -> float:
    return parse_time(str(manifest["metadata"].get("creationTimestamp", "1970-01-01T00:00:00Z")))


def _remaining_s(progress: Progress | None) -> float | None:
    if progress is None or progress.throughput <= 0:
        return None
    return max(0, progress.total_steps - progress.step) * progress.batch / progress.throughput
